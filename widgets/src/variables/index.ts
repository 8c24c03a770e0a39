// Bundle of the current variables: a row for each, and the details of the selected one beside them.

import type { Variables, VariableView } from "../protocol";
import { h, longText, setText, type View } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { plural } from "../shared/format";
import type { Host, Part } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { isRich, richOutput } from "../shared/richoutput";
import { oneLine } from "../shared/text";
import style from "./variables.css";

const POLL_INTERVAL = 1_000; // milliseconds between an answer and the next request
const ANSWER_TIMEOUT = 5_000; // milliseconds after which an answer is considered lost
const MAX_VALUE_LENGTH = 60; // characters of a value in its row

/** View of the variables. It requests them only while it is unfolded. */
export function variables(model: Model, host: Host): View {
  const summary = h("summary", {}, "Variables");
  const body = h("tbody");
  const heads = ["Name", "Type", "Size", "Value"].map((name) => h("th", { scope: "col", class: name === "Size" ? "size" : null }, name));
  const list = h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body);
  const aside = h("div", { class: "aside" });
  const split = h("div", { class: "split" }, h("div", { class: "all" }, list), aside);
  const element = h("details", { class: "db-workflow divebook-variables", open: true }, summary, split);
  let views: VariableView[] = [];
  let selectedKey: string | null = null;
  let version = 0;
  let askedAt: number | null = null;
  let isBehind = true;
  let timer: ReturnType<typeof setTimeout> | undefined;

  /** Request the variables, unless a request is pending or the last answer is too recent. */
  function poll(): void {
    isBehind = true;
    const isWaiting = askedAt !== null && Date.now() - askedAt < ANSWER_TIMEOUT;
    if (timer !== undefined || isWaiting || !element.open) return;
    isBehind = false;
    askedAt = Date.now();
    host.variables(version, onVariables);
  }

  function onVariables(answer: Variables): void {
    askedAt = null;
    timer = setTimeout(() => {
      timer = undefined;
      if (isBehind) poll();
    }, POLL_INTERVAL);
    version = answer.version;
    if (answer.variables === null) return;
    views = answer.variables;
    show();
  }

  function show(): void {
    element.hidden = views.length === 0;
    setText(summary, `Variables (${views.length.toLocaleString("en")})`);
    selectedKey = views.some((view) => keyOf(view) === selectedKey) ? selectedKey : null;
    body.replaceChildren(...views.map(row));
    showSelected();
  }

  function row(view: VariableView): HTMLElement {
    const key = keyOf(view);
    if (view.type === "") { // a variable without a value; its text says "not set yet"
      return h("tr", {}, h("th", { scope: "row", title: view.name }, view.name), h("td", { class: "soft", colspan: 3 }, view.text));
    }
    const toggle = (): void => { choose(selectedKey === key ? null : key); };
    const name = button(view.name, toggle, { class: "quiet small", "aria-expanded": String(selectedKey === key), "data-variable": key });
    const kind = view.rows.length > 0 ? "a table" : isRich(view) && view.type;
    const value = kind !== false ? h("span", { class: "soft" }, `${kind}; select it to see it`) : h("code", { dir: "auto" }, oneLine(view.text, MAX_VALUE_LENGTH));
    const cells = [h("th", { scope: "row" }, name), h("td", {}, view.type), h("td", { class: "size" }, view.size), h("td", {}, value)];
    return h("tr", { class: selectedKey === key ? "chosen" : null }, ...cells);
  }

  /** Select a variable. The rows are kept, so that a button keeps the focus. */
  function choose(key: string | null): void {
    selectedKey = key;
    for (const nameButton of body.querySelectorAll<HTMLElement>("[data-variable]")) {
      const isSelected = nameButton.dataset["variable"] === key;
      setAttribute(nameButton, "aria-expanded", String(isSelected));
      nameButton.closest("tr")?.classList.toggle("chosen", isSelected);
    }
    showSelected();
  }

  /** Show the details of the selected variable, or of the first table if none is selected. */
  function showSelected(): void {
    const view = views.find((candidate) => keyOf(candidate) === selectedKey) ?? views.find((candidate) => candidate.rows.length > 0 || isRich(candidate));
    aside.hidden = view === undefined;
    if (view !== undefined) aside.replaceChildren(...detailsOf(view));
  }

  const undo = model.on((change) => {
    if (change === "header" || change === "connection") poll();
  });
  element.addEventListener("toggle", poll);
  element.hidden = true;
  poll();
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
    element.remove();
  };
  return { element, destroy };
}

/** Return a key that tells an input and a variable with the same name apart. */
function keyOf({ source, name }: VariableView): string {
  return source === "input" ? `input ${name}` : name;
}

/** Return the details of a variable: type or number of rows, origin, and its rows or its text. */
function detailsOf(view: VariableView): HTMLElement[] {
  let origin = view.source === "" ? "" : `set by ${view.source}`;
  if (view.source === "input") origin = "input of the run";
  const total = plural(view.total, "row");
  const rowCount = view.total > view.rows.length ? `first ${view.rows.length} of ${total}` : total;
  const facts = view.rows.length > 0 ? [rowCount, origin] : [view.type, origin];
  const about = h("p", {}, h("strong", {}, view.name), " ", h("span", { class: "soft" }, facts.filter((part) => part !== "").join(" · ")));
  if (isRich(view)) return [about, richOutput(view)];
  return [about, view.rows.length > 0 ? table(view) : longText(view.text)];
}

/** Return the first rows of a table. */
function table({ name, columns, rows }: VariableView): HTMLElement {
  const head = h("tr", {}, ...columns.map((column) => h("th", { scope: "col", dir: "auto" }, column)));
  const body = rows.map((cells) => h("tr", {}, ...cells.map((cell) => h("td", { dir: "auto" }, cell))));
  const element = h("table", {}, h("thead", {}, head), h("tbody", {}, ...body));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `First rows of ${name}` }, element);
}

const part: Part = { style, make: variables };

export default part;
