// Container of a live view in a notebook: shows the view while its model exists, and then its saved form.
// JupyterLab shows only one MIME type of an output, and would show "model not found" for a view whose kernel has ended.
// Outputs with a view of divebook therefore contain a MIME type of their own, which ranks before that of the widgets.
// This container shows either of the two.

import { VIEW_MIME } from "../constants";
import type { MimeModel, Panel, PanelClass, RenderMime, Renderer, Tracker } from "./jupyterlab";
import { forEachNotebook } from "./notebooks";

const WIDGET = "application/vnd.jupyter.widget-view+json";
const RANK = -20; // the widgets' own renderer has -10
// All in milliseconds.
const MANAGER_TIMEOUT = 1_500; // to wait for the widget manager, which a busy kernel delays
const LOOK_EVERY = 250;
const LOOK_FOR = 180_000; // a page that shares a notebook may get the output long before the model is announced
const ADDED_EVENT = "db-host-added";

/** Register the container in all notebooks, including notebooks that are opened later. */
export function hostViews(tracker: Tracker, base: PanelClass): void {
  const Host = hostClass(base);
  const register = (panel: Panel): void => {
    const createRenderer = (): Renderer => new Host(panel);
    panel.content.rendermime.addFactory({ safe: false, mimeTypes: [VIEW_MIME], createRenderer }, RANK);
  };
  forEachNotebook(tracker, register);
}

type HostClass = new (panel: Panel) => Renderer;

