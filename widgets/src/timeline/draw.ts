// Drawing of the timeline on a canvas: wide bars one by one, narrow ones aggregated per pixel, thousands of calls as an
// area, failures on top of all. It does not depend on the page.

import { oneLine } from "../shared/text";
import { duration, tickDistance, tickLabel } from "../shared/format";
import { Aggregates } from "./aggregate";
import { drawBar, drawMark, fit, FONT, paintHatch, rectangle } from "./bars";
import { Density } from "./dense";
import { BAR, ROW } from "./layout";
import { AXIS, labelsWidth, type Pause, type Scene, xOf } from "./scene";
import type { Period } from "./timemap";

/** Result of a drawing. */
export interface Drawn {
  /** Number of spans in the drawing. */
  spans: number;
  aggregates: Aggregates;
}

/** Draw a scene. */
export function draw(ctx: CanvasRenderingContext2D, scene: Scene): Drawn {
  const { width, height, palette } = scene;
  const left = labelsWidth(width);
  ctx.clearRect(0, 0, width, height);
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  drawGrid(ctx, scene);
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, AXIS, width - left, height - AXIS);
  ctx.clip();
  drawPauses(ctx, scene);
  const drawn = drawBars(ctx, scene);
  ctx.restore();
  drawPosition(ctx, scene);
  drawNames(ctx, scene, drawn.aggregates);
  ctx.fillStyle = palette["line"] ?? "";
  ctx.fillRect(left - 4, 0, 1, height);
  return drawn;
}

/** Draw a vertical line at the position of a replay, with a handle in the axis. */
function drawPosition(ctx: CanvasRenderingContext2D, scene: Scene): void {
  if (scene.replayTime === null) return;
  const x = Math.round(xOf(scene, scene.replayTime));
  if (x < labelsWidth(scene.width) || x > scene.width) return;
  ctx.fillStyle = scene.palette["accent"] ?? "";
  ctx.fillRect(x - 1, AXIS - 8, 2, scene.height);
  ctx.beginPath();
  ctx.moveTo(x - 6, AXIS - 15);
  ctx.lineTo(x + 6, AXIS - 15);
  ctx.lineTo(x + 6, AXIS - 9);
  ctx.lineTo(x, AXIS - 3);
  ctx.lineTo(x - 6, AXIS - 9);
  ctx.fill();
}

/** Draw the ticks of the time axis. Labels do not overlap each other or the texts of folds; folds have no ticks. */
function drawGrid(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { viewport, map, width, height, palette } = scene;
  const left = labelsWidth(width);
  const perPixel = (viewport.to - viewport.from) / Math.max(1, width - left);
  const distance = tickDistance(perPixel);
  ctx.textAlign = "center";
  let freeFrom = left;
  const foldTexts = drawFoldWords(ctx, scene);
  const last = map.toReal(viewport.to);
  for (let tick = Math.ceil(map.toReal(viewport.from) / distance) * distance; tick <= last; ) {
    const x = xOf(scene, tick);
    const label = tickLabel(tick, distance);
    const half = ctx.measureText(label).width / 2 + 4;
    ctx.fillStyle = palette["line"] ?? "";
    if (x >= left) ctx.fillRect(Math.round(x), AXIS - 4, 1, height);
    if (x - half >= freeFrom && x + half <= width && !foldTexts.some(([from, to]) => x + half > from && x - half < to)) {
      ctx.fillStyle = palette["soft"] ?? "";
      ctx.fillText(label, x, AXIS / 2);
      freeFrom = x + half;
    }
    const gap = map.gaps.find(([from, to]) => tick + distance > from && tick + distance < to);
    tick = gap === undefined ? tick + distance : Math.ceil(gap[1] / distance) * distance;
  }
}

