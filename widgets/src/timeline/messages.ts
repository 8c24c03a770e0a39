// Messages of a model call, from the recorded parameters and result.

import type { DetailEvent } from "../protocol";

export interface Said {
  by: string;
  text: string;
}

type Plain = Record<string, unknown>;

/** Returns the conversation of a model call's events; empty if they are of something else. */
export function conversation(events: readonly DetailEvent[]): Said[] {
  const started = events.find((event) => event.event_type === "operation_started");
  if (started?.data["operation_type"] !== "agent_response") return [];
  const completed = events.findLast((event) => event.event_type === "operation_completed");
  const given = plain(started.data["parameters"]);
  return [...asked(given), ...parts(plain(completed?.data["result"])["parts"], "model")].filter((said) => said.text !== "");
}

function asked(given: Plain): Said[] {
  if (Array.isArray(given["messages"])) {
    return given["messages"].flatMap((message) => parts(plain(message)["parts"], plain(message)["kind"] === "response" ? "model" : "user"));
  }
  return [
    { by: "instructions", text: asText(given["instructions"]) },
    { by: "context", text: blocks(given["context"]) },
    { by: "content", text: blocks(given["content"]) },
    { by: "prompt", text: asText(given["prompt"]) },
  ];
}

const SPEAKERS: Record<string, string> = {
  "system-prompt": "instructions",
  "user-prompt": "user",
  "tool-return": "tool",
  "retry-prompt": "retry",
  thinking: "thinking",
  text: "model",
};

function parts(value: unknown, by: string): Said[] {
  if (!Array.isArray(value)) return [];
  return value.map(plain).map((part) => {
    const kind = asText(part["part_kind"]);
    if (kind === "tool-call") return { by: `calls ${asText(part["tool_name"])}`, text: asText(part["args"]) || "()" };
    const name = kind === "tool-return" ? `tool ${asText(part["tool_name"])}` : (SPEAKERS[kind] ?? by);
    return { by: name, text: blocks(part["content"]) };
  });
}

function blocks(value: unknown): string {
  if (!Array.isArray(value)) return asText(value);
  return value.map((block) => asText(plain(block)["text"]) || asText(plain(block)["Text"]) || asText(block)).join("\n\n");
}

function plain(value: unknown): Plain {
  return typeof value === "object" && value !== null ? (value as Plain) : {};
}

/** Returns a value for people: a text as it is, anything else as JSON. */
export function asText(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
