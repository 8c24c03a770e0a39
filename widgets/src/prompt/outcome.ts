// Outcome of a question: the kernel provides the words (divebook/questions/question.py), this module adds person and time.

import { oneLine } from "../shared/text";
import { moment } from "../shared/times";
import { asSchema } from "./schema";
import type { Question } from "./types";

const REJECTIONS = new Set<unknown>(["reject", "fail", "stop"]);

/** Returns the sign of what became of a question: a cross where somebody said no. */
export function questionOutcomeSign({ status, response }: Question): string {
  const { approved, decision, choice } = asSchema(response);
  if (status === "resolved") return approved === false || REJECTIONS.has(decision) || REJECTIONS.has(choice) ? "✕" : "✓";
  return { expired: "◷", cancelled: "◼", pending: "?" }[status];
}

/** Returns what became of a question: the answer, by whom and when. */
export function questionOutcomeText({ became: outcome, answered_by: person, answered_us: answeredAt }: Question): string {
  const when = answeredAt === null ? "" : `${person === null ? " at" : ","} ${moment(answeredAt)}`;
  return `${oneLine(outcome, 200)}${person === null ? "" : ` by ${oneLine(person, 60)}`}${when}`;
}
