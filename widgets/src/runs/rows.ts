// Rows of the list of runs. A run keeps its element while its content is unchanged.

import type { Micros, RunsPage, RunView } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { price } from "../shared/format";
import { oneLine } from "../shared/text";
import type { ListQuery, Command } from "./channel";
import { clockOf, dayOf } from "../shared/times";
import { statusSign, workedText } from "./texts";

const TICK = 1_000; // milliseconds between two updates of the working times

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
  worked: HTMLElement;
  box: HTMLInputElement;
}

/** Table of runs. */
export class Rows {
  readonly element: HTMLElement;
  readonly #actions: RowActions;
  readonly #body = h("tbody");
  readonly #all = h("input", { type: "checkbox", "aria-label": "Choose all that are shown", onchange: () => { this.#actions.selectAll(this.#all.checked); } });
  readonly #sorts: [ListQuery["by"], HTMLTableCellElement][];
  readonly #head: HTMLTableRowElement;
  #furtherColumns: string[] = [];
  #rows = new Map<string, Row>();
  #now: () => Micros = () => 0;
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(actions: RowActions) {
    this.#actions = actions;
    const sortHeader = (by: ListQuery["by"], name: string, kind = ""): HTMLTableCellElement => {
      const sortButton = button(name, () => { actions.sort(by); });
      return h("th", { class: kind, scope: "col" }, sortButton);
    };
    this.#sorts = [
      ["began", sortHeader("began", "Began", "when")],
      ["worked", sortHeader("worked", "Worked", "num wide")],
      ["cost", sortHeader("cost", "Cost", "num")],
    ];
    const columns = [
      h("th", {}, this.#all),
      h("th", { scope: "col" }, "Run"),
      h("th", { scope: "col" }, "Status"),
      ...this.#sorts.map(([, cell]) => cell),
      h("th", {}, h("span", { class: "db-hidden" }, "Actions")),
    ];
    this.#head = h("tr", {}, ...columns);
    const table = h("table", {}, h("thead", {}, this.#head), this.#body);
    const keys = "↑ ↓: run to run | Space: choose | Enter: open";
    const onkeydown = (event: KeyboardEvent): void => { this.#onKey(event); };
    this.element = h("div", { class: "scroll", role: "region", "aria-label": "List of runs", "data-keys": keys, onkeydown }, table);
    this.#timer = setInterval(() => { this.#tick(); }, TICK);
  }

  /** Show a list. Elements are moved only if the rows have changed, and the focus is restored afterwards. */
  update(page: RunsPage, selectedIds: ReadonlySet<string>, now: () => Micros): void {
    this.#now = now;
    const position = this.#focusedPart();
    this.#showFurtherColumns(Object.keys({ ...page.runs[0]?.cells }));
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

  /** Show the titles of the columns that Python defines as texts, before the column of the buttons. */
  #showFurtherColumns(titles: string[]): void {
    if (titles.join("\n") === this.#furtherColumns.join("\n")) return;
    this.#furtherColumns = titles;
    this.#head.querySelectorAll("th.further").forEach((cell) => { cell.remove(); });
    this.#head.lastElementChild?.before(...titles.map((title) => h("th", { class: "further", scope: "col" }, oneLine(title, 40))));
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
    const worked = h("td", { class: "num wide" });
    const day = dayOf(run.began_us, now);
    const box = h("input", {
      type: "checkbox",
      "data-part": "box",
      "aria-label": `Choose ${name}, ${clockOf(run.began_us)} ${day}`,
      onchange: () => { this.#actions.select(run, box.checked); },
    });
    const element = h("tr", { "data-run": run.execution_id, class: run.is_open ? "open" : "" },
      h("td", {}, box),
      this.#nameCell(run, name),
      this.#statusCell(run),
      h("td", { class: "when" }, clockOf(run.began_us), h("div", { class: "soft small" }, day)),
      worked,
      h("td", { class: "num" }, price(run.cost)),
      ...Object.values({ ...run.cells }).map((text) => h("td", { class: "further" }, oneLine(text, 200))),
      h("td", { class: "acts" }, h("span", { class: "bs" }, ...this.#buttons(run, name))),
    );
    return { run, content, element, worked, box };
  }

  #nameCell(run: RunView, name: string): HTMLElement {
    const badge = run.badge === "" ? [] : [" ", h("span", { class: "badge" }, oneLine(run.badge, 20))];
    const tags = run.tags.flatMap((tag) => [" ", h("span", { class: "tag" }, oneLine(tag, 40))]);
    const open = (): void => { this.#actions.act(run.is_open ? "close" : "open", run); };
    const link = h("a", { class: "name", role: "link", tabindex: 0, "data-part": "name", title: run.execution_id, onclick: open }, name);
    const about = h("div", { class: run.is_error ? "small error" : "small soft" }, oneLine(run.about, 200));
    return h("td", { class: "what" }, link, ...badge, ...tags, about);
  }

  #statusCell(run: RunView): HTMLElement {
    const status = h("span", { class: `st ${run.status}` }, h("span", { "aria-hidden": "true" }, `${statusSign(run.status)} `), run.status);
    return h("td", { class: "stands" }, status, h("div", { class: "small soft" }, ...this.#progressParts(run)));
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
    for (const { run, worked } of this.#rows.values()) setText(worked, workedText(run, this.#now()));
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
