// Outcome of a question as text: the kernel provides the words (divebook/questions/question.py), this module adds
// person and time.

import { FAIL, REJECT, STATUS_SIGNS, STOP } from "../constants";
import { oneLine } from "../shared/text";
import { moment } from "../shared/times";
import { asSchema } from "./schema";
import type { Question } from "./types";

const REJECTIONS = new Set<unknown>([REJECT, FAIL, STOP]);

/** Return the sign of a question's outcome: a cross for a rejection. */
export function questionOutcomeSign({ status, response }: Question): string {
  const { approved, decision, choice } = asSchema(response);
  if (status === "resolved") {
    const isRejected = approved === false || REJECTIONS.has(decision) || REJECTIONS.has(choice);
    return isRejected ? STATUS_SIGNS.failed : STATUS_SIGNS.completed;
  }
  return { expired: "◷", cancelled: STATUS_SIGNS.cancelled, pending: "?" }[status];
}

/** Return the outcome of a question: the answer, the person and the time. */
export function questionOutcomeText({ became: outcome, answered_by: person, answered_us: answeredAt }: Question): string {
  const byPerson = person === null ? "" : ` by ${oneLine(person, 60)}`;
  const separator = person === null ? " at" : ",";
  const when = answeredAt === null ? "" : `${separator} ${moment(answeredAt)}`;
  return `${oneLine(outcome, 200)}${byPerson}${when}`;
}
