// A conversation: its requests in order, with the turns of agents that work was delegated to.

import type { ConversationCall } from "../protocol";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import { plural, price } from "../shared/format";
import type { Host } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { withoutSigns } from "../shared/markdown";
import { oneLine } from "../shared/text";
import { type ExchangeContext, Exchange } from "./exchange";
import { YOU } from "./parts";
import { questionOf, type TurnConversation, Conversations } from "./conversations";
import { turnTimes } from "./times";

const MAX_EXCHANGES = 60; // the newest ones; a turn may have hundreds

/** View of one turn, or of a single request outside of a turn. */
export class Chat implements View {
  readonly element = h("div", { class: "chat" });
  readonly #older = h("p", { class: "soft", hidden: true });
  readonly #error = h("p", { class: "bad", hidden: true });
  readonly #exchanges = new Map<number, Exchange>();
  readonly #nested: View[] = [];
  readonly #undo: (() => void)[];
  #frame = 0;

  constructor(
    readonly id: number,
    private readonly model: Model,
    private readonly conversations: Conversations,
    private readonly host: Host,
    private readonly asker = YOU,
    private readonly onChange: (conversation: TurnConversation) => void = () => undefined,
  ) {
    this.element.append(this.#older, this.#error);
    const scheduleDraw = (): void => { this.#scheduleDraw(); };
    const undoModel = model.on((change) => {
      if (change === "streams" || change === "questions" || change === "spans" || change === "view") scheduleDraw();
    });
    this.#undo = [conversations.follow(id, scheduleDraw), undoModel];
    scheduleDraw();
  }

  destroy(): void {
    cancelAnimationFrame(this.#frame);
    this.host.gatherCards();
    this.#undo.forEach((undo) => { undo(); });
    this.#nested.forEach((view) => { view.destroy(); });
    this.element.remove();
  }

  /** Scroll to a request. */
  show(number: number): void {
    this.#exchanges.get(number)?.element.scrollIntoView({ block: "nearest" });
  }

  /** Draw in the next frame, once for all changes until then. */
  #scheduleDraw(): void {
    if (this.#frame !== 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw(): void {
    if (this.model.view !== "chat") return;
    const conversation = this.conversations.of(this.id);
    setText(this.#error, conversation.error || (conversation.isLoaded ? "" : "loading …"));
    this.#error.hidden = this.#error.textContent === "";
    const requests = conversation.requests.slice(-MAX_EXCHANGES);
    for (const request of requests) {
      let exchange = this.#exchanges.get(request.number);
      if (exchange === undefined) {
        exchange = new Exchange(request.number, this.#context());
        this.#exchanges.set(request.number, exchange);
        this.element.append(exchange.element);
      }
      const previous = conversation.requests.find(({ number }) => number === request.number - 1);
      const calls = conversation.calls.filter((call) => call.request === request.number);
      exchange.update(request, calls, previous);
    }
    const [first = 1] = this.#exchanges.keys(); // the kernel sends only the newest requests
    setText(this.#older, `Not shown: ${plural(first - 1, "earlier request")}. For all requests, see run.requests.`);
    this.#older.hidden = first === 1;
    this.onChange(conversation);
  }

  #context(): ExchangeContext {
    return {
      model: this.model,
      agent: () => this.conversations.of(this.id).agent,
      sender: this.asker,
      questionOf: (call) => questionOf(this.model, call),
      placeCard: (question, place) => { this.host.placeCard(question.interrupt_id, place); },
      delegatedTurn: (call) => this.#delegatedTurn(call),
      sent: this.host.sent,
    };
  }

  /** Make the view of a turn that a call delegates to. Its questions may change this chat, so follow its conversation as well. */
  #delegatedTurn(call: ConversationCall): HTMLElement {
    const delegatedTurn = new DelegatedTurn(call.turn, this.model, this.conversations, this.host, this.conversations.of(this.id).agent);
    this.#undo.push(this.conversations.follow(call.turn, () => { this.#scheduleDraw(); }));
    this.#nested.push(delegatedTurn);
    return delegatedTurn.element;
  }
}

/** Turn of an agent that work was delegated to: a line that unfolds into its conversation. */
class DelegatedTurn implements View {
  readonly element = h("section", { class: "team" });
  readonly #facts = h("span", { class: "soft" });
  readonly #answer = h("p", { class: "answer", dir: "auto" });
  readonly #undo: (() => void)[];
  #chat: Chat | null = null;

  constructor(
    private readonly id: number,
    private readonly model: Model,
    private readonly conversations: Conversations,
    private readonly host: Host,
    private readonly asker: string,
  ) {
    const name = h("b", {}, `↳ ${oneLine(model.spans.text(id, "label"), 60)}`);
    const open = button("Open", () => { this.#toggle(open); }, { class: "small quiet", "aria-expanded": "false" });
    const timelineButton = button("Show lane", () => { model.reveal(id); }, { class: "small quiet", title: "Show this turn in the timeline" });
    this.element.append(h("div", { class: "row" }, name, this.#facts, h("span", { class: "db-grow" }), open, timelineButton), this.#answer);
    const draw = (): void => { this.#draw(open); };
    const undoModel = model.on((change) => {
      if (change === "spans" || change === "questions") draw();
    });
    this.#undo = [conversations.follow(id, draw), undoModel];
    draw();
  }

  destroy(): void {
    this.#undo.forEach((undo) => { undo(); });
    this.#chat?.destroy();
  }

  #draw(open: HTMLElement): void {
    const { spans } = this.model;
    const { requests, calls } = this.conversations.of(this.id);
    const cost = requests.reduce((sum, one) => sum + (one.cost ?? 0), 0);
    const times = turnTimes(this.model, this.id, this.conversations.questionsOf(calls));
    const status = spans.text(this.id, "status");
    const callCount = calls.length > 0 ? plural(calls.length, "call") : "";
    const facts = [plural(requests.length, "request"), callCount, price(cost), times, status === "completed" ? "" : status];
    setText(this.#facts, facts.filter(Boolean).join(" · "));
    const last = requests.at(-1)?.answer.findLast(({ kind }) => kind === "assistant");
    setText(this.#answer, last === undefined || this.#chat !== null ? "" : oneLine(withoutSigns(last.text.slice(0, 2_000)), 400));
    this.#answer.hidden = this.#answer.textContent === "";
    const hasOpenQuestion = calls.some((call) => questionOf(this.model, call)?.status === "pending");
    if (hasOpenQuestion && this.#chat === null) this.#toggle(open); // a question that waits for a person must be visible
  }

  #toggle(open: HTMLElement): void {
    if (this.#chat === null) {
      this.#chat = new Chat(this.id, this.model, this.conversations, this.host, this.asker);
      this.element.append(this.#chat.element);
    } else {
      this.#chat.destroy();
      this.#chat = null;
    }
    open.setAttribute("aria-expanded", String(this.#chat !== null));
    setText(open, this.#chat === null ? "Open" : "Close");
    this.#draw(open);
  }
}
