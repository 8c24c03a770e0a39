// A conversation: its requests one below the other, and inside them the turns of agents with delegated work.

import type { ConversationCall } from "../protocol";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import { plural, price } from "../shared/format";
import type { Host } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { type Around, Exchange } from "./exchange";
import { YOU } from "./parts";
import { questionOf, type Talk, Talks } from "./talk";
import { turnTimes } from "./times";

const MOST_EXCHANGES = 60; // the newest; a turn may have hundreds

/** Shows one turn, or one single request. */
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
    private readonly talks: Talks,
    private readonly host: Host,
    private readonly asker = YOU,
    private readonly changed: (talk: Talk) => void = () => undefined,
  ) {
    this.element.append(this.#older, this.#error);
    const later = (): void => { this.#later(); };
    this.#undo = [talks.follow(id, later), model.on((change) => { if (change === "streams" || change === "questions" || change === "spans" || change === "view") later(); })];
    later();
  }

  destroy(): void {
    cancelAnimationFrame(this.#frame);
    this.host.gatherCards();
    this.#undo.forEach((undo) => { undo(); });
    this.#nested.forEach((view) => { view.destroy(); });
    this.element.remove();
  }

  /** Brings a request into sight. */
  show(number: number): void {
    this.#exchanges.get(number)?.element.scrollIntoView({ block: "nearest" });
  }

  #later(): void {
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => { this.#frame = 0; this.#draw(); });
  }

  #draw(): void {
    if (this.model.view !== "chat") return;
    const talk = this.talks.of(this.id);
    setText(this.#error, talk.error || (talk.isKnown ? "" : "loading …"));
    this.#error.hidden = this.#error.textContent === "";
    const shown = talk.requests.slice(-MOST_EXCHANGES);
    for (const request of shown) {
      let exchange = this.#exchanges.get(request.number);
      if (exchange === undefined) {
        exchange = new Exchange(request.number, this.#around());
        this.#exchanges.set(request.number, exchange);
        this.element.append(exchange.element);
      }
      const before = talk.requests.find(({ number }) => number === request.number - 1);
      exchange.update(request, talk.calls.filter((call) => call.request === request.number), before);
    }
    const [first = 1] = this.#exchanges.keys(); // the kernel tells the newest only
    setText(this.#older, `${plural(first - 1, "earlier request")}: run.requests has them all`);
    this.#older.hidden = first === 1;
    this.changed(talk);
  }

  #around(): Around {
    return {
      model: this.model,
      agent: () => this.talks.of(this.id).agent,
      asker: this.asker,
      questionOf: (call) => questionOf(this.model, call),
      placeCard: (question, place) => { this.host.placeCard(question.interrupt_id, place); },
      inset: (call) => this.#inset(call),
      sent: this.host.sent,
    };
  }

  #inset(call: ConversationCall): HTMLElement {
    const inset = new Inset(call.turn, this.model, this.talks, this.host, this.talks.of(this.id).agent);
    this.#undo.push(this.talks.follow(call.turn, () => { this.#later(); }));
    this.#nested.push(inset);
    return inset.element;
  }
}

/** The turn of an agent that was given work: a line, which unfolds into its conversation. */
class Inset implements View {
  readonly element = h("section", { class: "team" });
  readonly #facts = h("span", { class: "soft" });
  readonly #answer = h("p", { class: "answer", dir: "auto" });
  readonly #undo: (() => void)[];
  #chat: Chat | null = null;

  constructor(
    private readonly id: number,
    private readonly model: Model,
    private readonly talks: Talks,
    private readonly host: Host,
    private readonly asker: string,
  ) {
    const name = h("b", {}, `↳ ${oneLine(model.spans.text(id, "label"), 60)}`);
    const open = button("Open", () => { this.#toggle(open); }, { class: "small quiet", "aria-expanded": "false" });
    const lane = button("Its lane", () => { model.reveal(id); }, { class: "small quiet", title: "Show it in the timeline" });
    this.element.append(h("div", { class: "row" }, name, this.#facts, h("span", { class: "db-grow" }), open, lane), this.#answer);
    const draw = (): void => { this.#draw(open); };
    this.#undo = [talks.follow(id, draw), model.on((change) => { if (change === "spans" || change === "questions") draw(); })];
    draw();
  }

  destroy(): void {
    this.#undo.forEach((undo) => { undo(); });
    this.#chat?.destroy();
  }

  #draw(open: HTMLElement): void {
    const { spans } = this.model;
    const { requests, calls } = this.talks.of(this.id);
    const cost = requests.reduce((sum, one) => sum + (one.cost ?? 0), 0);
    const took = turnTimes(this.model, this.id, this.talks.questionsOf(calls));
    const status = spans.text(this.id, "status");
    const facts = [plural(requests.length, "request"), calls.length > 0 ? plural(calls.length, "call") : "", price(cost), took, status === "completed" ? "" : status];
    setText(this.#facts, facts.filter(Boolean).join(" · "));
    const last = requests.at(-1)?.answer.findLast(({ kind }) => kind === "assistant");
    setText(this.#answer, last === undefined || this.#chat !== null ? "" : oneLine(last.text, 400));
    this.#answer.hidden = this.#answer.textContent === "";
    const asks = calls.some((call) => questionOf(this.model, call)?.status === "pending");
    if (asks && this.#chat === null) this.#toggle(open); // what waits for a person must be seen
  }

  #toggle(open: HTMLElement): void {
    if (this.#chat === null) {
      this.#chat = new Chat(this.id, this.model, this.talks, this.host, this.asker);
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
