// Look and name of bars by kind. Each colour has a letter or sign with the same meaning.

import type { Spans } from "../shared/spans";

export interface Kind {
  /** Also the name of its colour, after `--db-` in the style sheet. */
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
/** Calls that do nothing but wait. */
const WAITING = new Set(["timer", "signal_wait"]);

export const KINDS: readonly Kind[] = [...new Map([STEP, ITEM, ...Object.values(OPERATIONS), OTHER].map((kind) => [kind.key, kind])).values()];

export function typeOf(spans: Spans, id: number): Kind {
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

/** How a bar is drawn: what went wrong shows before what it was. */
export type Look = "failed" | "cancelled" | "waiting" | "running" | "plain";

export function lookOf(spans: Spans, id: number): Look {
  const status = spans.text(id, "status");
  if (status === "failed" || status === "cancelled" || status === "waiting") return status;
  if (WAITING.has(spans.text(id, "type"))) return "waiting";
  return status === "running" ? "running" : "plain";
}

/** Returns how a span stands, in a word; a wait that is over is completed, though its bar looks like waiting. */
export function standingOf(spans: Spans, id: number): string {
  const status = spans.text(id, "status");
  return status === "running" ? lookOf(spans, id) : status;
}

/** Returns the name of the colour for a bar. */
export function colourOf(spans: Spans, id: number): string {
  const [look, { key }] = [lookOf(spans, id), typeOf(spans, id)];
  if (look === "failed" || look === "cancelled") return look;
  return look === "running" && key === "step" ? look : key;
}

/** Tells whether work is done while a span runs: a turn holds its work, and steps and items hold theirs. */
export function isWork(spans: Spans, id: number): boolean {
  return spans.text(id, "kind") === "operation" && spans.text(id, "type") !== "agent_turn" && lookOf(spans, id) !== "waiting";
}

/** Returns what tells a bar from its neighbours: the item, or what is called. */
export function calledOf(spans: Spans, id: number): string {
  if (spans.text(id, "kind") === "step") return spans.text(id, "step");
  return spans.text(id, "item") || spans.text(id, "label") || spans.text(id, "step");
}
