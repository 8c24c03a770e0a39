// Bundle of the current variables: a row for each, and the chosen one beside them.

import type { Variables, VariableView } from "../protocol";
import { h, longText, setText, type View } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { plural } from "../shared/format";
import type { Host, Part } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import style from "./variables.css";

const EVERY = 1_000; // milliseconds between two looks
const PATIENCE = 5_000; // after which an answer is taken for lost
const BRIEF = 60;

/** Shows variables while it is unfolded, and asks for them only then. */
export function variables(model: Model, host: Host): View {
  const summary = h("summary", {}, "Variables");
  const body = h("tbody");
  const heads = ["Name", "Type", "Size", "Value"].map((name) => h("th", { scope: "col", class: name === "Size" ? "size" : null }, name));
  const list = h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body);
  const aside = h("div", { class: "aside" });
  const element = h("details", { class: "db-workflow divebook-variables", open: true }, summary, h("div", { class: "split" }, h("div", { class: "all" }, list), aside));
  let [known, chosen]: [VariableView[], string | null] = [[], null];
  let [version, generation, askedAt]: [number, number, number | null] = [0, model.generation, null];
  let isBehind = true;
  let timer: ReturnType<typeof setTimeout> | undefined;

  function look(): void {
    isBehind = true;
    const isWaiting = askedAt !== null && Date.now() - askedAt < PATIENCE;
    if (timer !== undefined || isWaiting || !element.open) return;
    if (generation !== model.generation) [generation, version] = [model.generation, 0]; // another kernel counts anew
    [isBehind, askedAt] = [false, Date.now()];
    host.variables(version, take);
  }

  function take(told: Variables): void {
    askedAt = null;
    timer = setTimeout(() => {
      timer = undefined;
      if (isBehind) look();
    }, EVERY);
    version = told.version;
    if (told.variables === null) return;
    known = told.variables;
    show();
  }

  function show(): void {
    element.hidden = known.length === 0;
    setText(summary, `Variables (${known.length.toLocaleString("en")})`);
    chosen = known.some((one) => keyOf(one) === chosen) ? chosen : null;
    body.replaceChildren(...known.map(row));
    showChosen();
  }

  function row(view: VariableView): HTMLElement {
    const key = keyOf(view);
    if (view.type === "") return h("tr", {}, h("th", { scope: "row", title: view.name }, view.name), h("td", { class: "soft", colspan: 3 }, view.text));
    const name = button(view.name, () => { choose(chosen === key ? null : key); }, { class: "quiet small", "aria-expanded": String(chosen === key), "data-variable": key });
    const isTable = view.rows.length > 0;
    const value = isTable ? h("span", { class: "soft" }, "a table: choose it") : h("code", { dir: "auto" }, oneLine(view.text, BRIEF));
    return h("tr", { class: chosen === key ? "chosen" : null }, h("th", { scope: "row" }, name), h("td", {}, view.type), h("td", { class: "size" }, view.size), h("td", {}, value));
  }

  function choose(key: string | null): void {
    chosen = key;
    for (const one of body.querySelectorAll<HTMLElement>("[data-variable]")) {
      const isChosen = one.dataset["variable"] === key;
      setAttribute(one, "aria-expanded", String(isChosen));
      one.closest("tr")?.classList.toggle("chosen", isChosen);
    }
    showChosen();
  }

  function showChosen(): void {
    const view = known.find((one) => keyOf(one) === chosen) ?? known.find(({ rows }) => rows.length > 0);
    aside.hidden = view === undefined;
    if (view !== undefined) aside.replaceChildren(...whole(view));
  }

  const undo = model.on((change) => {
    if (change === "header" || change === "connection") look();
  });
  element.addEventListener("toggle", look);
  element.hidden = true;
  look();
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
    element.remove();
  };
  return { element, destroy };
}

/** Inputs and variables may have one name. */
function keyOf({ source, name }: VariableView): string {
  return source === "input" ? `input ${name}` : name;
}

/** All that is known of one variable: what it is, where it comes from, and its rows or its text. */
function whole(view: VariableView): HTMLElement[] {
  const from = view.source === "" ? "" : view.source === "input" ? "an input" : `set by ${view.source}`;
  const few = view.total > view.rows.length ? `first ${view.rows.length} of ${plural(view.total, "row")}` : plural(view.total, "row");
  const facts = view.rows.length > 0 ? [few, from] : [view.type, from];
  const about = h("p", {}, h("strong", {}, view.name), " ", h("span", { class: "soft" }, facts.filter((part) => part !== "").join(" · ")));
  return [about, view.rows.length > 0 ? table(view) : longText(view.text)];
}

function table({ name, columns, rows }: VariableView): HTMLElement {
  const head = h("tr", {}, ...columns.map((column) => h("th", { scope: "col", dir: "auto" }, column)));
  const body = rows.map((cells) => h("tr", {}, ...cells.map((cell) => h("td", { dir: "auto" }, cell))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `First rows of ${name}` }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...body)));
}

const part: Part = { style, make: variables };

export default part;
