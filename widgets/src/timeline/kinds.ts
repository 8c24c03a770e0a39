// Names, colours and appearance of bars by kind. Each colour also has a letter or sign, because not everyone can distinguish
// the colours.

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
const OPERATIONS: Record<string, Kind> = {
  agent_response: { key: "model", name: "model calls", letter: "M" },
  cached_response: { key: "model", name: "model calls", letter: "M" },
  agent_turn: { key: "turn", name: "turns of agents", letter: "" },
  tool_call: { key: "tool", name: "tool calls", letter: "T" },
  action_execution: { key: "action", name: "actions", letter: "A" },
  script_execution: { key: "script", name: "scripts", letter: "S" },
  step_execution: { key: "script", name: "scripts", letter: "S" },
};
/** Types of calls that only wait. */
const WAIT_TYPES = new Set(["timer", "signal_wait"]);

export const KINDS: readonly Kind[] = [...new Map([STEP, ITEM, ...Object.values(OPERATIONS), OTHER].map((kind) => [kind.key, kind])).values()];

/** Return the kind of a span. */
export function kindOf(spans: Spans, id: number): Kind {
  const kind = spans.text(id, "kind");
  if (kind === "step") return STEP;
  return kind === "item" ? ITEM : (OPERATIONS[spans.text(id, "type")] ?? OTHER);
}

export const SIGNS: Record<string, string> = {
  completed: "✓",
  failed: "✕",
  cancelled: "◼",
  running: "▸",
  waiting: "?",
  pending: "…",
  paused: "‖",
  asleep: "…",
};

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
  return spans.text(id, "kind") === "operation" && spans.text(id, "type") !== "agent_turn" && appearanceOf(spans, id) !== "waiting";
}

/** Return the text that distinguishes a bar from its neighbours: its item, or the name of the call. */
export function barNameOf(spans: Spans, id: number): string {
  if (spans.text(id, "kind") === "step") return spans.text(id, "step");
  return spans.text(id, "item") || spans.text(id, "label") || spans.text(id, "step");
}
