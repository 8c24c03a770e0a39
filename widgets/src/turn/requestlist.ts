// List of the requests of a turn beside the chat: their actions, cost, and open questions.

import type { ConversationCall } from "../protocol";
import { h, type View } from "../shared/dom";
import { plural, price } from "../shared/format";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { questionOf, type TurnConversation, type Conversations } from "./conversations";
import { callsWithin, timesText, turnTimes } from "./times";
import { requestSummary, outcomeText } from "./descriptions";

/** Entry of a request or of a delegated turn; `number` is the request to show. */
interface Entry {
  number: number;
  mark: string;
  words: string;
  cost: number | null;
  facts: string;
  kind: string;
}

/** List of the requests of a turn. Delegated turns are listed below the request that delegates. */
export class RequestList implements View {
  readonly element = h("nav", { class: "rail", "aria-label": "Requests" });
  #drawnKey = "";

  constructor(
    private readonly model: Model,
    private readonly conversations: Conversations,
    private readonly choose: (number: number) => void,
  ) {}

  destroy(): void {
    this.element.remove();
  }

  update(conversation: TurnConversation): void {
    const { model } = this;
    const entries = conversation.requests.flatMap((request) => {
      const calls = conversation.calls.filter((call) => call.request === request.number);
      const isRunning = model.spans.text(request.id, "status") === "running";
      const hasOpenQuestion = calls.some((call) => questionOf(model, call)?.status === "pending");
      const ids = calls.flatMap((call) => (call.turn < 0 ? [call.id] : callsWithin(model.spans, call.turn)));
      const times = timesText(model, [request.id, ...ids], this.conversations.questionsOf(calls));
      const failedCalls = calls.filter(({ outcome }) => outcome === "failed" || outcome === "denied");
      const failures = failedCalls.map((call) => {
        const tool = calls.length > 1 ? `${oneLine(call.tool, 40)} ` : "";
        return `✕ ${tool}${outcomeText(call)}`;
      });
      const callCount = calls.length > 0 ? plural(calls.length, "call") : "";
      const facts = hasOpenQuestion ? "? waits for you" : [...failures.slice(0, 2), callCount, times].filter(Boolean).join(" · ");
      const requestEntry: Entry = {
        number: request.number,
        mark: String(request.number),
        words: requestSummary(request, isRunning, calls),
        cost: request.cost,
        facts,
        kind: hasOpenQuestion ? "waits" : "",
      };
      const delegating = calls.filter((call) => call.turn >= 0);
      return [requestEntry, ...delegating.map((call) => this.#delegatedEntry(call, request.number))];
    });
    const drawnKey = JSON.stringify(entries);
    if (drawnKey === this.#drawnKey) return;
    this.#drawnKey = drawnKey;
    this.element.replaceChildren(...entries.map(({ number, mark, words, cost, facts, kind }) => h(
      "button", { type: "button", class: `entry ${kind}`, title: words, onclick: () => { this.choose(number); } },
      h("span", { class: `db-swatch ${kind.startsWith("given") ? "step" : "model"}` }, mark),
      h("span", { class: "words" }, words),
      h("span", { class: "soft cost" }, price(cost)),
      h("span", { class: "soft facts" }, facts),
    )));
  }

  #delegatedEntry(call: ConversationCall, number: number): Entry {
    const { spans } = this.model;
    const { requests, calls } = this.conversations.of(call.turn);
    const costs = requests.map(({ cost }) => cost).filter((cost) => cost !== null);
    const questions = this.conversations.questionsOf(calls);
    const hasOpenQuestion = questions.some(({ status }) => status === "pending");
    const requestCount = requests.length > 0 ? plural(requests.length, "request") : "";
    const times = turnTimes(this.model, call.turn, questions);
    const facts = hasOpenQuestion ? "? waits for you" : [requestCount, times].filter(Boolean).join(" · ");
    return {
      number,
      mark: "↳",
      words: oneLine(spans.text(call.turn, "label"), 40),
      cost: costs.reduce((sum, cost) => sum + cost, 0),
      facts,
      kind: hasOpenQuestion ? "given waits" : "given",
    };
  }
}
