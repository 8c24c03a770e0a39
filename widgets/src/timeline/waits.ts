// Periods in which a run made no progress, or in which a path waited for a person.

import type { Model } from "../shared/model";
import { byAge } from "../shared/order";
import type { Pause } from "./scene";
import type { Period } from "./timemap";

const WORDS = { worked: "", waited: "waited for you", paused: "paused", asleep: "slept", stopped: "stopped" } as const;

/** Return the periods in which the whole run made no progress, with the reason. */
export function pausesOf({ header, originUs }: Model): Pause[] {
  return (header?.stretches ?? []).map(({ doing, begin_us: begin, end_us: end }) => {
    const period: Period = [begin - originUs, (end ?? Infinity) - originUs];
    return { period, reason: WORDS[doing] };
  });
}

/**
 * Return the periods between a question and its answer, by path. Open questions have no end. Overlapping periods are
 * merged.
 */
export function waitsOf({ questions, originUs }: Model): Map<string, Period[]> {
  const waits = new Map<string, Period[]>();
  for (const { path, raised_us: raised, answered_us: answered, status } of [...questions.values()].sort(byAge)) {
    const from = raised - originUs;
    const to = status === "pending" ? Infinity : (answered ?? raised) - originUs;
    const periods = waits.get(path) ?? [];
    waits.set(path, periods);
    const last = periods.at(-1);
    if (last !== undefined && from <= last[1]) periods[periods.length - 1] = [last[0], Math.max(last[1], to)];
    else periods.push([from, to]);
  }
  return waits;
}
