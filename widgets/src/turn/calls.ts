// A tool call in a conversation: one line, which unfolds into arguments and result; below it what a command prints while
// it runs, and the work that was given to an agent.

import type { ConversationCall, QuestionView as Question } from "../protocol";
import { h, longText, setText } from "../shared/dom";
import { setAttribute } from "../shared/element";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";
import { oneLine, terminalText } from "../shared/text";
import { valueText } from "../shared/values";
import { closedText } from "../prompt/answers";
import { SIGNS } from "../timeline/kinds";
import { questionsOf } from "./talk";
import { argumentsText, outcomeText } from "./words";

const MOST = 100_000;
const LONG_LINES = 24; // a result with more lines shows its beginning and its end
const ENDS = 8;
const LATEST_LINES = 12; // of what a command has printed so far

/** The line of one call. */
export class CallLine {
  readonly element = h("details", { class: "call" });
  /** What a command has printed so far, as a terminal shows it; it stands below the line. */
  readonly printed = h("pre", { class: "db-text printed", dir: "auto", "aria-label": "Output so far", hidden: true });
  readonly #what = h("code", { class: "what" });
  readonly #came = h("span", { class: "came" });
  readonly #took = h("span", { class: "took" });
  readonly #body = h("div", { class: "in" });
  readonly #name: HTMLElement;
  #call: ConversationCall;
  #note = "";
  #asked: readonly Question[] = [];
  #shown = "";

  constructor(call: ConversationCall) {
    this.#call = call;
    const letter = h("span", { class: "db-swatch tool", "aria-hidden": "true" }, "T");
    this.#name = h("b", {}, oneLine(call.tool, 60));
    const server = call.server !== "" && h("span", { class: "soft" }, oneLine(call.server, 40));
    this.element.append(h("summary", {}, letter, h("span", { class: "tool" }, this.#name, server), this.#what, this.#came, this.#took), this.#body);
    this.element.addEventListener("toggle", () => { this.#fill(); });
  }

  /** Shows how a call stands. */
  update(call: ConversationCall, model: Model, writing: string): void {
    const { spans } = model;
    const asked = questionsOf(model, call);
    const isKnown = call.id >= 0 && spans.has(call.id);
    const status = isKnown ? spans.text(call.id, "status") : "";
    const given = argumentsText(call.arguments, call.tool) || oneLine(writing, 200);
    setText(this.#what, given);
    setAttribute(this.#what, "title", given);
    const output = model.streams.get(call.id)?.get("output");
    this.printed.hidden = output === undefined;
    setText(this.printed, output === undefined ? "" : latest(terminalText(output.text), output.length > output.text.length));
    const waits = asked.at(-1)?.status === "pending";
    [this.#call, this.#note, this.#asked] = [call, isKnown ? spans.text(call.id, "note") : "", asked];
    const came = waits ? "? waits for you" : status === "running" ? `${SIGNS["running"] ?? ""} running` : status === "cancelled" ? "◼ cancelled" : this.#outcome(call, status);
    setText(this.#came, came);
    this.#came.className = `came ${waits ? "asks" : call.outcome === "failed" || status === "failed" ? "bad" : ""}`;
    const isOwn = isKnown && call.turn < 0; // of work that was given the turn below says it
    setText(this.#took, isOwn && status !== "cancelled" ? duration(spans.endOf(call.id, model.now()) - spans.startOf(call.id)) : "");
    this.#fill();
  }

  /** Shows arguments and result, if that is wanted and not there yet. */
  #fill(): void {
    const shown = JSON.stringify([this.#call.arguments, this.#call.result, this.#note, this.#asked]);
    if (!this.element.open || shown === this.#shown) return;
    this.#shown = shown;
    this.#body.replaceChildren(...argumentRows(this.#call.arguments), ...askedRows(this.#asked), ...resultRows(this.#call, this.#note));
  }

  #outcome(call: ConversationCall, status: string): string {
    const failed = status === "failed" || call.outcome === "failed" || call.outcome === "denied";
    const why = status === "failed" && call.result === "" ? oneLine(this.#note, 60) || "failed" : outcomeText(call);
    return `${failed ? "✕ " : ""}${why}`;
  }
}

function latest(text: string, isCut: boolean): string {
  const lines = text.split("\n");
  return `${isCut || lines.length > LATEST_LINES ? "…\n" : ""}${lines.slice(-LATEST_LINES).join("\n")}`;
}

function argumentRows(given: unknown): HTMLElement[] {
  const isTable = typeof given === "object" && given !== null && !Array.isArray(given);
  const entries = isTable ? Object.entries(given) : [["arguments", given] as const];
  return entries.flatMap(([name, value]) => [h("span", { class: "soft" }, oneLine(name, 60)), text(valueText(value, MOST, 2))]);
}

/** What became of the questions that held a call up. */
function askedRows(asked: readonly Question[]): HTMLElement[] {
  return asked.filter(({ status }) => status !== "pending").flatMap((question) => {
    const { raised_us: raised, answered_us: answered } = question;
    const after = answered === null ? "" : `, after ${duration(answered - raised)}`;
    return [h("span", { class: "soft" }, "asked"), h("span", { dir: "auto" }, `${oneLine(question.question, 200)} ${closedText(question)}${after}`)];
  });
}

function resultRows(call: ConversationCall, note: string): HTMLElement[] {
  const told = call.result === "" ? note : call.result;
  if (told === "") return [];
  return [h("span", { class: "soft" }, call.outcome === "failed" || call.outcome === "denied" ? "error" : "result"), folded(told, call.lines)];
}

function text(value: string): HTMLElement {
  return value.includes("\n") || value.length > 200 ? longText(value) : h("code", {}, value);
}

/** Shows a long result by its beginning and its end; all of it on demand. */
function folded(value: string, count: number): HTMLElement {
  const lines = value.split("\n");
  if (lines.length <= LONG_LINES) return text(value);
  const whole = h("div", {});
  const left = Math.max(count, lines.length) - 2 * ENDS;
  const open = h("button", { type: "button", class: "db-more fold", onclick: () => { whole.replaceChildren(longText(value)); } }, `${left.toLocaleString("en")} lines folded`);
  whole.append(longText(lines.slice(0, ENDS).join("\n")), open, longText(lines.slice(-ENDS).join("\n")));
  return whole;
}
