// One request of a conversation: its numbers, its new messages, and the thinking, texts and calls of the response.

import type { ConversationCall, ConversationRequest, QuestionView as Question } from "../protocol";
import { h, longText, setText } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { duration, plural, price } from "../shared/format";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { CallLine } from "./calls";
import { calling, fold, message, spoken, streamed, thought } from "./parts";
import { type Ask, SentPanel } from "./sent";

/** What an exchange needs of the chat around it. */
export interface Around {
  model: Model;
  agent: () => string;
  /** Who speaks to the agent: a person, or the agent that gave it work. */
  asker: string;
  /** The question that holds a call up. */
  questionOf: (call: ConversationCall) => Question | undefined;
  /** Where the card of a question stands, as long as this exchange is on the page. */
  placeCard: (question: Question, place: HTMLElement) => void;
  /** Makes what shows the turn of an agent that was given work. */
  inset: (call: ConversationCall) => HTMLElement;
  sent: Ask | undefined;
}

/** A request on the page; what is unfolded stays so while it grows. */
export class Exchange {
  readonly element = h("section", { class: "exchange" });
  readonly #facts = h("span", { class: "facts" });
  readonly #sent = h("div");
  readonly #panel: SentPanel | undefined;
  readonly #answer = h("div", { class: "said" });
  readonly #calls = h("div", { class: "calls", hidden: true });
  readonly #below = h("div");
  readonly #card = h("div", { class: "divebook-prompt card-place" });
  readonly #lines = new Map<string, CallLine>();
  readonly #insets = new Set<string>();
  #shown = "";
  #answered = "";

  constructor(
    number: number,
    private readonly around: Around,
  ) {
    const panel = around.sent === undefined ? undefined : new SentPanel(around.sent, around.asker);
    const what: HTMLButtonElement = button("What was sent", () => { setAttribute(what, "aria-expanded", String(panel?.toggle())); }, { class: "small quiet", "aria-expanded": "false" });
    this.#panel = panel;
    this.element.append(
      h("div", { class: "req" }, h("b", {}, `Request ${number}`), this.#facts, panel !== undefined && what),
      ...(panel === undefined ? [] : [panel.element]),
      this.#sent,
      h("div", { class: "m" }, h("span", { class: "who bot", "aria-hidden": "true" }), h("div", {}, this.#answer, this.#calls, this.#below, this.#card)),
    );
  }

  /** Shows how the request stands; what it is made with only where that is not as `before`. */
  update(request: ConversationRequest, calls: readonly ConversationCall[], before: ConversationRequest | undefined): void {
    this.#panel?.of(request, before);
    setText(this.#facts, this.#numbers(request));
    const isSet = before === undefined || setting(before) !== setting(request);
    const shown = JSON.stringify([request.sent, isSet, setting(request)]);
    if (shown !== this.#shown) {
      this.#shown = shown;
      this.#sent.replaceChildren(...news(request, isSet, this.around.asker));
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
    const attempt = model.spans.number(request.id, "attempts");
    const end = status === "failed" ? `✕ ${note}` : status === "running" ? "▸ running" : status === "cancelled" ? "◼ cancelled" : finish(request);
    return [request.model, tokens, price(request.cost), request.is_cached ? "from the cache" : took, attempt > 1 ? `attempt ${attempt}` : "", end].filter(Boolean).join(" · ");
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
    this.#answer.replaceChildren(...parts.map((part) => (part.kind === "thinking" ? thought(part.text, opened || isLive, isLive) : part.kind === "call" ? calling(part) : spoken(agent(), part))));
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
        this.#calls.append(line.element, line.printed);
      }
      const asked = this.around.questionOf(call);
      line.update(call, model, written?.get(`arguments:${call.call}`)?.text ?? "");
      if (asked?.status === "pending") this.around.placeCard(asked, this.#card);
      if (call.turn >= 0 && !this.#insets.has(call.call)) {
        this.#insets.add(call.call);
        this.#below.append(this.around.inset(call));
      }
    }
  }
}

/** What a person, a system or a refused answer said that the model had not been told before. */
function news(request: ConversationRequest, isSet: boolean, asker: string): HTMLElement[] {
  const tools = request.tools.length > 0 ? plural(request.tools.length, "tool") : "";
  const output = request.output === "" ? "" : `answers with ${request.output}`;
  const about = [request.instructions === "" ? "" : "instructions", tools, output].filter(Boolean).join(", ");
  const told = isSet && about !== "" && fold("m", "sys", h("span", {}, h("b", {}, "System"), ` · ${about}`), [
    ...(request.instructions === "" ? [] : [longText(request.instructions)]),
    ...(tools === "" ? [] : [h("p", { class: "soft" }, `Tools: ${request.tools.join(", ")}`)]),
  ]);
  return [...(told === false ? [] : [told]), ...request.sent.map((part) => message(part, asker))];
}

function setting({ instructions, tools, output }: ConversationRequest): string {
  return JSON.stringify([instructions, tools, output]);
}

const ENDS: Record<string, string> = { stop: "", tool_call: "ended with tool calls", tool_calls: "ended with tool calls", length: "! cut at the limit of tokens", content_filter: "! stopped by a filter" };

function finish({ finish: word, answer }: ConversationRequest): string {
  if (word === "") return answer.some(({ kind }) => kind === "call") ? "ended with tool calls" : "";
  return ENDS[word] ?? oneLine(word, 40);
}
