// One request of a conversation: its numbers, what was new in it, what the model thought, said and called.

import type { ConversationCall, ConversationPart, ConversationRequest, QuestionView as Question, Sent } from "../protocol";
import { h, longText, setText } from "../shared/dom";
import { button } from "../shared/element";
import { duration, plural, price } from "../shared/format";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { CallLine } from "./calls";

/** What an exchange needs of the chat around it. */
export interface Around {
  model: Model;
  agent: () => string;
  /** The question that holds a call up. */
  questionOf: (call: ConversationCall) => Question | undefined;
  /** Where the card of a question stands, as long as this exchange is on the page. */
  placeCard: (question: Question, place: HTMLElement) => void;
  /** Makes what shows the turn of an agent that was given work. */
  inset: (call: ConversationCall) => HTMLElement;
  sent: ((id: number, receive: (answer: Sent) => void) => void) | undefined;
}

/** A request on the page; what is unfolded stays so while it grows. */
export class Exchange {
  readonly element = h("section", { class: "exchange" });
  readonly #facts = h("span", { class: "facts" });
  readonly #sent = h("div");
  readonly #all = h("div", { class: "all", hidden: true });
  readonly #answer = h("div", { class: "said" });
  readonly #calls = h("div", { class: "calls", hidden: true });
  readonly #below = h("div");
  readonly #card = h("div", { class: "divebook-prompt card-place" });
  readonly #lines = new Map<string, CallLine>();
  readonly #insets = new Set<string>();
  #shown = "";
  #answered = "";
  readonly #whole: HTMLButtonElement | undefined;
  #id = -1;

