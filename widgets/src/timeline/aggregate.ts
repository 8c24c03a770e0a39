// Aggregated drawing of a band with thousands of calls: their number over time, stacked by kind, and the slowest calls as
// single bars above it.
//
// Drawn one by one, 5,000 calls on 1,000 pixels are a barcode: no bar can be read, and the lanes that are not shown are
// missing. Example: 50 lanes of 100 calls become one area of 50 columns. Its height is the number of calls that ran in a
// column. After zooming in, fewer calls are in view than the limit, and they are drawn as single bars again.

import { duration, formatCount } from "../shared/format";
import { AXIS, labelsWidth, momentAt, type Scene } from "./scene";
import { drawBarIn, fit, paintHatch } from "./bars";
import { colourIn, type Density, FAILED, PRIORITY } from "./dense";
import { BAR, LEAST_DENSE, ROW } from "./layout";

const COLUMN = 4; // pixels
const CALLS_PER_PIXEL = 1.5; // fewer calls in view are drawn as single bars
const LEAST_FAILED = 3; // height in pixels of a failure among thousands of calls
const MOST_OUTLIERS = 32;
const OUTLIER_FACTOR = 5; // an outlier takes at least this many times as long as the median
const MOST_DURATION = 2 ** 31 - 1; // microseconds; longer calls count as that long in the histogram of durations
const KINDS = PRIORITY.length;

/** Calls of one column of the area, for the tooltip. */
export interface Column {
  from: number;
  to: number;
  calls: number;
  failed: number;
}

/** Counts of one band. */
class BandCounts {
  /** Changes of the number of calls by column and colour; summed up from the left they are the numbers. */
  readonly changes: Int32Array;
  /** Histogram of the durations by their two highest bits, from which the median is estimated. */
  readonly durations = new Int32Array(64);
  slowest: { id: number; took: number }[] = [];
  calls = 0;
  #counts: Int32Array | null = null;

  constructor(readonly columns: number) {
    this.changes = new Int32Array((columns + 1) * KINDS);
  }

  add(id: number, first: number, last: number, colour: number, took: number): void {
    const [from, until] = [first * KINDS + colour, (last + 1) * KINDS + colour];
    this.changes[from] = (this.changes[from] ?? 0) + 1;
    this.changes[until] = (this.changes[until] ?? 0) - 1;
    this.calls++;
    const whole = Math.min(MOST_DURATION, took) | 1;
    const highest = 31 - Math.clz32(whole);
    const step = 2 * highest + ((whole >> Math.max(0, highest - 1)) & 1);
    this.durations[step] = (this.durations[step] ?? 0) + 1;
    if (this.slowest.length < MOST_OUTLIERS || took > (this.slowest[0]?.took ?? 0)) this.#addSlow(id, took);
  }

  /** Keep the slowest calls, the fastest of them first. */
  #addSlow(id: number, took: number): void {
    const place = this.slowest.findIndex((one) => one.took > took);
    this.slowest.splice(place < 0 ? this.slowest.length : place, 0, { id, took });
    if (this.slowest.length > MOST_OUTLIERS) this.slowest.shift();
  }

  /** Number of calls by column and colour. */
  get counts(): Int32Array {
    if (this.#counts !== null) return this.#counts;
    const counts = this.changes.slice();
    for (let place = KINDS; place < counts.length; place++) counts[place] = (counts[place] ?? 0) + (counts[place - KINDS] ?? 0);
    this.#counts = counts;
    return counts;
  }

  countIn(column: number): number {
    let sum = 0;
    for (let colour = 0; colour < KINDS; colour++) sum += this.counts[column * KINDS + colour] ?? 0;
    return sum;
  }

  get peak(): number {
    let most = 1;
    for (let column = 0; column < this.columns; column++) most = Math.max(most, this.countIn(column));
    return most;
  }

  /** Calls that took much longer than the median, the slowest first. */
  get outliers(): number[] {
    let below = 0;
    const step = this.durations.findIndex((count) => (below += count) * 2 >= this.calls);
    const median = 2 ** (step >> 1) * (step % 2 === 0 ? 1 : 1.5); // the least duration with these two bits
    return this.slowest.filter(({ took }) => took >= median * OUTLIER_FACTOR).map(({ id }) => id).reverse();
  }
}

