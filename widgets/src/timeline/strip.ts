// Drawing of the overview strip: concurrent calls, waiting times, and a tick for each failure.

import { formatCount } from "../shared/format";
import { FONT, paintHatch } from "./bars";
import type { Scene } from "./scene";

const TOP = 10;
const GROUP_DISTANCE = 14; // pixels between failures that share a cross

/** Data and geometry of the strip. */
export interface Strip {
  /** Number of concurrent calls at each pixel right of the names. */
  busy: Float64Array;
  /** Return the horizontal position of a moment. */
  x: (real: number) => number;
  bottom: number;
}

/** Draw the strip. */
export function drawStrip(ctx: CanvasRenderingContext2D, scene: Scene, strip: Strip): void {
  const { palette } = scene;
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  ctx.fillStyle = palette["soft"] ?? "";
  ctx.fillText("Whole run", 10, (TOP + strip.bottom) / 2);
  for (const [from, to] of [...scene.map.gaps, ...scene.pauses.map(({ period: stretch }) => stretch)]) {
    const left = strip.x(from);
    paintHatch(ctx, "wait", left, TOP, Math.max(2, strip.x(to) - left), strip.bottom - TOP, palette);
  }
  drawBusy(ctx, scene, strip);
  drawTicks(ctx, scene, strip);
}

/** Draw the number of concurrent calls as columns, relative to the highest. */
function drawBusy(ctx: CanvasRenderingContext2D, { palette }: Scene, { busy, x, bottom }: Strip): void {
  const highest = Math.max(1, ...busy);
  const left = x(0);
  ctx.fillStyle = palette["step-tint"] ?? "";
  busy.forEach((count, place) => {
    const height = count === 0 ? 0 : Math.max(2, (count / highest) * (bottom - TOP));
    ctx.fillRect(left + place, bottom - height, 1, height);
  });
}

/** Draw a tick for each failure, and one cross above each group of close failures with their number. */
function drawTicks(ctx: CanvasRenderingContext2D, { palette, layout, spans, now, width }: Scene, { x, bottom }: Strip): void {
  const groups: { from: number; to: number; count: number }[] = [];
  ctx.fillStyle = palette["failed"] ?? "";
  for (const tickX of layout.failures.ids.map((id) => x(spans.endOf(id, now))).sort((one, other) => one - other)) {
    ctx.fillRect(tickX - 1.25, TOP - 1, 2.5, bottom - TOP + 1);
    const last = groups.at(-1);
    if (last !== undefined && tickX - last.to < GROUP_DISTANCE) Object.assign(last, { to: tickX, count: last.count + 1 });
    else groups.push({ from: tickX, to: tickX, count: 1 });
  }
  ctx.strokeStyle = ctx.fillStyle = palette["bad"] ?? "";
  ctx.lineWidth = 1.8;
  ctx.font = `600 ${FONT}`;
  for (const { from, to, count } of groups) {
    const words = count > 1 ? formatCount(count) : "";
    const middle = Math.min((from + to) / 2, width - 8 - ctx.measureText(words).width);
    ctx.beginPath();
    for (const direction of [1, -1]) {
      ctx.moveTo(middle - 3, 4.5 - 3 * direction);
      ctx.lineTo(middle + 3, 4.5 + 3 * direction);
    }
    ctx.stroke();
    ctx.textAlign = "left";
    ctx.fillText(words, middle + 5, 5);
  }
}
