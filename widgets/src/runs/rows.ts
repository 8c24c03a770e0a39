// Rows of the list of runs. A run keeps its element while its content is unchanged.

import type { Micros, RunsPage, RunView } from "../protocol";
import { h, setText } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { oneLine } from "../shared/text";
import type { ListQuery, Command } from "./channel";
import { clockOf, dayOf } from "../shared/times";
import { statusSign, workedText } from "./texts";

const TICK = 1_000; // milliseconds between two updates of the working times
const MAX_ABOUT = 2_000; // characters of the text about a run
const SHORT_ABOUT = 24; // characters that fit into the narrowest column, so that nothing has to be unfolded

/** Actions of a row, which the run browser provides. */
export interface RowActions {
  act: (command: Command, run: RunView) => void;
  select: (run: RunView, isSelected: boolean) => void;
  selectAll: (isSelected: boolean) => void;
  sort: (by: ListQuery["by"]) => void;
  toQuestions: () => void;
}

interface Row {
  run: RunView;
  content: string;
  element: HTMLTableRowElement;
  worked: HTMLElement[];
  box: HTMLInputElement;
}

type Draw = (run: RunView, name: string, now: Micros) => HTMLElement;

/** Return the title of a column as views show it: with a capital letter. */
function heading(title: string): string {
  return oneLine(title.slice(0, 1).toUpperCase() + title.slice(1), 40);
}

/** Return the class of the cells of a column, which gives them their width and place (runs.css). */
function kindOf(column: RunsPage["columns"][number]): string {
  const kinds: Record<string, string> = { workflow: "what", status: "stands", started: "when", worked: "num wide", cost: "num cost" };
  return kinds[column.title] ?? (column.is_number ? "num further" : "further");
}

