// One bar: tinted, with an edge of the full colour; what failed is solid, hatched and ringed; what waits is open.

import { oneLine } from "../shared/text";
import { AXIS, labelsWide, type Scene, xOf } from "./scene";
import { calledOf, colourOf, type Look, lookOf, SIGNS, standingOf, typeOf } from "./kinds";
import { BAR } from "./layout";
import { type Hatch, hatchOf, type Palette } from "./palette";

export const FONT = "11px system-ui, -apple-system, 'Segoe UI', sans-serif";
const [LETTER_FROM, ROUND_FROM, TEXT_FROM] = [14, 24, 34]; // pixels
const EDGE = 3;

type Box = readonly [left: number, top: number, width: number, height: number];

/** Returns the rectangle of a bar on the picture; its lane is shown. */
export function rectangle(scene: Scene, id: number): Box {
  const top = scene.layout.topOf(id) - scene.scroll + AXIS;
  const left = Math.max(labelsWide(scene.width) - 4, xOf(scene, scene.spans.startOf(id)));
  const right = Math.min(scene.width + 4, xOf(scene, scene.spans.endOf(id, scene.now)));
  return [left, top, Math.max(2.5, right - left - 1), BAR];
}

export function drawBar(ctx: CanvasRenderingContext2D, scene: Scene, id: number): void {
  const { spans, palette } = scene;
  const box = rectangle(scene, id);
  if (!scene.isMeant(id)) {
    ctx.fillStyle = palette["dim"] ?? "";
    ctx.fillRect(...box);
    return;
  }
  const [look, colour] = [lookOf(spans, id), colourOf(spans, id)];
  drawBody(ctx, palette, box, look, colour);
  if (scene.layout.holds[id] !== 1 || spans.text(id, "kind") === "step") drawText(ctx, scene, id, box, look, colour);
}

/** Narrow bars are plain rectangles: of thousands, round corners and outlines take most of what a picture costs. */
function drawBody(ctx: CanvasRenderingContext2D, palette: Palette, box: Box, look: Look, colour: string): void {
  const [left, top, width, height] = box;
  const isSolid = look === "failed" || look === "cancelled";
  const isPlain = look === "plain" && width < ROUND_FROM;
  ctx.fillStyle = palette[look === "waiting" ? "paper" : isSolid ? colour : `${colour}-tint`] ?? "";
  if (isPlain || width < 5) ctx.fillRect(...box);
  else {
    ctx.beginPath();
    ctx.roundRect(left, top, width, height, Math.min(3, width / 3));
    ctx.fill();
  }
  if (isSolid || look === "waiting") paintHatch(ctx, look === "waiting" ? "wait" : look, left, top, width, height, palette);
  else {
    ctx.fillStyle = palette[colour] ?? "";
    ctx.fillRect(left, top + 1, Math.min(EDGE, width), height - 2);
  }
  if (!isPlain && width >= 5) outline(ctx, palette, box, look);
}

/** A dashed outline says that the end is open; a ring, that it failed. */
function outline(ctx: CanvasRenderingContext2D, palette: Palette, [left, top, width, height]: Box, look: Look): void {
  const isOpen = look === "running" || look === "waiting";
  ctx.strokeStyle = palette[look === "failed" ? "bad" : look === "running" ? "ink" : look === "waiting" ? "wait" : "outline"] ?? "";
  ctx.lineWidth = look === "failed" ? 1.5 : 1;
  if (isOpen) ctx.setLineDash([3, 2]);
  const out = look === "failed" ? 1.5 : -0.5;
  ctx.beginPath();
  ctx.roundRect(left - out, top - out, width + 2 * out, height + 2 * out, look === "failed" ? 4 : 2.5);
  ctx.stroke();
  if (isOpen) ctx.setLineDash([]);
}

/** Fills a rectangle with hatch lines. */
export function paintHatch(ctx: CanvasRenderingContext2D, hatch: Hatch, left: number, top: number, width: number, height: number, palette: Palette): void {
  const pattern = hatchOf(ctx, palette, hatch);
  if (pattern === null) return;
  ctx.fillStyle = pattern;
  ctx.fillRect(left, top, width, height);
}

function drawText(ctx: CanvasRenderingContext2D, scene: Scene, id: number, [left, top, width, height]: Box, look: Look, colour: string): void {
  const { spans, palette } = scene;
  const shown = Math.max(left, labelsWide(scene.width));
  const room = Math.min(left + width, scene.width) - shown;
  if (room < LETTER_FROM) return;
  const text = textOf(ctx, scene, id, room);
  if (text === "") return;
  const at = room < TEXT_FROM ? shown + Math.max(3, room / 2 - 4) : shown + 6;
  ctx.textAlign = "left";
  if (look === "failed" || look === "cancelled" || look === "waiting") {
    ctx.fillStyle = palette[look === "waiting" ? "paper" : colour] ?? "";
    ctx.fillRect(at - 3, top + 2, ctx.measureText(text).width + 6, height - 4);
  }
  ctx.fillStyle = palette[look === "failed" || look === "cancelled" ? `${colour}-text` : "ink"] ?? "";
  ctx.font = typeOf(spans, id).key === "step" ? `600 ${FONT}` : FONT;
  ctx.fillText(text, at, top + height / 2 + 0.5);
  ctx.font = FONT;
}

/** Returns the sign and letter alone where there is no room for more. */
function textOf(ctx: CanvasRenderingContext2D, { spans }: Scene, id: number, room: number): string {
  const standing = standingOf(spans, id);
  const sign = standing === "completed" ? "" : (SIGNS[standing] ?? "");
  const { letter } = typeOf(spans, id);
  if (room < TEXT_FROM) return sign || letter;
  const short = [sign, letter].filter(Boolean).join(" ");
  return fit(ctx, `${short} ${oneLine(calledOf(spans, id), 60)}`.trim(), room - 10, short);
}

const GLYPH = 5.6; // the usual width of a letter of `FONT`

const wide = new Map<string, number>();

/** Returns about how wide a text is: its letters are measured once each, since to measure every text is dear. */
function widthOf(ctx: CanvasRenderingContext2D, text: string): number {
  let sum = 0;
  for (const letter of text) {
    let width = wide.get(letter);
    if (width === undefined) wide.set(letter, (width = ctx.measureText(letter).width));
    sum += width;
  }
  return sum;
}

/** Returns as much of a text as there is room for; `short` if that is next to nothing. */
export function fit(ctx: CanvasRenderingContext2D, text: string, room: number, short = ""): string {
  if (text.length * GLYPH * 1.6 <= room) return text;
  const whole = widthOf(ctx, text);
  if (whole <= room) return text;
  const kept = Math.floor((text.length * room) / whole) - 1;
  return kept >= short.length + 3 ? `${text.slice(0, kept)}…` : short;
}

/** Marks the bar that is chosen, or that the keyboard is at. */
export function drawMark(ctx: CanvasRenderingContext2D, { palette }: Scene, [left, top, width, height]: Box, isFocused: boolean): void {
  for (const [colour, wide] of [["paper", 4], ["focus", isFocused ? 2.5 : 1.5]] as const) {
    ctx.strokeStyle = palette[colour] ?? "";
    ctx.lineWidth = wide;
    ctx.strokeRect(left - 2, top - 2, width + 4, height + 4);
  }
  ctx.lineWidth = 1;
}
