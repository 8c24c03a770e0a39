// Texts of the list about a run: its status, its working time.

import type { Micros, RunView } from "../protocol";
import { duration } from "../shared/format";

const SIGNS: Record<string, string> = { running: "▸", waiting: "…", failed: "✕", paused: "‖", completed: "✓", cancelled: "◼" };

/** Returns the sign of a status; it stands beside the word. */
export function statusSign(status: string): string {
  return SIGNS[status] ?? "○";
}

/** Returns how long a run has worked. */
export function workedText({ worked_us: worked, since_us: since }: RunView, now: Micros): string {
  if (worked === null) return "";
  return duration(worked + (since > 0 ? Math.max(0, now - since) : 0));
}
