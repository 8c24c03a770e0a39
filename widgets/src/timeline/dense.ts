// Bars that are too narrow: each pixel of each row shows the most important of them, failures first.

import type { Spans } from "../shared/spans";
import { AXIS, labelsWide, type Scene } from "./scene";
import { colourOf } from "./kinds";
import { BAR } from "./layout";
import type { Palette } from "./palette";

/** Order in which pixels show what is in them. */
const DENSE = ["failed", "running", "cancelled", "model", "tool", "action", "script", "other", "turn", "step", "item", "dim"];
const FEW = 24; // failures of a row that are each drawn at full height; of more only the lower part, or few would look like all
const TICK = 3;

/** What lies in each pixel of each row, by the row's place. */
export class Density {
  readonly #cells = new Map<number, Uint16Array>();
  readonly #colours = new Map<number, number>();

  constructor(private readonly scene: Scene) {}

  add(id: number, top: number, left: number, isMeant: boolean): void {
    let row = this.#cells.get(top);
    if (row === undefined) this.#cells.set(top, (row = new Uint16Array(this.scene.width + 1)));
    const x = Math.max(0, Math.min(this.scene.width, Math.floor(left)));
    row[x] = (row[x] ?? 0) | (1 << (isMeant ? this.#colour(this.scene.spans, id) : DENSE.length - 1));
  }

  #colour(spans: Spans, id: number): number {
    const key = (spans.number(id, "kind") * 131_072 + spans.number(id, "type")) * 131_072 + spans.number(id, "status");
    let colour = this.#colours.get(key);
    if (colour === undefined) this.#colours.set(key, (colour = DENSE.indexOf(colourOf(spans, id))));
    return colour;
  }

  paint(ctx: CanvasRenderingContext2D): void {
    const { palette, width } = this.scene;
    for (const [top, row] of this.#cells) {
      const y = top - this.scene.scroll + AXIS;
      paintRuns(row, labelsWide(width), (mask) => lowest(mask & ~1), (shown, x, wide) => {
        ctx.fillStyle = colourIn(palette, DENSE[31 - Math.clz32(shown)] ?? "");
        ctx.fillRect(x, y, wide + 0.5, BAR);
      });
    }
  }

  /** Paints what failed, over all else. */
  paintFailed(ctx: CanvasRenderingContext2D): void {
    const { palette, width } = this.scene;
    for (const [top, row] of this.#cells) {
      const ticks: [x: number, wide: number][] = [];
      paintRuns(row, labelsWide(width), (mask) => mask & 1, (_, x, wide) => { ticks.push([x, wide]); });
      const high = ticks.length <= FEW ? BAR : 5;
      const y = top - this.scene.scroll + AXIS + BAR - high;
      ctx.fillStyle = palette["failed"] ?? "";
      for (const [x, wide] of ticks) ctx.fillRect(x - (wide < TICK ? 1 : 0), y, Math.max(TICK, wide), high);
    }
  }
}

function colourIn(palette: Palette, name: string): string {
  return palette[`${name}-tint`] ?? palette[name] ?? "";
}

function lowest(mask: number): number {
  return mask & -mask;
}

/** Calls `paint` for each run of pixels that show the same; zero is nothing. */
function paintRuns(row: Uint16Array, from: number, shownOf: (mask: number) => number, paint: (shown: number, x: number, width: number) => void): void {
  for (let x = from; x < row.length; ) {
    const shown = shownOf(row[x] ?? 0);
    let stop = x + 1;
    while (stop < row.length && shownOf(row[stop] ?? 0) === shown) stop++;
    if (shown !== 0) paint(shown, x, stop - x);
    x = stop;
  }
}
