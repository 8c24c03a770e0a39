// Messages of the latest model request before a position, with the response if there is one.

import type { ConversationPart } from "../protocol";
import { h, longText } from "../shared/dom";
import { formatCount } from "../shared/format";
import { oneLine } from "../shared/text";

/** Messages, and the sequence number of the event that started the request; 0 if there was no request yet. */
export interface RequestMessages {
  asked: number;
  parts: ConversationPart[];
}

const SPEAKERS = { system: "System", user: "User", retry: "Retry request", thinking: "Thinking", assistant: "Model", call: "Calls", result: "Result of" } as const;

/** Create the elements that show the messages. */
export function messageElements({ asked, parts }: RequestMessages): HTMLElement[] {
  if (asked === 0) return [h("p", { class: "hint" }, "No model request up to this event.")];
  const heading = h("p", { class: "hint" }, `Messages of the model request at event ${formatCount(asked)}, as the model received them.`);
  const rows = parts.map(({ kind, text, call }) => {
    const speaker = `${SPEAKERS[kind]} ${oneLine(call, 60)}`.trim();
    return h("div", { class: `said ${kind}` }, h("b", {}, speaker), longText(text));
  });
  return [heading, ...rows];
}
