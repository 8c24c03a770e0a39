// Names, colours and appearance of bars by kind. Each colour also has a letter or sign, because not everyone can distinguish
// the colours.

import { AGENT_TURN, STATUS_SIGNS, TYPE_COLOURS, WAITS } from "../constants";
import type { Spans } from "../shared/spans";

/** Kind of bar: a step, an item, or a kind of call. */
export interface Kind {
  /** Key, and name of the colour after `--db-` in the style sheet. */
  key: string;
  name: string;
  letter: string;
}

const STEP: Kind = { key: "step", name: "steps", letter: "" };
const ITEM: Kind = { key: "item", name: "items", letter: "" };
const OTHER: Kind = { key: "other", name: "other calls", letter: "·" };
/** Kinds of calls by their colour. */
const CALLS: Record<(typeof TYPE_COLOURS)[keyof typeof TYPE_COLOURS], Kind> = {
  model: { key: "model", name: "model calls", letter: "M" },
  turn: { key: "turn", name: "agent turns", letter: "" },
  tool: { key: "tool", name: "tool calls", letter: "T" },
  action: { key: "action", name: "actions", letter: "A" },
  script: { key: "script", name: "scripts", letter: "S" },
};
const KIND_BY_TYPE = new Map<string, Kind>(Object.entries(TYPE_COLOURS).map(([type, colour]) => [type, CALLS[colour]]));
const WAIT_TYPES: ReadonlySet<string> = new Set(WAITS);

export const KINDS: readonly Kind[] = [STEP, ITEM, ...Object.values(CALLS), OTHER];

/** Return the kind of a span. */
export function kindOf(spans: Spans, id: number): Kind {
  const kind = spans.text(id, "kind");
  if (kind === "step") return STEP;
  return kind === "item" ? ITEM : (KIND_BY_TYPE.get(spans.text(id, "type")) ?? OTHER);
}

/** Signs of statuses. Here a wait is one for an answer or a signal, so it gets the sign of a question. */
export const SIGNS: Record<string, string> = { ...STATUS_SIGNS, waiting: "?", asleep: "…" };

/** Appearance of a bar. Failures take precedence over the kind of call. */
export type Appearance = "failed" | "cancelled" | "waiting" | "running" | "plain";

/** Return the appearance of a span's bar. */
export function appearanceOf(spans: Spans, id: number): Appearance {
  const status = spans.text(id, "status");
  if (status === "failed" || status === "cancelled" || status === "waiting") return status;
  if (WAIT_TYPES.has(spans.text(id, "type"))) return "waiting";
  return status === "running" ? "running" : "plain";
}

/** Return the status of a span as a word. A finished wait is completed, although its bar looks like waiting. */
export function statusOf(spans: Spans, id: number): string {
  const status = spans.text(id, "status");
  return status === "running" ? appearanceOf(spans, id) : status;
}

/** Return the name of the colour for a bar. */
export function colourOf(spans: Spans, id: number): string {
  const appearance = appearanceOf(spans, id);
  const { key } = kindOf(spans, id);
  if (appearance === "failed" || appearance === "cancelled") return appearance;
  return appearance === "running" && key === "step" ? appearance : key;
}

/** Return true if a span does work itself. Turns, steps and items only contain other spans. */
export function isWork(spans: Spans, id: number): boolean {
  return spans.text(id, "kind") === "operation" && spans.text(id, "type") !== AGENT_TURN && appearanceOf(spans, id) !== "waiting";
}

/** Return the text that distinguishes a bar from its neighbours: its item, or the name of the call. */
export function barNameOf(spans: Spans, id: number): string {
  if (spans.text(id, "kind") === "step") return spans.text(id, "step");
  return spans.text(id, "item") || spans.text(id, "label") || spans.text(id, "step");
}
