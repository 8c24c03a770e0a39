// A tool call in a conversation: a line that unfolds into arguments and result. Below it: the output of a running
// command, and the turn of an agent that the call delegates to.

import type { ConversationCall, QuestionView as Question } from "../protocol";
import { h, longText, setText } from "../shared/dom";
import { setAttribute } from "../shared/element";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";
import { oneLine, terminalText } from "../shared/text";
import { valueText } from "../shared/values";
import { questionOutcomeText } from "../prompt/outcome";
import { SIGNS } from "../timeline/kinds";
import { questionsOf } from "./conversations";
import { argumentsText, outcomeText } from "./descriptions";

const MAX_ARGUMENT_LENGTH = 100_000;
const MAX_LINES = 24; // longer results show only their beginning and end
const EDGE_LINES = 8; // lines at each end of a folded result
const LATEST_LINES = 12; // of the output so far

/** Line of one call. */
export class CallLine {
  readonly element = h("details", { class: "call" });
  /** Output of a command so far, as a terminal shows it. The chat places this element below the line. */
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

  /** Show the current state of a call. Until its arguments are complete, the streamed ones are shown. */
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
    setText(this.printed, output === undefined ? "" : latestLines(terminalText(output.text), output.length > output.text.length));
    const hasOpenQuestion = questions.at(-1)?.status === "pending";
    this.#call = call;
    this.#note = hasSpan ? spans.text(call.id, "note") : "";
    this.#questions = questions;
    const isFailed = call.outcome === "failed" || status === "failed";
    let outcome = this.#outcomeText(call, status);
    if (hasOpenQuestion) outcome = "? waits for you";
    else if (status === "running") outcome = `${SIGNS["running"] ?? ""} running`;
    else if (status === "cancelled") outcome = "◼ cancelled";
    setText(this.#outcome, outcome);
    let outcomeClass = "";
    if (hasOpenQuestion) outcomeClass = "asks";
    else if (isFailed) outcomeClass = "bad";
    this.#outcome.className = `came ${outcomeClass}`;
    const hasOwnTime = hasSpan && call.turn < 0; // the time of a delegated turn is shown in that turn
    const time = hasOwnTime && status !== "cancelled" ? duration(spans.endOf(call.id, model.now()) - spans.startOf(call.id)) : "";
    setText(this.#duration, time);
    this.#fill();
  }

  /** Fill the body if the line is unfolded and its content has changed. */
  #fill(): void {
    const bodyKey = JSON.stringify([this.#call.arguments, this.#call.result, this.#note, this.#questions]);
    if (!this.element.open || bodyKey === this.#bodyKey) return;
    this.#bodyKey = bodyKey;
    this.#body.replaceChildren(...argumentRows(this.#call.arguments), ...questionRows(this.#questions), ...resultRows(this.#call, this.#note));
  }

  #outcomeText(call: ConversationCall, status: string): string {
    const isFailed = status === "failed" || call.outcome === "failed" || call.outcome === "denied";
    let reason = outcomeText(call);
    if (status === "failed" && call.result === "") reason = oneLine(this.#note, 60) || "failed";
    return `${isFailed ? "✕ " : ""}${reason}`;
  }
}

/** Return the last lines of an output. `isCut` is true if the kernel has dropped its beginning. */
function latestLines(text: string, isCut: boolean): string {
  const lines = text.split("\n");
  const mark = isCut || lines.length > LATEST_LINES ? "…\n" : "";
  return `${mark}${lines.slice(-LATEST_LINES).join("\n")}`;
}

/** Return a row for each argument. Arguments that are not an object get a single row. */
function argumentRows(callArguments: unknown): HTMLElement[] {
  const isTable = typeof callArguments === "object" && callArguments !== null && !Array.isArray(callArguments);
  const entries = isTable ? Object.entries(callArguments) : [["arguments", callArguments] as const];
  return entries.flatMap(([name, value]) => [h("span", { class: "soft" }, oneLine(name, 60)), text(valueText(value, MAX_ARGUMENT_LENGTH, 2))]);
}

/** Return the closed questions about a call, with their outcomes and waiting times. */
function questionRows(questions: readonly Question[]): HTMLElement[] {
  return questions.filter(({ status }) => status !== "pending").flatMap((question) => {
    const { raised_us: raised, answered_us: answered } = question;
    const after = answered === null ? "" : `, after ${duration(answered - raised)}`;
    const text = `${oneLine(question.question, 200)} ${questionOutcomeText(question)}${after}`;
    return [h("span", { class: "soft" }, "asked"), h("span", { dir: "auto" }, text)];
  });
}

/** Return the result or the error of a call. A call without a result shows the note of its span. */
function resultRows(call: ConversationCall, note: string): HTMLElement[] {
  const result = call.result === "" ? note : call.result;
  if (result === "") return [];
  const isError = call.outcome === "failed" || call.outcome === "denied";
  return [h("span", { class: "soft" }, isError ? "error" : "result"), foldedText(result, call.lines)];
}

function text(value: string): HTMLElement {
  return value.includes("\n") || value.length > 200 ? longText(value) : h("code", {}, value);
}

/** Show the beginning and end of a long result, and all of it on request. `count` is the number of lines before the kernel shortened it. */
function foldedText(value: string, count: number): HTMLElement {
  const lines = value.split("\n");
  if (lines.length <= MAX_LINES) return text(value);
  const whole = h("div", {});
  const foldedLines = Math.max(count, lines.length) - 2 * EDGE_LINES;
  const unfold = (): void => { whole.replaceChildren(longText(value)); };
  const open = h("button", { type: "button", class: "db-more fold", onclick: unfold }, `Show ${foldedLines.toLocaleString("en")} more lines`);
  whole.append(longText(lines.slice(0, EDGE_LINES).join("\n")), open, longText(lines.slice(-EDGE_LINES).join("\n")));
  return whole;
}