/** Write the length and, if there is room, the reason of each fold into the axis. Return the ranges of the texts in pixels. */
function drawFoldWords(ctx: CanvasRenderingContext2D, scene: Scene): Period[] {
  const ranges: Period[] = [];
  ctx.fillStyle = scene.palette["soft"] ?? "";
  for (const [from, to] of scene.map.gaps) {
    const middle = (xOf(scene, from) + xOf(scene, to)) / 2;
    if (middle < labelsWidth(scene.width) || middle > scene.width) continue;
    const previousEnd = ranges.at(-1)?.[1] ?? labelsWidth(scene.width);
    for (const words of [`${duration(to - from)} ${reasonOf(scene, from, to)}`.trim(), duration(to - from)]) {
      const half = ctx.measureText(words).width / 2 + 4;
      const center = Math.min(Math.max(middle, previousEnd + half), scene.width - half);
      if (center - half < previousEnd || Math.abs(center - middle) > half) continue;
      ctx.fillText(words, center, AXIS / 2);
      ranges.push([center - half, center + half]);
      break;
    }
  }
  return ranges;
}

/** Return the reason for a fold, if one pause covers most of it. */
function reasonOf({ pauses }: Scene, from: number, to: number): string {
  const share = ({ period: stretch }: Pause): number => (Math.min(to, stretch[1]) - Math.max(from, stretch[0])) / (to - from);
  return pauses.find((pause) => share(pause) > 0.8)?.reason ?? "";
}

/** Hatch folds and pauses of the run from top to bottom. */
function drawPauses(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { map, pauses, palette, height } = scene;
  for (const [from, to] of [...map.gaps, ...pauses.map(({ period: stretch }) => stretch)]) {
    const left = Math.max(-9, xOf(scene, from));
    const right = Math.min(scene.width + 9, xOf(scene, to));
    if (right < labelsWidth(scene.width) || left > scene.width) continue;
    const width = Math.max(2, right - left);
    ctx.fillStyle = palette["hover"] ?? "";
    ctx.fillRect(left, AXIS - 4, width, height);
    ctx.globalAlpha = 0.6;
    paintHatch(ctx, "wait", left, AXIS - 4, width, height, palette);
    ctx.globalAlpha = 1;
  }
}

/**
 * Draw the bars of the visible period and lanes.
 *
 * The loop runs for every span of the period, 100,000 of them at worst. It therefore compares codes instead of texts, and it
 * only sorts the spans into lists. Bars below 1.5 pixels go to the density. The rest is drawn in layers: items, their calls, waits,
 * narrow bars, then failures, so that a failure is never hidden. An item is skipped if one call covers it.
 */
function drawBars(ctx: CanvasRenderingContext2D, scene: Scene): Drawn {
  const { spans, layout, map, viewport, width } = scene;
  const items: number[] = [];
  const calls: number[] = [];
  const failures: number[] = [];
  const coveredItems = new Set<number>();
  const dense = new Density(scene);
  const aggregates = new Aggregates(scene, dense);
  const edge = labelsWidth(width);
  const scale = (width - edge) / (viewport.to - viewport.from);
  const itemCode = spans.code("item");
  const failedCode = spans.code("failed");
  const kinds = spans.column("kind");
  const statuses = spans.column("status");
  let count = 0;
  spans.within(map.toReal(viewport.from), map.toReal(viewport.to), (id) => {
    const isAggregated = aggregates.has(id); // also in the lanes that are not shown
    const top = layout.topOf(id);
    const y = top - scene.scroll + AXIS;
    if (!isAggregated && (top < 0 || y + ROW < AXIS || y > scene.height)) return;
    count++;
    const left = edge + (map.toDrawn(spans.startOf(id)) - viewport.from) * scale;
    const right = edge + (map.toDrawn(spans.endOf(id, scene.now)) - viewport.from) * scale;
    if (isAggregated) aggregates.add(id, left, right);
    else if (right - left < 1.5) dense.add(id, top, left, scene.isMatch(id));
    else if (statuses[id] === failedCode) failures.push(id);
    else if (kinds[id] === itemCode) items.push(id);
    else {
      calls.push(id);
      const parent = layout.parents[id] ?? -1;
      if (parent >= 0 && layout.lane[parent] === layout.lane[id]) {
        const roomBefore = left - xOf(scene, spans.startOf(parent));
        const roomAfter = xOf(scene, spans.endOf(parent, scene.now)) - right;
        if (roomBefore < 1 && roomAfter < 1) coveredItems.add(parent);
      }
    }
  });
  for (const id of items) {
    if (!coveredItems.has(id)) drawBar(ctx, scene, id);
  }
  for (const id of calls) drawBar(ctx, scene, id);
  drawWaits(ctx, scene);
  dense.paint(ctx);
  aggregates.paint(ctx);
  for (const id of failures) drawBar(ctx, scene, id);
  dense.paintFailed(ctx);
  for (const id of [scene.selected, scene.focused]) {
    if (id === null || !spans.has(id) || layout.topOf(id) < 0) continue;
    if (aggregates.has(id)) drawBar(ctx, scene, id);
    drawMark(ctx, scene, rectangle(scene, id), id === scene.focused);
  }
  return { spans: count, aggregates };
}

