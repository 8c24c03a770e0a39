// Calls of a run as a list: each once, filtered by status, and sorted.

import type { Spans } from "../shared/spans";
import { standingOf, typeOf } from "./kinds";
import type { Layout } from "./layout";
import type { Matches } from "./query";

export const STATUSES = ["failed", "running", "waiting", "cancelled"] as const;
export type Status = (typeof STATUSES)[number];
export const COLUMNS = ["status", "item", "call", "arguments", "result", "began", "took"] as const;
export type Column = (typeof COLUMNS)[number];

export interface Order {
  by: Column;
  isDown: boolean;
}

const RANKS: Record<string, number> = { failed: 0, waiting: 1, running: 2, cancelled: 3 };

/** Returns the name of what is called. */
export function callOf(spans: Spans, id: number): string {
  return spans.text(id, "label") || spans.text(id, "step");
}

/** Returns the text that tells how a call went: the error, or else the beginning of the result. */
export function outcomeOf(spans: Spans, id: number): string {
  return spans.text(id, "note") || spans.text(id, "came");
}

export class Calls {
  /** What is listed. */
  ids: readonly number[] = [];
  /** How many there are in all, and of each status. */
  total = 0;
  counts = new Map<string, number>();
  status: Status | null = null;
  order: Order = { by: "began", isDown: false };
  #keys = new Map<string, string>();

  update(spans: Spans, layout: Layout, matches: Matches, now: number): void {
    const failures = new Set(layout.failures.ids);
    const found: number[] = [];
    this.counts = new Map();
    this.total = 0;
    for (const id of matches.ids) {
      if (layout.holds[id] === 1 && !failures.has(id)) continue; // it is told by what it holds
      const standing = standingOf(spans, id);
      this.total++;
      this.counts.set(standing, (this.counts.get(standing) ?? 0) + 1);
      if (this.status === null || standing === this.status) found.push(id);
    }
    this.ids = this.#sorted(found, spans, now);
  }

  #sorted(ids: number[], spans: Spans, now: number): number[] {
    const { by, isDown } = this.order;
    if (by === "began") return isDown ? ids.reverse() : ids; // they came in this order
    const keys = new Map(ids.map((id) => [id, this.#key(spans, id, by, now)]));
    const way = isDown ? -1 : 1;
    return ids.sort((one, other) => {
      const [first, second] = [keys.get(one) ?? 0, keys.get(other) ?? 0];
      return first === second ? one - other : first < second ? -way : way;
    });
  }

  #key(spans: Spans, id: number, by: Column, now: number): number | string {
    switch (by) {
      case "status":
        return RANKS[standingOf(spans, id)] ?? 9;
      case "took":
        return spans.endOf(id, now) - spans.startOf(id);
      case "item":
        return this.#natural(spans.text(id, "item"));
      case "call":
        return this.#natural(`${typeOf(spans, id).letter} ${callOf(spans, id)}`);
      case "arguments":
        return this.#natural(spans.text(id, "given"));
      case "began":
        return spans.startOf(id);
      case "result":
        return this.#natural(outcomeOf(spans, id));
    }
  }

  /** Returns a text by which numbers in it are ordered as numbers. */
  #natural(text: string): string {
    let key = this.#keys.get(text);
    if (key === undefined) this.#keys.set(text, (key = text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"))));
    return key;
  }
}
