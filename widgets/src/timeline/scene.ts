// Data of one drawing of the timeline, and the mapping between moments and pixels.

import type { Spans } from "../shared/spans";
import type { Layout } from "./layout";
import type { Palette } from "./palette";
import type { Period, TimeMap } from "./timemap";
import type { Viewport } from "./viewport";

export const AXIS = 22; // height of the time axis in pixels
const NARROW = 640;

/** Period in which the whole run made no progress, and the reason. */
export interface Pause {
  period: Period;
  reason: string;
}

/** Everything that one drawing depends on. */
export interface Scene {
  spans: Spans;
  layout: Layout;
  isMatch: (id: number) => boolean;
  map: TimeMap;
  viewport: Viewport;
  width: number;
  height: number;
  scroll: number;
  now: number;
  palette: Palette;
  focused: number | null;
  selected: number | null;
  /** Periods in which a path waited for a person, by path. */
  waits: ReadonlyMap<string, readonly Period[]>;
  pauses: readonly Pause[];
  /** Moment of the replay's position; null without a replay. */
  replayTime: number | null;
}

/** Return the width of the column of names. */
export function labelsWidth(width: number): number {
  return width < NARROW ? 92 : 132;
}

/** Return the horizontal position of a moment. */
export function xOf(scene: Scene, real: number): number {
  const { from, to } = scene.viewport;
  const left = labelsWidth(scene.width);
  return left + ((scene.map.toDrawn(real) - from) / (to - from)) * (scene.width - left);
}

/** Return the moment at a horizontal position. */
export function momentAt(scene: Scene, x: number): number {
  const { from, to } = scene.viewport;
  const left = labelsWidth(scene.width);
  return scene.map.toReal(from + ((x - left) / (scene.width - left)) * (to - from));
}
