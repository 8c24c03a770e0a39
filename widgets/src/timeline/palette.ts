// Colours and hatches of the timeline, including colours that are mixed from two.

import { FILLS } from "../constants";
import { paletteOf } from "../shared/theme";

/** Colours by their name in the style sheet. The suffix `-tint` means the lighter colour of a bar. */
export type Palette = Readonly<Record<string, string>>;

const NEVER_TINTED: readonly string[] = ["failed", "cancelled", "primary"];
const TINTED = FILLS.filter((name) => !NEVER_TINTED.includes(name));

/**
 * Return the current colours of the page. If none has changed, return `previous` itself, so that its hatches stay cached.
 */
export function paletteFor(element: Element, previous: Palette | null = null): Palette {
  const palette = paletteOf(element);
  const share = palette["tint"] ?? "";
  const paper = palette["paper"] ?? "";
  const tints = TINTED.map((name) => [`${name}-tint`, `color-mix(in srgb, ${palette[name] ?? ""} ${share}, ${paper})`]);
  const current: Palette = { ...palette, ...Object.fromEntries(tints) as Record<string, string> };
  return previous !== null && Object.keys(current).every((name) => current[name] === previous[name]) ? previous : current;
}

export type Hatch = "failed" | "cancelled" | "wait";

const STEP = 8;
const LINES: Record<Hatch, readonly [colour: string, width: number, rising: boolean]> = {
  failed: ["hatch", 1.6, true],
  cancelled: ["hatch", 1.5, false],
  wait: ["wait", 1, true],
};
const patternsByPalette = new WeakMap<Palette, Map<Hatch, CanvasPattern | null>>();

/** Return the fill pattern of a hatch: rising, falling, or light rising lines. Cached per palette. */
export function hatchOf(context: CanvasRenderingContext2D, palette: Palette, hatch: Hatch): CanvasPattern | null {
  const patterns = patternsByPalette.get(palette) ?? new Map<Hatch, CanvasPattern | null>();
  patternsByPalette.set(palette, patterns);
  if (!patterns.has(hatch)) patterns.set(hatch, tile(context, palette, hatch));
  return patterns.get(hatch) ?? null;
}

/** Draw one tile of a hatch. A falling hatch is a mirrored rising one. */
function tile(context: CanvasRenderingContext2D, palette: Palette, hatch: Hatch): CanvasPattern | null {
  const [colour, width, isRising] = LINES[hatch];
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = STEP;
  const pen = canvas.getContext("2d");
  if (pen === null) return null;
  pen.strokeStyle = palette[colour] ?? "";
  pen.lineWidth = width;
  if (!isRising) pen.setTransform(-1, 0, 0, 1, STEP, 0);
  for (const shift of [-STEP, 0, STEP]) {
    pen.moveTo(shift - 1, STEP + 1);
    pen.lineTo(shift + STEP + 1, -1);
  }
  pen.stroke();
  return context.createPattern(canvas, "repeat");
}
