// The way from one difference between runs to the next, over HTML that came without a script.

import { beforeEach, expect, test } from "vitest";
import { COMPARISON_MIME } from "../../src/constants";
import { addNavigation, renderComparisons } from "../../src/lab/comparison";
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
const pressed = (bar: Element, name: string): HTMLElement => {
  const found = [...bar.querySelectorAll<HTMLElement>("button")].find((button) => button.textContent === name);
  if (found === undefined) throw new Error(`there is no button ${name}`);
  return found;
};
const press = (key: string, target: Element | null = document.activeElement): void => { target?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })); };

test("N and P go from difference to difference, round, and say which it is", () => {
  const shown = h("div", {}, rows());
  output.append(shown);
  const bar = addNavigation(shown);
  if (bar === null) throw new Error("there is no way");
  expect(bar.querySelector("[role=status]")?.textContent).toBe("2 shown");
  pressed(bar, "Next difference").click();
  expect([at(), document.activeElement?.textContent]).toEqual(["one", "one"]);
  press("n");
  expect([at(), bar.querySelector("[role=status]")?.textContent]).toEqual(["two", "2 of 2"]);
  press("n");
  expect(at()).toBe("one");
  press("p");
  expect(at()).toBe("two");
});

/** Five differences as `divebook/projections/comparison.py` writes them, and what is the same between. */
function mapped(): { bar: HTMLElement; inSight: () => string[]; marks: () => HTMLElement[]; told: () => string | null | undefined } {
  const differs = (kind: string, place: string, text: string): HTMLElement =>
    h("tr", { class: `divebook-difference divebook-${kind}` }, h("td", {}, h("strong", {}, `≠ ${kind}`), h("div", {}, place)), h("td", {}, text));
  const same = (text: string): HTMLElement => h("tr", { class: "divebook-same" }, h("td", { colspan: 4 }, text));
  const shown = h("div", {}, h("table", {}, differs("changed", "ask", "the parcel"), same("= 1,600 places the same"), differs("added", "look", "an order"), differs("changed", "say", "a refund"), same("= 1 place the same"), differs("changed", "end", "a parcel")));
  output.append(shown);
  const bar = addNavigation(shown);
  if (bar === null) throw new Error("there is no way");
  return {
    bar,
    inSight: () => [...shown.querySelectorAll<HTMLElement>("tr")].filter((row) => !row.hidden).map((row) => row.firstElementChild?.lastElementChild?.textContent ?? row.textContent),
    marks: () => [...bar.querySelectorAll<HTMLElement>(".map .mark")],
    told: () => bar.querySelector("[role=status]")?.textContent,
  };
}

test("the map has a mark for each difference, in order, and what is the same between, wider the more there is", () => {
  const { bar, marks, told } = mapped();
  expect(marks().map((mark) => mark.title)).toEqual(["≠ changed ask", "= 1,600 places the same", "≠ added look", "≠ changed say", "= 1 place the same", "≠ changed end"]);
  expect([marks()[1]?.style.flexGrow, marks()[4]?.style.flexGrow]).toEqual(["12", "1"]);
  marks()[3]?.click();
  expect([at(), told(), marks()[3]?.getAttribute("aria-current")]).toEqual(["≠ changedsaya refund", "3 of 4", "true"]);
  marks()[3]?.focus();
  press("ArrowRight");
  expect([at(), document.activeElement]).toEqual(["≠ changedenda parcel", marks()[5]]);
  expect(bar.querySelectorAll(".map [tabindex='0'], .map [aria-current]")).toHaveLength(1);
});

test("kinds and a text choose which differences are in sight, and the way leads through those only", () => {
  const { bar, inSight, told, marks } = mapped();
  const search = bar.querySelector("input");
  if (search === null) throw new Error("there is no search");
  pressed(bar, "changed 3").click();
  expect([inSight(), told()]).toEqual([["ask", "say", "end"], "3 shown"]);
  search.value = "PARCEL";
  search.dispatchEvent(new Event("input"));
  expect([inSight(), told()]).toEqual([["ask", "end"], "2 shown"]);
  pressed(bar, "Previous difference").click();
  expect([at(), told()]).toEqual(["≠ changedenda parcel", "2 of 2"]);
  pressed(bar, "added 1").click();
  expect([inSight(), told(), at()]).toEqual([[], "no match", undefined]);
  press("n", bar);
  expect(at()).toBeUndefined();
  marks()[2]?.click(); // what is chosen on the map comes into sight
  expect([inSight().length, search.value, told()]).toEqual([6, "", "2 of 4"]);
});

