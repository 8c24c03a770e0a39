// Drawing of one bar: tinted with an edge of the full colour. Failed bars are solid, hatched and ringed; waiting ones are
// open.

import { oneLine } from "../shared/text";
import { AXIS, labelsWidth, type Scene, xOf } from "./scene";
import { barNameOf, colourOf, type Appearance, appearanceOf, SIGNS, statusOf, kindOf } from "./kinds";
import { BAR } from "./layout";
import { type Hatch, hatchOf, type Palette } from "./palette";

export const FONT = "11px system-ui, -apple-system, 'Segoe UI', sans-serif";
// Widths in pixels from which a bar has a letter, round corners, or text.
const LETTER_FROM = 14;
const ROUND_FROM = 24;
const TEXT_FROM = 34;
const EDGE = 3;

type Box = readonly [left: number, top: number, width: number, height: number];

/** Return the rectangle of a bar on the canvas. Its lane must be visible. */
export function rectangle(scene: Scene, id: number): Box {
  const top = scene.layout.topOf(id) - scene.scroll + AXIS;
  const left = Math.max(labelsWidth(scene.width) - 4, xOf(scene, scene.spans.startOf(id)));
  const right = Math.min(scene.width + 4, xOf(scene, scene.spans.endOf(id, scene.now)));
  return [left, top, Math.max(2.5, right - left - 1), BAR];
}

/** Draw a bar with its text; dimmed if the search does not match it. */
export function drawBar(ctx: CanvasRenderingContext2D, scene: Scene, id: number): void {
  drawBarIn(ctx, scene, id, rectangle(scene, id));
}

/** Draw a bar with its text in a rectangle. */
export function drawBarIn(ctx: CanvasRenderingContext2D, scene: Scene, id: number, box: Box): void {
  const { spans, palette } = scene;
  if (!scene.isMatch(id)) {
    ctx.fillStyle = palette["dim"] ?? "";
    ctx.fillRect(...box);
    return;
  }
  const appearance = appearanceOf(spans, id);
  const colour = colourOf(spans, id);
  drawBody(ctx, palette, box, appearance, colour);
  // A bar with others inside it is hidden behind them, except a step, which has a row of its own.
  if (scene.layout.isParent[id] !== 1 || spans.text(id, "kind") === "step") drawText(ctx, scene, id, box, appearance, colour);
}

/**
 * Draw a bar without text. Narrow bars are plain rectangles: the round corners and outlines of thousands of bars would take
 * most of the time.
 */
function drawBody(ctx: CanvasRenderingContext2D, palette: Palette, box: Box, appearance: Appearance, colour: string): void {
  const [left, top, width, height] = box;
  const isSolid = appearance === "failed" || appearance === "cancelled";
  const isPlain = appearance === "plain" && width < ROUND_FROM;
  let fill = `${colour}-tint`;
  if (appearance === "waiting") fill = "paper";
  else if (isSolid) fill = colour;
  ctx.fillStyle = palette[fill] ?? "";
  if (isPlain || width < 5) ctx.fillRect(...box);
  else {
    ctx.beginPath();
    ctx.roundRect(left, top, width, height, Math.min(3, width / 3));
    ctx.fill();
  }
  if (isSolid || appearance === "waiting") paintHatch(ctx, appearance === "waiting" ? "wait" : appearance, left, top, width, height, palette);
  else {
    ctx.fillStyle = palette[colour] ?? "";
    ctx.fillRect(left, top + 1, Math.min(EDGE, width), height - 2);
  }
  if (!isPlain && width >= 5) outline(ctx, palette, box, appearance);
}

const OUTLINES: Record<Appearance, string> = { failed: "bad", cancelled: "outline", waiting: "wait", running: "ink", plain: "outline" };

/** Draw an outline. A dashed one means an open end; a ring around the bar means a failure. */
function outline(ctx: CanvasRenderingContext2D, palette: Palette, [left, top, width, height]: Box, appearance: Appearance): void {
  const isOpen = appearance === "running" || appearance === "waiting";
  ctx.strokeStyle = palette[OUTLINES[appearance]] ?? "";
  ctx.lineWidth = appearance === "failed" ? 1.5 : 1;
  if (isOpen) ctx.setLineDash([3, 2]);
  const gap = appearance === "failed" ? 1.5 : -0.5;
  ctx.beginPath();
  ctx.roundRect(left - gap, top - gap, width + 2 * gap, height + 2 * gap, appearance === "failed" ? 4 : 2.5);
  ctx.stroke();
  if (isOpen) ctx.setLineDash([]);
}

