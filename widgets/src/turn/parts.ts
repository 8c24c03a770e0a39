// Elements for the parts of messages: texts, thinking, and calls that are being streamed.

import type { ConversationPart } from "../protocol";
import { h, longText, setText } from "../shared/dom";
import { plural } from "../shared/format";
import { MarkdownView } from "../shared/markdown";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { typeset } from "../shared/typeset";

export const YOU = "You";
const ROLE_NAMES = { system: "System", retry: "Retry request", thinking: "Thinking", assistant: "Agent", call: "Calls", result: "Result of" } as const;
const ROLE_CLASSES = { system: "sys", user: "person", retry: "sys", thinking: "bot", assistant: "bot", call: "bot", result: "sys" } as const;
const MAX_PLAIN_LENGTH = 600;
const MAX_STREAMED_LENGTH = 20_000; // newest characters of a streamed text that are shown

/** Return a message with the name of its author. `sender` is the name of the person or agent that addresses the agent. */
export function message(part: ConversationPart, sender = YOU): HTMLElement {
  const author = part.kind === "user" ? oneLine(sender, 60) : `${ROLE_NAMES[part.kind]} ${oneLine(part.call, 60)}`.trim();
  const who = h("b", { class: "by" }, author);
  const content = part.text.length > MAX_PLAIN_LENGTH ? longText(part.text) : h("span", { class: "text", dir: "auto" }, part.text);
  const side = part.kind === "user" && sender !== YOU ? "bot" : ROLE_CLASSES[part.kind];
  return h("div", { class: "m" }, h("span", { class: `who ${side}`, "aria-hidden": "true" }), h("div", {}, who, content));
}

/** Return a message that unfolds. */
export function fold(name: string, side: string, title: HTMLElement, inside: HTMLElement[]): HTMLElement {
  return h("div", { class: name }, h("span", { class: `who ${side}`, "aria-hidden": "true" }), h("details", {}, h("summary", {}, title), ...inside));
}

/** Return the thinking of a model, folded or unfolded. */
export function thinkingPart(text: string, isOpen: boolean, isLive: boolean): HTMLElement {
  const title = isLive ? "Thinking …" : `Thinking (${plural(text.split(/\s+/).filter(Boolean).length, "word")})`;
  return h("details", { class: "think", open: isOpen }, h("summary", {}, title), longText(text));
}

/** A text of an agent, which may still grow. */
export class AnswerView {
  readonly #markdown = new MarkdownView();
  readonly #author = h("b", { class: "by" });
  readonly element = h("div", {}, this.#author, this.#markdown.element);

  /** Show the text. Formulas are typeset once the text is complete (`isLive` is false). */
  update(agent: string, text: string, isLive: boolean): void {
    setText(this.#author, agent);
    this.#markdown.update(text);
    if (!isLive) typeset(this.element);
  }
}

/** Return a call whose arguments the model is still writing. */
export function streamedCall({ call, text }: ConversationPart): HTMLElement {
  const swatch = h("span", { class: "db-swatch tool", "aria-hidden": "true" }, "T");
  return h("div", { class: "calling" }, swatch, h("b", {}, oneLine(call, 60)), h("code", {}, text.slice(-400)));
}

/** Return the streamed parts of a response, as the messages that they will become. */
export function streamedParts(stream: Model["streams"] extends Map<number, infer Parts> ? Parts | undefined : never): ConversationPart[] {
  const part = (kind: ConversationPart["kind"], name: string): ConversationPart[] => {
    const text = stream?.get(name)?.text ?? "";
    if (text === "") return [];
    return [{ kind, text: newestPart(text), call: "" }];
  };
  const callNames = [...(stream?.keys() ?? [])].filter((name) => name.startsWith("arguments:"));
  const calls = callNames.flatMap((name) => part("call", name).map((call) => ({ ...call, call: name.split(":")[1] ?? "" })));
  return [...part("thinking", "thinking"), ...part("assistant", "text"), ...calls];
}

/**
 * Return the newest part of a long text, from the beginning of a block on. The beginning moves in large steps, so that what is
 * shown does not move with each new piece.
 */
function newestPart(text: string): string {
  if (text.length <= MAX_STREAMED_LENGTH) return text;
  const step = MAX_STREAMED_LENGTH / 4;
  const start = Math.ceil((text.length - MAX_STREAMED_LENGTH) / step) * step;
  const block = text.indexOf("\n\n", start);
  return `…\n\n${text.slice(block < 0 ? start : block)}`;
}
