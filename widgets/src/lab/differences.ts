// Navigation through the differences of a comparison: an ordered map, filters by kind and text, and steps.

import { copyButton } from "../shared/copy";
import { h, setText } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { keysList } from "../shared/keys";

const MAX_SAME_WIDTH = 12; // times the width of a mark; limits long equal parts, so that each difference stays wide enough to be clicked

/** Kinds of marks on the map, the most specific first. */
const KINDS = ["better", "worse", "blocked", "changed", "added", "removed"] as const;
type Kind = (typeof KINDS)[number] | "";

/** Filters with their labels: the class of the rows that they show. The first one shows all rows outside of groups, the last one all rows. */
const FILTERS = [
  ["", "Differences"],
  ["better", "better"],
  ["worse", "worse"],
  ["changed", "changed"],
  ["added", "added"],
  ["removed", "removed"],
  ["blocked", "blocked"],
  ["costlier", "costs more"],
  ["request", "same result"],
  ["all", "All"],
] as const;
type Filter = (typeof FILTERS)[number][0];

/** Navigation for rows of HTML: rows with a difference, and rows that state how many rows between them have equal results. */
export class Differences {
  /** Elements to place above the rows. */
  readonly parts: HTMLElement[];
  readonly #rows: HTMLElement[];
  readonly #same: HTMLElement[];
  readonly #marks = new Map<HTMLElement, HTMLElement>();
  readonly #position = h("span", { role: "status" });
  readonly #search = h("input", { type: "search", "aria-label": "Search the differences", placeholder: "Step, prompt, answer", "aria-keyshortcuts": "/", oninput: () => { this.#applyFilter(); } });
  readonly #filters: HTMLElement;
  #filter: Filter = "";
  #current: HTMLElement | null = null;

