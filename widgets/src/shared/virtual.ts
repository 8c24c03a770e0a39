// A list of any length of which only what is seen exists as elements.

import { h, type View } from "./dom";

const ROW = 24;
const AROUND = 4;
const MOST_HIGH = 8_000_000; // browsers end somewhere above; longer lists are scrolled in proportion

export interface Rows {
  /** How many there are. */
  count: () => number;
  /** Fills a row's cells; the row has been made by `make`. */
  fill: (row: HTMLElement, index: number) => void;
  make: () => HTMLElement;
}

/** Rows of equal height in a box that scrolls. */
export class VirtualList implements View {
  readonly element: HTMLElement;
  readonly #space = h("div", { class: "db-space", role: "presentation" });
  readonly #pool: HTMLElement[] = [];

  constructor(private readonly rows: Rows, label: string, head: HTMLElement) {
    this.element = h("div", { class: "db-list", role: "table", "aria-label": label, tabindex: 0 }, head, this.#space);
    this.element.addEventListener("scroll", () => { this.update(); });
  }

  destroy(): void {
    this.element.remove();
  }

  /** Shows what is there now. */
  update(): void {
    const count = this.rows.count();
    this.element.setAttribute("aria-rowcount", String(count + 1));
    const height = Math.min(MOST_HIGH, count * ROW);
    this.#space.style.height = `${height}px`;
    const seen = Math.ceil(this.element.clientHeight / ROW);
    const scrolled = this.element.scrollTop;
    const most = Math.max(1, height - this.element.clientHeight);
    const first = Math.max(0, Math.floor((Math.min(1, scrolled / most) * Math.max(0, count * ROW - this.element.clientHeight)) / ROW) - AROUND);
    const wanted = Math.min(count - first, seen + 2 * AROUND);
    const top = height < count * ROW ? scrolled - AROUND * ROW : first * ROW;
    while (this.#pool.length < wanted) this.#add();
    this.#pool.forEach((row, place) => {
      row.hidden = place >= wanted;
      if (row.hidden) return;
      row.style.transform = `translateY(${Math.max(0, top) + place * ROW}px)`;
      row.setAttribute("aria-rowindex", String(first + place + 2));
      this.rows.fill(row, first + place);
    });
  }

  #add(): void {
    const row = this.rows.make();
    this.#pool.push(row);
    this.#space.append(row);
  }

  /** Scrolls so far that a row is seen. */
  reveal(index: number): void {
    const height = Math.min(MOST_HIGH, this.rows.count() * ROW);
    const top = (index / Math.max(1, this.rows.count())) * height;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top + 2 * ROW > scrollTop + clientHeight) this.element.scrollTop = Math.max(0, top - clientHeight / 2);
    this.update();
  }
}
