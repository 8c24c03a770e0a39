// Outcome of a question: the kernel provides the words (divebook/questions/question.py), this module adds person and time.

import { oneLine } from "../shared/text";
import { moment } from "../shared/times";
import { asSchema } from "./schema";
import type { Question } from "./types";

const NO = new Set<unknown>(["reject", "fail", "stop"]);

/** Returns the sign of what became of a question: a cross where somebody said no. */
export function closedSign({ status, response }: Question): string {
  const { approved, decision, choice } = asSchema(response);
  if (status === "resolved") return approved === false || NO.has(decision) || NO.has(choice) ? "✕" : "✓";
  return { expired: "◷", cancelled: "◼", pending: "?" }[status];
}

/** Returns what became of a question: the answer, by whom and when. */
export function closedText({ became, answered_by: by, answered_us: at }: Question): string {
  const when = at === null ? "" : `${by === null ? " at" : ","} ${moment(at)}`;
  return `${oneLine(became, 200)}${by === null ? "" : ` by ${oneLine(by, 60)}`}${when}`;
}
