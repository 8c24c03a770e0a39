// One request of a conversation: its numbers, its new messages, and the thinking, texts and calls of the response.

import type { ConversationCall, ConversationRequest, QuestionView as Question } from "../protocol";
import { h, longText, setText } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { duration, plural, price } from "../shared/format";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { CallLine } from "./calls";
import { streamedCall, fold, message, AnswerView, streamedParts, thinkingPart } from "./parts";
import { type RequestSent, SentPanel } from "./sentmessages";

/** Parts of the chat that an exchange uses. */
export interface ExchangeContext {
  model: Model;
  agent: () => string;
  /** Name of the sender: a person, or the agent that delegated the work. */
  sender: string;
  /** Return the question that a call waits for, if there is one. */
  questionOf: (call: ConversationCall) => Question | undefined;
  /** Place the card of a question in an element, as long as this exchange is on the page. */
  placeCard: (question: Question, place: HTMLElement) => void;
  /** Make the view of the turn that a call delegates to. */
  delegatedTurn: (call: ConversationCall) => HTMLElement;
  sent: RequestSent | undefined;
}

/** Request on the page. Its elements are kept while it grows, so that unfolded parts stay unfolded. */
export class Exchange {
  readonly element = h("section", { class: "exchange" });
  readonly #facts = h("span", { class: "facts" });
  readonly #newMessages = h("div");
  readonly #sentPanel: SentPanel | undefined;
  readonly #answer = h("div", { class: "said" });
  readonly #calls = h("div", { class: "calls", hidden: true });
  readonly #delegatedTurns = h("div");
  readonly #card = h("div", { class: "divebook-prompt card-place" });
  readonly #lines = new Map<string, CallLine>();
  readonly #shownTurns = new Set<string>();
  #sentKey = "";
  #answerKey = "";
  /** Texts of the response, by their place among its parts. They stay on the page while they grow. */
  readonly #texts = new Map<number, AnswerView>();

