// List of the calls of a run, filtered by status and sorted.

import type { Spans } from "../shared/spans";
import { statusOf, kindOf } from "./kinds";
import type { Layout } from "./layout";
import type { Matches } from "./query";

export const STATUSES = ["failed", "running", "waiting", "cancelled"] as const;
export type Status = (typeof STATUSES)[number];
export const COLUMNS = ["status", "item", "call", "arguments", "result", "began", "took"] as const;
export type Column = (typeof COLUMNS)[number];

/** Sort order of the list. */
export interface Order {
  by: Column;
  isDown: boolean;
}

const RANKS: Record<string, number> = { failed: 0, waiting: 1, running: 2, cancelled: 3 };

/** Return the name of the called function, agent or tool. */
export function callOf(spans: Spans, id: number): string {
  return spans.text(id, "label") || spans.text(id, "step");
}

/** Return the error of a call, or else the beginning of its result. */
export function outcomeOf(spans: Spans, id: number): string {
  return spans.text(id, "note") || spans.text(id, "came");
}

/** Rows of the list of calls. */
export class Calls {
  /** Span ids in the order of the list. */
  ids: readonly number[] = [];
  /** Number of calls in total, and by status, before the status filter. */
  total = 0;
  counts = new Map<string, number>();
  status: Status | null = null;
  order: Order = { by: "began", isDown: false };
  /** Sort keys by text. */
  #keys = new Map<string, string>();

  /** Filter and sort the matching spans again. */
  update(spans: Spans, layout: Layout, matches: Matches, now: number): void {
    const failures = new Set(layout.failures.ids);
    const ids: number[] = [];
    this.counts = new Map();
    this.total = 0;
    for (const id of matches.ids) {
      if (layout.isParent[id] === 1 && !failures.has(id)) continue; // the calls inside it are listed instead
      const status = statusOf(spans, id);
      this.total++;
      this.counts.set(status, (this.counts.get(status) ?? 0) + 1);
      if (this.status === null || status === this.status) ids.push(id);
    }
    this.ids = this.#sorted(ids, spans, now);
  }

  /** Return the ids in the chosen order. Keys are computed once per span, not once per comparison. */
  #sorted(ids: number[], spans: Spans, now: number): number[] {
    const { by, isDown } = this.order;
    if (by === "began") return isDown ? ids.reverse() : ids; // ids are in this order already
    const keys = new Map(ids.map((id) => [id, this.#key(spans, id, by, now)]));
    const sign = isDown ? -1 : 1;
    return ids.sort((one, other) => {
      const first = keys.get(one) ?? 0;
      const second = keys.get(other) ?? 0;
      if (first === second) return one - other;
      return first < second ? -sign : sign;
    });
  }

  /** Return the sort key of a span for a column. */
  #key(spans: Spans, id: number, by: Column, now: number): number | string {
    switch (by) {
      case "status":
        return RANKS[statusOf(spans, id)] ?? 9;
      case "took":
        return spans.endOf(id, now) - spans.startOf(id);
      case "item":
        return this.#sortKey(spans.text(id, "item"));
      case "call":
        return this.#sortKey(`${kindOf(spans, id).letter} ${callOf(spans, id)}`);
      case "arguments":
        return this.#sortKey(spans.text(id, "given"));
      case "began":
        return spans.startOf(id);
      case "result":
        return this.#sortKey(outcomeOf(spans, id));
    }
  }

  /** Return a sort key by which numbers inside texts are ordered as numbers. */
  #sortKey(text: string): string {
    let key = this.#keys.get(text);
    if (key === undefined) {
      key = text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"));
      this.#keys.set(text, key);
    }
    return key;
  }
}