  constructor(all: HTMLElement[], root: HTMLElement, frameCode = "") {
    this.#rows = all.filter(isDifference);
    this.#same = all.filter((row) => !isDifference(row));
    this.#filters = h("div", { class: "seg", role: "group", "aria-label": "Kinds of differences" });
    const counts = FILTERS.map(([filter, label]) => ({ filter, label, count: this.#rows.filter((row) => fits(row, filter)).length }));
    const total = counts[0]?.count ?? 0;
    // A filter that shows all differences or none is no choice.
    const isChoice = (filter: Filter, count: number): boolean => count > 0 && (filter === "" || filter === "better" || filter === "worse" || count !== total);
    const choices = counts.filter(({ filter, count }) => isChoice(filter, count));
    this.#filters.append(...choices.map(({ filter, label, count }) => this.#filterButton(filter, label, count)));
    this.#filters.hidden = choices.length < 2;
    const stepButton = (name: string, key: string, by: 1 | -1): HTMLElement => {
      const attributes = { class: "small", "aria-keyshortcuts": key, title: `${name} (${key})` };
      return button(name, () => { this.#step(by); }, attributes);
    };
    const keys = keysList(root);
    const previous = stepButton("Previous difference", "P", -1);
    const next = stepButton("Next difference", "N", 1);
    const frameTitle = "Copy the line of code that returns all differences as a DataFrame";
    const frame = frameCode !== "" && copyButton(() => frameCode, { class: "small", title: frameTitle }, "As a DataFrame");
    const steps = h("span", { class: "steps" }, this.#position, previous, next, frame, keys.button);
    const row = h("div", { class: "row" }, this.#filters, this.#search, h("span", { class: "grow" }), steps);
    // Rows inside of a folded group have no mark of their own: the mark of the group stands for them.
    this.parts = [row, this.#map(all.filter((one) => groupOf(one) === null)), keys.element];
    this.#showPosition();
  }

  /** Return the map: one mark for each difference in order. The width of an equal part grows with its length, up to a limit. */
  #map(all: HTMLElement[]): HTMLElement {
    const map = h("div", { class: "map", role: "group", "aria-label": "Map of the differences", "data-keys": "← →: previous or next difference on the map" });
    for (const row of all) map.append(isDifference(row) ? this.#mark(row) : sameMark(row));
    map.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      this.#step(by as 1 | -1);
      if (this.#current !== null) this.#marks.get(this.#current)?.focus();
    });
    const kinds = KINDS.filter((kind) => this.#rows.some((row) => kindOf(row) === kind));
    const legend = kinds.map((kind) => h("span", {}, h("span", { class: `mark ${kind}`, "aria-hidden": "true" }), kind));
    const same = h("span", {}, h("span", { class: "mark", "aria-hidden": "true" }), "same result");
    return h("div", { class: "mapped" }, map, h("div", { class: "legend" }, same, ...legend));
  }

  #mark(row: HTMLElement): HTMLElement {
    const name = nameOf(row);
    const mark = button("", () => { this.#goTo(row); }, { class: `mark ${kindOf(row)}`, "aria-label": name, title: name, tabindex: this.#marks.size === 0 ? 0 : -1 });
    this.#marks.set(row, mark);
    return mark;
  }

  #filterButton(filter: Filter, name: string, count: number): HTMLElement {
    const select = (): void => {
      this.#filter = filter;
      for (const other of this.#filters.children) setAttribute(other, "aria-pressed", String(other === element));
      this.#applyFilter();
    };
    const element = button(`${name} ${count.toLocaleString("en")}`, select, { class: "small", "aria-pressed": String(filter === this.#filter) });
    return element;
  }

  /**
   * Hide the rows that do not match. Groups of rows with the same result are unfolded if a filter finds some of their
   * rows; equal parts without such rows are shown only while no filter is set.
   */
  #applyFilter(): void {
    const words = this.#search.value.trim().toLowerCase();
    for (const row of this.#rows) {
      // Without a filter, a person may unfold a group and see all of its rows.
      row.hidden = (this.#filter !== "" && !fits(row, this.#filter)) || !row.textContent.toLowerCase().includes(words);
      this.#marks.get(row)?.classList.toggle("out", row.hidden);
    }
    const isFiltered = (this.#filter !== "" && this.#filter !== "all") || words !== "";
    for (const row of this.#same) {
      const inner = [...row.querySelectorAll<HTMLElement>(".divebook-difference")];
      const isFound = inner.some((one) => !one.hidden);
      row.hidden = isFiltered && !isFound;
      const group = row.querySelector("details");
      if (group !== null) group.open = isFound && (this.#filter !== "" || words !== "");
    }
    if (this.#current !== null && !this.#visibleRows().includes(this.#current)) this.#clearCurrent();
    this.#showPosition();
  }

  /** Go to the next or previous visible difference, around the ends. */
  #step(by: 1 | -1): void {
    const rows = this.#visibleRows();
    let place = by > 0 ? 0 : rows.length - 1;
    if (this.#current !== null) place = (rows.indexOf(this.#current) + by + rows.length) % rows.length;
    const row = rows[place];
    if (row !== undefined) this.#goTo(row);
  }

  #goTo(row: HTMLElement): void {
    this.#clearCurrent();
    this.#current = row;
    if (row.hidden) this.#resetFilter();
    row.classList.add("db-at");
    row.tabIndex = -1;
    for (const [other, mark] of this.#marks) {
      setAttribute(mark, "aria-current", other === row ? "true" : null);
      mark.tabIndex = other === row ? 0 : -1;
    }
    this.#showPosition();
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  }

  /** Show all rows again, because the person has chosen a hidden one on the map. */
  #resetFilter(): void {
    this.#search.value = "";
    (this.#filters.firstElementChild as HTMLElement).click();
  }

  #clearCurrent(): void {
    this.#current?.classList.remove("db-at");
    if (this.#current !== null) setAttribute(this.#marks.get(this.#current) ?? this.#current, "aria-current", null);
    this.#current = null;
  }

  #visibleRows(): HTMLElement[] {
    return this.#rows.filter((row) => !row.hidden && groupOf(row)?.open !== false);
  }

  #showPosition(): void {
    const rows = this.#visibleRows();
    const count = rows.length.toLocaleString("en");
    let text = `${count} shown`;
    if (rows.length === 0) text = "no match";
    else if (this.#current !== null) text = `${(rows.indexOf(this.#current) + 1).toLocaleString("en")} of ${count}`;
    setText(this.#position, text);
  }
}

/** Return whether a row shows a difference, and not the number of equal rows. */
export function isDifference(row: HTMLElement): boolean {
  return row.matches(".divebook-difference");
}

/** Return whether a filter shows a row. */
function fits(row: HTMLElement, filter: Filter): boolean {
  if (filter === "all") return true;
  return filter === "" ? groupOf(row) === null : has(row, filter);
}

function has(row: HTMLElement, name: string): boolean {
  return row.classList.contains(`divebook-${name}`);
}

/** Return the group of rows with the same result that contains a row, or null. */
function groupOf(row: HTMLElement): HTMLDetailsElement | null {
  return row.parentElement?.closest<HTMLDetailsElement>(".divebook-same details") ?? null;
}

/** Return the kind of a difference from the classes of its row. Rows saved by an older version have no kind. */
function kindOf(row: HTMLElement): Kind {
  return KINDS.find((kind) => has(row, kind)) ?? "";
}

/** Return the name of a difference, from the first cell of its row, with the verdict from the last one. */
function nameOf(row: HTMLElement): string {
  const texts = [...(row.firstElementChild?.children ?? []), ...(row.lastElementChild?.querySelectorAll("strong") ?? [])];
  return [...new Set(texts)].map((part) => part.textContent.trim()).join(" ") || "a difference";
}

/** Return the mark of equal rows. Its width grows with the square root of their number, which the row contains. */
function sameMark(row: HTMLElement): HTMLElement {
  const text = row.querySelector("summary")?.textContent ?? row.textContent;
  const count = Number((/\d[\d,]*/.exec(text)?.[0] ?? "1").replaceAll(",", ""));
  const mark = h("span", { class: "mark", title: text.trim() });
  mark.style.flexGrow = String(Math.min(MAX_SAME_WIDTH, Math.sqrt(count)));
  return mark;
}
