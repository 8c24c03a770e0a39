// Working time of a turn or request, and the time in which it could only wait for a person.

import type { QuestionView as Question } from "../protocol";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";
import type { Spans } from "../shared/spans";

type TimeRange = readonly [from: number, to: number];

const MIN_WAIT = 1_000_000; // a shorter wait is nobody's

/** Returns how long a turn worked and waited, in a few words; nothing where not all of it is here. */
export function turnTimes(model: Model, turn: number, questions: readonly Question[]): string {
  const { spans } = model;
  if (turn < spans.floor) return "";
  return timesText(model, callsWithin(spans, turn), questions, [spans.startOf(turn), spans.endOf(turn, Infinity)]);
}

/** Returns the questions of the step that a turn is all of. */
export function questionsOfStep({ spans, questions }: Model, turn: number): Question[] {
  const [path, step] = [spans.text(turn, "path"), spans.text(turn, "step")];
  return [...questions.values()].filter((question) => question.path === path && question.step === step);
}

/** Returns how long some calls worked, and how long some questions held them up, in a few words. */
export function timesText(model: Model, ids: readonly number[], questions: readonly Question[], [from, to]: TimeRange = [0, Infinity]): string {
  const { spans, originUs } = model;
  const workRanges = union(ids.filter((id) => spans.has(id)).map((id) => [spans.startOf(id), spans.endOf(id, model.now())]));
  const answers = questions.flatMap(({ raised_us: raised, answered_us: answered }) => (answered === null ? [] : [[raised - originUs, answered - originUs] as const]));
  const waitRanges = union(answers.map((one) => intersection(one, [from, to])));
  const waitTime = totalTime(waitRanges) - totalTime(waitRanges.flatMap((one) => workRanges.map((other) => intersection(one, other))));
  const waitText = questions.some(({ status }) => status === "pending") ? "waits for you" : waitTime < MIN_WAIT ? "" : `waited for you ${duration(waitTime)}`;
  return [workRanges.length > 0 ? duration(totalTime(workRanges)) : "", waitText].filter(Boolean).join(" · ");
}

/** Returns the calls of a turn, and of those that it gave work. */
export function callsWithin(spans: Spans, turn: number): number[] {
  const turns = new Set([turn]);
  const ids: number[] = [];
  for (let id = turn + 1; id < spans.total; id++) {
    if (!turns.has(spans.number(id, "within"))) continue;
    if (spans.text(id, "type") === "agent_turn") turns.add(id);
    else ids.push(id);
  }
  return ids;
}

/** Returns stretches in their order, those that touch as one. */
function union(ranges: readonly TimeRange[]): TimeRange[] {
  const result: TimeRange[] = [];
  for (const [from, to] of ranges.filter(([from, to]) => to > from).sort((one, other) => one[0] - other[0])) {
    const last = result.at(-1);
    if (last !== undefined && from <= last[1]) result[result.length - 1] = [last[0], Math.max(last[1], to)];
    else result.push([from, to]);
  }
  return result;
}

function intersection(one: TimeRange, other: TimeRange): TimeRange {
  return [Math.max(one[0], other[0]), Math.min(one[1], other[1])];
}

function totalTime(ranges: readonly TimeRange[]): number {
  return ranges.reduce((sum, [from, to]) => sum + Math.max(0, to - from), 0);
}
