// Virtual list of events: only the visible rows exist as elements.

import { h, setText } from "../shared/dom";
import { newId, setAttribute } from "../shared/element";
import { duration, formatCount, tickLabel } from "../shared/format";
import { oneLine } from "../shared/text";
import { branchOf, eventName } from "../shared/words";
import { kindBadge, kindName } from "./badge";
import { isError, stopsAt, type Entry } from "./log";
import type { Player } from "./player";

const ROW = 24;
const OVERSCAN = 4; // extra rows above and below the visible ones
const SECOND = 1_000_000; // microseconds
const HUNDREDTH = SECOND / 100;

/** Return the time of an event since the first event, as a list shows it: in milliseconds or hundredths of a second. */
export function timeOf({ time }: Entry): string {
  return time < SECOND ? duration(time) : tickLabel(time, HUNDREDTH);
}

/** Return the display name of an event: that of its type, with the kind of call that started or ended. */
export function nameOf({ type, kind }: Entry): string {
  const name = eventName(type);
  return kind === "" || !type.startsWith("operation_") ? name : name.replace(/^call/, kindName(kind));
}

/** Return the place of an event: its step with the number of the item, and its branch. */
export function placeOf({ path, step, item }: Entry): string {
  return [branchOf(path), item === "" ? step : `${step}[${item}]`].filter((part) => part !== "").join(" › ");
}

/** Return the text of an event without the type of the operation, which its name contains. */
export function textOf({ text, kind }: Entry): string {
  return kind !== "" && text.startsWith(kind) ? text.slice(kind.length).trim() : text;
}

/** List of the events of a log. It scrolls with the position, and a click goes to an event. */
export class EventList {
  readonly element: HTMLElement;
  readonly #player: Player;
  readonly #space = h("div", { class: "space", role: "presentation" });
  readonly #id = newId();
  readonly #resizeObserver: ResizeObserver;
  /** Elements of the visible rows by position. */
  #rows = new Map<number, HTMLElement>();
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

  /** Create the visible rows. Rows that stay keep their elements, so that a click is not lost if the list grows meanwhile. */
  #draw(): void {
    const { log } = this.#player;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - OVERSCAN);
    const count = Math.ceil((this.element.clientHeight || 300) / ROW) + 2 * OVERSCAN;
    const rows = new Map<number, HTMLElement>();
    for (let row = first; row < Math.min(first + count, this.#count); row += 1) {
      const entry = log.at(this.#places?.[row] ?? row + 1);
      if (entry === undefined) continue;
      const element = this.#rows.get(entry.place) ?? this.#row(entry);
      this.#updateRow(element, entry, row);
      rows.set(entry.place, element);
    }
    for (const [place, element] of this.#rows) {
      if (rows.get(place) !== element) element.remove();
    }
    [...rows.values()].forEach((element, index) => {
      const present = this.#space.children[index];
      if (present !== element) this.#space.insertBefore(element, present ?? null);
    });
    this.#rows = rows;
    const current = rows.get(this.#player.position);
    if (current === undefined) this.element.removeAttribute("aria-activedescendant");
    else this.element.setAttribute("aria-activedescendant", current.id);
  }

  #row(entry: Entry): HTMLElement {
    const { place, sequence, kind } = entry;
    const sign = isError(entry) ? h("span", { class: "sign wrong", role: "img", "aria-label": "failed" }, "✕") : null;
    const question = kind === "interrupt" ? h("span", { class: "sign", role: "img", "aria-label": "question" }, "?") : null;
    return h(
      "div",
      {
        id: `${this.#id}-${place}`,
        class: "event",
        role: "option",
        title: oneLine(`${nameOf(entry)} ${placeOf(entry)} ${textOf(entry)}`, 400),
        "data-place": place,
      },
      h("span", { class: "dot" }),
      h("span", { class: "number" }, formatCount(sequence)),
      sign ?? question ?? kindBadge(kind),
      h("span", { class: "type" }, nameOf(entry)),
      h("span", { class: "where" }, placeOf(entry)),
      h("span", { class: "text" }, textOf(entry)),
      h("span", { class: "time" }, timeOf(entry)),
    );
  }

  /** Show what can change of a row: its place in the list, the position and the breakpoints. */
  #updateRow(element: HTMLElement, entry: Entry, row: number): void {
    const isCurrent = entry.place === this.#player.position;
    const currentSign = isCurrent ? "▸" : "";
    const dot = element.firstElementChild;
    element.style.top = `${row * ROW}px`;
    setAttribute(element, "aria-selected", String(isCurrent));
    setAttribute(element, "aria-posinset", row + 1);
    setAttribute(element, "aria-setsize", this.#count);
    if (dot !== null) setText(dot, stopsAt(this.#player.breakpoints, entry) ? "●" : currentSign);
  }
}
