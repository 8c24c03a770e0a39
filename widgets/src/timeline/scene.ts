// Data of a picture, and the positions of times on it.

import type { Spans } from "../shared/spans";
import type { Layout } from "./layout";
import type { Palette } from "./palette";
import type { Stretch, TimeMap } from "./timemap";
import type { Viewport } from "./viewport";

export const AXIS = 22;
const NARROW = 640;

/** Time in which a run as a whole did nothing, and why. */
export interface Pause {
  stretch: Stretch;
  why: string;
}

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
  /** When each path waited for a person. */
  waits: ReadonlyMap<string, readonly Stretch[]>;
  pauses: readonly Pause[];
  /** The moment at which a replay stands. */
  at: number | null;
}

/** Returns how wide the names are. */
export function labelsWide(width: number): number {
  return width < NARROW ? 92 : 132;
}

/** Returns where a moment lies on the picture. */
export function xOf(scene: Scene, real: number): number {
  const { from, to } = scene.viewport;
  const left = labelsWide(scene.width);
  return left + ((scene.map.toDrawn(real) - from) / (to - from)) * (scene.width - left);
}

/** Returns the moment at a place on the picture. */
export function momentAt(scene: Scene, x: number): number {
  const { from, to } = scene.viewport;
  const left = labelsWide(scene.width);
  return scene.map.toReal(from + ((x - left) / (scene.width - left)) * (to - from));
}
