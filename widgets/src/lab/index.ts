// The JupyterLab extension: a federated module, written by hand, so that no bundler of JupyterLab's is needed.

import { goToLines } from "./go";
import { highlight } from "./highlight";
import { PLUGIN, tellOfQuestions } from "./asked";
import { leadThrough } from "./compared";
import { hostViews } from "./host";
import type { App, CellActions, CellMaking, FrontTracker, Languages, LuminoWidget, LuminoWidgetClass, MimeModel, Notices, Palette, PanelApp, PanelClass, SettingRegistry, SideWidgetClass, StatusBar, Tracker } from "./jupyterlab";
import "./asked.css";
import { MIME } from "./decode";
import { offerPanel, type PanelPart } from "./panel";
import { savedRun } from "./view";
import type { View } from "../shared/dom";
import type { Load } from "../shared/lazypart";
import style from "inline:style";

const RANK = 40; // HTML has 50: JupyterLab prefers what is lower

type Shared = Record<string, Record<string, { get: () => Promise<() => unknown> }>>;
type Container = { init: (scope: Shared) => void; get: (name: string) => Promise<() => unknown> };

let scope: Shared = {};
const address = (document.currentScript as HTMLScriptElement | null)?.src ?? ""; // only known while the script runs

/** Gets a part of the front end that lies beside this script. */
const load: Load = (name) => import(/* @vite-ignore */ new URL(`${name}.js`, address).href);

async function shared<T>(name: string): Promise<T> {
  const versions = Object.values(scope[name] ?? {});
  const newest = versions.at(-1);
  if (newest === undefined) throw new Error(`${name} is not shared by this page`);
  return (await newest.get())() as T;
}

async function extension(): Promise<unknown> {
  const { INotebookTracker } = await shared<{ INotebookTracker: unknown }>("@jupyterlab/notebook");
  const { IEditorLanguageRegistry } = await shared<{ IEditorLanguageRegistry: unknown }>("@jupyterlab/codemirror");
  const activate = (_: unknown, tracker: Tracker, languages: Languages): void => {
    highlight(tracker, languages);
    goToLines(tracker);
  };
  const requires = [INotebookTracker, IEditorLanguageRegistry];
  const colours = { id: "divebook:highlight", description: "Colours %%dive cells as YAML, and goes to lines of cells.", autoStart: true, requires, activate };
  return [colours, await views(), await questions(), await panel()];
}

async function views(): Promise<unknown> {
  const { INotebookTracker } = await shared<{ INotebookTracker: unknown }>("@jupyterlab/notebook");
  const { Panel } = await shared<{ Panel: PanelClass }>("@lumino/widgets");
  const activate = (_: unknown, tracker: Tracker): void => {
    hostViews(tracker, Panel);
    leadThrough(tracker, Panel);
  };
  return { id: "divebook:views", description: "Shows live views, what is saved of them once their kernel is gone, and runs beside each other.", autoStart: true, requires: [INotebookTracker], activate };
}

async function questions(): Promise<unknown> {
  const { INotebookTracker, NotebookActions } = await shared<{ INotebookTracker: unknown; NotebookActions: CellActions }>("@jupyterlab/notebook");
  const { Notification: notices } = await shared<{ Notification: Notices }>("@jupyterlab/apputils");
  const { Widget } = await shared<{ Widget: LuminoWidgetClass }>("@lumino/widgets");
  const { ISettingRegistry } = await shared<{ ISettingRegistry: unknown }>("@jupyterlab/settingregistry");
  const { IStatusBar } = await shared<{ IStatusBar: unknown }>("@jupyterlab/statusbar");
  const activate = (app: App, tracker: Tracker, bar: StatusBar | null, settings: SettingRegistry | null): void => {
    addStyle();
    tellOfQuestions(app, tracker, { notices, actions: NotebookActions, widget: Widget }, bar, settings);
  };
  return { id: PLUGIN, description: "Tells of questions.", autoStart: true, requires: [INotebookTracker], optional: [IStatusBar, ISettingRegistry], activate };
}

async function panel(): Promise<unknown> {
  const { INotebookTracker, NotebookActions } = await shared<{ INotebookTracker: unknown; NotebookActions: CellMaking }>("@jupyterlab/notebook");
  const { ICommandPalette } = await shared<{ ICommandPalette: unknown }>("@jupyterlab/apputils");
  const { Widget } = await shared<{ Widget: SideWidgetClass }>("@lumino/widgets");
  const script = (): Promise<{ default: PanelPart }> => import(/* @vite-ignore */ new URL("panel.js", address).href) as Promise<{ default: PanelPart }>;
  const activate = (app: PanelApp, tracker: FrontTracker, palette: Palette | null): void => {
    addStyle();
    offerPanel(app, tracker, { actions: NotebookActions, widget: Widget, load: script }, palette);
  };
  return { id: "divebook:runs", description: "Shows runs and questions beside the notebook.", autoStart: true, requires: [INotebookTracker], optional: [ICommandPalette], activate };
}

async function mimeExtension(): Promise<unknown> {
  const { Widget } = await shared<{ Widget: LuminoWidgetClass }>("@lumino/widgets");
  const createRenderer = (): LuminoWidget => {
    addStyle();
    return new (rendererClass(Widget))();
  };
  const rendererFactory = { safe: true, mimeTypes: [MIME], defaultRank: RANK, createRenderer };
  return [{ id: "divebook:run", description: "Shows saved runs.", rendererFactory, rank: RANK, dataType: "json" }];
}

/** Makes the class of renderers; the base class is the page's. */
function rendererClass(base: LuminoWidgetClass): LuminoWidgetClass {
  return class extends base {
    #view: View | null = null;

    async renderModel({ data }: MimeModel): Promise<void> {
      const view = await savedRun(data[MIME], data["text/plain"], load);
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

function addStyle(): void {
  const id = "divebook-style";
  if (document.getElementById(id) !== null) return;
  const element = document.createElement("style");
  element.id = id;
  element.textContent = style;
  document.head.append(element);
}

const modules: Record<string, () => Promise<unknown>> = { "./extension": extension, "./mimeExtension": mimeExtension };

const container: Container = {
  init: (given) => { scope = given; },
  get: async (name) => {
    const make = modules[name];
    if (make === undefined) throw new Error(`divebook has no module ${name}`);
    const module = { __esModule: true, default: await make() };
    return () => module;
  },
};

const page = window as unknown as { _JUPYTERLAB?: Record<string, Container> };
(page._JUPYTERLAB ??= {})["divebook"] = container;
