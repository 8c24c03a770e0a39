// All calls as rows of text: for reading, for screen readers, and for what is too small to hit. By status, in any order.

import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";
import { VirtualList } from "../shared/virtual";
import { callOf, Calls, type Column, COLUMNS, outcomeOf, type Status, STATUSES } from "./calls";
import { SIGNS, standingOf, typeOf } from "./kinds";
import type { Layout } from "./layout";
import type { Matches } from "./query";

const NAMES: Record<Column, string> = { status: "Status", item: "Item", call: "Call", arguments: "Arguments", result: "Result or error", began: "Began", took: "Took" };
const WORDS: Record<Status, string> = { failed: "Failed", running: "Running", waiting: "Waiting", cancelled: "Cancelled" };
const [ROW_HIGH, HEAD_HIGH, MOST_ROWS] = [24, 28, 9];
const [LOOK_EVERY, SORT_EVERY] = [250, 1500]; // milliseconds; to sort many takes longer

/** Makes the list of what is meant. */
export function list(model: Model, layout: Layout, matches: Matches): View & { update: () => void } {
  const calls = new Calls();
  const title = h("summary");
  const statuses = statusChoice((status) => {
    calls.status = status;
    update();
  });
  const cells = (make: (name: Column) => HTMLElement): HTMLElement[] => COLUMNS.map((name) => make(name));
  const head = h("div", { class: "db-row db-head", role: "row", "aria-rowindex": 1 }, ...cells((name) => headCell(calls, name, () => { update(); })));
  const count = h("p", { class: "db-note" });
  let timer: ReturnType<typeof setTimeout> | undefined;
  let active = -1;
  let isTouched = false;

  const rows = new VirtualList(
    {
      count: () => calls.ids.length,
      make: () => h("div", { class: "db-row", role: "row" }, ...cells((name) => h("span", { role: "cell", class: "db-cell", "data-column": name }))),
      fill: (row, index) => { fill(row, index); },
    },
    "Calls",
    head,
  );
  const element = h("details", { class: "db-table" }, title, statuses.element, rows.element, count);

  function fill(row: HTMLElement, index: number): void {
    const id = calls.ids[index] ?? 0;
    texts(model, id).forEach((text, column) => {
      const cell = row.children[column];
      if (cell === undefined) return;
      setText(cell, text);
      cell.setAttribute("title", text);
    });
    row.dataset["id"] = String(id);
    row.dataset["status"] = standingOf(model.spans, id);
    row.classList.toggle("db-chosen", id === model.selected);
    row.classList.toggle("db-active", index === active);
  }

  function later(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      update();
    }, calls.order.by === "began" ? LOOK_EVERY : SORT_EVERY);
  }

  function update(): void {
    const { spans } = model;
    matches.update(spans);
    layout.update(spans, model.generation);
    calls.update(spans, layout, matches, model.now());
    if (calls.status !== null && !calls.counts.has(calls.status)) { // those that were listed went on
      statuses.choose(null);
      return;
    }
    setText(title, `All calls (${calls.total.toLocaleString("en")})`);
    statuses.update(calls);
    const part = calls.ids.length === calls.total ? "" : `${calls.ids.length.toLocaleString("en")} of ${calls.total.toLocaleString("en")} calls shown. `;
    count.replaceChildren(part, "As a frame: ", h("code", {}, calls.status === null ? "run.operations" : `run.operations.query("status == '${calls.status}'")`));
    unfold();
    rows.element.style.height = `${Math.min(MOST_ROWS, calls.ids.length) * ROW_HIGH + HEAD_HIGH}px`;
    rows.update();
  }

  /** A run that has failed shows its failures by itself, once. */
  function unfold(): void {
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
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -Infinity, End: Infinity }[event.key];
    const chosen = calls.ids[active];
    if (step !== undefined) {
      active = Math.max(0, Math.min(calls.ids.length - 1, active + step));
      rows.reveal(active);
    } else if ((event.key === "Enter" || event.key === " ") && event.target === rows.element && chosen !== undefined) model.select(chosen);
    else return;
    event.preventDefault();
  });
  const undo = model.on((change) => {
    if (change === "selection") show();
    else if (change === "spans" || change === "header") later();
  });
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
  };
  update();
  return { element, destroy, update };
}

/** What stands in the columns. */
function texts(model: Model, id: number): string[] {
  const [{ spans }, now] = [model, model.now()];
  const status = standingOf(spans, id);
  return [
    `${SIGNS[status] ?? ""} ${status}`,
    spans.text(id, "item"),
    `${typeOf(spans, id).letter} ${callOf(spans, id)}`.trim(),
    spans.text(id, "given"),
    outcomeOf(spans, id),
    duration(spans.startOf(id)),
    duration(spans.endOf(id, now) - spans.startOf(id)),
  ];
}

/** A heading that orders the rows by its column; once more, the other way round. */
function headCell(calls: Calls, name: Column, changed: () => void): HTMLElement {
  const press = button(NAMES[name], () => {
    calls.order = { by: name, isDown: calls.order.by === name ? !calls.order.isDown : name === "took" };
    for (const other of cell.parentElement?.children ?? []) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", calls.order.isDown ? "descending" : "ascending");
    changed();
  });
  const cell = h("span", { role: "columnheader", class: "db-cell", "data-column": name, "aria-sort": calls.order.by === name ? "ascending" : null }, press);
  return cell;
}

/** A button for all, and for each status that occurs. */
function statusChoice(chosen: (status: Status | null) => void): { element: HTMLElement; update: (calls: Calls) => void; choose: (status: Status | null) => void } {
  let present: Status | null = null;
  const choose = (status: Status | null): void => {
    present = status;
    chosen(status);
  };
  const buttons = [null, ...STATUSES].map((status) => [status, button("", () => { choose(status); }, { class: "db-button" })] as const);
  const element = h("div", { class: "db-statuses seg", role: "group", "aria-label": "Which calls" }, ...buttons.map(([, one]) => one));
  const update = ({ counts, total }: Calls): void => {
    element.hidden = counts.size < 2 && present === null; // one choice is none
    for (const [status, one] of buttons) {
      const count = status === null ? total : (counts.get(status) ?? 0);
      setText(one, status === null ? "All" : `${SIGNS[status] ?? ""} ${WORDS[status]} ${count.toLocaleString("en")}`);
      one.setAttribute("aria-pressed", String(status === present));
      one.hidden = count === 0 && status !== present && status !== null;
    }
  };
  return { element, update, choose };
}
