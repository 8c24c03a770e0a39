// Time as it is drawn: stretches in which nothing happens can be folded to a fixed width.

/** A stretch of time; microseconds since the origin. */
export type Stretch = readonly [from: number, to: number];

/** Returns the stretches, longer than `least`, that none of the busy ones touches; `busy` is in order of beginning. */
export function idle(busy: Iterable<Stretch>, least: number): Stretch[] {
  const found: Stretch[] = [];
  let until: number | undefined;
  for (const [from, to] of busy) {
    if (until !== undefined && from - until > least) found.push([until, from]);
    until = Math.max(until ?? to, to);
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
