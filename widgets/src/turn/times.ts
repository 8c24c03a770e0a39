// Working time of a turn or request, and the time in which it only waited for a person.

import { AGENT_TURN } from "../constants";
import type { QuestionView as Question } from "../protocol";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";
import type { Spans } from "../shared/spans";

type TimeRange = readonly [from: number, to: number];

const MIN_WAIT = 1_000_000; // microseconds; shorter waits are not shown

/** Return the working and waiting time of a turn as text. It is empty if some of its calls have not been loaded. */
export function turnTimes(model: Model, turn: number, questions: readonly Question[]): string {
  const { spans } = model;
  if (turn < spans.floor) return "";
  return timesText(model, callsWithin(spans, turn), questions, [spans.startOf(turn), spans.endOf(turn, Infinity)]);
}

/** Return the questions of the step that a turn belongs to. */
export function questionsOfStep({ spans, questions }: Model, turn: number): Question[] {
  const path = spans.text(turn, "path");
  const step = spans.text(turn, "step");
  return [...questions.values()].filter((question) => question.path === path && question.step === step);
}

/**
 * Return the working time of some calls as text, and the time in which their questions kept them waiting.
 * Overlapping times count once. Time in which other calls worked is not waiting time.
 */
export function timesText(model: Model, ids: readonly number[], questions: readonly Question[], [from, to]: TimeRange = [0, Infinity]): string {
  const { spans, originUs } = model;
  const workRanges = union(ids.filter((id) => spans.has(id)).map((id) => [spans.startOf(id), spans.endOf(id, model.now())]));
  const answers = questions.flatMap(({ raised_us: raised, answered_us: answered }) => {
    if (answered === null) return [];
    return [[raised - originUs, answered - originUs] as const];
  });
  const waitRanges = union(answers.map((answer) => intersection(answer, [from, to])));
  const overlaps = waitRanges.flatMap((wait) => workRanges.map((work) => intersection(wait, work)));
  const waitTime = totalTime(waitRanges) - totalTime(overlaps);
  let waitText = waitTime < MIN_WAIT ? "" : `waited for you ${duration(waitTime)}`;
  if (questions.some(({ status }) => status === "pending")) waitText = "waits for you";
  return [workRanges.length > 0 ? duration(totalTime(workRanges)) : "", waitText].filter(Boolean).join(" · ");
}

/** Return the calls inside a turn, including those of delegated turns. A turn has a lower id than its calls. */
export function callsWithin(spans: Spans, turn: number): number[] {
  const turns = new Set([turn]);
  const ids: number[] = [];
  for (let id = turn + 1; id < spans.total; id++) {
    if (!turns.has(spans.number(id, "within"))) continue;
    if (spans.text(id, "type") === AGENT_TURN) turns.add(id);
    else ids.push(id);
  }
  return ids;
}

/** Return sorted ranges without overlaps. Ranges that touch are joined. */
function union(ranges: readonly TimeRange[]): TimeRange[] {
  const result: TimeRange[] = [];
  for (const [from, to] of ranges.filter(([from, to]) => to > from).sort((one, other) => one[0] - other[0])) {
    const last = result.at(-1);
    if (last !== undefined && from <= last[1]) result[result.length - 1] = [last[0], Math.max(last[1], to)];
    else result.push([from, to]);
  }
  return result;
}

/** Return the common part of two ranges. The end lies before the start if there is none. */
function intersection(one: TimeRange, other: TimeRange): TimeRange {
  return [Math.max(one[0], other[0]), Math.min(one[1], other[1])];
}

/** Return the total length of ranges; empty ones count as zero. */
function totalTime(ranges: readonly TimeRange[]): number {
  return ranges.reduce((sum, [from, to]) => sum + Math.max(0, to - from), 0);
}
