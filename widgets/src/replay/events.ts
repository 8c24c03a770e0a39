// Virtual list of events: only the visible ones are elements of the page.

import { h } from "../shared/dom";
import { newId } from "../shared/element";
import { oneLine } from "../shared/text";
import { branchOf, eventName } from "../shared/words";
import type { Entry } from "./log";
import type { Player } from "./player";
import { stopsAt } from "./log";

const ROW = 24;
const SPARE = 4;

/** Shows a log's events around the position; a click goes to an event. */
export class EventList {
  readonly element: HTMLElement;
  readonly #player: Player;
  readonly #space = h("div", { class: "space", role: "presentation" });
  readonly #id = newId();
  readonly #resized: ResizeObserver;
  /** Places of the events that are shown; null for all. */
  #places: number[] | null = null;

  constructor(player: Player) {
    this.#player = player;
    this.element = h("div", { class: "events", role: "listbox", tabindex: 0, "aria-label": "Events" }, this.#space);
    this.#resized = new ResizeObserver(() => { this.update(); }); // it has no height before it is on the page
    this.#resized.observe(this.element);
    this.element.addEventListener("scroll", () => { this.#draw(); }, { passive: true });
    this.#space.addEventListener("click", (event) => {
      const row = event.target instanceof Element ? event.target.closest("[data-place]") : null;
      if (row !== null) player.step(Number(row.getAttribute("data-place")) - player.position);
    });
  }

  /** Shows only the events at these places from now on; null for all. */
  only(places: number[] | null): void {
    this.#places = places;
    this.update();
  }

  get #count(): number {
    return this.#places?.length ?? this.#player.log.length;
  }

  /** Returns the row of a place, counted from 0, or of the nearest before it that is shown. */
  #rowOf(place: number): number {
    if (this.#places === null) return place - 1;
    const after = this.#places.findIndex((shown) => shown > place);
    return (after < 0 ? this.#places.length : after) - 1;
  }

  /** Shows the present position, scrolled to if it is out of sight. */
  update(): void {
    const { position } = this.#player;
    this.#space.style.height = `${this.#count * ROW}px`;
    const [top, height] = [this.#rowOf(position) * ROW, this.element.clientHeight];
    if (top < this.element.scrollTop || top + ROW > this.element.scrollTop + height) {
      this.element.scrollTop = Math.max(0, top - height / 3);
    }
    this.#draw();
  }

  destroy(): void {
    this.#resized.disconnect();
  }

  #draw(): void {
    const { log, position } = this.#player;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - SPARE);
    const count = Math.ceil((this.element.clientHeight || 300) / ROW) + 2 * SPARE;
    const rows: HTMLElement[] = [];
    for (let row = first; row < Math.min(first + count, this.#count); row += 1) {
      const entry = log.at(this.#places?.[row] ?? row + 1);
      if (entry !== undefined) rows.push(this.#row(entry, row, entry.place === position));
    }
    this.#space.replaceChildren(...rows);
    if (position > 0 && rows.some((row) => row.getAttribute("aria-selected") === "true")) this.element.setAttribute("aria-activedescendant", `${this.#id}-${position}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #row(entry: Entry, row: number, isHere: boolean): HTMLElement {
    const { place, sequence, type, path, step, text } = entry;
    const where = [branchOf(path), step].filter((part) => part !== "").join(" › ");
    const isStop = stopsAt(this.#player.breakpoints, entry);
    return h(
      "div",
      {
        id: `${this.#id}-${place}`,
        class: "event",
        role: "option",
        style: `top: ${row * ROW}px`,
        title: oneLine(`${eventName(type)} ${where} ${text}`, 400),
        "aria-selected": isHere ? "true" : "false",
        "aria-posinset": row + 1,
        "aria-setsize": this.#count,
        "data-place": place,
      },
      h("span", { class: "dot" }, isStop ? "●" : isHere ? "▸" : ""),
      h("span", { class: "number" }, String(sequence)),
      h("span", { class: "type" }, eventName(type)),
      h("span", { class: "where" }, where),
      h("span", { class: "text" }, text),
    );
  }
}
