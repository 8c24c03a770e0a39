// What a bar looks like and is called, by what it stands for. Colour is never alone: a letter or a sign says the same.

import type { Spans } from "../shared/spans";

export interface Kind {
  key: string;
  name: string;
  letter: string;
  /** The name of its colour in the style sheet. */
  colour: string;
}

const STEP: Kind = { key: "step", name: "steps", letter: "", colour: "--db-step" };
const ITEM: Kind = { key: "item", name: "items", letter: "", colour: "--db-item" };
const OTHER: Kind = { key: "other", name: "other calls", letter: "·", colour: "--db-other" };
const OPERATIONS: Record<string, Kind> = {
  agent_response: { key: "model", name: "model calls", letter: "M", colour: "--db-model" },
  tool_call: { key: "tool", name: "tool calls", letter: "T", colour: "--db-tool" },
  action_execution: { key: "action", name: "actions", letter: "A", colour: "--db-action" },
  script_execution: { key: "script", name: "scripts", letter: "S", colour: "--db-script" },
};

export const KINDS: readonly Kind[] = [STEP, ITEM, ...Object.values(OPERATIONS), OTHER];

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
  waiting: "…",
  pending: "…",
  paused: "‖",
};

/** Returns the name of the colour for a bar: what went wrong shows before what it was. */
export function colourOf(spans: Spans, id: number): string {
  const status = spans.text(id, "status");
  if (status === "failed") return "--db-failed";
  if (status === "cancelled") return "--db-cancelled";
  if (status === "running" && typeOf(spans, id).key === "step") return "--db-running";
  return typeOf(spans, id).colour;
}