  constructor(
    number: number,
    private readonly around: Around,
  ) {
    const { sent } = around;
    const what = sent !== undefined && button("What was sent", () => { this.#showAll(); }, { class: "small quiet", "aria-expanded": "false" });
    this.#whole = what === false ? undefined : what;
    this.element.append(
      h("div", { class: "req" }, h("b", {}, `Request ${number}`), this.#facts, what),
      this.#all,
      this.#sent,
      h("div", { class: "m" }, h("span", { class: "who bot", "aria-hidden": "true" }), h("div", {}, this.#answer, this.#calls, this.#below, this.#card)),
    );
  }

  /** Shows how the request stands; what it is made with only where that is not as `before`. */
  update(request: ConversationRequest, calls: readonly ConversationCall[], before: ConversationRequest | undefined): void {
    this.#id = request.id;
    setText(this.#facts, this.#numbers(request));
    const isSet = before === undefined || setting(before) !== setting(request);
    const shown = JSON.stringify([request.sent, isSet, setting(request)]);
    if (shown !== this.#shown) {
      this.#shown = shown;
      this.#sent.replaceChildren(...news(request, isSet));
    }
    this.#showAnswer(request);
    this.#showCalls(request, calls);
  }

  #numbers(request: ConversationRequest): string {
    const { model } = this.around;
    const status = model.spans.text(request.id, "status");
    const cached = request.cached_tokens > 0 ? ` (${request.cached_tokens.toLocaleString("en")} cached)` : "";
    const tokens = request.input_tokens + request.output_tokens > 0 ? `${request.input_tokens.toLocaleString("en")} in${cached}, ${request.output_tokens.toLocaleString("en")} out` : "";
    const took = duration(model.spans.endOf(request.id, model.now()) - model.spans.startOf(request.id));
    const note = model.spans.text(request.id, "note");
    const end = status === "failed" ? `✕ ${note}` : status === "running" ? "▸ running" : status === "cancelled" ? "◼ cancelled" : finish(request);
    return [request.model, tokens, price(request.cost), request.is_cached ? "from the cache" : took, end].filter(Boolean).join(" · ");
  }

  #showAnswer(request: ConversationRequest): void {
    const { model, agent } = this.around;
    const written = model.streams.get(request.id);
    const parts = request.answer.length > 0 ? request.answer.filter(({ kind }) => kind !== "call") : streamed(written);
    const answered = JSON.stringify([parts, agent()]);
    if (answered === this.#answered) return;
    const isLive = request.answer.length === 0;
    const opened = this.#answer.querySelector("details")?.open ?? false;
    this.#answered = answered;
    this.#answer.classList.toggle("live", isLive && parts.length > 0);
    this.#answer.replaceChildren(...parts.map((part) => (part.kind === "thinking" ? thought(part.text, opened || isLive) : part.kind === "call" ? calling(part) : spoken(agent(), part))));
  }

  #showCalls(request: ConversationRequest, calls: readonly ConversationCall[]): void {
    const { model } = this.around;
    const written = model.streams.get(request.id);
    this.#calls.hidden = calls.length === 0;
    for (const call of calls) {
      let line = this.#lines.get(call.call);
      if (line === undefined) {
        line = new CallLine(call);
        this.#lines.set(call.call, line);
        this.#calls.append(line.element);
      }
      const asked = this.around.questionOf(call);
      line.update(call, model, asked, written?.get(`arguments:${call.call}`)?.text ?? "");
      if (asked?.status === "pending") this.around.placeCard(asked, this.#card);
      if (call.turn >= 0 && !this.#insets.has(call.call)) {
        this.#insets.add(call.call);
        this.#below.append(this.around.inset(call));
      }
    }
  }

  /** Shows or hides every message that went to the model. */
  #showAll(): void {
    this.#all.hidden = !this.#all.hidden;
    this.#whole?.setAttribute("aria-expanded", String(!this.#all.hidden));
    if (this.#all.hidden) return;
    this.#all.replaceChildren(h("p", { class: "soft" }, "loading …"));
    this.around.sent?.(this.#id, ({ parts, error }) => {
      this.#all.replaceChildren(...(error === "" ? parts.map((part) => message(part)) : [h("p", { class: "bad" }, error)]));
    });
  }
}

/** What a person, a system or a refused answer said that the model had not been told before. */
function news(request: ConversationRequest, isSet: boolean): HTMLElement[] {
  const tools = request.tools.length > 0 ? plural(request.tools.length, "tool") : "";
  const output = request.output === "" ? "" : `answers with ${request.output}`;
  const about = [request.instructions === "" ? "" : "instructions", tools, output].filter(Boolean).join(", ");
  const told = isSet && about !== "" && fold("m", "sys", h("span", {}, h("b", {}, "System"), ` · ${about}`), [
    ...(request.instructions === "" ? [] : [longText(request.instructions)]),
    ...(tools === "" ? [] : [h("p", { class: "soft" }, `Tools: ${request.tools.join(", ")}`)]),
  ]);
  return [...(told === false ? [] : [told]), ...request.sent.map((part) => message(part))];
}

function setting({ instructions, tools, output }: ConversationRequest): string {
  return JSON.stringify([instructions, tools, output]);
}

const ENDS: Record<string, string> = { stop: "", tool_call: "ended with tool calls", tool_calls: "ended with tool calls", length: "! cut at the limit of tokens", content_filter: "! stopped by a filter" };

function finish({ finish: word, answer }: ConversationRequest): string {
  if (word === "") return answer.some(({ kind }) => kind === "call") ? "ended with tool calls" : "";
  return ENDS[word] ?? oneLine(word, 40);
}

const SPEAKERS = { system: "System", user: "You", retry: "Asked to try again", thinking: "Thought", assistant: "Agent", call: "Calls", result: "Result of" } as const;
const SIDES = { system: "sys", user: "person", retry: "sys", thinking: "bot", assistant: "bot", call: "bot", result: "sys" } as const;
const SHORT = 600;

function message(part: ConversationPart): HTMLElement {
  const who = h("b", { class: "by" }, `${SPEAKERS[part.kind]} ${oneLine(part.call, 60)}`.trim());
  const said = part.text.length > SHORT ? longText(part.text) : h("span", { class: "text", dir: "auto" }, part.text);
  return h("div", { class: "m" }, h("span", { class: `who ${SIDES[part.kind]}`, "aria-hidden": "true" }), h("div", {}, who, said));
}

function fold(name: string, side: string, title: HTMLElement, inside: HTMLElement[]): HTMLElement {
  return h("div", { class: name }, h("span", { class: `who ${side}`, "aria-hidden": "true" }), h("details", {}, h("summary", {}, title), ...inside));
}

function thought(text: string, isOpen: boolean): HTMLElement {
  return h("details", { class: "think", open: isOpen }, h("summary", {}, `Thought (${plural(text.split(/\s+/).filter(Boolean).length, "word")})`), h("p", { dir: "auto" }, text));
}

function spoken(agent: string, part: ConversationPart): HTMLElement {
  const said = part.text.length > 4_000 ? longText(part.text) : h("span", { class: "text", dir: "auto" }, ...coded(part.text));
  return h("div", {}, h("b", { class: "by" }, agent), said);
}

/** A call whose arguments the model is still writing. */
function calling({ call, text }: ConversationPart): HTMLElement {
  return h("div", { class: "calling" }, h("span", { class: "db-swatch tool", "aria-hidden": "true" }, "T"), h("b", {}, oneLine(call, 60)), h("code", {}, text.slice(-400)));
}

/** Shows what stands between backticks as code. */
function coded(text: string): (string | HTMLElement)[] {
  return text.split(/`([^`\n]+)`/).map((piece, place) => (place % 2 === 1 ? h("code", {}, piece) : piece));
}

function streamed(written: Model["streams"] extends Map<number, infer Parts> ? Parts | undefined : never): ConversationPart[] {
  const part = (kind: ConversationPart["kind"], name: string): ConversationPart[] => {
    const text = written?.get(name)?.text ?? "";
    return text === "" ? [] : [{ kind, text, call: "" }];
  };
  const calls = [...(written?.keys() ?? [])].filter((name) => name.startsWith("arguments:"));
  return [...part("thinking", "thinking"), ...part("assistant", "text"), ...calls.flatMap((name) => part("call", name).map((one) => ({ ...one, call: name.split(":")[1] ?? "" })))];
}
