// The spans of one execution as columns: a hundred thousand of them cost a few megabytes, and no object each.

import type { SpanBlock } from "../protocol";

const BLOCK = 256;
const INT_COLUMNS = ["kind", "path", "step", "type", "label", "item", "given", "came", "status", "note", "iteration", "visit", "attempts", "tokens", "sequence", "within"] as const;
type IntColumn = (typeof INT_COLUMNS)[number];

/** Spans by their id, which is their place in the order of beginning. Texts are places in `names`. */
export class Spans {
  readonly names: string[] = [""];
  /** How many there are in all, those included that are not here yet. */
  total = 0;
  /** From this id on all are here; of those before only some that run. */
  floor = 0;
  /** Ids below the floor that are here. */
  early: number[] = [];
  /** Ids of those that run. */
  readonly running = new Set<number>();
  /** Microseconds since the origin. */
  start = new Float64Array(0);
  /** The same; -1 while it runs. */
  end = new Float64Array(0);
  /** Counts changes of what is here, so that others know when to look again. */
  version = 0;
  /** The latest moment that is known. */
  latest = 0;
  #columns = {} as Record<IntColumn, Int32Array>;
  #known = new Uint8Array(0);
  #sortKey = new Float64Array(0);
  #blockEnd = new Float64Array(0);
  readonly #places = new Map<string, number>([["", 0]]);

  constructor() {
    for (const name of INT_COLUMNS) this.#columns[name] = new Int32Array(0);
  }

  /** Forgets everything. */
  clear(): void {
    this.total = this.floor = this.latest = 0;
    this.early = [];
    this.running.clear();
    this.#known.fill(0);
    this.#blockEnd.fill(0);
    this.version++;
  }

  has(id: number): boolean {
    return this.#known[id] === 1;
  }

  /** Returns the place of a text among the names; -1 if no span has it. */
  code(text: string): number {
    return this.#places.get(text) ?? -1;
  }

  column(name: IntColumn): Int32Array {
    return this.#columns[name];
  }

  /** Returns a text of a span. */
  text(id: number, column: IntColumn): string {
    return this.names[this.#columns[column][id] ?? 0] ?? "";
  }

  number(id: number, column: IntColumn): number {
    return this.#columns[column][id] ?? 0;
  }

  startOf(id: number): number {
    return this.start[id] ?? 0;
  }

  /** Returns where a span ends; one that runs ends at `now`. */
  endOf(id: number, now: number): number {
    const end = this.end[id] ?? 0;
    return end < 0 ? Math.max(now, this.startOf(id)) : end;
  }

  /** Returns the short name of a span: its step, with the number of the item if it is one. */
  nameOf(id: number): string {
    const item = this.number(id, "iteration");
    return item < 0 ? this.text(id, "step") : `${this.text(id, "step")}[${item}]`;
  }

  /** Takes over spans; returns whether one of them came out of order. */
  take(block: SpanBlock, total: number, floor = this.floor): boolean {
    this.#grow(total);
    const before = this.total;
    this.total = Math.max(this.total, total);
    this.floor = Math.min(floor, this.total);
    const texts = block.names.map((name) => this.#place(name));
    let inOrder = true;
    block.id.forEach((id, row) => {
      if (id < before && !this.has(id)) inOrder = false;
      this.#write(id, row, block, texts);
    });
    this.early = this.early.filter((id) => id < this.floor);
    this.version++;
    return !inOrder;
  }

  #write(id: number, row: number, block: SpanBlock, texts: number[]): void {
    if (id < this.floor && !this.has(id)) this.early.push(id);
    this.#known[id] = 1;
    const start = block.start[row] ?? 0;
    const end = block.end[row] ?? -1;
    this.start[id] = start;
    this.end[id] = end;
    const previous = id > this.floor ? (this.#sortKey[id - 1] ?? 0) : 0;
    this.#sortKey[id] = Math.max(start, previous); // clocks can be set back
    for (const name of ["kind", "path", "step", "type", "label", "item", "given", "came", "status", "note"] as const) {
      this.#columns[name][id] = texts[block[name][row] ?? 0] ?? 0;
    }
    for (const name of ["iteration", "visit", "attempts", "tokens", "sequence", "within"] as const) {
      this.#columns[name][id] = block[name][row] ?? 0;
    }
    if (end < 0) this.running.add(id);
    else this.running.delete(id);
    const group = Math.floor(id / BLOCK);
    this.#blockEnd[group] = Math.max(this.#blockEnd[group] ?? 0, end < 0 ? Infinity : end);
    this.latest = Math.max(this.latest, start, end);
  }

  #place(text: string): number {
    const known = this.#places.get(text);
    if (known !== undefined) return known;
    this.#places.set(text, this.names.length);
    return this.names.push(text) - 1;
  }

  #grow(total: number): void {
    if (total <= this.#known.length) return;
    const size = Math.max(1024, total, this.#known.length * 2);
    this.start = enlarged(this.start, Float64Array, size);
    this.end = enlarged(this.end, Float64Array, size);
    this.#sortKey = enlarged(this.#sortKey, Float64Array, size);
    this.#blockEnd = enlarged(this.#blockEnd, Float64Array, Math.ceil(size / BLOCK));
    this.#known = enlarged(this.#known, Uint8Array, size);
    for (const name of INT_COLUMNS) this.#columns[name] = enlarged(this.#columns[name], Int32Array, size);
  }

  /** Calls `visit` for the spans that touch a stretch of time, in the order of their ids. */
  within(from: number, to: number, visit: (id: number) => void): void {
    for (const id of this.early) {
      if (this.startOf(id) <= to && this.endOf(id, Infinity) >= from) visit(id);
    }
    const stop = this.firstAfter(to);
    for (let id = this.floor; id < stop; ) {
      const groupStop = Math.min(stop, (Math.floor(id / BLOCK) + 1) * BLOCK);
      if ((this.#blockEnd[Math.floor(id / BLOCK)] ?? 0) >= from) {
        for (; id < groupStop; id++) {
          const end = this.end[id] ?? 0;
          if ((end < 0 || end >= from) && this.#known[id] === 1) visit(id);
        }
      }
      id = groupStop;
    }
  }

  /** Returns the first id that begins after a moment. */
  firstAfter(moment: number): number {
    let low = this.floor;
    let high = this.total;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#sortKey[middle] ?? 0) <= moment) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function enlarged<T extends Float64Array | Int32Array | Uint8Array>(old: T, make: new (size: number) => T, size: number): T {
  const larger = new make(size);
  larger.set(old);
  return larger;
}

const REQUESTS = new Set(["agent_response", "cached_response"]);

/** Returns what is a conversation of its own, from an id on: turns that no other turn gave their work, and single requests. */
export function rootsOf(spans: Spans, from = 0): number[] {
  const isRoot = (id: number): boolean => {
    if (spans.text(id, "kind") !== "operation" || spans.number(id, "within") >= 0) return false;
    const type = spans.text(id, "type");
    return type === "agent_turn" || REQUESTS.has(type);
  };
  const found = from === 0 ? spans.early.filter(isRoot) : [];
  for (let id = Math.max(from, spans.floor); id < spans.total; id++) if (isRoot(id)) found.push(id);
  return found;
}
