// Messages of a model call, read from its recorded parameters and result.

import { AGENT_RESPONSE } from "../constants";
import type { DetailEvent } from "../protocol";

/** Message with its author. */
export interface Message {
  by: string;
  text: string;
}

type JsonObject = Record<string, unknown>;

/** Return the messages in the events of a model call; an empty list for other events. */
export function messagesOf(events: readonly DetailEvent[]): Message[] {
  const started = events.find((event) => event.event_type === "operation_started");
  if (started?.data["operation_type"] !== AGENT_RESPONSE) return [];
  const completed = events.findLast((event) => event.event_type === "operation_completed");
  const parameters = objectOf(started.data["parameters"]);
  return [...requestMessages(parameters), ...parts(objectOf(completed?.data["result"])["parts"], "model")].filter((message) => message.text !== "");
}

/** Return the messages of a request. Older logs record instructions, context and prompt instead of messages. */
function requestMessages(parameters: JsonObject): Message[] {
  if (Array.isArray(parameters["messages"])) {
    return parameters["messages"].flatMap((message) => parts(objectOf(message)["parts"], objectOf(message)["kind"] === "response" ? "model" : "user"));
  }
  return [
    { by: "instructions", text: asText(parameters["instructions"]) },
    { by: "context", text: textOfBlocks(parameters["context"]) },
    { by: "content", text: textOfBlocks(parameters["content"]) },
    { by: "prompt", text: asText(parameters["prompt"]) },
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

/** Return the messages in a list of message parts. */
function parts(value: unknown, by: string): Message[] {
  if (!Array.isArray(value)) return [];
  return value.map(objectOf).map((part) => {
    const kind = asText(part["part_kind"]);
    if (kind === "tool-call") return { by: `calls ${asText(part["tool_name"])}`, text: asText(part["args"]) || "()" };
    const name = kind === "tool-return" ? `tool ${asText(part["tool_name"])}` : (SPEAKERS[kind] ?? by);
    return { by: name, text: textOfBlocks(part["content"]) };
  });
}

function textOfBlocks(value: unknown): string {
  if (!Array.isArray(value)) return asText(value);
  return value.map((block) => asText(objectOf(block)["text"]) || asText(objectOf(block)["Text"]) || asText(block)).join("\n\n");
}

function objectOf(value: unknown): JsonObject {
  return typeof value === "object" && value !== null ? (value as JsonObject) : {};
}

/** Return a string unchanged and any other value as JSON. */
export function asText(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
