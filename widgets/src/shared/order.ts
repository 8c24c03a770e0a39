// Order of questions.

import type { QuestionView } from "../protocol";

/** Compare two questions for sorting: oldest first, those of one moment by their ids (divebook/questions/question.py). */
export function byAge(one: QuestionView, other: QuestionView): number {
  if (one.raised_us !== other.raised_us) return one.raised_us - other.raised_us;
  return one.interrupt_id < other.interrupt_id ? -1 : Number(one.interrupt_id > other.interrupt_id);
}
