// Tile "divebook" of JupyterLab's launcher: a new notebook whose first cells define an agent and a workflow and run it.

import { FIRST_CELLS } from "../constants";
import type { Launcher, LauncherApp, NewNotebook } from "./jupyterlab";

const COMMAND = "divebook:new-notebook";

/** Add the command and its tile. */
export function addTile(app: LauncherApp, launcher: Launcher | null): void {
  const caption = "Open a notebook with an agent and a workflow";
  const execute = async ({ cwd }: { cwd?: string }): Promise<unknown> => newNotebook(app, cwd ?? "");
  app.commands.addCommand(COMMAND, { label: "divebook", caption, execute });
  launcher?.add({ command: COMMAND, category: "Notebook", rank: 100 });
}

/** Open a new notebook with the first cells, and return it; the launcher then closes. */
async function newNotebook(app: LauncherApp, cwd: string): Promise<NewNotebook> {
  const { kernelspecs } = app.serviceManager;
  await kernelspecs.ready;
  const kernelName = kernelspecs.specs?.default;
  const notebook = await app.commands.execute("notebook:create-new", { cwd, kernelName }) as NewNotebook;
  await notebook.context.ready;
  const cells = FIRST_CELLS.map((source) => ({ cell_type: "code", source, metadata: { trusted: true } }));
  const { sharedModel } = notebook.context.model;
  sharedModel.insertCells(0, cells);
  sharedModel.deleteCellRange(cells.length, cells.length + 1); // the empty cell of a new notebook
  return notebook;
}
