// Keyboard navigation between bars: left and right along a row, up and down to the bar nearest in time.

import type { Spans } from "../shared/spans";
import type { Layout } from "./layout";

/** Return the bar that a key moves to; null if there is no such bar; undefined if the key does not move. */
export function neighbour(spans: Spans, layout: Layout, isMatch: (id: number) => boolean, from: number | null, key: string): number | null | undefined {
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(key)) return undefined;
  const ids = visibleIds(spans, (id) => isMatch(id) && layout.topOf(id) >= 0);
  if (key === "Home" || from === null) return ids[0] ?? null;
  if (key === "End") return ids[ids.length - 1] ?? null;
  const topOf = (id: number): number => layout.topOf(id);
  if (key === "ArrowRight") return ids.find((id) => id > from && topOf(id) === topOf(from)) ?? null;
  if (key === "ArrowLeft") return ids.findLast((id) => id < from && topOf(id) === topOf(from)) ?? null;
  const isDown = key === "ArrowDown";
  const rows = new Set(ids.map(topOf).filter((row) => (isDown ? row > topOf(from) : row < topOf(from))));
  const row = isDown ? Math.min(...rows) : Math.max(...rows);
  return nearest(spans, ids.filter((id) => topOf(id) === row), spans.startOf(from));
}

/** Return the loaded spans that can be reached by keys, in order of beginning. */
function visibleIds(spans: Spans, isVisible: (id: number) => boolean): number[] {
  const ids = spans.early.filter(isVisible);
  for (let id = spans.floor; id < spans.total; id++) {
    if (isVisible(id)) ids.push(id);
  }
  return ids;
}

/** Return the span that begins nearest to a moment. */
function nearest(spans: Spans, ids: number[], moment: number): number | null {
  let best: number | null = null;
  for (const id of ids) {
    if (best === null || Math.abs(spans.startOf(id) - moment) < Math.abs(spans.startOf(best) - moment)) best = id;
  }
  return best;
}
