// Drawn time: periods in which nothing happens can be folded to a fixed width.

import type { Spans } from "../shared/spans";
import { isWork } from "./kinds";

/** A stretch of time; microseconds since the origin. */
export type Stretch = readonly [from: number, to: number];

const LEAST = 2_000_000; // shorter stretches are never folded
const SHARE = 0.1; // of what is left once all that are longer are folded

/**
 * Returns the stretches in which nobody worked and nothing began, and those in which the run as a whole stood still, where
 * a bar may stretch over them (a call was open when its kernel stopped): those long enough to be in the way.
 */
export function idle(spans: Spans, now: number, halts: readonly Stretch[] = []): Stretch[] {
  const stood = halts.map(([from, to]): Stretch => [from, Math.min(to, now)]).filter(([from, to]) => to - from >= LEAST);
  const long = joined([...stretches(spans, now, LEAST), ...stood]);
  const worked = now - long.reduce((sum, [from, to]) => sum + to - from, 0);
  return long.filter(([from, to]) => to - from >= worked * SHARE);
}

function stretches(spans: Spans, now: number, least: number): Stretch[] {
  const found: Stretch[] = [];
  let until = 0;
  const look = (id: number): void => {
    const start = spans.startOf(id);
    if (start - until >= least) found.push([until, start]);
    until = Math.max(until, isWork(spans, id) ? spans.endOf(id, now) : start);
  };
  spans.early.forEach(look);
  for (let id = spans.floor; id < spans.total; id++) look(id);
  if (now - until >= least) found.push([until, now]);
  return found;
}

/** Returns stretches with those that touch made one. */
function joined(all: readonly Stretch[]): Stretch[] {
  const found: Stretch[] = [];
  for (const [from, to] of [...all].sort((one, other) => one[0] - other[0])) {
    const last = found.at(-1);
    if (last === undefined || from > last[1]) found.push([from, to]);
    else found[found.length - 1] = [last[0], Math.max(last[1], to)];
  }
  return found;
}

/** From real time to drawn time and back. */
export class TimeMap {
  readonly #real: number[] = [];
  readonly #drawn: number[] = [];

  /** Folds each gap to `width`. */
  constructor(
    readonly gaps: readonly Stretch[] = [],
    width = 0,
  ) {
    let saved = 0;
    for (const [from, to] of gaps) {
      this.#real.push(from, to);
      this.#drawn.push(from - saved, from - saved + width);
      saved += to - from - width;
    }
  }

  toDrawn(real: number): number {
    return this.#translate(real, this.#real, this.#drawn);
  }

  toReal(drawn: number): number {
    return this.#translate(drawn, this.#drawn, this.#real);
  }

  #translate(value: number, source: readonly number[], target: readonly number[]): number {
    if (source.length === 0 || value <= (source[0] ?? 0)) return value;
    let low = 0;
    let high = source.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((source[middle] ?? 0) <= value) low = middle + 1;
      else high = middle;
    }
    const before = low - 1;
    const [s0, t0] = [source[before] ?? 0, target[before] ?? 0];
    const insideGap = before % 2 === 0;
    if (!insideGap) return t0 + (value - s0);
    const [s1, t1] = [source[before + 1] ?? s0, target[before + 1] ?? t0];
    return s1 === s0 ? t1 : t0 + ((value - s0) * (t1 - t0)) / (s1 - s0);
  }
}
