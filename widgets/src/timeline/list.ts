// List of all calls as text: for reading, for screen readers, and for bars that are too small to click.

import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import { duration, formatCount } from "../shared/format";
import type { Model } from "../shared/model";
import { VirtualList } from "../shared/virtual";
import { callOf, Calls, type Column, COLUMNS, outcomeOf, type Status, STATUSES } from "./calls";
import { SIGNS, statusOf, kindOf } from "./kinds";
import type { Layout } from "./layout";
import type { Matches } from "./query";

const NAMES: Record<Column, string> = {
  status: "Status",
  item: "Item",
  call: "Call",
  arguments: "Arguments",
  result: "Result or error",
  began: "Started",
  took: "Took",
};
const WORDS: Record<Status, string> = { failed: "Failed", running: "Running", waiting: "Waiting", cancelled: "Cancelled" };
const ROW_HIGH = 24; // pixels
const HEAD_HIGH = 28;
const MOST_ROWS = 9;
// Milliseconds between two updates; sorting many calls takes longer.
const UPDATE_EVERY = 250;
const SORT_EVERY = 1500;

/** Create the list of the calls that match the search. */
export function list(model: Model, layout: Layout, matches: Matches): View & { update: () => void } {
  const calls = new Calls();
  const title = h("summary");
  const statuses = statusChoice((status) => {
    calls.status = status;
    update();
  });
  const cells = (create: (name: Column) => HTMLElement): HTMLElement[] => COLUMNS.map((name) => create(name));
  const head = h("div", { class: "db-row db-head", role: "row", "aria-rowindex": 1 }, ...cells((name) => headCell(calls, name, () => { update(); })));
  const count = h("p", { class: "db-note" });
  let timer: ReturnType<typeof setTimeout> | undefined;
  let active = -1;
  let isTouched = false;

  const rows = new VirtualList(
    {
      count: () => calls.ids.length,
      create: () => h("div", { class: "db-row", role: "row" }, ...cells((name) => h("span", { role: "cell", class: "db-cell", "data-column": name }))),
      fill: (row, index) => { fill(row, index); },
    },
    "Calls",
    head,
  );
  const element = h("details", { class: "db-table" }, title, statuses.element, rows.element, count);

  /** Show a call in a row. */
  function fill(row: HTMLElement, index: number): void {
    const id = calls.ids[index] ?? 0;
    cellTexts(model, id).forEach((text, column) => {
      const cell = row.children[column];
      if (cell === undefined) return;
      setText(cell, text);
      cell.setAttribute("title", text);
    });
    row.dataset["id"] = String(id);
    row.dataset["status"] = statusOf(model.spans, id);
    row.classList.toggle("db-chosen", id === model.selected);
    row.classList.toggle("db-active", index === active);
  }

  function updateLater(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      update();
    }, calls.order.by === "began" ? UPDATE_EVERY : SORT_EVERY);
  }

  /** Search, lay out and sort again, then show the result. */
  function update(): void {
    const { spans } = model;
    matches.update(spans);
    layout.update(spans, model.generation);
    calls.update(spans, layout, matches, model.now());
    if (calls.status !== null && !calls.counts.has(calls.status)) { // no call has this status any more
      statuses.choose(null);
      return;
    }
    setText(title, `All calls (${formatCount(calls.total)})`);
    statuses.update(calls);
    const filterNote = calls.ids.length === calls.total ? "" : `${formatCount(calls.ids.length)} of ${formatCount(calls.total)} calls shown. `;
    const code = calls.status === null ? "run.operations" : `run.operations.query("status == '${calls.status}'")`;
    count.replaceChildren(filterNote, "As a DataFrame: ", h("code", {}, code));
    openFailures();
    rows.element.style.height = `${Math.min(MOST_ROWS, calls.ids.length) * ROW_HIGH + HEAD_HIGH}px`;
    rows.update();
  }

  /** Open the list at the failures of a failed run, once, unless a person has opened or closed the list before. */
  function openFailures(): void {
    if (isTouched || element.open || model.header?.status !== "failed" || !calls.counts.has("failed")) return;
    element.open = isTouched = true;
    statuses.choose("failed");
  }

  function show(): void {
    const index = model.selected === null ? -1 : calls.ids.indexOf(model.selected);
    if (index >= 0 && element.open) rows.reveal(index);
    else rows.update();
  }

  element.addEventListener("toggle", () => {
    isTouched = true;
    update();
    show();
  });
  rows.element.addEventListener("click", (event) => {
    const row = (event.target as Element).closest<HTMLElement>(".db-row[data-id]");
    if (row !== null) model.select(Number(row.dataset["id"]));
  });
  rows.element.addEventListener("keydown", (event) => {
    const distance = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -Infinity, End: Infinity }[event.key];
    const id = calls.ids[active];
    if (distance !== undefined) {
      active = Math.max(0, Math.min(calls.ids.length - 1, active + distance));
      rows.reveal(active);
    } else if ((event.key === "Enter" || event.key === " ") && event.target === rows.element && id !== undefined) model.select(id);
    else return;
    event.preventDefault();
  });
  const undo = model.on((change) => {
    if (change === "selection") show();
    else if (change === "spans" || change === "header") updateLater();
  });
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
  };
  update();
  return { element, destroy, update };
}

/** Return the texts of a row, in the order of the columns. */
function cellTexts(model: Model, id: number): string[] {
  const { spans } = model;
  const status = statusOf(spans, id);
  return [
    `${SIGNS[status] ?? ""} ${status}`,
    spans.text(id, "item"),
    `${kindOf(spans, id).letter} ${callOf(spans, id)}`.trim(),
    spans.text(id, "given"),
    outcomeOf(spans, id),
    duration(spans.startOf(id)),
    duration(spans.endOf(id, model.now()) - spans.startOf(id)),
  ];
}

/** Create a column header that sorts by its column. A second click reverses the order. */
function headCell(calls: Calls, name: Column, onChange: () => void): HTMLElement {
  const sortButton = button(NAMES[name], () => {
    calls.order = { by: name, isDown: calls.order.by === name ? !calls.order.isDown : name === "took" };
    for (const other of cell.parentElement?.children ?? []) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", calls.order.isDown ? "descending" : "ascending");
    onChange();
  });
  const cell = h("span", { role: "columnheader", class: "db-cell", "data-column": name, "aria-sort": calls.order.by === name ? "ascending" : null }, sortButton);
  return cell;
}

interface StatusChoice {
  element: HTMLElement;
  update: (calls: Calls) => void;
  choose: (status: Status | null) => void;
}

/** Create the status filter: a button for all calls, and one for each status that occurs. */
function statusChoice(onChoice: (status: Status | null) => void): StatusChoice {
  let current: Status | null = null;
  const choose = (status: Status | null): void => {
    current = status;
    onChoice(status);
  };
  const buttons = [null, ...STATUSES].map((status) => [status, button("", () => { choose(status); }, { class: "db-button" })] as const);
  const element = h("div", { class: "db-statuses seg", role: "group", "aria-label": "Filter calls by status" }, ...buttons.map(([, one]) => one));
  const update = ({ counts, total }: Calls): void => {
    element.hidden = counts.size < 2 && current === null; // a single status leaves nothing to choose
    for (const [status, one] of buttons) {
      const count = status === null ? total : (counts.get(status) ?? 0);
      setText(one, status === null ? "All" : `${SIGNS[status] ?? ""} ${WORDS[status]} ${formatCount(count)}`);
      one.setAttribute("aria-pressed", String(status === current));
      one.hidden = count === 0 && status !== current && status !== null;
    }
  };
  return { element, update, choose };
}
