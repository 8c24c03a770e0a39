// Mapping between real time and drawn time, in which idle periods are folded to a fixed width.
//
// A run that waited two hours for an answer would otherwise show its calls as a few pixels at both ends. Example: with a
// fold from 10 s to 3,610 s and a width of 5 s, the real moment 3,612 s has the drawn time 17 s.

import type { Spans } from "../shared/spans";
import { isWork } from "./kinds";

/** Period of time in microseconds since the origin. */
export type Period = readonly [from: number, to: number];

const LEAST_GAP = 2_000_000; // microseconds; shorter periods are never folded
const LEAST_SHARE = 0.1; // a fold takes at least this share of the time that remains when all candidates are folded

/**
 * Return the periods to fold: those in which no call ran and nothing began, and `halts`, in which the whole run made no
 * progress. A bar may span a halt: a call was open when its kernel stopped. Short periods are left out.
 */
export function idlePeriods(spans: Spans, now: number, halts: readonly Period[] = []): Period[] {
  const longHalts = halts.map(([from, to]): Period => [from, Math.min(to, now)]).filter(([from, to]) => to - from >= LEAST_GAP);
  const candidates = mergePeriods([...periodsWithoutWork(spans, now, LEAST_GAP), ...longHalts]);
  const remainingTime = now - candidates.reduce((sum, [from, to]) => sum + to - from, 0);
  return candidates.filter(([from, to]) => to - from >= remainingTime * LEAST_SHARE);
}

/** Return the periods of at least `least` microseconds between the end of all earlier work and the next start. */
function periodsWithoutWork(spans: Spans, now: number, least: number): Period[] {
  const gaps: Period[] = [];
  let busyUntil = 0;
  const addGapBefore = (id: number): void => {
    const start = spans.startOf(id);
    if (start - busyUntil >= least) gaps.push([busyUntil, start]);
    busyUntil = Math.max(busyUntil, isWork(spans, id) ? spans.endOf(id, now) : start);
  };
  spans.early.forEach(addGapBefore);
  for (let id = spans.floor; id < spans.total; id++) addGapBefore(id);
  if (now - busyUntil >= least) gaps.push([busyUntil, now]);
  return gaps;
}

/** Merge overlapping and adjacent periods. */
function mergePeriods(all: readonly Period[]): Period[] {
  const merged: Period[] = [];
  for (const [from, to] of [...all].sort((one, other) => one[0] - other[0])) {
    const last = merged.at(-1);
    if (last === undefined || from > last[1]) merged.push([from, to]);
    else merged[merged.length - 1] = [last[0], Math.max(last[1], to)];
  }
  return merged;
}

/**
 * Piecewise linear mapping between real and drawn time.
 *
 * `#real` and `#drawn` hold the start and the end of each fold, so an even index is a start. Between folds both times
 * advance equally; inside a fold, its period is scaled to its width.
 */
export class TimeMap {
  readonly #real: number[] = [];
  readonly #drawn: number[] = [];

  /** Fold each gap to `width` microseconds of drawn time. */
  constructor(
    readonly gaps: readonly Period[] = [],
    width = 0,
  ) {
    let savedTime = 0;
    for (const [from, to] of gaps) {
      this.#real.push(from, to);
      this.#drawn.push(from - savedTime, from - savedTime + width);
      savedTime += to - from - width;
    }
  }

  toDrawn(real: number): number {
    return this.#translate(real, this.#real, this.#drawn);
  }

  toReal(drawn: number): number {
    return this.#translate(drawn, this.#drawn, this.#real);
  }

  /** Find the last breakpoint before a value (binary search), and translate the distance from it. */
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
    const sourceStart = source[before] ?? 0;
    const targetStart = target[before] ?? 0;
    const isInGap = before % 2 === 0;
    if (!isInGap) return targetStart + (value - sourceStart);
    const sourceEnd = source[before + 1] ?? sourceStart;
    const targetEnd = target[before + 1] ?? targetStart;
    if (sourceEnd === sourceStart) return targetEnd;
    return targetStart + ((value - sourceStart) * (targetEnd - targetStart)) / (sourceEnd - sourceStart);
  }
}
