// The way from one difference between runs to the next, over HTML that came without a script.

import { beforeEach, expect, test } from "vitest";
import { COMPARED, lead, leadThrough } from "../../src/lab/compared";
import { h } from "../../src/shared/dom";
import type { MimeModel, Panel, PanelClass, Renderer, Tracker } from "../../src/lab/jupyterlab";

const row = (text: string, name = "divebook-difference"): HTMLElement => h("tr", { class: name }, h("td", {}, text));
const rows = (): HTMLElement => h("table", {}, row("one"), row("same", ""), row("two"));
let output: HTMLElement;

beforeEach(() => {
  output = document.createElement("div");
  document.body.replaceChildren(output);
});

const at = (): string | undefined => document.querySelector(".db-at")?.textContent;
const press = (key: string, target: Element | null = document.activeElement): void => { target?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })); };

test("N and P go from difference to difference, round, and say which it is", () => {
  const shown = h("div", {}, rows());
  output.append(shown);
  const bar = lead(shown);
  if (bar === null) throw new Error("there is no way");
  output.prepend(bar);
  expect(bar.querySelector("[role=status]")?.textContent).toBe("2 here");
  bar.querySelectorAll("button")[1]?.click();
  expect([at(), document.activeElement?.textContent]).toEqual(["one", "one"]);
  press("n");
  expect([at(), bar.querySelector("[role=status]")?.textContent]).toEqual(["two", "2 of 2"]);
  press("n");
  expect(at()).toBe("one");
  press("p");
  expect(at()).toBe("two");
});

test("keys stay in it", () => {
  const shown = h("div", {}, rows());
  output.append(shown);
  output.prepend(lead(shown) ?? "");
  const met: string[] = [];
  document.body.addEventListener("keydown", ({ key }) => { met.push(key); });
  press("d", shown.querySelector("tr"));
  expect(met).toEqual([]);
});

test("where runs do not differ there is no way", () => {
  expect(lead(output)).toBeNull();
});

test("what is shown is the page's own HTML, trusted as far as the notebook is", async () => {
  const seen: MimeModel[] = [];
  const html = { node: document.createElement("div"), dispose: () => undefined, renderModel: (model: MimeModel) => {
    seen.push(model);
    html.node.append(rows());
    return Promise.resolve();
  } } as unknown as Renderer;
  const made: (() => Renderer)[] = [];
  const rendermime = { createRenderer: () => html, addFactory: (factory: { safe: boolean; mimeTypes: string[]; createRenderer: () => Renderer }) => {
    expect([factory.safe, factory.mimeTypes]).toEqual([true, [COMPARED]]);
    made.push(factory.createRenderer);
  } };
  const tracker = { forEach: (visit: (panel: Panel) => void) => { visit({ content: { rendermime } } as unknown as Panel); }, widgetAdded: { connect: () => true } } as unknown as Tracker;
  class Base {
    readonly node = document.createElement("div");
    addWidget({ node }: Renderer): void { this.node.append(node); }
  }
  leadThrough(tracker, Base as unknown as PanelClass);
  const renderer = made[0]?.();
  await renderer?.renderModel({ data: { [COMPARED]: {}, "text/html": "<table>" }, metadata: {}, trusted: false, setData: () => undefined });
  expect(seen).toMatchObject([{ data: { "text/html": "<table>" }, trusted: false }]);
  expect(renderer?.node.querySelectorAll(".db-way button")).toHaveLength(2);
});