  constructor(
    number: number,
    private readonly context: ExchangeContext,
  ) {
    const sentPanel = context.sent === undefined ? undefined : new SentPanel(context.sent, context.sender);
    const toggleSent = (): void => { setAttribute(sentButton, "aria-expanded", String(sentPanel?.toggle())); };
    const sentButton: HTMLButtonElement = button("Sent messages", toggleSent, { class: "small quiet", "aria-expanded": "false" });
    this.#sentPanel = sentPanel;
    this.element.append(
      h("div", { class: "req" }, h("b", {}, `Request ${number}`), this.#facts, sentPanel !== undefined && sentButton),
      ...(sentPanel === undefined ? [] : [sentPanel.element]),
      this.#newMessages,
      h("div", { class: "m" }, h("span", { class: "who bot", "aria-hidden": "true" }), h("div", {}, this.#answer, this.#calls, this.#delegatedTurns, this.#card)),
    );
  }

  /** Show the current state of a request. Instructions, tools and output type are shown only if they differ from the previous request. */
  update(request: ConversationRequest, calls: readonly ConversationCall[], previous: ConversationRequest | undefined): void {
    this.#sentPanel?.setRequests(request, previous);
    setText(this.#facts, this.#factsOf(request));
    const hasNewSettings = previous === undefined || settingsKey(previous) !== settingsKey(request);
    const sentKey = JSON.stringify([request.sent, hasNewSettings, settingsKey(request)]);
    if (sentKey !== this.#sentKey) {
      this.#sentKey = sentKey;
      this.#newMessages.replaceChildren(...newMessages(request, hasNewSettings, this.context.sender));
    }
    this.#showAnswer(request);
    this.#showCalls(request, calls);
  }

  #factsOf(request: ConversationRequest): string {
    const { model } = this.context;
    const status = model.spans.text(request.id, "status");
    const cached = request.cached_tokens > 0 ? ` (${request.cached_tokens.toLocaleString("en")} cached)` : "";
    let tokens = "";
    if (request.input_tokens + request.output_tokens > 0) {
      tokens = `${request.input_tokens.toLocaleString("en")} in${cached}, ${request.output_tokens.toLocaleString("en")} out`;
    }
    const time = duration(model.spans.endOf(request.id, model.now()) - model.spans.startOf(request.id));
    const note = model.spans.text(request.id, "note");
    const attempt = model.spans.number(request.id, "attempts");
    let end = finishText(request);
    if (status === "failed") end = `✕ ${note}`;
    else if (status === "running") end = "▸ running";
    else if (status === "cancelled") end = "◼ cancelled";
    const source = request.is_cached ? "from the cache" : time;
    return [request.model, tokens, price(request.cost), source, attempt > 1 ? `attempt ${attempt}` : "", end].filter(Boolean).join(" · ");
  }

  /** Show the response, or the streamed parts until it is complete. */
  #showAnswer(request: ConversationRequest): void {
    const { model, agent } = this.context;
    const stream = model.streams.get(request.id);
    const parts = request.answer.length > 0 ? request.answer.filter(({ kind }) => kind !== "call") : streamedParts(stream);
    const answerKey = JSON.stringify([parts, agent()]);
    if (answerKey === this.#answerKey) return;
    const isLive = request.answer.length === 0;
    const wasOpen = this.#answer.querySelector("details")?.open ?? false;
    this.#answerKey = answerKey;
    this.#answer.classList.toggle("live", isLive && parts.length > 0);
    const elementOf = (part: (typeof parts)[number], place: number): HTMLElement => {
      if (part.kind === "thinking") return thinkingPart(part.text, wasOpen || isLive, isLive);
      if (part.kind === "call") return streamedCall(part);
      const text = this.#texts.get(place) ?? new AnswerView();
      this.#texts.set(place, text);
      text.update(agent(), part.text, isLive);
      return text.element;
    };
    replaceChanged(this.#answer, parts.map(elementOf));
  }

  /** Show the calls, and once for each delegating call the turn of the other agent. */
  #showCalls(request: ConversationRequest, calls: readonly ConversationCall[]): void {
    const { model } = this.context;
    const stream = model.streams.get(request.id);
    this.#calls.hidden = calls.length === 0;
    for (const call of calls) {
      let line = this.#lines.get(call.call);
      if (line === undefined) {
        line = new CallLine(call);
        this.#lines.set(call.call, line);
        this.#calls.append(line.element, line.printed);
      }
      const question = this.context.questionOf(call);
      line.update(call, model, stream?.get(`arguments:${call.call}`)?.text ?? "");
      if (question?.status === "pending") this.context.placeCard(question, this.#card);
      if (call.turn >= 0 && !this.#shownTurns.has(call.call)) {
        this.#shownTurns.add(call.call);
        this.#delegatedTurns.append(this.context.delegatedTurn(call));
      }
    }
  }
}

/** Return the messages that are new for the model, and its settings if they have changed. */
function newMessages(request: ConversationRequest, hasNewSettings: boolean, sender: string): HTMLElement[] {
  const tools = request.tools.length > 0 ? plural(request.tools.length, "tool") : "";
  const output = request.output === "" ? "" : `output type ${request.output}`;
  const summary = [request.instructions === "" ? "" : "instructions", tools, output].filter(Boolean).join(", ");
  const messages = request.sent.map((part) => message(part, sender));
  if (!hasNewSettings || summary === "") return messages;
  const details = [
    ...(request.instructions === "" ? [] : [longText(request.instructions)]),
    ...(tools === "" ? [] : [h("p", { class: "soft" }, `Tools: ${request.tools.join(", ")}`)]),
  ];
  return [fold("m", "sys", h("span", {}, h("b", {}, "System"), ` · ${summary}`), details), ...messages];
}

/** Return a key that is equal for requests with the same settings. */
function settingsKey({ instructions, tools, output }: ConversationRequest): string {
  return JSON.stringify([instructions, tools, output]);
}

const FINISH_TEXTS: Record<string, string> = {
  stop: "",
  tool_call: "ended with tool calls",
  tool_calls: "ended with tool calls",
  length: "! cut off at the token limit",
  content_filter: "! stopped by a content filter",
};

/** Return why the model stopped. Some models give no reason; then it is derived from the calls. */
function finishText({ finish: word, answer }: ConversationRequest): string {
  if (word === "") return answer.some(({ kind }) => kind === "call") ? "ended with tool calls" : "";
  return FINISH_TEXTS[word] ?? oneLine(word, 40);
}

/** Replace the children of an element, but leave those in place that stay: moving them would lose a selection. */
function replaceChanged(parent: HTMLElement, children: readonly HTMLElement[]): void {
  children.forEach((child, place) => {
    const current = parent.children[place];
    if (current === undefined) parent.append(child);
    else if (current !== child) current.replaceWith(child);
  });
  while (parent.children.length > children.length) parent.lastElementChild?.remove();
}
