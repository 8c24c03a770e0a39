// Working time of a turn or request, and the time in which it could only wait for a person.

import type { QuestionView as Question } from "../protocol";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";
import type { Spans } from "../shared/spans";

type Stretch = readonly [from: number, to: number];

const LEAST = 1_000_000; // a shorter wait is nobody's

/** Returns how long a turn worked and waited, in a few words; nothing where not all of it is here. */
export function turnTimes(model: Model, turn: number, questions: readonly Question[]): string {
  const { spans } = model;
  if (turn < spans.floor) return "";
  return timesText(model, callsWithin(spans, turn), questions, [spans.startOf(turn), spans.endOf(turn, Infinity)]);
}

/** Returns the questions of the step that a turn is all of. */
export function questionsOfStep({ spans, questions }: Model, turn: number): Question[] {
  const [path, step] = [spans.text(turn, "path"), spans.text(turn, "step")];
  return [...questions.values()].filter((asked) => asked.path === path && asked.step === step);
}

/** Returns how long some calls worked, and how long some questions held them up, in a few words. */
export function timesText(model: Model, ids: readonly number[], questions: readonly Question[], [from, to]: Stretch = [0, Infinity]): string {
  const { spans, originUs } = model;
  const worked = joined(ids.filter((id) => spans.has(id)).map((id) => [spans.startOf(id), spans.endOf(id, model.now())]));
  const settled = questions.flatMap(({ raised_us: raised, answered_us: answered }) => (answered === null ? [] : [[raised - originUs, answered - originUs] as const]));
  const asked = joined(settled.map((one) => both(one, [from, to])));
  const waited = length(asked) - length(asked.flatMap((one) => worked.map((other) => both(one, other))));
  const waits = questions.some(({ status }) => status === "pending") ? "waits for you" : waited < LEAST ? "" : `waited for you ${duration(waited)}`;
  return [worked.length > 0 ? duration(length(worked)) : "", waits].filter(Boolean).join(" · ");
}

/** Returns the calls of a turn, and of those that it gave work. */
export function callsWithin(spans: Spans, turn: number): number[] {
  const turns = new Set([turn]);
  const found: number[] = [];
  for (let id = turn + 1; id < spans.total; id++) {
    if (!turns.has(spans.number(id, "within"))) continue;
    if (spans.text(id, "type") === "agent_turn") turns.add(id);
    else found.push(id);
  }
  return found;
}

/** Returns stretches in their order, those that touch as one. */
function joined(stretches: readonly Stretch[]): Stretch[] {
  const found: Stretch[] = [];
  for (const [from, to] of stretches.filter(([from, to]) => to > from).sort((one, other) => one[0] - other[0])) {
    const last = found.at(-1);
    if (last !== undefined && from <= last[1]) found[found.length - 1] = [last[0], Math.max(last[1], to)];
    else found.push([from, to]);
  }
  return found;
}

function both(one: Stretch, other: Stretch): Stretch {
  return [Math.max(one[0], other[0]), Math.min(one[1], other[1])];
}

function length(stretches: readonly Stretch[]): number {
  return stretches.reduce((sum, [from, to]) => sum + Math.max(0, to - from), 0);
}
