// Texts about a run in the list: its status and its working time.

import { STATUS_SIGNS } from "../constants";
import type { Micros, RunView } from "../protocol";
import { duration } from "../shared/format";

const SIGNS: Record<string, string> = STATUS_SIGNS;

/** Return the sign of a status, which is shown beside the word. */
export function statusSign(status: string): string {
  return SIGNS[status] ?? "○";
}

/** Return the working time of a run. */
export function workedText({ worked_us: worked, since_us: since }: RunView, now: Micros): string {
  if (worked === null) return "";
  return duration(worked + (since > 0 ? Math.max(0, now - since) : 0));
}
