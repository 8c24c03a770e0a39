// Virtual list: only the visible rows exist as elements.

import { h, type View } from "./dom";

const ROW = 24; // pixels
const OVERSCAN = 4; // extra rows above and below the visible ones
const MAX_HEIGHT = 8_000_000; // pixels; browsers limit the height of elements. Longer lists scroll in proportion.

/** Content of a list. */
export interface Rows {
  /** Return the number of rows. */
  count: () => number;
  /** Fill the cells of an element that `create` returned. */
  fill: (row: HTMLElement, index: number) => void;
  create: () => HTMLElement;
}

/** Scrollable list of rows of equal height. Elements are reused. */
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

  /** Draw the visible rows. */
  update(): void {
    const count = this.rows.count();
    this.element.setAttribute("aria-rowcount", String(count + 1));
    const height = Math.min(MAX_HEIGHT, count * ROW);
    this.#space.style.height = `${height}px`;
    const { clientHeight, scrollTop } = this.element;
    const fullHeight = count * ROW;
    // In a list that is higher than `MAX_HEIGHT`, the scroll position is a share of all rows, not a distance in pixels.
    const share = Math.min(1, scrollTop / Math.max(1, height - clientHeight));
    const firstVisible = Math.floor((share * Math.max(0, fullHeight - clientHeight)) / ROW);
    const first = Math.max(0, firstVisible - OVERSCAN);
    const rowCount = Math.min(count - first, Math.ceil(clientHeight / ROW) + 2 * OVERSCAN);
    const top = height < fullHeight ? scrollTop - OVERSCAN * ROW : first * ROW;
    while (this.#pool.length < rowCount) this.#add();
    this.#pool.forEach((row, index) => {
      row.hidden = index >= rowCount;
      if (row.hidden) return;
      row.style.transform = `translateY(${Math.max(0, top) + index * ROW}px)`;
      row.setAttribute("aria-rowindex", String(first + index + 2));
      this.rows.fill(row, first + index);
    });
  }

  #add(): void {
    const row = this.rows.create();
    this.#pool.push(row);
    this.#space.append(row);
  }

  /** Scroll until a row is visible. */
  reveal(index: number): void {
    const height = Math.min(MAX_HEIGHT, this.rows.count() * ROW);
    const top = (index / Math.max(1, this.rows.count())) * height;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top + 2 * ROW > scrollTop + clientHeight) this.element.scrollTop = Math.max(0, top - clientHeight / 2);
    this.update();
  }
}
