// The picture: bars that are wide enough as bars, the rest as what fills a pixel, and on top of all what failed. It
// knows nothing of the page.

import { oneLine } from "../shared/text";
import { duration, tickDistance, tickLabel } from "../shared/format";
import { drawBar, drawMark, fit, FONT, paintHatch, rectangle } from "./bars";
import { Density } from "./dense";
import { BAR, ROW } from "./layout";
import { AXIS, labelsWide, type Pause, type Scene, xOf } from "./scene";
import type { Stretch } from "./timemap";

export function draw(ctx: CanvasRenderingContext2D, scene: Scene): number {
  const { width, height, palette } = scene;
  const left = labelsWide(width);
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
  drawNames(ctx, scene);
  ctx.fillStyle = palette["line"] ?? "";
  ctx.fillRect(left - 4, 0, 1, height);
  return drawn;
}

/** A line from top to bottom where a replay stands, with a handle in the axis. */
function drawPosition(ctx: CanvasRenderingContext2D, scene: Scene): void {
  if (scene.at === null) return;
  const x = Math.round(xOf(scene, scene.at));
  if (x < labelsWide(scene.width) || x > scene.width) return;
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

function drawGrid(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { viewport, map, width, height, palette } = scene;
  const left = labelsWide(width);
  const perPixel = (viewport.to - viewport.from) / Math.max(1, width - left);
  const distance = tickDistance(perPixel);
  ctx.textAlign = "center";
  let free = left;
  const taken = drawFoldWords(ctx, scene);
  const last = map.toReal(viewport.to);
  for (let tick = Math.ceil(map.toReal(viewport.from) / distance) * distance; tick <= last; ) {
    const x = xOf(scene, tick);
    const label = tickLabel(tick, distance);
    const half = ctx.measureText(label).width / 2 + 4;
    ctx.fillStyle = palette["line"] ?? "";
    if (x >= left) ctx.fillRect(Math.round(x), AXIS - 4, 1, height);
    if (x - half >= free && x + half <= width && !taken.some(([from, to]) => x + half > from && x - half < to)) {
      ctx.fillStyle = palette["soft"] ?? "";
      ctx.fillText(label, x, AXIS / 2);
      free = x + half;
    }
    const gap = map.gaps.find(([from, to]) => tick + distance > from && tick + distance < to);
    tick = gap === undefined ? tick + distance : Math.ceil(gap[1] / distance) * distance;
  }
}

/** Says above each fold how long it is, and why nothing went on if there is room; returns where the words stand. */
function drawFoldWords(ctx: CanvasRenderingContext2D, scene: Scene): Stretch[] {
  const taken: Stretch[] = [];
  ctx.fillStyle = scene.palette["soft"] ?? "";
  for (const [from, to] of scene.map.gaps) {
    const middle = (xOf(scene, from) + xOf(scene, to)) / 2;
    if (middle < labelsWide(scene.width) || middle > scene.width) continue;
    const before = taken.at(-1)?.[1] ?? labelsWide(scene.width);
    for (const words of [`${duration(to - from)} ${whyOf(scene, from, to)}`.trim(), duration(to - from)]) {
      const half = ctx.measureText(words).width / 2 + 4;
      const at = Math.min(Math.max(middle, before + half), scene.width - half);
      if (at - half < before || Math.abs(at - middle) > half) continue;
      ctx.fillText(words, at, AXIS / 2);
      taken.push([at - half, at + half]);
      break;
    }
  }
  return taken;
}

/** Returns why nothing went on, where it has one reason. */
function whyOf({ pauses }: Scene, from: number, to: number): string {
  const share = ({ stretch }: Pause): number => (Math.min(to, stretch[1]) - Math.max(from, stretch[0])) / (to - from);
  return pauses.find((pause) => share(pause) > 0.8)?.why ?? "";
}

/** Folded time, and time in which the run was paused or waited, is hatched from top to bottom. */
function drawPauses(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { map, pauses, palette, height } = scene;
  for (const [from, to] of [...map.gaps, ...pauses.map(({ stretch }) => stretch)]) {
    const [left, right] = [Math.max(-9, xOf(scene, from)), Math.min(scene.width + 9, xOf(scene, to))];
    if (right < labelsWide(scene.width) || left > scene.width) continue;
    const wide = Math.max(2, right - left);
    ctx.fillStyle = palette["hover"] ?? "";
    ctx.fillRect(left, AXIS - 4, wide, height);
    ctx.globalAlpha = 0.6;
    paintHatch(ctx, "wait", left, AXIS - 4, wide, height, palette);
    ctx.globalAlpha = 1;
  }
}

function drawBars(ctx: CanvasRenderingContext2D, scene: Scene): number {
  const { spans, layout, map, viewport, width } = scene;
  const [items, wide, failed]: [number[], number[], number[]] = [[], [], []];
  const covered = new Set<number>();
  const dense = new Density(scene);
  const [from, to] = [map.toReal(viewport.from), map.toReal(viewport.to)];
  const edge = labelsWide(width);
  const scale = (width - edge) / (viewport.to - viewport.from);
  const [item, over] = [spans.code("item"), spans.code("failed")];
  const [kinds, statuses] = [spans.column("kind"), spans.column("status")];
  let drawn = 0;
  spans.within(from, to, (id) => {
    const top = layout.topOf(id);
    const y = top - scene.scroll + AXIS;
    if (top < 0 || y + ROW < AXIS || y > scene.height) return;
    drawn++;
    const left = edge + (map.toDrawn(spans.startOf(id)) - viewport.from) * scale;
    const right = edge + (map.toDrawn(spans.endOf(id, scene.now)) - viewport.from) * scale;
    if (right - left < 1.5) dense.add(id, top, left, scene.isMeant(id));
    else if (statuses[id] === over) failed.push(id);
    else if (kinds[id] === item) items.push(id);
    else {
      wide.push(id);
      const holder = layout.within[id] ?? -1;
      if (holder >= 0 && layout.lane[holder] === layout.lane[id] && left - xOf(scene, spans.startOf(holder)) < 1 && xOf(scene, spans.endOf(holder, scene.now)) - right < 1) covered.add(holder);
    }
  });
  for (const id of items) if (!covered.has(id)) drawBar(ctx, scene, id);
  for (const id of wide) drawBar(ctx, scene, id);
  drawWaits(ctx, scene);
  dense.paint(ctx);
  for (const id of failed) drawBar(ctx, scene, id);
  dense.paintFailed(ctx);
  for (const id of [scene.selected, scene.focused]) if (id !== null && spans.has(id) && layout.topOf(id) >= 0) drawMark(ctx, scene, rectangle(scene, id), id === scene.focused);
  return drawn;
}

/** Over the step of a path: when a person was asked and had not answered. */
function drawWaits(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { palette, layout, now } = scene;
  for (const [path, stretches] of scene.waits) {
    const band = layout.bandAt(path);
    if (band === undefined) continue;
    const top = band.top - scene.scroll + AXIS;
    for (const [from, until] of stretches) {
      const [left, right] = [xOf(scene, from), xOf(scene, Math.min(until, now))];
      const shown = Math.max(left, labelsWide(scene.width));
      if (right <= shown || left > scene.width) continue;
      ctx.fillStyle = palette["paper"] ?? "";
      ctx.fillRect(shown, top + 1, right - shown, BAR - 2);
      paintHatch(ctx, "wait", shown, top + 1, right - shown, BAR - 2, palette);
      drawWaitWords(ctx, scene, shown, top, right - shown, until === Infinity);
    }
  }
}

function drawWaitWords(ctx: CanvasRenderingContext2D, { palette }: Scene, left: number, top: number, width: number, isOpen: boolean): void {
  const words = fit(ctx, isOpen ? "? waits for you" : "?", width - 10);
  if (words === "") return;
  ctx.textAlign = "left";
  ctx.fillStyle = palette["paper"] ?? "";
  ctx.fillRect(left + 3, top + 2, ctx.measureText(words).width + 5, BAR - 4);
  ctx.fillStyle = palette["ink"] ?? "";
  ctx.fillText(words, left + 5, top + BAR / 2 + 0.5);
}

function drawNames(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { layout, palette, width } = scene;
  const room = labelsWide(width) - 8;
  const failed = new Set(layout.failures.ids.map((id) => `${layout.band[id] ?? 0} ${layout.lane[id] ?? 0}`));
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, width, scene.height - AXIS);
  ctx.clip();
  ctx.textAlign = "left";
  layout.bands.forEach((band, index) => {
    const y = band.top - scene.scroll + AXIS;
    if (y > scene.height || y + (band.shown.length + 1) * ROW < AXIS) return;
    const left = 10 + 10 * band.depth;
    ctx.font = FONT;
    ctx.fillStyle = palette["ink"] ?? "";
    ctx.fillText(fit(ctx, oneLine(band.name, 40), room - left), left, y + BAR / 2 + 0.5);
    const isMixed = band.shown.some((lane, place) => lane !== place + 1) || band.lanes > band.shown.length;
    ctx.fillStyle = palette["soft"] ?? "";
    if (!isMixed && band.lanes > 1) ctx.fillText(fit(ctx, `${band.lanes} at a time`, room - left), left, y + ROW + BAR / 2 + 0.5);
    if (isMixed) band.shown.forEach((lane, place) => {
      const isBad = failed.has(`${index} ${lane}`);
      ctx.font = isBad ? `600 ${FONT}` : FONT;
      ctx.fillStyle = palette[isBad ? "ink" : "soft"] ?? "";
      ctx.fillText(fit(ctx, `lane ${lane}`, room - left), left, y + (place + 1) * ROW + BAR / 2 + 0.5);
    });
    if (band.top < ROW / 2) return;
    ctx.fillStyle = palette["line"] ?? "";
    ctx.fillRect(0, Math.round(y - 6), width, 1);
  });
  ctx.restore();
}

