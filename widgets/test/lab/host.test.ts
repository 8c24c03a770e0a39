// The container of live views: it keeps looking for a model that is announced late, and shows a repeated output once.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { VIEW_MIME } from "../../src/constants";
import { hostViews } from "../../src/lab/host";
import type { MimeModel, Panel, PanelClass, Renderer, Tracker } from "../../src/lab/jupyterlab";

const WIDGET = "application/vnd.jupyter.widget-view+json";

/** Panel of Lumino, as far as the container uses it. */
class FakePanel {
  readonly node = document.createElement("div");
  isDisposed = false;
  addClass(name: string): void { this.node.classList.add(name); }
  addWidget(widget: { node: HTMLElement }): void { this.node.append(widget.node); }
  dispose(): void { this.isDisposed = true; this.node.remove(); }
}

let models: Set<string>;
let comms: Set<string>;
let renderers: number;
let create: () => Renderer;

/** Renderer of widgets: like that of JupyterLab, it looks for the model once. */
class WidgetRenderer extends FakePanel {
  async renderModel(model: MimeModel): Promise<void> {
    await Promise.resolve();
    const { model_id: id } = model.data[WIDGET] as { model_id: string };
    if (models.has(id)) this.node.replaceChildren(document.createElement("article"));
    else this.node.textContent = "Error displaying widget: model not found";
  }
}

class SavedRenderer extends FakePanel {
  async renderModel(): Promise<void> {
    this.node.className = "saved";
    return Promise.resolve();
  }
}

beforeEach(() => {
  vi.useFakeTimers();
  document.body.replaceChildren();
  [models, comms, renderers] = [new Set(), new Set(), 0];
  const rendermime = {
    addFactory: (factory: { createRenderer: () => Renderer }) => { create = factory.createRenderer; },
    getFactory: () => ({}),
    createRenderer: (type: string) => {
      if (type !== WIDGET) return new SavedRenderer();
      renderers++;
      return new WidgetRenderer();
    },
    preferredMimeType: () => "text/html",
  };
  const sessionContext = { ready: Promise.resolve(), session: { kernel: { hasComm: (id: string) => comms.has(id) } } };
  const panel = { content: { rendermime }, sessionContext } as unknown as Panel;
  const tracker: Tracker = { forEach: (visit) => { visit(panel); }, widgetAdded: { connect: () => true } };
  hostViews(tracker, FakePanel as unknown as PanelClass);
});

afterEach(() => { vi.useRealTimers(); });

/** Show an output with a view, in the output area of a cell. */
function show(id: string, area: HTMLElement = outputArea()): Renderer {
  const host = create();
  const data = { [VIEW_MIME]: { model_id: id }, "text/html": "<p>saved</p>" };
  void host.renderModel({ data, metadata: {}, trusted: true, setData: () => undefined });
  area.append(host.node);
  return host;
}

function outputArea(): HTMLElement {
  const area = document.createElement("div");
  area.className = "jp-OutputArea";
  document.body.append(area);
  return area;
}

function visible(host: Renderer): string {
  const parts = [...host.node.children].filter((part) => (part as HTMLElement).style.display !== "none");
  return parts.map((part) => (part.className === "saved" ? "saved" : part.firstElementChild === null ? part.textContent : "live")).join();
}

test("a view is shown at once if its model exists", async () => {
  models.add("m");
  const host = show("m");
  await vi.advanceTimersByTimeAsync(10);
  expect([visible(host), renderers]).toEqual(["live", 1]);
});

test("a model that is announced after two minutes is shown by a new renderer, and never its error", async () => {
  const host = show("m");
  await vi.advanceTimersByTimeAsync(120_000);
  expect([visible(host), renderers]).toEqual(["saved", 1]);
  models.add("m");
  comms.add("m");
  await vi.advanceTimersByTimeAsync(1000);
  expect([visible(host), renderers]).toEqual(["live", 2]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(renderers).toBe(2);
});

test("an announced model that is not complete yet is looked for again", async () => {
  const host = show("m");
  comms.add("m");
  await vi.advanceTimersByTimeAsync(2000);
  expect(visible(host)).toBe("saved");
  models.add("m");
  await vi.advanceTimersByTimeAsync(500);
  expect(visible(host)).toBe("live");
});

test("a removed output is not looked for, and the search ends", async () => {
  const host = show("m");
  await vi.advanceTimersByTimeAsync(1000);
  host.dispose();
  models.add("m");
  comms.add("m");
  await vi.advanceTimersByTimeAsync(1000);
  expect(renderers).toBe(1);
  show("never");
  await vi.advanceTimersByTimeAsync(300_000);
  expect(vi.getTimerCount()).toBe(0);
});

test("of outputs of a cell that repeat a view only the last shows it", async () => {
  models.add("m");
  const area = outputArea();
  const first = show("m", area);
  await vi.advanceTimersByTimeAsync(10);
  const other = show("m", outputArea());
  const second = show("m", area);
  await vi.advanceTimersByTimeAsync(3000);
  expect([visible(first), visible(second), visible(other)]).toEqual(["", "live", "live"]);
  expect([first, second, other].map((host) => host.node.classList.contains("db-repeated"))).toEqual([true, false, false]);
});
