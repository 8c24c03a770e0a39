// The events of a log as columns, and finding the way among them.

import type { EventBlock } from "../protocol";

/** What a list shows of an event. */
export interface Entry {
  sequence: number;
  /** Microseconds since the first. */
  time: number;
  type: string;
  path: string;
  step: string;
  text: string;
}

/** What playing stops at. */
export interface Breakpoint {
  by: "type" | "step" | "path";
  value: string;
  isOn: boolean;
}

/** All events that are known, in order and without gaps from the first. */
export class Log {
  readonly #blocks: EventBlock[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Takes over events; those that are known already, or do not follow, are left out. Returns whether there are new ones. */
  take(block: EventBlock): boolean {
    const end = block.first + block.type.length - 1;
    if (block.first !== this.#length + 1 || end <= this.#length) return false;
    this.#blocks.push(block);
    this.#length = end;
    return true;
  }

  /** Returns an event by its sequence number. */
  at(sequence: number): Entry | undefined {
    const block = this.#block(sequence);
    if (block === undefined) return undefined;
    const row = sequence - block.first;
    const word = (column: number[]): string => block.names[column[row] ?? 0] ?? "";
    const { type, path, step, text } = block;
    return { sequence, time: block.time[row] ?? 0, type: word(type), path: word(path), step: word(step), text: word(text) };
  }

  #block(sequence: number): EventBlock | undefined {
    if (sequence < 1 || sequence > this.#length) return undefined;
    let [low, high] = [0, this.#blocks.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((this.#blocks[middle]?.first ?? 0) <= sequence) low = middle;
      else high = middle - 1;
    }
    return this.#blocks[low];
  }

  /** Returns the texts that occur in a column, sorted. */
  values(by: Breakpoint["by"]): string[] {
    const found = new Set(this.#blocks.flatMap((block) => [...new Set(block[by])].map((place) => block.names[place] ?? "")));
    found.delete("");
    return [...found].sort();
  }

  /** Returns the nearest event after a position, or before it, that fits; undefined if there is none. */
  find(from: number, direction: 1 | -1, fits: (entry: Entry) => boolean): number | undefined {
    for (let sequence = from + direction; sequence >= 1 && sequence <= this.#length; sequence += direction) {
      const entry = this.at(sequence);
      if (entry !== undefined && fits(entry)) return sequence;
    }
    return undefined;
  }
}

/** Tells whether playing stops at an event. */
export function stopsAt(breakpoints: readonly Breakpoint[], entry: Entry): boolean {
  return breakpoints.some(({ by, value, isOn }) => isOn && entry[by] === value);
}
