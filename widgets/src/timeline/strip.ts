// The whole run in one strip: concurrent calls, waiting times, and a tick for each failure.

import { FONT, paintHatch } from "./bars";
import type { Scene } from "./scene";

const [TOP, NEAR] = [10, 14];

export interface Strip {
  /** How much worked at each pixel right of the names. */
  busy: Float64Array;
  /** Where a moment lies. */
  x: (real: number) => number;
  bottom: number;
}

export function drawStrip(ctx: CanvasRenderingContext2D, scene: Scene, strip: Strip): void {
  const { palette } = scene;
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  ctx.fillStyle = palette["soft"] ?? "";
  ctx.fillText("Whole run", 10, (TOP + strip.bottom) / 2);
  for (const [from, to] of [...scene.map.gaps, ...scene.pauses.map(({ stretch }) => stretch)]) {
    const left = strip.x(from);
    paintHatch(ctx, "wait", left, TOP, Math.max(2, strip.x(to) - left), strip.bottom - TOP, palette);
  }
  drawBusy(ctx, scene, strip);
  drawTicks(ctx, scene, strip);
}

function drawBusy(ctx: CanvasRenderingContext2D, { palette }: Scene, { busy, x, bottom }: Strip): void {
  const most = Math.max(1, ...busy);
  const left = x(0);
  ctx.fillStyle = palette["step-tint"] ?? "";
  busy.forEach((count, place) => {
    const high = count === 0 ? 0 : Math.max(2, (count / most) * (bottom - TOP));
    ctx.fillRect(left + place, bottom - high, 1, high);
  });
}

/** A tick for each failure, and above those that are near each other one cross with their number. */
function drawTicks(ctx: CanvasRenderingContext2D, { palette, layout, spans, now, width }: Scene, { x, bottom }: Strip): void {
  const near: { from: number; to: number; count: number }[] = [];
  ctx.fillStyle = palette["failed"] ?? "";
  for (const at of layout.failures.ids.map((id) => x(spans.endOf(id, now))).sort((one, other) => one - other)) {
    ctx.fillRect(at - 1.25, TOP - 1, 2.5, bottom - TOP + 1);
    const last = near.at(-1);
    if (last !== undefined && at - last.to < NEAR) Object.assign(last, { to: at, count: last.count + 1 });
    else near.push({ from: at, to: at, count: 1 });
  }
  ctx.strokeStyle = ctx.fillStyle = palette["bad"] ?? "";
  ctx.lineWidth = 1.8;
  ctx.font = `600 ${FONT}`;
  for (const { from, to, count } of near) {
    const words = count > 1 ? count.toLocaleString("en") : "";
    const middle = Math.min((from + to) / 2, width - 8 - ctx.measureText(words).width);
    ctx.beginPath();
    for (const way of [1, -1]) {
      ctx.moveTo(middle - 3, 4.5 - 3 * way);
      ctx.lineTo(middle + 3, 4.5 + 3 * way);
    }
    ctx.stroke();
    ctx.textAlign = "left";
    ctx.fillText(words, middle + 5, 5);
  }
}
