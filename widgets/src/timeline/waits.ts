// Periods in which a path waited for a person, from the questions.

import type { Model } from "../shared/model";
import type { Pause } from "./scene";
import type { Stretch } from "./timemap";

const WORDS = { worked: "", waited: "waited for you", paused: "paused", asleep: "slept", stopped: "stopped" } as const;

/** Returns when the run as a whole stood still, and why. */
export function pausesOf({ header, originUs }: Model): Pause[] {
  return (header?.stretches ?? []).map(({ doing, begin_us: begin, end_us: end }) => ({ stretch: [begin - originUs, (end ?? Infinity) - originUs], why: WORDS[doing] }));
}

/** Returns by path the stretches in which it had asked and nobody had answered; those that are open have no end. */
export function waitsOf({ questions, originUs }: Model): Map<string, Stretch[]> {
  const found = new Map<string, Stretch[]>();
  const asked = [...questions.values()].sort((one, other) => one.raised_us - other.raised_us);
  for (const { path, raised_us: raised, answered_us: answered, status } of asked) {
    const [from, to] = [raised - originUs, status === "pending" ? Infinity : (answered ?? raised) - originUs];
    const stretches = found.get(path) ?? [];
    found.set(path, stretches);
    const last = stretches.at(-1);
    if (last !== undefined && from <= last[1]) stretches[stretches.length - 1] = [last[0], Math.max(last[1], to)];
    else stretches.push([from, to]);
  }
  return found;
}
