// The picture: bars that are wide enough as bars, the rest as what fills a pixel. It knows nothing of the page.

import { oneLine } from "../shared/text";
import { tickDistance, tickLabel } from "../shared/format";
import type { Spans } from "../shared/spans";
import { colourOf, SIGNS, typeOf } from "./kinds";
import { LANE_GAP, type Layout, MAX_ROWS, ROW_HEIGHT, STEP_HEIGHT } from "./layout";
import type { TimeMap } from "./timemap";
import type { Viewport } from "./viewport";

export const LABELS = 104;
export const AXIS = 20;

/** Colours by the names they have in the style sheet. */
export type Palette = Readonly<Record<string, string>>;

export interface Scene {
  spans: Spans;
  layout: Layout;
  isMeant: (id: number) => boolean;
  map: TimeMap;
  viewport: Viewport;
  width: number;
  height: number;
  scroll: number;
  now: number;
  palette: Palette;
  focused: number | null;
  selected: number | null;
}

/** Order in which pixels show what is in them; failures are marked below the rest, so that few do not look like all. */
const DENSE = ["failed", "running", "cancelled", "model", "tool", "action", "script", "other", "turn", "step", "item", "dim"];

/** Returns where a moment lies on the picture. */
export function xOf(scene: Scene, real: number): number {
  const { from, to } = scene.viewport;
  return LABELS + ((scene.map.toDrawn(real) - from) / (to - from)) * (scene.width - LABELS);
}

/** Returns the moment at a place on the picture. */
export function momentAt(scene: Scene, x: number): number {
  const { from, to } = scene.viewport;
  return scene.map.toReal(from + ((x - LABELS) / (scene.width - LABELS)) * (to - from));
}

export function draw(ctx: CanvasRenderingContext2D, scene: Scene): number {
  const { width, height, palette } = scene;
  ctx.clearRect(0, 0, width, height);
  ctx.font = "11px system-ui, -apple-system, 'Segoe UI', sans-serif";
  ctx.textBaseline = "middle";
  drawGrid(ctx, scene);
  ctx.save();
  ctx.beginPath();
  ctx.rect(LABELS, AXIS, width - LABELS, height - AXIS);
  ctx.clip();
  drawGaps(ctx, scene);
  const drawn = drawBars(ctx, scene);
  ctx.restore();
  drawLanes(ctx, scene);
  ctx.fillStyle = palette["line"] ?? "";
  ctx.fillRect(LABELS - 1, 0, 1, height);
  return drawn;
}

function drawGrid(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { viewport, map, width, height, palette } = scene;
  const perPixel = (viewport.to - viewport.from) / Math.max(1, width - LABELS);
  const distance = tickDistance(perPixel);
  ctx.textAlign = "center";
  let free = LABELS;
  const last = map.toReal(viewport.to);
  for (let tick = Math.ceil(map.toReal(viewport.from) / distance) * distance; tick <= last; ) {
    const x = xOf(scene, tick);
    const label = tickLabel(tick, distance);
    const half = ctx.measureText(label).width / 2 + 4;
    ctx.fillStyle = palette["line"] ?? "";
    if (x >= LABELS) ctx.fillRect(Math.round(x), AXIS - 4, 1, height);
    if (x - half >= free && x + half <= width) {
      ctx.fillStyle = palette["soft"] ?? "";
      ctx.fillText(label, x, AXIS / 2);
      free = x + half;
    }
    const gap = map.gaps.find(([from, to]) => tick + distance > from && tick + distance < to);
    tick = gap === undefined ? tick + distance : Math.ceil(gap[1] / distance) * distance;
  }
}

function drawGaps(ctx: CanvasRenderingContext2D, scene: Scene): void {
  ctx.fillStyle = scene.palette["fold"] ?? "";
  for (const [from, to] of scene.map.gaps) {
    const [left, right] = [xOf(scene, from), xOf(scene, to)];
    if (right < LABELS || left > scene.width) continue;
    ctx.fillRect(left, AXIS, Math.max(2, right - left), scene.height);
  }
}

function drawBars(ctx: CanvasRenderingContext2D, scene: Scene): number {
  const { spans, layout, map, viewport, width } = scene;
  const wide: number[] = [];
  const dense = new Density(scene);
  const [from, to] = [map.toReal(viewport.from), map.toReal(viewport.to)];
  const scale = (width - LABELS) / (viewport.to - viewport.from);
  let drawn = 0;
  spans.within(from, to, (id) => {
    const y = layout.topOf(id) - scene.scroll + AXIS;
    if (y + STEP_HEIGHT < AXIS || y > scene.height) return;
    drawn++;
    const left = LABELS + (map.toDrawn(spans.startOf(id)) - viewport.from) * scale;
    const right = LABELS + (map.toDrawn(spans.endOf(id, scene.now)) - viewport.from) * scale;
    if (right - left >= 1.5) wide.push(id);
    else dense.add(id, left, scene.isMeant(id));
  });
  for (const id of wide) drawBar(ctx, scene, id);
  dense.paint(ctx);
  for (const id of [scene.selected, scene.focused]) if (id !== null && spans.has(id)) drawMark(ctx, scene, id);
  return drawn;
}