/** Forty tickets, judged: three results differ, and the others have only another prompt and lie in a group. */
function judged(): HTMLElement {
  const ticket = (name: string, place: string, marks = ""): HTMLElement =>
    h("tr", { class: `divebook-difference ${name}` }, h("td", {}, h("strong", {}, "≠"), h("div", {}, place)), h("td", {}, h("strong", {}, marks)));
  const inner = Array.from({ length: 37 }, (_, place) => ticket(`divebook-request${place === 5 ? " divebook-costlier" : ""}`, `ticket ${place}`));
  const group = h("tr", { class: "divebook-same" }, h("td", {}, h("details", {}, h("summary", {}, "= 37 places with the same result"), h("table", {}, ...inner))));
  const summary = h("div", {}, "2 better");
  const first = h("div", {}, h("div", { class: "divebook-first" }, "First difference"));
  const shown = h("div", {}, summary, first, h("table", {}, ticket("divebook-changed divebook-better", "a", "▲ better"), group, ticket("divebook-changed divebook-worse divebook-costlier", "b"), ticket("divebook-changed divebook-better divebook-blocked", "c")));
  output.append(shown);
  return shown;
}

test("rows in a group have filters of their own, and the number of each filter is that of its rows", () => {
  const shown = judged();
  const bar = addNavigation(shown) ?? expect.fail("there is no bar");
  const labels = [...bar.querySelectorAll(".seg button")].map((one) => one.textContent);
  expect(labels).toEqual(["Differences 3", "better 2", "worse 1", "blocked 1", "costs more 2", "same result 37", "All 40"]);
  expect([...bar.querySelectorAll(".map .mark")].map((mark) => mark.className)).toEqual(["mark better", "mark", "mark worse", "mark better"]);
  const inSight = (): number => [...shown.querySelectorAll<HTMLElement>(".divebook-difference")].filter((one) => !one.hidden && one.parentElement?.closest("details:not([open])") === null).length;
  for (const label of [...labels, "Differences 3"]) {
    pressed(bar, label).click();
    expect([label, inSight()]).toEqual([label, Number(label.replace(/\D/g, ""))]);
    expect(bar.querySelector("[role=status]")?.textContent).toBe(`${inSight()} shown`);
  }
});

test("the bar stands between the summary and the first difference, and copies the line for a frame", () => {
  const shown = judged();
  const bar = addNavigation(shown, 'divebook.compare("one", "two").frame()');
  expect([...shown.children].map((one) => one.textContent.slice(0, 8)).slice(0, 3)).toEqual(["2 better", "Differen", "First di"]);
  expect([...(bar?.querySelectorAll("button") ?? [])].map((one) => one.textContent)).toContain("As a DataFrame");
});

test("the slash leads to the search", () => {
  const { bar } = mapped();
  press("/", bar);
  expect(document.activeElement).toBe(bar.querySelector("input"));
});

test("keys stay in it", () => {
  const shown = h("div", {}, rows());
  output.append(shown);
  addNavigation(shown);
  const met: string[] = [];
  document.body.addEventListener("keydown", ({ key }) => { met.push(key); });
  press("d", shown.querySelector("tr"));
  expect(met).toEqual([]);
});

test("where runs do not differ there is no way", () => {
  expect(addNavigation(output)).toBeNull();
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
    expect([factory.safe, factory.mimeTypes]).toEqual([true, [COMPARISON_MIME]]);
    made.push(factory.createRenderer);
  } };
  const tracker = { forEach: (visit: (panel: Panel) => void) => { visit({ content: { rendermime } } as unknown as Panel); }, widgetAdded: { connect: () => true } } as unknown as Tracker;
  class Base {
    readonly node = document.createElement("div");
    addWidget({ node }: Renderer): void { this.node.append(node); }
  }
  renderComparisons(tracker, Base as unknown as PanelClass);
  const renderer = made[0]?.();
  await renderer?.renderModel({ data: { [COMPARISON_MIME]: {}, "text/html": "<table>" }, metadata: {}, trusted: false, setData: () => undefined });
  expect(seen).toMatchObject([{ data: { "text/html": "<table>" }, trusted: false }]);
  expect(pressed(renderer?.node ?? output, "Previous difference")).toBeTruthy();
});
