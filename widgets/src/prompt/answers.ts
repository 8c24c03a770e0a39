// Answers in words: what somebody said to a question, and what became of it.

import { oneLine } from "../shared/text";
import { valueText } from "../shared/values";
import { asSchema, isRecord, text } from "./schema";
import type { Question } from "./types";

const WORDS: Record<string, string> = {
  approve: "approved",
  reject: "rejected",
  modify: "changed",
  continue: "went on",
  raise: "raised",
  stop: "stopped",
  retry: "make the call again",
  done: "the call was done",
  fail: "the call failed",
};

/** Returns an answer in a few words. */
export function answerText({ response }: Question): string {
  const { approved, decision, choice, text: comment, data } = asSchema(response);
  const judged = approved === undefined ? "" : approved === true ? "approved" : "denied";
  const word = WORDS[text(decision ?? choice)] ?? judged;
  const { rule, ...edited } = isRecord(data) ? data : { rule: undefined, ...(data === undefined ? {} : { data }) };
  const isChanged = judged !== "" && Object.keys(edited).length > 0 && decision === undefined;
  const like = text(asSchema(rule)["scope"]);
  const lasting = { run: ", and calls like it in this run", always: ", and calls like it in every run" }[like] ?? "";
  const changes = (isChanged ? " with changes" : "") + lasting;
  const said = comment ?? (judged === "" ? (asSchema(data)["to"] ?? data) : undefined);
  return [word + changes, valueText(said, 400)].filter((part) => part !== "").join(": ") || "no answer";
}

/** Returns what became of a question: the answer, by whom and when. */
export function closedText(question: Question): string {
  const { status, answered_by: by, answered_us: at } = question;
  if (status === "cancelled") return "withdrawn";
  const answer = oneLine(answerText(question), 200);
  if (status === "expired") return question.response === null ? "expired without an answer" : `expired; its default holds: ${answer}`;
  const when = at === null ? "" : ` at ${new Date(at / 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}`;
  return `${answer}${by === null ? "" : ` — by ${oneLine(by, 60)}`}${when}`;
}
