// From bar to bar by keys: along the row in time, up and down to what is nearest in time.

import type { Spans } from "../shared/spans";
import type { Layout } from "./layout";

/** Returns the bar that a key leads to; null if there is none, undefined if the key leads nowhere. */
export function neighbour(spans: Spans, layout: Layout, isMeant: (id: number) => boolean, from: number | null, key: string): number | null | undefined {
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(key)) return undefined;
  const ids = meant(spans, (id) => isMeant(id) && layout.topOf(id) >= 0);
  if (key === "Home" || from === null) return ids[0] ?? null;
  if (key === "End") return ids[ids.length - 1] ?? null;
  const place = (id: number): number => layout.topOf(id);
  if (key === "ArrowRight") return ids.find((id) => id > from && place(id) === place(from)) ?? null;
  if (key === "ArrowLeft") return ids.findLast((id) => id < from && place(id) === place(from)) ?? null;
  const down = key === "ArrowDown";
  const rows = new Set(ids.map(place).filter((row) => (down ? row > place(from) : row < place(from))));
  const row = down ? Math.min(...rows) : Math.max(...rows);
  return nearest(spans, ids.filter((id) => place(id) === row), spans.startOf(from));
}

function meant(spans: Spans, isMeant: (id: number) => boolean): number[] {
  const found = spans.early.filter(isMeant);
  for (let id = spans.floor; id < spans.total; id++) if (isMeant(id)) found.push(id);
  return found;
}

function nearest(spans: Spans, ids: number[], moment: number): number | null {
  let best: number | null = null;
  for (const id of ids) {
    if (best === null || Math.abs(spans.startOf(id) - moment) < Math.abs(spans.startOf(best) - moment)) best = id;
  }
  return best;
}
