// The JupyterLab extension: a federated module, written by hand, so that JupyterLab's bundler is not needed.

import { RUN_MIME } from "../constants";
import { followLineLinks } from "./linelinks";
import { highlight } from "./highlight";
import { PLUGIN, activateQuestions } from "./questions";
import { renderComparisons } from "./comparison";
import { addTile } from "./launcher";
import { connectEarly } from "./busykernel";
import { hostViews } from "./host";
import { FORMULAS_EVENT } from "../shared/typeset";
import type {
  App, CellActions, CellCreation, CellRuns, FrontTracker, Languages, Launcher, LauncherApp, LuminoWidget, LuminoWidgetClass, MimeModel, Notices, Palette,
  PanelApp, PanelClass, SettingRegistry, SideWidgetClass, StatusBar, Tracker, Typesetter,
} from "./jupyterlab";
import "./questions.css";
import { addPanel, type PanelBundle } from "./panel";
import type { savedRun } from "./view";
import type { View } from "../shared/dom";
import style from "inline:style";

/** Export of the bundle that shows saved runs. */
interface SavedBundle {
  style: string;
  savedRun: typeof savedRun;
}

const RANK = 40; // HTML has 50; JupyterLab prefers lower ranks

type Shared = Record<string, Record<string, { get: () => Promise<() => unknown> }>>;
type Container = { init: (scope: Shared) => void; get: (name: string) => Promise<() => unknown> };

let scope: Shared = {};
const address = (document.currentScript as HTMLScriptElement | null)?.src ?? ""; // only available while the script runs

/** Load a script of the front end from the folder of this script. */
const load = (name: string): Promise<unknown> => import(/* @vite-ignore */ new URL(`${name}.js`, address).href);

/** Return the newest version of a package that the page shares. */
async function shared<T>(name: string): Promise<T> {
  const versions = Object.values(scope[name] ?? {});
  const newest = versions.at(-1);
  if (newest === undefined) throw new Error(`${name} is not shared by this page`);
  return (await newest.get())() as T;
}

const NOTEBOOK = "@jupyterlab/notebook";
const APPUTILS = "@jupyterlab/apputils";
const WIDGETS = "@lumino/widgets";
const LAUNCHER = "@jupyterlab/launcher";

/** Dependencies of a plugin: tokens of services that it needs, and of those that it uses if the page has them. */
interface Dependencies {
  requires: unknown[];
  optional?: unknown[];
}

/** Return a plugin that starts with the page. Its services are passed to `activate` after the application. */
function plugin(id: string, description: string, dependencies: Dependencies, activate: unknown): unknown {
  return { id, description, autoStart: true, ...dependencies, activate };
}

/** Return the plugins of the extension. */
async function extension(): Promise<unknown> {
  const { INotebookTracker, NotebookActions } = await shared<{ INotebookTracker: unknown; NotebookActions: CellRuns & CellCreation }>(NOTEBOOK);
  const { IEditorLanguageRegistry } = await shared<{ IEditorLanguageRegistry: unknown }>("@jupyterlab/codemirror");
  const activate = (_: unknown, tracker: Tracker, languages: Languages): void => {
    highlight(tracker, languages);
    followLineLinks(tracker, NotebookActions);
  };
  const requires = [INotebookTracker, IEditorLanguageRegistry];
  const highlighting = plugin("divebook:highlight", "Highlights %%dive cells as YAML, and opens lines of cells.", { requires }, activate);
  return [highlighting, await views(), await questions(), await panel(), await tile()];
}

/** Return the plugin that shows live views and compared runs. */
async function views(): Promise<unknown> {
  const { INotebookTracker } = await shared<{ INotebookTracker: unknown }>(NOTEBOOK);
  const { Panel } = await shared<{ Panel: PanelClass }>(WIDGETS);
  const { ILatexTypesetter } = await shared<{ ILatexTypesetter: unknown }>("@jupyterlab/rendermime");
  const activate = (_: unknown, tracker: Tracker, typesetter: Typesetter | null): void => {
    connectEarly(tracker);
    hostViews(tracker, Panel);
    renderComparisons(tracker, Panel);
    document.addEventListener(FORMULAS_EVENT, ({ target }) => { void typesetter?.typeset(target as HTMLElement); });
  };
  const description = "Shows live views of runs, their saved versions when no kernel is running, and comparisons of runs.";
  return plugin("divebook:views", description, { requires: [INotebookTracker], optional: [ILatexTypesetter] }, activate);
}

