// What a bar looks like and is called, by what it stands for. Colour is never alone: a letter or a sign says the same.

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
};

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
  waiting: "…",
  pending: "…",
  paused: "‖",
};

/** Returns the name of the colour for a bar: what went wrong shows before what it was. */
export function colourOf(spans: Spans, id: number): string {
  const status = spans.text(id, "status");
  const { key } = typeOf(spans, id);
  return status === "failed" || status === "cancelled" || (status === "running" && key === "step") ? status : key;
}