interface Region {
  top: number;
  height: number;
  /** Height of the row of outliers above the area; 0 without outliers. */
  outliers: number;
}

/** The bands of one drawing that are aggregated. */
export class Aggregates {
  readonly #bands = new Map<number, BandCounts>();
  /** The same by the index of the band: the loop over all spans is faster with an array. */
  readonly #byIndex: (BandCounts | undefined)[] = [];
  readonly #outlierBars: { id: number; left: number; right: number; top: number }[] = [];
  readonly #edge: number;

  constructor(
    private readonly scene: Scene,
    private readonly dense: Density,
  ) {
    const { spans, layout, viewport, map, width } = scene;
    this.#edge = labelsWidth(width);
    if (layout.isExpanded || spans.total < LEAST_DENSE) return; // all lanes are shown because a person asked for them
    const calls = new Int32Array(layout.bands.length);
    const { band: bands, lane: lanes, isParent } = layout;
    spans.within(map.toReal(viewport.from), map.toReal(viewport.to), (id) => {
      const band = bands[id] ?? 0;
      if (lanes[id] !== 0 && isParent[id] !== 1) calls[band] = (calls[band] ?? 0) + 1;
    });
    const limit = Math.max(LEAST_DENSE, (width - this.#edge) * CALLS_PER_PIXEL);
    const columns = Math.max(1, Math.ceil((width - this.#edge) / COLUMN));
    calls.forEach((count, band) => {
      if (count <= limit) return;
      const counts = new BandCounts(columns);
      this.#bands.set(band, counts);
      this.#byIndex[band] = counts;
    });
  }

  /** Return true if the calls of a span's band are aggregated. */
  has(id: number): boolean {
    const { lane, band } = this.scene.layout;
    return this.#byIndex.length > 0 && lane[id] !== 0 && this.#byIndex[band[id] ?? 0] !== undefined;
  }

  /** Count a call between two horizontal positions. Spans that contain others are not counted beside them. */
  add(id: number, left: number, right: number): void {
    const { spans, layout, now } = this.scene;
    const counts = this.#byIndex[layout.band[id] ?? 0];
    if (counts === undefined || layout.isParent[id] === 1) return;
    const most = counts.columns - 1;
    const first = Math.max(0, Math.min(most, Math.floor((left - this.#edge) / COLUMN)));
    const last = Math.max(0, Math.min(most, Math.floor((right - this.#edge) / COLUMN)));
    const took = spans.endOf(id, now) - spans.startOf(id);
    counts.add(id, first, last, this.dense.colour(id, this.scene.isMatch(id)), Math.max(0, took));
  }

  /** Draw the areas and the outliers. */
  paint(ctx: CanvasRenderingContext2D): void {
    for (const [band, counts] of this.#bands) {
      const outliers = counts.outliers;
      const region = this.#regionOf(band, outliers.length > 0);
      this.#paintArea(ctx, counts, region);
      this.#paintOutliers(ctx, outliers, region.top);
    }
  }

  #paintArea(ctx: CanvasRenderingContext2D, counts: BandCounts, region: Region): void {
    const { palette } = this.scene;
    const bottom = region.top + region.height;
    const scale = (region.height - region.outliers) / counts.peak;
    const fills = PRIORITY.map((name) => [colourIn(palette, name), palette[name] ?? ""] as const);
    ctx.fillStyle = palette["line"] ?? "";
    ctx.fillRect(this.#edge, bottom, counts.columns * COLUMN, 1);
    for (let column = 0; column < counts.columns; column++) {
      const x = this.#edge + column * COLUMN;
      let y = bottom;
      for (let colour = 0; colour < KINDS; colour++) {
        const count = counts.counts[column * KINDS + colour] ?? 0;
        if (count === 0) continue;
        const height = colour === FAILED ? Math.max(LEAST_FAILED, count * scale) : count * scale;
        y -= height;
        ctx.fillStyle = fills[colour]?.[0] ?? "";
        ctx.fillRect(x, y, COLUMN, height);
        if (colour === FAILED && height > 6) paintHatch(ctx, "failed", x, y, COLUMN, height, palette);
        // The edge is of the full colour, as that of single bars.
        ctx.fillStyle = fills[colour]?.[1] ?? "";
        ctx.fillRect(x, y, COLUMN, Math.min(1.5, height));
      }
    }
  }

  /** Draw the slowest calls as single bars beside each other. One that has no room is left out. */
  #paintOutliers(ctx: CanvasRenderingContext2D, outliers: readonly number[], top: number): void {
    const { spans, map, viewport, width, now } = this.scene;
    const scale = (width - this.#edge) / (viewport.to - viewport.from);
    for (const id of outliers) {
      const left = Math.max(this.#edge - 4, this.#edge + (map.toDrawn(spans.startOf(id)) - viewport.from) * scale);
      const right = Math.max(left + 2.5, Math.min(width + 4, this.#edge + (map.toDrawn(spans.endOf(id, now)) - viewport.from) * scale - 1));
      if (this.#outlierBars.some((bar) => bar.top === top && left < bar.right + 2 && right + 2 > bar.left)) continue;
      this.#outlierBars.push({ id, left, right, top });
      drawBarIn(ctx, this.scene, id, [left, top, right - left, BAR]);
    }
  }

  /** Write the number of calls and the highest column beside the area. Return false if a band is not aggregated. */
  paintNames(ctx: CanvasRenderingContext2D, band: number): boolean {
    const counts = this.#bands.get(band);
    if (counts === undefined) return false;
    const { scene } = this;
    const perColumn = (scene.viewport.to - scene.viewport.from) / counts.columns;
    const hasOutliers = this.#outlierBars.length > 0;
    const texts = [`${formatCount(counts.calls)} calls`, `up to ${formatCount(counts.peak)} in ${duration(perColumn)}`];
    ctx.fillStyle = scene.palette["soft"] ?? "";
    [...(hasOutliers ? ["slowest"] : []), ...texts].forEach((text, place) => {
      ctx.fillText(fit(ctx, text, labelsWidth(scene.width) - 18), 10, this.#regionOf(band, false).top + place * ROW + BAR / 2 + 0.5);
    });
    return true;
  }

  #regionOf(band: number, hasOutliers: boolean): Region {
    const { layout, scroll } = this.scene;
    const { top = 0, rows = 1 } = layout.bands[band] ?? {};
    return { top: top + ROW - scroll + AXIS, height: rows * ROW - 4, outliers: hasOutliers && rows > 1 ? ROW : 0 };
  }

  /** Return the outlier or the column at a position; null outside the aggregated bands. */
  at(x: number, y: number): { outlier: number } | Column | null {
    if (x < this.#edge) return null;
    for (const [band, counts] of this.#bands) {
      const { top, height } = this.#regionOf(band, false);
      if (y < top || y > top + height) continue;
      const bar = this.#outlierBars.find((one) => y >= one.top && y <= one.top + BAR && x >= one.left - 2 && x <= one.right + 2);
      if (bar !== undefined) return { outlier: bar.id };
      const column = Math.min(counts.columns - 1, Math.floor((x - this.#edge) / COLUMN));
      const left = this.#edge + column * COLUMN;
      const calls = counts.countIn(column);
      if (calls === 0) return null;
      return { from: momentAt(this.scene, left), to: momentAt(this.scene, left + COLUMN), calls, failed: counts.counts[column * KINDS + FAILED] ?? 0 };
    }
    return null;
  }
}

/** Return the text about a column, one fact a line. */
export function describeColumn({ from, to, calls, failed }: Column): string {
  const parts = [`${formatCount(calls)} calls in ${duration(to - from)}, starting at ${duration(from)}`, failed > 0 ? `✕ ${formatCount(failed)} failed` : "", "Click to zoom in"];
  return parts.filter(Boolean).join("\n");
}