/** Return the container class; its base class belongs to the page. */
function hostClass(base: PanelClass): HostClass {
  return class extends base implements Renderer {
    readonly #panel: Panel;
    readonly #mutations = new MutationObserver(() => { this.#update(); });
    #id = "";
    #liveRenderer: Renderer | null = null;
    #savedRenderer: Renderer | null = null;
    #model: MimeModel | null = null;
    #canShowSaved = false;

    constructor(panel: Panel) {
      super();
      this.#panel = panel;
      this.addClass("db-host");
      this.node.addEventListener(ADDED_EVENT, () => { this.#update(); });
    }

    async renderModel(model: MimeModel): Promise<void> {
      this.#model = model;
      const id = modelId(model.data[VIEW_MIME]);
      if (id !== this.#id) await this.#load(id);
      else if (this.#savedRenderer !== null) await this.#showSaved(model);
    }

    override dispose(): void {
      this.#mutations.disconnect();
      super.dispose();
    }

    /** Load the view. For a moment nothing is shown, until it is known whether the view exists. */
    async #load(id: string): Promise<void> {
      this.#id = id;
      this.node.dataset["view"] = id;
      this.#canShowSaved = false;
      setTimeout(() => { this.#allowSaved(); }, MANAGER_TIMEOUT);
      await managerReady(this.#panel);
      if (!this.#isCurrent(id)) return;
      announce(this.node);
      await this.#render(id);
      this.#allowSaved();
      void this.#keepLooking(id);
    }

    #isCurrent(id: string): boolean {
      return !this.isDisposed && id === this.#id && !isRepeated(this.node);
    }

    #hasView(): boolean {
      return this.#liveRenderer !== null && this.#liveRenderer.node.firstElementChild !== null;
    }

    /** Render the view with a new renderer: one that did not find the model never looks for it again. */
    async #render(id: string): Promise<void> {
      this.#liveRenderer?.dispose();
      this.#liveRenderer = rendererOf(this.#panel.content.rendermime, WIDGET);
      if (this.#liveRenderer === null) return;
      this.addWidget(this.#liveRenderer);
      this.#mutations.disconnect();
      this.#mutations.observe(this.#liveRenderer.node, { childList: true });
      this.#update();
      await this.#liveRenderer.renderModel(mimeModel({ [WIDGET]: { version_major: 2, version_minor: 0, model_id: id } }));
    }

    /**
     * Render the view again when its model is announced later than its output: the output comes with the shared document, the
     * model from the kernel. The id of a model is that of its comm.
     */
    async #keepLooking(id: string): Promise<void> {
      for (const end = Date.now() + LOOK_FOR; Date.now() < end && this.#isCurrent(id) && !this.#hasView(); ) {
        await pause(LOOK_EVERY);
        const isAnnounced = this.#panel.sessionContext.session?.kernel?.hasComm(id) ?? false;
        // A renderer may have found the model meanwhile, which the manager finds when it has asked a busy kernel.
        if (isAnnounced && this.#isCurrent(id) && !this.#hasView()) await this.#render(id);
      }
    }

    #allowSaved(): void {
      this.#canShowSaved = true;
      this.#update();
    }

    /**
     * Show the view if it exists, else the saved form; nothing if a later output of the cell shows the same view.
     * Without a model, the widgets' renderer contains no element, at most a text that reports the error, and is hidden.
     */
    #update(): void {
      if (this.isDisposed) return;
      const repeated = isRepeated(this.node);
      this.node.classList.toggle("db-repeated", repeated);
      if (repeated) {
        this.#liveRenderer?.dispose();
        this.#liveRenderer = null;
        this.#mutations.disconnect();
      }
      const hasView = this.#hasView();
      if (this.#liveRenderer !== null) this.#liveRenderer.node.style.display = hasView ? "" : "none";
      if (hasView || repeated) {
        this.#savedRenderer?.dispose();
        this.#savedRenderer = null;
      } else if (this.#canShowSaved && this.#savedRenderer === null && this.#model !== null) {
        void this.#showSaved(this.#model);
      }
    }

    /** Show the saved form, as the MIME type that the page prefers. */
    async #showSaved(model: MimeModel): Promise<void> {
      const savedData = Object.fromEntries(Object.entries(model.data).filter(([type]) => type !== VIEW_MIME && type !== WIDGET));
      const type = this.#panel.content.rendermime.preferredMimeType(savedData, model.trusted ? "any" : "ensure");
      this.#savedRenderer?.dispose();
      this.#savedRenderer = type === undefined ? null : rendererOf(this.#panel.content.rendermime, type);
      if (this.#savedRenderer === null) return;
      this.addWidget(this.#savedRenderer);
      await this.#savedRenderer.renderModel(mimeModel(savedData, model));
    }
  };
}

/** Wait until the renderers of a notebook know its widget manager. Without a kernel this waits for ever. */
async function managerReady({ sessionContext }: Panel): Promise<void> {
  await sessionContext.ready;
  await new Promise((resolve) => { setTimeout(resolve, 0); });
}

/**
 * Return true if a later output of the same cell shows the same view. jupyter-server-documents 0.3 appends an update of an output
 * to the outputs of the cell instead of replacing the output.
 */
function isRepeated(host: HTMLElement): boolean {
  const last = hostsBeside(host).filter((other) => other.dataset["view"] === host.dataset["view"]).at(-1);
  return last !== undefined && last !== host;
}

/** Let the outputs of a cell that show a view check whether the new one repeats theirs. */
function announce(host: HTMLElement): void {
  for (const other of hostsBeside(host)) other.dispatchEvent(new Event(ADDED_EVENT));
}

function hostsBeside(host: HTMLElement): HTMLElement[] {
  return [...(host.closest(".jp-OutputArea")?.querySelectorAll<HTMLElement>(".db-host") ?? [])];
}

async function pause(milliseconds: number): Promise<void> {
  await new Promise((resolve) => { setTimeout(resolve, milliseconds); });
}

/** Create the renderer of a MIME type; null if the page has none. */
function rendererOf(rendermime: RenderMime, type: string): Renderer | null {
  return rendermime.getFactory(type) === undefined ? null : rendermime.createRenderer(type);
}

function modelId(value: unknown): string {
  return typeof value === "object" && value !== null && "model_id" in value && typeof value.model_id === "string" ? value.model_id : "";
}

/** Return a model for a renderer, with the metadata and trust of another model. */
function mimeModel(data: Record<string, unknown>, like?: MimeModel): MimeModel {
  return { data, metadata: like?.metadata ?? {}, trusted: like?.trusted ?? true, setData: () => undefined };
}