/** What lies in each pixel of each row. */
class Density {
  readonly #cells = new Map<number, Uint16Array>();
  readonly #colours = new Map<number, number>();

  constructor(private readonly scene: Scene) {}

  add(id: number, left: number, isMeant: boolean): void {
    const { layout, spans } = this.scene;
    const key = (layout.lane[id] ?? 0) * (MAX_ROWS + 1) + (layout.row[id] ?? 0);
    let row = this.#cells.get(key);
    if (row === undefined) this.#cells.set(key, (row = new Uint16Array(this.scene.width + 1)));
    const x = Math.max(0, Math.min(this.scene.width, Math.floor(left)));
    row[x] = (row[x] ?? 0) | (1 << (isMeant ? this.#colour(spans, id) : DENSE.length - 1));
  }

  #colour(spans: Spans, id: number): number {
    const key = (spans.number(id, "kind") * 4096 + spans.number(id, "type")) * 4096 + spans.number(id, "status");
    let colour = this.#colours.get(key);
    if (colour === undefined) this.#colours.set(key, (colour = DENSE.indexOf(colourOf(spans, id))));
    return colour;
  }

  paint(ctx: CanvasRenderingContext2D): void {
    for (const [key, row] of this.#cells) {
      const lane = this.scene.layout.lanes[Math.floor(key / (MAX_ROWS + 1))];
      const place = key % (MAX_ROWS + 1);
      if (lane === undefined) continue;
      const top = lane.top + (place === 0 ? 0 : STEP_HEIGHT + (place - 1) * ROW_HEIGHT) - this.scene.scroll + AXIS;
      paintRow(ctx, row, top, (place === 0 ? STEP_HEIGHT : ROW_HEIGHT) - 3, this.scene.palette);
    }
  }
}

function paintRow(ctx: CanvasRenderingContext2D, row: Uint16Array, top: number, height: number, palette: Palette): void {
  paintRuns(row, (mask) => lowest(mask > 1 ? mask & ~1 : mask), (colour, x, width) => {
    ctx.fillStyle = palette[DENSE[31 - Math.clz32(colour)] ?? ""] ?? "";
    ctx.fillRect(x, top, width + 0.5, height);
  });
  ctx.fillStyle = palette[DENSE[0] ?? ""] ?? "";
  paintRuns(row, (mask) => mask & 1, (_, x, width) => { ctx.fillRect(x, top + height - 4, width + 0.5, 4); });
}

function lowest(mask: number): number {
  return mask & -mask;
}

/** Calls `paint` for each run of pixels that show the same; zero is nothing. */
function paintRuns(row: Uint16Array, shownOf: (mask: number) => number, paint: (shown: number, x: number, width: number) => void): void {
  for (let x = LABELS; x < row.length; ) {
    const shown = shownOf(row[x] ?? 0);
    let stop = x + 1;
    while (stop < row.length && shownOf(row[stop] ?? 0) === shown) stop++;
    if (shown !== 0) paint(shown, x, stop - x);
    x = stop;
  }
}

/** Returns the rectangle of a bar on the picture. */
export function rectangle(scene: Scene, id: number): [left: number, top: number, width: number, height: number] {
  const top = scene.layout.topOf(id) - scene.scroll + AXIS;
  const left = Math.max(LABELS - 4, xOf(scene, scene.spans.startOf(id)));
  const right = Math.min(scene.width + 4, xOf(scene, scene.spans.endOf(id, scene.now)));
  return [left, top, Math.max(2, right - left), scene.layout.heightOf(id)];
}

function drawBar(ctx: CanvasRenderingContext2D, scene: Scene, id: number): void {
  const { spans, palette } = scene;
  const isMeant = scene.isMeant(id);
  const [left, y, width, whole] = rectangle(scene, id);
  const inItem = spans.text(id, "kind") === "operation" && spans.number(id, "iteration") >= 0;
  const [top, height] = inItem ? [y + 2, whole - 4] : [y, whole];
  const status = spans.text(id, "status");
  ctx.fillStyle = palette[isMeant ? colourOf(spans, id) : "dim"] ?? "";
  ctx.beginPath();
  ctx.roundRect(left, top, width - (width > 6 ? 1 : 0), height, Math.min(3, width / 3));
  ctx.fill();
  if (!isMeant) return;
  if (status === "failed" || status === "cancelled") hatch(ctx, left, top, width, height, status === "failed" ? 1 : -1, palette);
  if (status === "running") openEnd(ctx, left, top, width, height, palette);
  const shown = Math.max(left, LABELS);
  drawBarText(ctx, scene, id, shown, top, Math.min(left + width, scene.width) - shown, height);
}

/** Lines across what failed (rising) or was cancelled (falling). */
function hatch(ctx: CanvasRenderingContext2D, left: number, top: number, width: number, height: number, slope: number, palette: Palette): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.strokeStyle = palette["hatch"] ?? "";
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  for (let x = left - height; x < left + width + height; x += 8) {
    ctx.moveTo(x, slope > 0 ? top + height : top);
    ctx.lineTo(x + height, slope > 0 ? top : top + height);
  }
  ctx.stroke();
  ctx.restore();
}

