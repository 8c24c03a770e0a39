// Events of a log as columns, and searching in them.

import type { EventBlock } from "../protocol";

const [MUTATED, BEGUN] = ["state_mutated", "operation_started"];
const MODEL_CALLS = new Set(["agent_response", "cached_response"]);

/** What a list shows of an event. */
export interface Entry {
  /** Its place among those that are known, from 1 on. */
  place: number;
  sequence: number;
  /** Microseconds since the first. */
  time: number;
  type: string;
  path: string;
  step: string;
  text: string;
}

/** What playing stops at: events of a kind, step or path, calls, changes of a variable; of "error" there is one only. */
export interface Breakpoint {
  by: "type" | "step" | "path" | "operation" | "variable" | "error";
  value: string;
  isOn: boolean;
}

/** All events that are known, in order; of a sample some are missing. They have places from 1 on. */
export class Log {
  readonly #blocks: { block: EventBlock; before: number }[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Sequence number of the last event that is known. */
  get last(): number {
    return this.#blocks.at(-1)?.block.sequence.at(-1) ?? 0;
  }

  /** Takes over events; those that are known already are left out. Returns whether there are new ones. */
  take(block: EventBlock): boolean {
    if (block.sequence.length === 0 || (block.sequence[0] ?? 0) <= this.last) return false;
    this.#blocks.push({ block, before: this.#length });
    this.#length += block.sequence.length;
    return true;
  }

  /** Returns the sequence number of a place; that of 0 is of the moment before the first event. */
  sequenceAt(place: number): number {
    return this.at(place)?.sequence ?? (this.#blocks[0]?.block.sequence[0] ?? 1) - 1;
  }

  /** Returns the place of an event, or of the nearest before it. */
  placeOf(sequence: number): number {
    let [low, high] = [0, this.#length];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.sequenceAt(middle) <= sequence) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Returns the event at a place. */
  at(place: number): Entry | undefined {
    const found = this.#blockOf(place);
    if (found === undefined) return undefined;
    const { block, before } = found;
    const row = place - before - 1;
    const word = (column: number[]): string => block.names[column[row] ?? 0] ?? "";
    const { sequence, type, path, step, text } = block;
    return { place, sequence: sequence[row] ?? 0, time: block.time[row] ?? 0, type: word(type), path: word(path), step: word(step), text: word(text) };
  }

  #blockOf(place: number): { block: EventBlock; before: number } | undefined {
    if (place < 1 || place > this.#length) return undefined;
    let [low, high] = [0, this.#blocks.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((this.#blocks[middle]?.before ?? 0) < place) low = middle;
      else high = middle - 1;
    }
    return this.#blocks[low];
  }

  /** Returns the texts that occur in a column, sorted. */
  values(by: Breakpoint["by"]): string[] {
    if (by === "error") return ["any"];
    if (by === "variable") return this.#textsOf(MUTATED, namesIn);
    if (by === "operation") return this.#textsOf(BEGUN, (text) => [text]);
    const found = new Set(this.#blocks.flatMap(({ block }) => [...new Set(block[by])].map((place) => block.names[place] ?? "")));
    found.delete("");
    return [...found].sort();
  }

  /** Returns what the texts of the events of a type hold, sorted. */
  #textsOf(type: string, parts: (text: string) => string[]): string[] {
    const found = new Set<string>();
    for (const { block } of this.#blocks) {
      const place = block.names.indexOf(type);
      const texts = new Set(block.text.filter((_, row) => block.type[row] === place));
      for (const text of texts) for (const part of parts(block.names[text] ?? "")) found.add(part);
    }
    found.delete("");
    return [...found].sort();
  }

  /** Returns the places of the events that fit, in order. */
  places(fits: (entry: Entry) => boolean): number[] {
    const found: number[] = [];
    for (let place = 1; place <= this.#length; place += 1) {
      const entry = this.at(place);
      if (entry !== undefined && fits(entry)) found.push(place);
    }
    return found;
  }

  /** Returns the place of the nearest event after another place, or before it, that fits; undefined if there is none. */
  find(from: number, direction: 1 | -1, fits: (entry: Entry) => boolean): number | undefined {
    for (let place = from + direction; place >= 1 && place <= this.#length; place += direction) {
      const entry = this.at(place);
      if (entry !== undefined && fits(entry)) return place;
    }
    return undefined;
  }
}

/** Tells whether playing stops at an event. */
export function stopsAt(breakpoints: readonly Breakpoint[], entry: Entry): boolean {
  return breakpoints.some(({ by, value, isOn }) => isOn && fits(entry, by, value));
}

function fits(entry: Entry, by: Breakpoint["by"], value: string): boolean {
  if (by === "error") return isError(entry);
  if (by === "variable") return changes(entry, value);
  return by === "operation" ? entry.type === BEGUN && entry.text === value : entry[by] === value;
}

/** Tells whether something failed with an event. */
export function isError({ type }: Entry): boolean {
  return type.endsWith("_failed");
}

/** Tells whether a person is asked with an event. */
export function isQuestion({ type }: Entry): boolean {
  return type === "interrupt_raised";
}

/** Tells whether a request to a model begins with an event. */
export function isModelCall({ type, text }: Entry): boolean {
  return type === BEGUN && MODEL_CALLS.has(text.split(" ")[0] ?? "");
}

/** Tells whether an event sets a variable, or deletes it. */
export function changes({ type, text }: Entry, variable: string): boolean {
  return type === MUTATED && namesIn(text).includes(variable);
}

function namesIn(text: string): string[] {
  return text.split(", ").filter((name) => name !== "");
}
