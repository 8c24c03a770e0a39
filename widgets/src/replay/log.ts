// Columnar store of the events of a log, with search.

import { AGENT_TURN, MODEL_CALLS, WAITS } from "../constants";
import type { EventBlock } from "../protocol";

const STATE_MUTATED = "state_mutated";
const OPERATION_STARTED = "operation_started";
const REQUESTS: ReadonlySet<string> = new Set(MODEL_CALLS);

/** Summary of an event, as the list shows it. */
export interface Entry {
  /** Position among the loaded events, counted from 1. */
  place: number;
  sequence: number;
  /** Microseconds since the first event. */
  time: number;
  type: string;
  path: string;
  step: string;
  text: string;
  /** Type of the operation; `step`, `item` or `interrupt` for events about a step, an item or a question. */
  kind: string;
  /** Number of the item, from 0, as text; empty outside of items. */
  item: string;
}

/** Condition at which playing stops: one event, an event type, a step, a path, a call, a change of a variable, or any error. */
export interface Breakpoint {
  by: "event" | "type" | "step" | "path" | "operation" | "variable" | "error";
  value: string;
  isOn: boolean;
}

/** Loaded events in order, at positions counted from 1. A sample has gaps in the sequence numbers, not in the positions. */
export class Log {
  readonly #blocks: { block: EventBlock; before: number }[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Sequence number of the last loaded event. */
  get last(): number {
    return this.#blocks.at(-1)?.block.sequence.at(-1) ?? 0;
  }

  /** Add events. Return false if they are loaded already. */
  add(block: EventBlock): boolean {
    if (block.sequence.length === 0 || (block.sequence[0] ?? 0) <= this.last) return false;
    this.#blocks.push({ block, before: this.#length });
    this.#length += block.sequence.length;
    return true;
  }

  /** Return the sequence number at a position; at 0 that of the state before the first event. */
  sequenceAt(place: number): number {
    return this.at(place)?.sequence ?? (this.#blocks[0]?.block.sequence[0] ?? 1) - 1;
  }

  /** Return the position of an event, or of the nearest event before it (binary search). */
  placeOf(sequence: number): number {
    let low = 0;
    let high = this.#length;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.sequenceAt(middle) <= sequence) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Return the event at a position. */
  at(place: number): Entry | undefined {
    const location = this.#blockOf(place);
    if (location === undefined) return undefined;
    const { block, before } = location;
    const row = place - before - 1;
    const word = (column: number[]): string => block.names[column[row] ?? 0] ?? "";
    const { sequence, type, path, step, text, kind, item } = block;
    return {
      place,
      sequence: sequence[row] ?? 0,
      time: block.time[row] ?? 0,
      type: word(type),
      path: word(path),
      step: word(step),
      text: word(text),
      kind: word(kind),
      item: word(item),
    };
  }

  /** Return the block of a position, and the number of events before the block (binary search). */
  #blockOf(place: number): { block: EventBlock; before: number } | undefined {
    if (place < 1 || place > this.#length) return undefined;
    let low = 0;
    let high = this.#blocks.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((this.#blocks[middle]?.before ?? 0) < place) low = middle;
      else high = middle - 1;
    }
    return this.#blocks[low];
  }

  /** Return the values that a breakpoint can have, sorted. */
  values(by: Breakpoint["by"]): string[] {
    if (by === "error") return ["any"];
    if (by === "event") return []; // chosen in the list
    if (by === "variable") return this.#textsOf(STATE_MUTATED, namesIn);
    if (by === "operation") return this.#textsOf(OPERATION_STARTED, (text) => [text]);
    const texts = new Set(this.#blocks.flatMap(({ block }) => [...new Set(block[by])].map((place) => block.names[place] ?? "")));
    texts.delete("");
    return [...texts].sort();
  }

  /** Return the distinct parts of the texts of all events of a type, sorted. */
  #textsOf(type: string, parts: (text: string) => string[]): string[] {
    const values = new Set<string>();
    for (const { block } of this.#blocks) {
      const place = block.names.indexOf(type);
      const textIndices = new Set(block.text.filter((_, row) => block.type[row] === place));
      for (const text of textIndices) {
        for (const part of parts(block.names[text] ?? "")) values.add(part);
      }
    }
    values.delete("");
    return [...values].sort();
  }

  /** Return the positions of the matching events in order. */
  places(isMatch: (entry: Entry) => boolean): number[] {
    const places: number[] = [];
    for (let place = 1; place <= this.#length; place += 1) {
      const entry = this.at(place);
      if (entry !== undefined && isMatch(entry)) places.push(place);
    }
    return places;
  }

  /** Return the position of the nearest matching event after or before a position; undefined if there is none. */
  find(from: number, direction: 1 | -1, isMatch: (entry: Entry) => boolean): number | undefined {
    for (let place = from + direction; place >= 1 && place <= this.#length; place += direction) {
      const entry = this.at(place);
      if (entry !== undefined && isMatch(entry)) return place;
    }
    return undefined;
  }
}

/** Return true if playing stops at an event. */
export function stopsAt(breakpoints: readonly Breakpoint[], entry: Entry): boolean {
  return breakpoints.some(({ by, value, isOn }) => isOn && matchesBreakpoint(entry, by, value));
}

function matchesBreakpoint(entry: Entry, by: Breakpoint["by"], value: string): boolean {
  if (by === "error") return isError(entry);
  if (by === "event") return String(entry.sequence) === value;
  if (by === "variable") return changes(entry, value);
  return by === "operation" ? entry.type === OPERATION_STARTED && entry.text === value : entry[by] === value;
}

/** Return true if an event records a failure. */
export function isError({ type }: Entry): boolean {
  return type.endsWith("_failed");
}

/** Return true if an event asks a person a question. */
export function isQuestion({ type }: Entry): boolean {
  return type === "interrupt_raised";
}

/** Return true if an event starts a model request. */
export function isModelCall({ type, text }: Entry): boolean {
  return type === OPERATION_STARTED && REQUESTS.has(text.split(" ")[0] ?? "");
}

/** Return true if an event sets or deletes a variable. */
export function changes({ type, text }: Entry, variable: string): boolean {
  return type === STATE_MUTATED && namesIn(text).includes(variable);
}

/** Calls that ended after a position, by kind, and the time that they and the steps between them took. */
export interface Remaining {
  /** Number of calls by the type of the operation. */
  calls: Map<string, number>;
  /** Microseconds without the time in which the run waited or was paused. */
  micros: number;
}

const RESTS: ReadonlySet<string> = new Set(["interrupt_raised", "execution_paused", "execution_enqueued"]);
// Operations that are no calls: turns contain the calls, and the others cost nothing.
const COMPUTED: ReadonlySet<string> = new Set([AGENT_TURN, ...WAITS, "time_access", "random_generation", "dynamic_content", "event_emitted"]);

/** Return what a run did after a position. A fork from there repeats about the same. */
export function remainingAfter(log: Log, position: number): Remaining {
  const calls = new Map<string, number>();
  let micros = 0;
  let before = log.at(position);
  for (let place = position + 1; place <= log.length; place += 1) {
    const entry = log.at(place);
    if (entry === undefined) break;
    if (before !== undefined && !RESTS.has(before.type)) micros += entry.time - before.time;
    if (entry.type === "operation_completed" && !COMPUTED.has(entry.kind)) calls.set(entry.kind, (calls.get(entry.kind) ?? 0) + 1);
    before = entry;
  }
  return { calls, micros };
}

function namesIn(text: string): string[] {
  return text.split(", ").filter((name) => name !== "");
}
