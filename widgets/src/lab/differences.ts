// Navigation through the differences of a comparison: an ordered map, filters by kind and text, and steps.

import { h, setText } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { keysList } from "../shared/keys";

const KINDS = ["changed", "added", "removed"] as const;
const MAX_SAME_WIDTH = 12; // times the width of a mark; limits long equal parts, so that each difference stays wide enough to be clicked
type Kind = (typeof KINDS)[number] | "";

/** Navigation for rows of HTML: rows with a difference, and rows that state how many rows between them are equal. */
export class Differences {
  /** Elements to place above the rows. */
  readonly parts: HTMLElement[];
  readonly #rows: HTMLElement[];
  readonly #same: HTMLElement[];
  readonly #marks = new Map<HTMLElement, HTMLElement>();
  readonly #position = h("span", { role: "status" });
  readonly #search = h("input", { type: "search", "aria-label": "Search the differences", placeholder: "Step, prompt, answer", "aria-keyshortcuts": "/", oninput: () => { this.#applyFilter(); } });
  readonly #kinds: HTMLElement;
  #kind: Kind = "";
  #current: HTMLElement | null = null;

  constructor(all: HTMLElement[], root: HTMLElement) {
    this.#rows = all.filter(isDifference);
    this.#same = all.filter((row) => !isDifference(row));
    this.#kinds = h("div", { class: "seg", role: "group", "aria-label": "Which differences" });
    const counts = KINDS.map((kind) => ({ kind, count: this.#rows.filter((row) => kindOf(row) === kind).length }));
    const present = counts.filter(({ count }) => count > 0);
    this.#kinds.append(this.#kindButton("", "All", this.#rows.length), ...present.map(({ kind, count }) => this.#kindButton(kind, kind, count)));
    this.#kinds.hidden = present.length < 2;
    const stepButton = (name: string, key: string, by: 1 | -1): HTMLElement => {
      const attributes = { class: "small", "aria-keyshortcuts": key, title: `${name} (${key})` };
      return button(name, () => { this.#step(by); }, attributes);
    };
    const keys = keysList(root);
    const previous = stepButton("Difference before", "P", -1);
    const next = stepButton("Next difference", "N", 1);
    const row = h("div", { class: "row" }, this.#kinds, this.#search, h("span", { class: "grow" }), this.#position, previous, next, keys.button);
    this.parts = [row, this.#map(all), keys.element];
    this.#showPosition();
  }

  /** Return the map: one mark for each difference in order. The width of an equal part grows with its length, up to a limit. */
  #map(all: HTMLElement[]): HTMLElement {
    const map = h("div", { class: "map", role: "group", "aria-label": "Map of the differences", "data-keys": "← →: difference to difference, on the map" });
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
    const same = h("span", {}, h("span", { class: "mark", "aria-hidden": "true" }), "the same");
    return h("div", { class: "mapped" }, map, h("div", { class: "legend" }, same, ...legend));
  }

  #mark(row: HTMLElement): HTMLElement {
    const name = nameOf(row);
    const mark = button("", () => { this.#goTo(row); }, { class: `mark ${kindOf(row)}`, "aria-label": name, title: name, tabindex: this.#marks.size === 0 ? 0 : -1 });
    this.#marks.set(row, mark);
    return mark;
  }

  #kindButton(kind: Kind, name: string, count: number): HTMLElement {
    const select = (): void => {
      this.#kind = kind;
      for (const other of this.#kinds.children) setAttribute(other, "aria-pressed", String(other === element));
      this.#applyFilter();
    };
    const element = button(`${name} ${count.toLocaleString("en")}`, select, { class: "small", "aria-pressed": String(kind === this.#kind) });
    return element;
  }

  /** Hide the rows that do not match. Equal parts are shown only while no filter is set. */
  #applyFilter(): void {
    const words = this.#search.value.trim().toLowerCase();
    for (const row of this.#rows) {
      row.hidden = (this.#kind !== "" && kindOf(row) !== this.#kind) || !row.textContent.toLowerCase().includes(words);
      this.#marks.get(row)?.classList.toggle("out", row.hidden);
    }
    for (const row of this.#same) row.hidden = this.#kind !== "" || words !== "";
    if (this.#current?.hidden === true) this.#clearCurrent();
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
    (this.#kinds.firstElementChild as HTMLElement).click();
  }

  #clearCurrent(): void {
    this.#current?.classList.remove("db-at");
    if (this.#current !== null) setAttribute(this.#marks.get(this.#current) ?? this.#current, "aria-current", null);
    this.#current = null;
  }

  #visibleRows(): HTMLElement[] {
    return this.#rows.filter((row) => !row.hidden);
  }

  #showPosition(): void {
    const rows = this.#visibleRows();
    const count = rows.length.toLocaleString("en");
    let text = `${count} here`;
    if (rows.length === 0) text = "none of them fits";
    else if (this.#current !== null) text = `${(rows.indexOf(this.#current) + 1).toLocaleString("en")} of ${count}`;
    setText(this.#position, text);
  }
}

/** Return whether a row shows a difference, and not the number of equal rows. */
export function isDifference(row: HTMLElement): boolean {
  return row.matches(".divebook-difference");
}

/** Return the kind of a difference from the class of its row. Rows saved by an older version have no kind. */
function kindOf(row: HTMLElement): Kind {
  return KINDS.find((kind) => row.classList.contains(`divebook-${kind}`)) ?? "";
}

/** Return the name of a difference, from the cells of its row. */
function nameOf(row: HTMLElement): string {
  return [...(row.firstElementChild?.children ?? [])].map((part) => part.textContent.trim()).join(" ") || "a difference";
}

/** Return the mark of equal rows. Its width grows with the square root of their number, which the row contains. */
function sameMark(row: HTMLElement): HTMLElement {
  const count = Number((/\d[\d,]*/.exec(row.textContent)?.[0] ?? "1").replaceAll(",", ""));
  const mark = h("span", { class: "mark", title: row.textContent.trim() });
  mark.style.flexGrow = String(Math.min(MAX_SAME_WIDTH, Math.sqrt(count)));
  return mark;
}