/** Return the plugin that notifies people of questions. */
async function questions(): Promise<unknown> {
  const { INotebookTracker, NotebookActions } = await shared<{ INotebookTracker: unknown; NotebookActions: CellActions }>(NOTEBOOK);
  const { Notification: notices } = await shared<{ Notification: Notices }>(APPUTILS);
  const { Widget } = await shared<{ Widget: LuminoWidgetClass }>(WIDGETS);
  const { ISettingRegistry } = await shared<{ ISettingRegistry: unknown }>("@jupyterlab/settingregistry");
  const { IStatusBar } = await shared<{ IStatusBar: unknown }>("@jupyterlab/statusbar");
  const activate = (app: App, tracker: Tracker, bar: StatusBar | null, settings: SettingRegistry | null): void => {
    addStyle();
    activateQuestions(app, tracker, { notices, actions: NotebookActions, widget: Widget }, bar, settings);
  };
  return plugin(PLUGIN, "Shows notifications of new questions.", { requires: [INotebookTracker], optional: [IStatusBar, ISettingRegistry] }, activate);
}

/** Return the plugin with the side panel. */
async function panel(): Promise<unknown> {
  const { INotebookTracker, NotebookActions } = await shared<{ INotebookTracker: unknown; NotebookActions: CellCreation }>(NOTEBOOK);
  const { ICommandPalette } = await shared<{ ICommandPalette: unknown }>(APPUTILS);
  const { Widget } = await shared<{ Widget: SideWidgetClass }>(WIDGETS);
  const loadPanel = (): Promise<{ default: PanelBundle }> => load("panel") as Promise<{ default: PanelBundle }>;
  const activate = (app: PanelApp, tracker: FrontTracker, palette: Palette | null): void => {
    addStyle();
    addPanel(app, tracker, { actions: NotebookActions, widget: Widget, load: loadPanel }, palette);
  };
  const description = "Shows runs and questions in a side panel.";
  return plugin("divebook:runs", description, { requires: [INotebookTracker], optional: [ICommandPalette] }, activate);
}

/** Return the plugin with the tile of the launcher. Notebook 7 has no launcher. */
async function tile(): Promise<unknown> {
  const optional = LAUNCHER in scope ? [(await shared<{ ILauncher: unknown }>(LAUNCHER)).ILauncher] : [];
  const activate = (app: LauncherApp, launcher?: Launcher | null): void => { addTile(app, launcher ?? null); };
  return plugin("divebook:launcher", "Opens notebooks with an agent and a workflow.", { requires: [], optional }, activate);
}

/** Return the renderer for saved runs, which the page loads separately from the plugins. */
async function mimeExtension(): Promise<unknown> {
  const { Widget } = await shared<{ Widget: LuminoWidgetClass }>(WIDGETS);
  const createRenderer = (): LuminoWidget => new (rendererClass(Widget))();
  const rendererFactory = { safe: true, mimeTypes: [RUN_MIME], defaultRank: RANK, createRenderer };
  return [{ id: "divebook:run", description: "Shows saved runs.", rendererFactory, rank: RANK, dataType: "json" }];
}

/** Return the renderer class; its base class belongs to the page. */
function rendererClass(base: LuminoWidgetClass): LuminoWidgetClass {
  return class extends base {
    #view: View | null = null;

    async renderModel({ data }: MimeModel): Promise<void> {
      const { default: saved } = await (load("saved") as Promise<{ default: SavedBundle }>); // JupyterLab shows a failure
      addStyle("divebook-saved-style", saved.style);
      const view = await saved.savedRun(data[RUN_MIME], data["text/plain"], load);
      this.#view?.destroy();
      this.#view = view;
      this.node.replaceChildren(view.element);
    }

    override dispose(): void {
      this.#view?.destroy();
      super.dispose();
    }
  };
}

/** Add style sheets to the page, once: those of the extension, or of a part of it. */
function addStyle(id = "divebook-style", text = style): void {
  if (document.getElementById(id) !== null) return;
  const element = document.createElement("style");
  element.id = id;
  element.textContent = text;
  document.head.append(element);
}

const modules: Record<string, () => Promise<unknown>> = { "./extension": extension, "./mimeExtension": mimeExtension };

const container: Container = {
  init: (sharedScope) => { scope = sharedScope; },
  get: async (name) => {
    const factory = modules[name];
    if (factory === undefined) throw new Error(`divebook has no module ${name}`);
    const module = { __esModule: true, default: await factory() };
    return () => module;
  },
};

const page = window as unknown as { _JUPYTERLAB?: Record<string, Container> };
(page._JUPYTERLAB ??= {})["divebook"] = container;
