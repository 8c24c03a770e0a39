// A tool call in a conversation: one line, which unfolds into arguments and result; below it what a command prints while
// it runs, and the work that was given to an agent.

import type { ConversationCall, QuestionView as Question } from "../protocol";
import { h, longText, setText } from "../shared/dom";
import { setAttribute } from "../shared/element";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";
import { oneLine, printed } from "../shared/text";
import { valueText } from "../shared/values";
import { questionOutcomeText } from "../prompt/outcome";
import { SIGNS } from "../timeline/kinds";
import { questionsOf } from "./conversations";
import { argumentsText, outcomeText } from "./descriptions";

const MAX_ARGUMENT_LENGTH = 100_000;
const MAX_LINES = 24; // a result with more lines shows its beginning and its end
const EDGE_LINES = 8;
const LATEST_LINES = 12; // of what a command has printed so far

/** The line of one call. */
export class CallLine {
  readonly element = h("details", { class: "call" });
  /** What a command has printed so far, as a terminal shows it; it stands below the line. */
  readonly printed = h("pre", { class: "db-text printed", dir: "auto", "aria-label": "Output so far", hidden: true });
  readonly #arguments = h("code", { class: "what" });
  readonly #outcome = h("span", { class: "came" });
  readonly #duration = h("span", { class: "took" });
  readonly #body = h("div", { class: "in" });
  readonly #name: HTMLElement;
  #call: ConversationCall;
  #note = "";
  #questions: readonly Question[] = [];
  #bodyKey = "";

  constructor(call: ConversationCall) {
    this.#call = call;
    const letter = h("span", { class: "db-swatch tool", "aria-hidden": "true" }, "T");
    this.#name = h("b", {}, oneLine(call.tool, 60));
    const server = call.server !== "" && h("span", { class: "soft" }, oneLine(call.server, 40));
    this.element.append(h("summary", {}, letter, h("span", { class: "tool" }, this.#name, server), this.#arguments, this.#outcome, this.#duration), this.#body);
    this.element.addEventListener("toggle", () => { this.#fill(); });
  }

  /** Shows how a call stands. */
  update(call: ConversationCall, model: Model, streamedArguments: string): void {
    const { spans } = model;
    const questions = questionsOf(model, call);
    const hasSpan = call.id >= 0 && spans.has(call.id);
    const status = hasSpan ? spans.text(call.id, "status") : "";
    const shownArguments = argumentsText(call.arguments, call.tool) || oneLine(streamedArguments, 200);
    setText(this.#arguments, shownArguments);
    setAttribute(this.#arguments, "title", shownArguments);
    const output = model.streams.get(call.id)?.get("output");
    this.printed.hidden = output === undefined;
    setText(this.printed, output === undefined ? "" : latestLines(printed(output.text), output.length > output.text.length));
    const hasOpenQuestion = questions.at(-1)?.status === "pending";
    [this.#call, this.#note, this.#questions] = [call, hasSpan ? spans.text(call.id, "note") : "", questions];
    const outcome = hasOpenQuestion ? "? waits for you" : status === "running" ? `${SIGNS["running"] ?? ""} running` : status === "cancelled" ? "◼ cancelled" : this.#outcomeText(call, status);
    setText(this.#outcome, outcome);
    this.#outcome.className = `came ${hasOpenQuestion ? "asks" : call.outcome === "failed" || status === "failed" ? "bad" : ""}`;
    const hasOwnTime = hasSpan && call.turn < 0; // of work that was given the turn below says it
    setText(this.#duration, hasOwnTime && status !== "cancelled" ? duration(spans.endOf(call.id, model.now()) - spans.startOf(call.id)) : "");
    this.#fill();
  }

  /** Shows arguments and result, if that is wanted and not there yet. */
  #fill(): void {
    const bodyKey = JSON.stringify([this.#call.arguments, this.#call.result, this.#note, this.#questions]);
    if (!this.element.open || bodyKey === this.#bodyKey) return;
    this.#bodyKey = bodyKey;
    this.#body.replaceChildren(...argumentRows(this.#call.arguments), ...questionRows(this.#questions), ...resultRows(this.#call, this.#note));
  }

  #outcomeText(call: ConversationCall, status: string): string {
    const failed = status === "failed" || call.outcome === "failed" || call.outcome === "denied";
    const reason = status === "failed" && call.result === "" ? oneLine(this.#note, 60) || "failed" : outcomeText(call);
    return `${failed ? "✕ " : ""}${reason}`;
  }
}

function latestLines(text: string, isCut: boolean): string {
  const lines = text.split("\n");
  return `${isCut || lines.length > LATEST_LINES ? "…\n" : ""}${lines.slice(-LATEST_LINES).join("\n")}`;
}

function argumentRows(callArguments: unknown): HTMLElement[] {
  const isTable = typeof callArguments === "object" && callArguments !== null && !Array.isArray(callArguments);
  const entries = isTable ? Object.entries(callArguments) : [["arguments", callArguments] as const];
  return entries.flatMap(([name, value]) => [h("span", { class: "soft" }, oneLine(name, 60)), text(valueText(value, MAX_ARGUMENT_LENGTH, 2))]);
}

/** What became of the questions that held a call up. */
function questionRows(questions: readonly Question[]): HTMLElement[] {
  return questions.filter(({ status }) => status !== "pending").flatMap((question) => {
    const { raised_us: raised, answered_us: answered } = question;
    const after = answered === null ? "" : `, after ${duration(answered - raised)}`;
    return [h("span", { class: "soft" }, "asked"), h("span", { dir: "auto" }, `${oneLine(question.question, 200)} ${questionOutcomeText(question)}${after}`)];
  });
}

function resultRows(call: ConversationCall, note: string): HTMLElement[] {
  const result = call.result === "" ? note : call.result;
  if (result === "") return [];
  return [h("span", { class: "soft" }, call.outcome === "failed" || call.outcome === "denied" ? "error" : "result"), foldedText(result, call.lines)];
}

function text(value: string): HTMLElement {
  return value.includes("\n") || value.length > 200 ? longText(value) : h("code", {}, value);
}

/** Shows a long result by its beginning and its end; all of it on demand. */
function foldedText(value: string, count: number): HTMLElement {
  const lines = value.split("\n");
  if (lines.length <= MAX_LINES) return text(value);
  const whole = h("div", {});
  const foldedLines = Math.max(count, lines.length) - 2 * EDGE_LINES;
  const open = h("button", { type: "button", class: "db-more fold", onclick: () => { whole.replaceChildren(longText(value)); } }, `${foldedLines.toLocaleString("en")} lines folded`);
  whole.append(longText(lines.slice(0, EDGE_LINES).join("\n")), open, longText(lines.slice(-EDGE_LINES).join("\n")));
  return whole;
}
