// List of the requests of a turn beside the chat: their actions, cost, and open questions.

import type { ConversationCall } from "../protocol";
import { h, type View } from "../shared/dom";
import { plural, price } from "../shared/format";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { questionOf, type Talk, type Talks } from "./talk";
import { callsWithin, timesText, turnTimes } from "./times";
import { deedOf, outcomeText } from "./words";

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
    const { model } = this;
    const entries = talk.requests.flatMap((request) => {
      const calls = talk.calls.filter((call) => call.request === request.number);
      const isRunning = model.spans.text(request.id, "status") === "running";
      const waits = calls.some((call) => questionOf(model, call)?.status === "pending");
      const made = calls.flatMap((call) => (call.turn < 0 ? [call.id] : callsWithin(model.spans, call.turn)));
      const took = timesText(model, [request.id, ...made], this.talks.questionsOf(calls));
      const failed = calls.filter(({ outcome }) => outcome === "failed" || outcome === "denied").map((call) => `✕ ${calls.length > 1 ? `${oneLine(call.tool, 40)} ` : ""}${outcomeText(call)}`);
      const facts = waits ? "? waits for you" : [...failed.slice(0, 2), calls.length > 0 ? plural(calls.length, "call") : "", took].filter(Boolean).join(" · ");
      const own = { number: request.number, mark: String(request.number), words: deedOf(request, isRunning, calls), cost: request.cost, facts, kind: waits ? "waits" : "" };
      return [own, ...calls.filter((call) => call.turn >= 0).map((call) => this.#given(call, request.number))];
    });
    const shown = JSON.stringify(entries);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.replaceChildren(...entries.map(({ number, mark, words, cost, facts, kind }) => h(
      "button", { type: "button", class: `entry ${kind}`, title: words, onclick: () => { this.choose(number); } },
      h("span", { class: `db-swatch ${kind.startsWith("given") ? "step" : "model"}` }, mark),
      h("span", { class: "words" }, words),
      h("span", { class: "soft cost" }, price(cost)),
      h("span", { class: "soft facts" }, facts),
    )));
  }

  #given(call: ConversationCall, number: number): { number: number; mark: string; words: string; cost: number | null; facts: string; kind: string } {
    const { spans } = this.model;
    const { requests, calls } = this.talks.of(call.turn);
    const costs = requests.map(({ cost }) => cost).filter((cost) => cost !== null);
    const asked = this.talks.questionsOf(calls);
    const waits = asked.some(({ status }) => status === "pending");
    const facts = waits ? "? waits for you" : [requests.length > 0 ? plural(requests.length, "request") : "", turnTimes(this.model, call.turn, asked)].filter(Boolean).join(" · ");
    return { number, mark: "↳", words: oneLine(spans.text(call.turn, "label"), 40), cost: costs.reduce((sum, cost) => sum + cost, 0), facts, kind: waits ? "given waits" : "given" };
  }
}