/** Hatch the periods in which a path waited for a person, over the bar of its step. */
function drawWaits(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { palette, layout, now } = scene;
  for (const [path, periods] of scene.waits) {
    const band = layout.bandOfPath(path);
    if (band === undefined) continue;
    const top = band.top - scene.scroll + AXIS;
    for (const [from, until] of periods) {
      const left = xOf(scene, from);
      const right = xOf(scene, Math.min(until, now));
      const visibleLeft = Math.max(left, labelsWidth(scene.width));
      if (right <= visibleLeft || left > scene.width) continue;
      ctx.fillStyle = palette["paper"] ?? "";
      ctx.fillRect(visibleLeft, top + 1, right - visibleLeft, BAR - 2);
      paintHatch(ctx, "wait", visibleLeft, top + 1, right - visibleLeft, BAR - 2, palette);
      drawWaitWords(ctx, scene, visibleLeft, top, right - visibleLeft, until === Infinity);
    }
  }
}

/** Write the text of a wait on a plain background. */
function drawWaitWords(ctx: CanvasRenderingContext2D, { palette }: Scene, left: number, top: number, width: number, isOpen: boolean): void {
  const words = fit(ctx, isOpen ? "? waits for you" : "?", width - 10);
  if (words === "") return;
  ctx.textAlign = "left";
  ctx.fillStyle = palette["paper"] ?? "";
  ctx.fillRect(left + 3, top + 2, ctx.measureText(words).width + 5, BAR - 4);
  ctx.fillStyle = palette["ink"] ?? "";
  ctx.fillText(words, left + 5, top + BAR / 2 + 0.5);
}

/**
 * Draw the names of bands and lanes at the left.
 *
 * Numbered lanes are named one by one only if some are hidden or out of order; otherwise one text states their number.
 */
function drawNames(ctx: CanvasRenderingContext2D, scene: Scene, aggregates: Aggregates): void {
  const { layout, palette, width } = scene;
  const room = labelsWidth(width) - 8;
  const failedLanes = new Set(layout.failures.ids.map((id) => `${layout.band[id] ?? 0} ${layout.lane[id] ?? 0}`));
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, width, scene.height - AXIS);
  ctx.clip();
  ctx.textAlign = "left";
  layout.bands.forEach((band, index) => {
    const y = band.top - scene.scroll + AXIS;
    if (y > scene.height || y + (band.rows + 1) * ROW < AXIS) return;
    const left = 10 + 10 * band.depth;
    ctx.font = FONT;
    ctx.fillStyle = palette["ink"] ?? "";
    ctx.fillText(fit(ctx, oneLine(band.name, 40), room - left), left, y + BAR / 2 + 0.5);
    const isAggregated = aggregates.paintNames(ctx, index);
    const isMixed = !isAggregated && (band.visibleLanes.some((lane, place) => lane !== place + 1) || band.lanes > band.visibleLanes.length);
    ctx.fillStyle = palette["soft"] ?? "";
    if (!isAggregated && !isMixed && band.lanes > 1) ctx.fillText(fit(ctx, `${band.lanes} at a time`, room - left), left, y + ROW + BAR / 2 + 0.5);
    if (isMixed) {
      band.visibleLanes.forEach((lane, place) => {
        const hasFailure = failedLanes.has(`${index} ${lane}`);
        ctx.font = hasFailure ? `600 ${FONT}` : FONT;
        ctx.fillStyle = palette[hasFailure ? "ink" : "soft"] ?? "";
        ctx.fillText(fit(ctx, `lane ${lane}`, room - left), left, y + (place + 1) * ROW + BAR / 2 + 0.5);
      });
    }
    if (band.top < ROW / 2) return;
    ctx.fillStyle = palette["line"] ?? "";
    ctx.fillRect(0, Math.round(y - 6), width, 1);
  });
  ctx.restore();
}

