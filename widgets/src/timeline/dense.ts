// Aggregated drawing of very narrow bars: each pixel of a row shows the most important of its bars, failures first.

import { AXIS, labelsWidth, type Scene } from "./scene";
import { colourOf } from "./kinds";
import { BAR } from "./layout";
import type { Palette } from "./palette";

/** Colours by priority: a pixel shows the first colour of the bars in it. The index is the bit in the masks. */
export const PRIORITY = ["failed", "running", "cancelled", "model", "tool", "action", "script", "other", "turn", "step", "item", "dim"];
export const FAILED = 0; // index of failures in `PRIORITY`
const MOST_FULL_TICKS = 24; // up to this many failures of a row are drawn at full height; more ticks would make all calls look failed
const TICK = 3; // least width of a failure in pixels

/**
 * Colours of the bars in each pixel, by row.
 *
 * Each pixel is a bit mask of the colours in `PRIORITY`. A pixel with a failed and a completed model call has the bits 0
 * and 3; `paint` draws it in the colour of the model, `paintFailed` draws the failure over it. Thousands of bars in
 * a pixel therefore cost one rectangle.
 */
export class Density {
  readonly #cells = new Map<number, Uint16Array>();
  readonly #colours = new Map<number, number>();

  constructor(private readonly scene: Scene) {}

  /** Add a bar to the pixel at `left`; as a dimmed one if the search does not match it. */
  add(id: number, top: number, left: number, isMatch: boolean): void {
    let row = this.#cells.get(top);
    if (row === undefined) {
      row = new Uint16Array(this.scene.width + 1);
      this.#cells.set(top, row);
    }
    const x = Math.max(0, Math.min(this.scene.width, Math.floor(left)));
    row[x] = (row[x] ?? 0) | (1 << this.colour(id, isMatch));
  }

  /** Return the index of a bar's colour in `PRIORITY`, cached by kind, type and status. */
  colour(id: number, isMatch: boolean): number {
    if (!isMatch) return PRIORITY.length - 1;
    const { spans } = this.scene;
    const key = (spans.number(id, "kind") * 131_072 + spans.number(id, "type")) * 131_072 + spans.number(id, "status");
    let colour = this.#colours.get(key);
    if (colour === undefined) {
      colour = PRIORITY.indexOf(colourOf(spans, id));
      this.#colours.set(key, colour);
    }
    return colour;
  }

  /** Draw everything except failures. */
  paint(ctx: CanvasRenderingContext2D): void {
    const { palette, width } = this.scene;
    for (const [top, row] of this.#cells) {
      const y = top - this.scene.scroll + AXIS;
      paintRuns(row, labelsWidth(width), (mask) => lowest(mask & ~1), (value, x, runWidth) => { // without bit 0: failures
        ctx.fillStyle = colourIn(palette, PRIORITY[31 - Math.clz32(value)] ?? "");
        ctx.fillRect(x, y, runWidth + 0.5, BAR);
      });
    }
  }

  /** Draw the failures, on top of all other bars. */
  paintFailed(ctx: CanvasRenderingContext2D): void {
    const { palette, width } = this.scene;
    for (const [top, row] of this.#cells) {
      const ticks: [x: number, width: number][] = [];
      paintRuns(row, labelsWidth(width), (mask) => mask & 1, (_, x, runWidth) => { ticks.push([x, runWidth]); });
      const height = ticks.length <= MOST_FULL_TICKS ? BAR : 5;
      const y = top - this.scene.scroll + AXIS + BAR - height;
      ctx.fillStyle = palette["failed"] ?? "";
      for (const [x, tickWidth] of ticks) ctx.fillRect(x - (tickWidth < TICK ? 1 : 0), y, Math.max(TICK, tickWidth), height);
    }
  }
}

/** Return the lighter colour of bars if there is one, otherwise the full colour. */
export function colourIn(palette: Palette, name: string): string {
  return palette[`${name}-tint`] ?? palette[name] ?? "";
}

/** Return the lowest bit of a mask. */
function lowest(mask: number): number {
  return mask & -mask;
}

/** Call `paint` for each run of pixels with the same value; zero means empty. */
function paintRuns(row: Uint16Array, from: number, valueOf: (mask: number) => number, paint: (value: number, x: number, width: number) => void): void {
  for (let x = from; x < row.length; ) {
    const value = valueOf(row[x] ?? 0);
    let stop = x + 1;
    while (stop < row.length && valueOf(row[stop] ?? 0) === value) stop++;
    if (value !== 0) paint(value, x, stop - x);
    x = stop;
  }
}
