// The requests of a turn as a list beside the chat: what each did, what it cost, and what waits.

import type { ConversationCall } from "../protocol";
import { h, type View } from "../shared/dom";
import { duration, plural, price } from "../shared/format";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { questionOf, type Talk, type Talks } from "./talk";
import { deedOf } from "./words";

/** Lists the requests of a turn, and those who were given work below the request that gave it. */
export class Rail implements View {
  readonly element = h("nav", { class: "rail", "aria-label": "Requests" });
  #shown = "";

  constructor(
    private readonly model: Model,
    private readonly talks: Talks,
    private readonly choose: (number: number) => void,
  ) {}

  destroy(): void {
    this.element.remove();
  }

  update(talk: Talk): void {
    const { spans } = this.model;
    const entries = talk.requests.flatMap((request) => {
      const calls = talk.calls.filter((call) => call.request === request.number);
      const isRunning = spans.text(request.id, "status") === "running";
      const waits = calls.some((call) => questionOf(this.model, call)?.status === "pending");
      const took = duration(this.#end(request.id, calls) - spans.startOf(request.id));
      const facts = waits ? "? waits for you" : [calls.length > 0 ? plural(calls.length, "call") : "", took].filter(Boolean).join(" · ");
      const own = { number: request.number, mark: String(request.number), words: deedOf(request, isRunning), cost: request.cost, facts, kind: waits ? "waits" : "" };
      return [own, ...calls.filter((call) => call.turn >= 0).map((call) => this.#given(call, request.number))];
    });
    const shown = JSON.stringify(entries);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.replaceChildren(...entries.map(({ number, mark, words, cost, facts, kind }) => h(
      "button", { type: "button", class: `entry ${kind}`, title: words, onclick: () => { this.choose(number); } },
      h("span", { class: `db-swatch ${kind === "given" ? "step" : "model"}` }, mark),
      h("span", { class: "words" }, words),
      h("span", { class: "soft cost" }, price(cost)),
      h("span", { class: "soft facts" }, facts),
    )));
  }

  #given(call: ConversationCall, number: number): { number: number; mark: string; words: string; cost: number | null; facts: string; kind: string } {
    const { spans } = this.model;
    const { requests } = this.talks.of(call.turn);
    const costs = requests.map(({ cost }) => cost).filter((cost) => cost !== null);
    const took = duration(spans.endOf(call.turn, this.model.now()) - spans.startOf(call.turn));
    const facts = [requests.length > 0 ? plural(requests.length, "request") : "", took].filter(Boolean).join(" · ");
    return { number, mark: "↳", words: oneLine(spans.text(call.turn, "label"), 40), cost: costs.length > 0 ? costs.reduce((sum, cost) => sum + cost, 0) : null, facts, kind: "given" };
  }

  /** When a request and all that it called were over. */
  #end(id: number, calls: readonly ConversationCall[]): number {
    const now = this.model.now();
    return Math.max(...[id, ...calls.map((call) => call.id)].filter((one) => one >= 0).map((one) => this.model.spans.endOf(one, now)));
  }
}
