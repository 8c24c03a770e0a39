// Cells that begin with %%dive are YAML, and Python again when that line goes.

import { expect, test, vi } from "vitest";
import { highlight } from "../../src/lab/highlight";
import type { CodePanel, Tracker } from "../../src/lab/jupyterlab";

class Signal {
  readonly #slots: (() => void)[] = [];
  connect = (slot: (sender: never, args: never) => void): boolean => this.#slots.push(() => { slot(undefined as never, undefined as never); }) > 0;
  emit(): void {
    this.#slots.forEach((slot) => { slot(); });
  }
}

function cell(source: string): { model: CodePanel["content"]["widgets"][number]["model"]; write: (text: string) => void } {
  let text = source;
  const changed = new Signal();
  const model = { type: "code", mimeType: "text/x-ipython", sharedModel: { getSource: () => text, changed }, mimeTypeChanged: new Signal() };
  const write = (now: string): void => {
    text = now;
    changed.emit();
  };
  return { model, write };
}

test.each([
  ["%%dive\nName: x", "text/x-yaml"],
  ["\n%%dive workflow w\nSteps: []", "text/x-yaml"],
  ["%dive run", "text/x-ipython"],
  ["%%diverge", "text/x-ipython"],
  ["x = 1", "text/x-ipython"],
])("%j is %s", async (source, mime) => {
  const { model } = cell(source);
  await follow([model]);
  expect(model.mimeType).toBe(mime);
});

test("a cell follows what is typed into it", async () => {
  const { model, write } = cell("%%dive");
  await follow([model]);
  expect(model.mimeType).toBe("text/x-yaml");
  write("print(1)");
  expect(model.mimeType).toBe("text/x-ipython");
  write("%%dive agent a");
  expect(model.mimeType).toBe("text/x-yaml");
});

test("a language is set when the one before it is loaded, since an editor shows what was loaded last", async () => {
  const { model } = cell("%%dive");
  let loaded = (): void => undefined;
  await follow([model], () => new Promise((resolve) => { loaded = (): void => { resolve(null); }; }));
  await new Promise((resolve) => setTimeout(resolve));
  expect(model.mimeType).toBe("text/x-ipython");
  loaded();
  await vi.waitFor(() => { expect(model.mimeType).toBe("text/x-yaml"); });
});

async function follow(models: ReturnType<typeof cell>["model"][], getLanguage = (): Promise<unknown> => Promise.resolve(null)): Promise<void> {
  const widgets = models.map((model) => ({ model }));
  const content = { codeMimetype: "text/x-ipython", widgets, model: { cells: { changed: new Signal() } }, modelChanged: new Signal() };
  const panel: CodePanel = { context: { ready: Promise.resolve() }, content };
  const tracker: Tracker<CodePanel> = { forEach: (visit) => { visit(panel); }, widgetAdded: new Signal() };
  highlight(tracker, { getLanguage });
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setTimeout(resolve));
}
