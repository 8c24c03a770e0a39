// Messages of the latest request to a model, and the response by then.

import type { ConversationPart } from "../protocol";
import { h, longText } from "../shared/dom";
import { oneLine } from "../shared/text";

/** Messages, and the event with which the request began; 0 where no model had been asked. */
export interface SaidThen {
  asked: number;
  parts: ConversationPart[];
}

const SPEAKERS = { system: "System", user: "User", retry: "Asked to try again", thinking: "Thought", assistant: "Model", call: "Calls", result: "Result of" } as const;

/** Shows the messages of a position. */
export function messages({ asked, parts }: SaidThen): HTMLElement[] {
  if (asked === 0) return [h("p", { class: "hint" }, "No model had been asked by then.")];
  const told = h("p", { class: "hint" }, `The request of event ${asked.toLocaleString("en")}, as the model saw it.`);
  return [told, ...parts.map(({ kind, text, call }) => h("div", { class: `said ${kind}` }, h("b", {}, `${SPEAKERS[kind]} ${oneLine(call, 60)}`.trim()), longText(text)))];
}
