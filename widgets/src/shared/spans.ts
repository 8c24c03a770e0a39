// Columnar store of the spans of one execution: 100,000 spans take a few megabytes, without an object per span.

import { AGENT_TURN, MODEL_CALLS, SPAN_NUMBERS, SPAN_TEXTS } from "../constants";
import type { SpanBlock } from "../protocol";

const BLOCK = 256; // spans that share one latest end, which `within` uses to skip them
const OTHER_COLUMNS = ["id", "start", "end"] as const; // the id is the index of a span, and times have columns of their own
type NumberColumn = Exclude<(typeof SPAN_NUMBERS)[number], (typeof OTHER_COLUMNS)[number]>;
const NUMBER_COLUMNS = SPAN_NUMBERS.filter((name): name is NumberColumn => !(OTHER_COLUMNS as readonly string[]).includes(name));
const INT_COLUMNS = [...SPAN_TEXTS, ...NUMBER_COLUMNS];
type IntColumn = (typeof INT_COLUMNS)[number];

/** Spans by id. Ids count spans in the order of their beginning. Texts are stored as indices into `names`. */
export class Spans {
  readonly names: string[] = [""];
  /** Number of spans in total, including those that are not loaded yet. */
  total = 0;
  /** From this id on all spans are loaded. Before it, only some (running or sampled ones). */
  floor = 0;
  /** Loaded ids below the floor. */
  early: number[] = [];
  /** Ids of running spans. */
  readonly running = new Set<number>();
  /** Microseconds since the origin. */
  start = new Float64Array(0);
  /** Microseconds since the origin; -1 while the span runs. */
  end = new Float64Array(0);
  /** Number of changes, so that views can detect new spans. */
  version = 0;
  /** Latest start or end of a loaded span. */
  latest = 0;
  #columns = {} as Record<IntColumn, Int32Array>;
  #isLoaded = new Uint8Array(0);
  /** Start of each span, or of an earlier span if that is later: ascending, for the binary search. */
  #sortKey = new Float64Array(0);
  /** Latest end in each block of spans. */
  #blockEnd = new Float64Array(0);
  readonly #indices = new Map<string, number>([["", 0]]);

  constructor() {
    for (const name of INT_COLUMNS) this.#columns[name] = new Int32Array(0);
  }

  /** Remove all spans. */
  clear(): void {
    this.total = this.floor = this.latest = 0;
    this.early = [];
    this.running.clear();
    this.#isLoaded.fill(0);
    this.#blockEnd.fill(0);
    this.version++;
  }

  /** Return true if a span is loaded. */
  has(id: number): boolean {
    return this.#isLoaded[id] === 1;
  }

  /** Return the index of a text in `names`; -1 if no span has it. */
  code(text: string): number {
    return this.#indices.get(text) ?? -1;
  }

  /** Return a column, for loops over many spans. */
  column(name: IntColumn): Int32Array {
    return this.#columns[name];
  }