/** Table of runs. */
export class Rows {
  readonly element: HTMLElement;
  readonly #actions: RowActions;
  readonly #body = h("tbody");
  readonly #all = h("input", { type: "checkbox", "aria-label": "Select all runs shown", onchange: () => { this.#actions.selectAll(this.#all.checked); } });
  readonly #head = h("tr");
  #columns: RunsPage["columns"] = [];
  #sorts: [ListQuery["by"], HTMLTableCellElement][] = [];
  #rows = new Map<string, Row>();
  /** Ids of the runs whose text about the run is shown in full. */
  readonly #unfolded = new Set<string>();
  #now: () => Micros = () => 0;
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(actions: RowActions) {
    this.#actions = actions;
    const table = h("table", {}, h("thead", {}, this.#head), this.#body);
    const keys = "↑ ↓: previous or next run | Space: select the run | Enter: open the run";
    const onkeydown = (event: KeyboardEvent): void => { this.#onKey(event); };
    this.element = h("div", { class: "scroll", role: "region", "aria-label": "List of runs", "data-keys": keys, onkeydown }, table);
    this.#timer = setInterval(() => { this.#tick(); }, TICK);
  }

  /** Show a list. Elements are moved only if the rows have changed, and the focus is restored afterwards. */
  update(page: RunsPage, selectedIds: ReadonlySet<string>, now: () => Micros): void {
    this.#now = now;
    const position = this.#focusedPart();
    this.#showColumns(page.columns);
    const rows = page.runs.map((run) => this.#row(run, now()));
    const elements = rows.map(({ element }) => element);
    const children = this.#body.children;
    const hasChanged = elements.length !== children.length || elements.some((element, place) => element !== children[place]);
    if (hasChanged) this.#body.replaceChildren(...elements);
    this.#rows = new Map(rows.map((row) => [row.run.execution_id, row]));
    for (const [by, cell] of this.#sorts) {
      if (by === page.query.by) cell.setAttribute("aria-sort", "descending");
      else cell.removeAttribute("aria-sort");
    }
    this.mark(selectedIds);
    this.#restoreFocus(position);
    this.#tick();
  }

  /** Show the titles of the columns, which Python defines (`divebook/projections/run_columns.py`). */
  #showColumns(columns: RunsPage["columns"]): void {
    if (JSON.stringify(columns) === JSON.stringify(this.#columns)) return;
    this.#columns = columns;
    this.#sorts = [];
    this.#rows.clear();
    const titles = columns.map((column) => {
      const { by } = column;
      const title = heading(column.title);
      const content = by === "" ? title : button(title, () => { this.#actions.sort(by); });
      const cell = h("th", { class: kindOf(column), scope: "col" }, content);
      if (by !== "") this.#sorts.push([by, cell]);
      return cell;
    });
    this.#head.replaceChildren(h("th", {}, this.#all), ...titles, h("th", { class: "acts" }, h("span", { class: "db-hidden" }, "Actions")));
  }

  /** Columns with more than their text, by title: links, progress, and times that pass. */
  readonly #drawn: Record<string, Draw> = {
    workflow: (run, name) => this.#nameCell(run, name),
    status: (run) => this.#statusCell(run),
    started: (run, _name, now) => h("td", { class: "when" }, clockOf(run.began_us), h("div", { class: "soft small" }, dayOf(run.began_us, now))),
    worked: () => h("td", { class: "num wide", "data-part": "worked" }),
  };

  #cell(run: RunView, place: number, name: string, now: Micros): HTMLElement {
    const column = this.#columns[place];
    if (column === undefined) throw new Error("a cell without a column");
    const draw = Object.hasOwn(this.#drawn, column.title) ? this.#drawn[column.title] : undefined;
    return draw?.(run, name, now) ?? h("td", { class: kindOf(column) }, oneLine(run.cells[place] ?? "", 200));
  }

  /** Show which runs are selected. */
  mark(selectedIds: ReadonlySet<string>): void {
    for (const [id, { element, box }] of this.#rows) {
      box.checked = selectedIds.has(id);
      element.classList.toggle("chosen", box.checked);
    }
    const count = [...this.#rows.keys()].filter((id) => selectedIds.has(id)).length;
    this.#all.checked = count > 0 && count === this.#rows.size;
    this.#all.indeterminate = count > 0 && count < this.#rows.size;
  }

  destroy(): void {
    clearInterval(this.#timer);
  }

  /** Return the row of a run: the present one if its content is unchanged, else a new one. */
  #row(run: RunView, now: Micros): Row {
    const previous = this.#rows.get(run.execution_id);
    const content = JSON.stringify([run, dayOf(run.began_us, now)]);
    if (previous?.content === content) return previous;
    const name = oneLine(run.workflow, 80);
    const day = dayOf(run.began_us, now);
    const box = h("input", {
      type: "checkbox",
      "data-part": "box",
      "aria-label": `Select ${name}, ${clockOf(run.began_us)} ${day}`,
      onchange: () => { this.#actions.select(run, box.checked); },
    });
    const element = h("tr", { "data-run": run.execution_id, class: run.is_open ? "open" : "" },
      h("td", {}, box),
      ...this.#columns.map((_column, place) => this.#cell(run, place, name, now)),
      h("td", { class: "acts" }, h("span", { class: "bs" }, ...this.#buttons(run, name))),
    );
    const worked = [...element.querySelectorAll<HTMLElement>("td[data-part=worked]")];
    return { run, content, element, worked, box };
  }

  #nameCell(run: RunView, name: string): HTMLElement {
    const badge = run.badge === "" ? [] : [" ", h("span", { class: "badge" }, oneLine(run.badge, 20))];
    const tags = run.tags.flatMap((tag) => [" ", h("span", { class: "tag" }, oneLine(tag, 40))]);
    const open = (): void => { this.#actions.act(run.is_open ? "close" : "open", run); };
    const link = h("a", { class: "name", role: "link", tabindex: 0, "data-part": "name", title: run.execution_id, onclick: open }, name);
    return h("td", { class: "what" }, h("div", { class: "line" }, link, ...badge, ...tags), this.#about(run));
  }

  /** Show the text about a run on one line. A click shows all of it. */
  #about(run: RunView): HTMLElement {
    const text = oneLine(run.about, MAX_ABOUT);
    const name = run.is_error ? "about small error" : "about small soft";
    if (text.length <= SHORT_ABOUT) return h("div", { class: name }, text);
    const unfold = (): void => {
      const isUnfolded = !this.#unfolded.delete(run.execution_id);
      if (isUnfolded) this.#unfolded.add(run.execution_id);
      setAttribute(about, "aria-expanded", String(isUnfolded));
    };
    const attributes = { class: name, title: text, "data-part": "about", "aria-expanded": String(this.#unfolded.has(run.execution_id)) };
    const about = button(text, unfold, attributes);
    return about;
  }

  #statusCell(run: RunView): HTMLElement {
    const status = h("span", { class: `st ${run.status}` }, h("span", { "aria-hidden": "true" }, `${statusSign(run.status)} `), run.status);
    return h("td", { class: "stands" }, status, h("div", { class: "small soft line", title: run.stand }, ...this.#progressParts(run)));
  }

  #progressParts(run: RunView): (Node | string)[] {
    if (run.questions > 0) {
      const toQuestions = button(run.stand, () => { this.#actions.toQuestions(); }, { class: "quiet link", "data-part": "ask" });
      return [toQuestions];
    }
    if (run.total === 0 || run.status !== "running") return [oneLine(run.stand, 120)];
    const bar = h("span");
    bar.style.width = `${Math.round((100 * run.done) / run.total)}%`;
    return [h("span", { class: "meter", role: "img", "aria-label": run.stand }, bar), run.stand];
  }

  #buttons(run: RunView, name: string): HTMLElement[] {
    const commandButton = (command: Command, label: string): HTMLElement => {
      const attributes = { "data-part": command, "aria-label": `${label.replace(" …", "")} ${name}` };
      return button(label, () => { this.#actions.act(command, run); }, attributes);
    };
    const buttons = [run.is_open ? commandButton("close", "Close") : commandButton("open", "Open")];
    if (run.commands.includes("resume")) buttons.push(commandButton("resume", "Resume"));
    if (run.commands.includes("cancel")) buttons.push(commandButton("cancel", "Cancel …"));
    return buttons;
  }

  #tick(): void {
    for (const { run, worked } of this.#rows.values()) worked.forEach((cell) => { setText(cell, workedText(run, this.#now())); });
  }

  /** Return the run and the part of its row that have the focus. */
  #focusedPart(): [string, string] | undefined {
    const focused = document.activeElement;
    const row = focused?.closest<HTMLElement>("tr[data-run]");
    if (!(focused instanceof HTMLElement) || !row || !this.#body.contains(row)) return undefined;
    return [row.dataset["run"] ?? "", focused.dataset["part"] ?? ""];
  }

  /** Focus the same part of a run's row again, after its element was replaced. */
  #restoreFocus(position: [string, string] | undefined): void {
    if (position === undefined || this.#focusedPart() !== undefined) return;
    const element = this.#rows.get(position[0])?.element;
    const part = element?.querySelector<HTMLElement>(`[data-part="${position[1]}"]`) ?? element?.querySelector<HTMLElement>(".name");
    part?.focus();
  }

  /** Handle the keys of the list: arrows, Home and End move between runs, Space selects, Enter opens. */
  #onKey(event: KeyboardEvent): void {
    const row = (event.target as Element).closest<HTMLElement>("tr[data-run]");
    if (row === null) return;
    const names = [...this.#body.querySelectorAll<HTMLElement>(".name")];
    const index = [...this.#body.children].indexOf(row);
    const next = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: names.length - 1 }[event.key];
    const isName = (event.target as HTMLElement).dataset["part"] === "name";
    if (next !== undefined) names[next]?.focus();
    else if (isName && event.key === " ") row.querySelector<HTMLElement>("[data-part=box]")?.click();
    else if (isName && event.key === "Enter") names[index]?.click();
    else return;
    event.preventDefault();
  }
}
