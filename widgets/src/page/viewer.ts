// Viewer in a file that contains a run: the view of saved runs in JupyterLab, with all its parts in one script.

import failure from "../failure";
import files from "../files";
import graph from "../graph";
import { checkRecording, checkSaved } from "../lab/decode";
import { recordedRun } from "../lab/view";
import type { Load, Part } from "../shared/later";
import spread from "../spread";
import timeline from "../timeline";
import turn from "../turn";
import variables from "../variables";
import style from "inline:style";
import "./page.css";

/** Returns the view of what the part "run" holds. */
export type Show = (run: unknown) => HTMLElement;

const PARTS: Record<string, Part> = { failure, files, graph, spread, timeline, turn, variables };

/** The styles of all parts stand in the one of this script. */
const load: Load = (name) => Promise.resolve({ default: { ...PARTS[name], style: "" } });

/** Has the views follow the theme of the browser, as they do that of JupyterLab. */
function followTheme(): void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const look = (): void => { document.body.dataset["jpThemeLight"] = String(!dark.matches); };
  dark.addEventListener("change", look);
  look();
}

const show: Show = (run) => {
  const saved = checkSaved(run);
  followTheme();
  const element = document.createElement("style");
  element.textContent = style;
  document.head.append(element);
  return recordedRun(saved, checkRecording((run as { view: unknown }).view), load).element;
};

Object.assign(window, { show });