  /** Return a text of a span. */
  text(id: number, column: IntColumn): string {
    return this.names[this.#columns[column][id] ?? 0] ?? "";
  }

  /** Return a number of a span. */
  number(id: number, column: IntColumn): number {
    return this.#columns[column][id] ?? 0;
  }

  /** Return the start of a span in microseconds since the origin. */
  startOf(id: number): number {
    return this.start[id] ?? 0;
  }

  /** Return the end of a span; `now` for a running one. */
  endOf(id: number, now: number): number {
    const end = this.end[id] ?? 0;
    return end < 0 ? Math.max(now, this.startOf(id)) : end;
  }

  /** Return the short name of a span: its step, and the index of its item if it has one. */
  nameOf(id: number): string {
    const item = this.number(id, "iteration");
    return item < 0 ? this.text(id, "step") : `${this.text(id, "step")}[${item}]`;
  }

  /** Add or update spans. Return true if one of them arrived out of order. */
  add(block: SpanBlock, total: number, floor = this.floor): boolean {
    this.#reserve(total);
    const before = this.total;
    this.total = Math.max(this.total, total);
    this.floor = Math.min(floor, this.total);
    const texts = block.names.map((name) => this.#indexOf(name));
    let isInOrder = true;
    block.id.forEach((id, row) => {
      if (id < before && !this.has(id)) isInOrder = false;
      this.#write(id, row, block, texts);
    });
    this.early = this.early.filter((id) => id < this.floor);
    this.version++;
    return !isInOrder;
  }

  /** Write one span into the columns. Its texts are indices into the block's names, translated by `texts`. */
  #write(id: number, row: number, block: SpanBlock, texts: number[]): void {
    if (id < this.floor && !this.has(id)) this.early.push(id);
    this.#isLoaded[id] = 1;
    const start = block.start[row] ?? 0;
    const end = block.end[row] ?? -1;
    this.start[id] = start;
    this.end[id] = end;
    const previous = id > this.floor ? (this.#sortKey[id - 1] ?? 0) : 0;
    this.#sortKey[id] = Math.max(start, previous); // clocks can be set back
    for (const name of SPAN_TEXTS) {
      this.#columns[name][id] = texts[block[name][row] ?? 0] ?? 0;
    }
    for (const name of NUMBER_COLUMNS) {
      this.#columns[name][id] = block[name][row] ?? 0;
    }
    if (end < 0) this.running.add(id);
    else this.running.delete(id);
    const group = Math.floor(id / BLOCK);
    this.#blockEnd[group] = Math.max(this.#blockEnd[group] ?? 0, end < 0 ? Infinity : end);
    this.latest = Math.max(this.latest, start, end);
  }

  #indexOf(text: string): number {
    const index = this.#indices.get(text);
    if (index !== undefined) return index;
    this.#indices.set(text, this.names.length);
    return this.names.push(text) - 1;
  }

  /** Enlarge the columns; the capacity at least doubles, so that adding spans one by one stays linear. */
  #reserve(total: number): void {
    if (total <= this.#isLoaded.length) return;
    const size = Math.max(1024, total, this.#isLoaded.length * 2);
    this.start = copyEnlarged(this.start, Float64Array, size);
    this.end = copyEnlarged(this.end, Float64Array, size);
    this.#sortKey = copyEnlarged(this.#sortKey, Float64Array, size);
    this.#blockEnd = copyEnlarged(this.#blockEnd, Float64Array, Math.ceil(size / BLOCK));
    this.#isLoaded = copyEnlarged(this.#isLoaded, Uint8Array, size);
    for (const name of INT_COLUMNS) this.#columns[name] = copyEnlarged(this.#columns[name], Int32Array, size);
  }

  /** Call `visit` for the spans that overlap a period, in the order of their ids. */
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
          if ((end < 0 || end >= from) && this.#isLoaded[id] === 1) visit(id);
        }
      }
      id = groupStop;
    }
  }

  /** Return the first id that begins after a moment (binary search). */
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

function copyEnlarged<T extends Float64Array | Int32Array | Uint8Array>(column: T, make: new (size: number) => T, size: number): T {
  const copy = new make(size);
  copy.set(column);
  return copy;
}

const REQUESTS: ReadonlySet<string> = new Set(MODEL_CALLS);

/** Return the ids, from `from` on, of separate conversations: turns without a parent turn, and single model requests. */
export function rootsOf(spans: Spans, from = 0): number[] {
  const isRoot = (id: number): boolean => {
    if (spans.text(id, "kind") !== "operation" || spans.number(id, "within") >= 0) return false;
    const type = spans.text(id, "type");
    return type === AGENT_TURN || REQUESTS.has(type);
  };
  const roots = from === 0 ? spans.early.filter(isRoot) : [];
  for (let id = Math.max(from, spans.floor); id < spans.total; id++) if (isRoot(id)) roots.push(id);
  return roots;
}
