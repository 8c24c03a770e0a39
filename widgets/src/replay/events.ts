// Virtual list of events: only the visible rows exist as elements.

import { h } from "../shared/dom";
import { newId } from "../shared/element";
import { oneLine } from "../shared/text";
import { branchOf, eventName } from "../shared/words";
import type { Entry } from "./log";
import type { Player } from "./player";
import { stopsAt } from "./log";

const ROW = 24;
const OVERSCAN = 4; // extra rows above and below the visible ones

/** List of the events of a log. It scrolls with the position, and a click goes to an event. */
export class EventList {
  readonly element: HTMLElement;
  readonly #player: Player;
  readonly #space = h("div", { class: "space", role: "presentation" });
  readonly #id = newId();
  readonly #resizeObserver: ResizeObserver;
  /** Positions of the listed events; null for all. */
  #places: number[] | null = null;

  constructor(player: Player) {
    this.#player = player;
    this.element = h("div", { class: "events", role: "listbox", tabindex: 0, "aria-label": "Events" }, this.#space);
    this.#resizeObserver = new ResizeObserver(() => { this.update(); }); // the list has no height before it is on the page
    this.#resizeObserver.observe(this.element);
    this.element.addEventListener("scroll", () => { this.#draw(); }, { passive: true });
    this.#space.addEventListener("click", (event) => {
      const row = event.target instanceof Element ? event.target.closest("[data-place]") : null;
      if (row !== null) player.step(Number(row.getAttribute("data-place")) - player.position);
    });
  }

  /** List only the events at these positions; null for all. */
  showOnly(places: number[] | null): void {
    this.#places = places;
    this.update();
  }

  get #count(): number {
    return this.#places?.length ?? this.#player.log.length;
  }

  /** Return the row of a position, counted from 0, or the row of the nearest listed event before it. */
  #rowOf(place: number): number {
    if (this.#places === null) return place - 1;
    const after = this.#places.findIndex((listedPlace) => listedPlace > place);
    return (after < 0 ? this.#places.length : after) - 1;
  }

  /** Mark the current position, and scroll to it if it is not visible. */
  update(): void {
    const { position } = this.#player;
    this.#space.style.height = `${this.#count * ROW}px`;
    const top = this.#rowOf(position) * ROW;
    const height = this.element.clientHeight;
    if (top < this.element.scrollTop || top + ROW > this.element.scrollTop + height) {
      this.element.scrollTop = Math.max(0, top - height / 3);
    }
    this.#draw();
  }

  destroy(): void {
    this.#resizeObserver.disconnect();
  }

  /** Create the visible rows. */
  #draw(): void {
    const { log, position } = this.#player;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - OVERSCAN);
    const count = Math.ceil((this.element.clientHeight || 300) / ROW) + 2 * OVERSCAN;
    const rows: HTMLElement[] = [];
    for (let row = first; row < Math.min(first + count, this.#count); row += 1) {
      const entry = log.at(this.#places?.[row] ?? row + 1);
      if (entry !== undefined) rows.push(this.#row(entry, row, entry.place === position));
    }
    this.#space.replaceChildren(...rows);
    const isVisible = position > 0 && rows.some((row) => row.getAttribute("aria-selected") === "true");
    if (isVisible) this.element.setAttribute("aria-activedescendant", `${this.#id}-${position}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #row(entry: Entry, row: number, isCurrent: boolean): HTMLElement {
    const { place, sequence, type, path, step, text } = entry;
    const location = [branchOf(path), step].filter((part) => part !== "").join(" › ");
    const isStop = stopsAt(this.#player.breakpoints, entry);
    const currentSign = isCurrent ? "▸" : "";
    return h(
      "div",
      {
        id: `${this.#id}-${place}`,
        class: "event",
        role: "option",
        style: `top: ${row * ROW}px`,
        title: oneLine(`${eventName(type)} ${location} ${text}`, 400),
        "aria-selected": isCurrent ? "true" : "false",
        "aria-posinset": row + 1,
        "aria-setsize": this.#count,
        "data-place": place,
      },
      h("span", { class: "dot" }, isStop ? "●" : currentSign),
      h("span", { class: "number" }, String(sequence)),
      h("span", { class: "type" }, eventName(type)),
      h("span", { class: "where" }, location),
      h("span", { class: "text" }, text),
    );
  }
}
