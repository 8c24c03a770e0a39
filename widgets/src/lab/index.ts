// The JupyterLab extension: a federated module, written by hand, so that no bundler of JupyterLab's is needed.

import { highlight } from "./highlight";
import type { Languages, LuminoWidget, LuminoWidgetClass, MimeModel, Tracker } from "./jupyterlab";
import { MIME } from "./decode";
import { savedRun } from "./view";
import type { View } from "../shared/dom";
import type { Load } from "../shared/later";
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
  const activate = (_: unknown, tracker: Tracker, languages: Languages): void => { highlight(tracker, languages); };
  const requires = [INotebookTracker, IEditorLanguageRegistry];
  return [{ id: "divebook:highlight", description: "Colours %%dive cells as YAML.", autoStart: true, requires, activate }];
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