/** Fill a rectangle with a hatch. */
export function paintHatch(ctx: CanvasRenderingContext2D, hatch: Hatch, left: number, top: number, width: number, height: number, palette: Palette): void {
  const pattern = hatchOf(ctx, palette, hatch);
  if (pattern === null) return;
  ctx.fillStyle = pattern;
  ctx.fillRect(left, top, width, height);
}

/** Draw the text of a bar inside its visible part. */
function drawText(ctx: CanvasRenderingContext2D, scene: Scene, id: number, [left, top, width, height]: Box, appearance: Appearance, colour: string): void {
  const { spans, palette } = scene;
  const visibleLeft = Math.max(left, labelsWidth(scene.width));
  const room = Math.min(left + width, scene.width) - visibleLeft;
  if (room < LETTER_FROM) return;
  const text = textOf(ctx, scene, id, room);
  if (text === "") return;
  const textLeft = room < TEXT_FROM ? visibleLeft + Math.max(3, room / 2 - 4) : visibleLeft + 6;
  ctx.textAlign = "left";
  if (appearance === "failed" || appearance === "cancelled" || appearance === "waiting") { // text on a hatch needs a plain background
    ctx.fillStyle = palette[appearance === "waiting" ? "paper" : colour] ?? "";
    ctx.fillRect(textLeft - 3, top + 2, ctx.measureText(text).width + 6, height - 4);
  }
  ctx.fillStyle = palette[appearance === "failed" || appearance === "cancelled" ? `${colour}-text` : "ink"] ?? "";
  ctx.font = kindOf(spans, id).key === "step" ? `600 ${FONT}` : FONT;
  ctx.fillText(text, textLeft, top + height / 2 + 0.5);
  ctx.font = FONT;
}

/** Return the text of a bar: sign, letter and name, or only the first of them in narrow bars. */
function textOf(ctx: CanvasRenderingContext2D, { spans }: Scene, id: number, room: number): string {
  const status = statusOf(spans, id);
  const sign = status === "completed" ? "" : (SIGNS[status] ?? "");
  const { letter } = kindOf(spans, id);
  if (room < TEXT_FROM) return sign || letter;
  const shortText = [sign, letter].filter(Boolean).join(" ");
  return fit(ctx, `${shortText} ${oneLine(barNameOf(spans, id), 60)}`.trim(), room - 10, shortText);
}

const GLYPH = 5.6; // usual width of a letter of `FONT` in pixels

const letterWidths = new Map<string, number>();

/** Return the approximate width of a text: the sum of its letters, which are measured once each. Measuring texts is slow. */
function widthOf(ctx: CanvasRenderingContext2D, text: string): number {
  let sum = 0;
  for (const letter of text) {
    let width = letterWidths.get(letter);
    if (width === undefined) {
      width = ctx.measureText(letter).width;
      letterWidths.set(letter, width);
    }
    sum += width;
  }
  return sum;
}

/** Return the beginning of a text that fits into `room` pixels; `shortText` if hardly anything fits. */
export function fit(ctx: CanvasRenderingContext2D, text: string, room: number, shortText = ""): string {
  if (text.length * GLYPH * 1.6 <= room) return text;
  const textWidth = widthOf(ctx, text);
  if (textWidth <= room) return text;
  const length = Math.floor((text.length * room) / textWidth) - 1;
  return length >= shortText.length + 3 ? `${text.slice(0, length)}…` : shortText;
}

/** Draw a frame around the selected bar, or a thicker one around the bar with the keyboard focus. */
export function drawMark(ctx: CanvasRenderingContext2D, { palette }: Scene, [left, top, width, height]: Box, isFocused: boolean): void {
  for (const [colour, lineWidth] of [["paper", 4], ["focus", isFocused ? 2.5 : 1.5]] as const) {
    ctx.strokeStyle = palette[colour] ?? "";
    ctx.lineWidth = lineWidth;
    ctx.strokeRect(left - 2, top - 2, width + 4, height + 4);
  }
  ctx.lineWidth = 1;
}