/** A dashed outline: the end is open. */
function openEnd(ctx: CanvasRenderingContext2D, left: number, top: number, width: number, height: number, palette: Palette): void {
  ctx.save();
  ctx.strokeStyle = palette["ink"] ?? "";
  ctx.setLineDash([3, 2]);
  ctx.strokeRect(left + 0.5, top + 0.5, Math.max(1, width - 2), height - 1);
  ctx.restore();
}

function drawBarText(ctx: CanvasRenderingContext2D, scene: Scene, id: number, left: number, top: number, width: number, height: number): void {
  const { spans, palette } = scene;
  const kind = typeOf(spans, id);
  if (width < 12 || kind.key === "item") return; // the calls inside an item say what it is
  const status = spans.text(id, "status");
  const sign = status === "completed" ? "" : (SIGNS[status] ?? "");
  const told = kind.key === "step" ? spans.nameOf(id) : spans.text(id, "label") || spans.nameOf(id);
  ctx.font = `${kind.key === "step" ? 11.5 : 10}px system-ui, -apple-system, 'Segoe UI', sans-serif`;
  const text = [sign, kind.letter, width > 40 ? oneLine(told, 60) : ""].filter(Boolean).join(" ");
  ctx.textAlign = "left";
  const fitting = fit(ctx, text, width - 8);
  if (fitting === "") return;
  if (status === "failed" || status === "cancelled") {
    ctx.fillStyle = palette[colourOf(spans, id)] ?? "";
    ctx.fillRect(left + 2, top + 1, ctx.measureText(fitting).width + 5, height - 2);
  }
  ctx.fillStyle = palette[`${colourOf(spans, id)}-text`] ?? "";
  ctx.fillText(fitting, left + 4, top + height / 2 + 0.5);
}

function fit(ctx: CanvasRenderingContext2D, text: string, room: number): string {
  const whole = ctx.measureText(text).width;
  if (whole <= room) return text;
  const kept = Math.floor((text.length * room) / whole) - 1;
  return kept >= 3 ? `${text.slice(0, kept)}…` : room >= 8 ? text.slice(0, 1) : "";
}

function drawMark(ctx: CanvasRenderingContext2D, scene: Scene, id: number): void {
  const [left, top, width, height] = rectangle(scene, id);
  ctx.strokeStyle = scene.palette["paper"] ?? "";
  ctx.lineWidth = 4;
  ctx.strokeRect(left - 1, top - 1, width + 2, height + 2);
  ctx.strokeStyle = scene.palette["focus"] ?? "";
  ctx.lineWidth = id === scene.focused ? 2.5 : 1.5;
  ctx.strokeRect(left - 1, top - 1, width + 2, height + 2);
  ctx.lineWidth = 1;
}

function drawLanes(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { layout, palette } = scene;
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, scene.width, scene.height - AXIS);
  ctx.clip();
  ctx.font = "11.5px system-ui, -apple-system, 'Segoe UI', sans-serif";
  ctx.textAlign = "left";
  layout.lanes.forEach((lane) => {
    const y = lane.top - scene.scroll + AXIS;
    if (y > scene.height || y < -2000) return;
    ctx.fillStyle = palette["ink"] ?? "";
    const left = 6 + 8 * lane.depth;
    ctx.fillText(fit(ctx, oneLine(lane.path, 40), LABELS - 8 - left), left, y + (STEP_HEIGHT - 3) / 2 + 0.5);
    if (lane.top < LANE_GAP) return;
    ctx.fillStyle = palette["line"] ?? "";
    ctx.fillRect(0, Math.round(y - 5), scene.width, 1);
  });
  ctx.restore();
}
