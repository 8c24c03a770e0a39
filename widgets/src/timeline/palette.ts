// The colours of the picture by name, those that are mixed of two as well, and the hatches.

import { paletteOf } from "../shared/theme";

/** Colours by the names they have in the style sheet; with `-tint` behind the name as bars have them. */
export type Palette = Readonly<Record<string, string>>;

const TINTED = ["step", "item", "turn", "model", "tool", "action", "script", "other", "running"];

/** Returns the colours as the page has them now: `known` itself where none differs, so that what is made of it stays. */
export function paletteFor(element: Element, known: Palette | null = null): Palette {
  const palette = paletteOf(element);
  const [share, paper] = [palette["tint"] ?? "", palette["paper"] ?? ""];
  const mixed = TINTED.map((name) => [`${name}-tint`, `color-mix(in srgb, ${palette[name] ?? ""} ${share}, ${paper})`]);
  const now: Palette = { ...palette, ...Object.fromEntries(mixed) as Record<string, string> };
  return known !== null && Object.keys(now).every((name) => now[name] === known[name]) ? known : now;
}

export type Hatch = "failed" | "cancelled" | "wait";

const STEP = 8;
const LINES: Record<Hatch, readonly [colour: string, width: number, rising: boolean]> = {
  failed: ["hatch", 1.6, true],
  cancelled: ["hatch", 1.5, false],
  wait: ["wait", 1, true],
};
const made = new WeakMap<Palette, Map<Hatch, CanvasPattern | null>>();

/** Returns a hatch to fill with: rising lines, falling ones, or light rising ones. */
export function hatchOf(context: CanvasRenderingContext2D, palette: Palette, hatch: Hatch): CanvasPattern | null {
  const known = made.get(palette) ?? new Map<Hatch, CanvasPattern | null>();
  made.set(palette, known);
  if (!known.has(hatch)) known.set(hatch, tile(context, palette, hatch));
  return known.get(hatch) ?? null;
}

function tile(context: CanvasRenderingContext2D, palette: Palette, hatch: Hatch): CanvasPattern | null {
  const [colour, width, rising] = LINES[hatch];
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = STEP;
  const pen = canvas.getContext("2d");
  if (pen === null) return null;
  pen.strokeStyle = palette[colour] ?? "";
  pen.lineWidth = width;
  if (!rising) pen.setTransform(-1, 0, 0, 1, STEP, 0);
  for (const shift of [-STEP, 0, STEP]) {
    pen.moveTo(shift - 1, STEP + 1);
    pen.lineTo(shift + STEP + 1, -1);
  }
  pen.stroke();
  return context.createPattern(canvas, "repeat");
}
