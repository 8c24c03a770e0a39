// Card of one failure: step, arguments, source line, and the reused results.

import type { ArgumentView, FailureView } from "../protocol";
import { copyButton } from "../shared/copy";
import { h } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import type { Model } from "../shared/model";
import { canGo, goTo, textOf } from "../shared/celllinks";
import { moment } from "../shared/times";
import { branchOf } from "../shared/words";
import { type EditedLine, editsSince } from "./edits";

const HANDLED = {
  "": "",
  skipped: "The run continued without this item.",
  kept: "The run continued; the result of this item is its error.",
  caught: "The run continued at the step that catches this error.",
} as const;

const SIGNS = { same: "", removed: "−", added: "+" } as const;

/** Return a failure as Python prints it. Some messages already start with the class. */
export function headline({ error_type: type, message }: FailureView): string {
  if (type === "" || message.startsWith(type)) return message;
  return message === "" ? type : `${type}: ${message}`;
}

/** Return the two columns of a failure's card. */
export function card(failure: FailureView, reusedText: string, model: Model, root: HTMLElement): HTMLElement[] {
  const rows: [string, Node | string | false][] = [
    ["Meaning", failure.means],
    ["Where", where(failure, model)],
    ["Arguments", failure.arguments.length > 0 && argumentList(failure.arguments)],
    ["Afterwards", HANDLED[failure.handled]],
    ["Saved", reusedText !== "" && `${reusedText} in the log. When the run continues, saved results are reused and not paid for again.`],
  ];
  const facts = rows.flatMap(([name, value]) => (value === false || value === "" ? [] : [h("dt", {}, name), h("dd", {}, value)]));
  return [h("dl", {}, ...facts), h("div", { class: "code" }, ...source(failure, root), ...traceback(failure))];
}

/** Return the place of a failure: step, item, function, branch, attempt and time. */
function where({ step, item, path, called, attempt, failed_us: moment_us, id }: FailureView, model: Model): HTMLElement {
  const parts: (HTMLElement | string)[] = ["step ", h("strong", {}, step)];
  if (item !== "") parts.push(", item ", h("strong", {}, item));
  if (called !== "" && called !== step) parts.push(", in ", h("strong", {}, called));
  if (branchOf(path) !== "") parts.push(`, ${branchOf(path)}`);
  if (attempt > 1) parts.push(`, attempt ${attempt}`);
  parts.push(`, at ${moment(moment_us)}`);
  const show = button("Show in timeline", () => { model.reveal(id); }, { class: "quiet small" });
  return h("div", { class: "row" }, h("span", {}, ...parts), id >= 0 && show);
}

/** Return the arguments as assignments. Further lines of a value are indented to its first line. */
function argumentList(values: readonly ArgumentView[]): HTMLElement {
  const lines = values.map(({ name, text }) => {
    const indent = " ".repeat(name.length + 3);
    return `${name} = ${text.replaceAll("\n", `\n${indent}`)}`;
  });
  const text = lines.join("\n");
  const copy = copyButton(() => text, { class: "quiet small", title: "Copy the arguments as Python", "aria-label": "Copy the arguments as Python" });
  return h("div", {}, h("pre", { class: "args", dir: "auto", tabindex: 0, "aria-label": "Arguments" }, text), copy);
}

/** Return the source lines around a failure. If the cell was edited meanwhile, the edits are marked instead of the failed line. */
function source(failure: FailureView, root: HTMLElement): HTMLElement[] {
  const { place, source: lines, line } = failure;
  if (place === "" && lines.length === 0) return [];
  const go = canGo(failure) && button("Go to line", () => { goTo(root, failure); }, { class: "quiet small" });
  const text = textOf(root, failure.cell);
  const edits = text === null ? null : editsSince(lines, text);
  const sourceRows = edits === null
    ? lines.map(({ number, text }) => row(number === line ? "at" : "", number, number === line ? "✕" : "", text))
    : edits.map(({ kind, number, text }) => row(kind, number, SIGNS[kind], text));
  const editNote = edits !== null && h("span", { class: "soft" }, `edited since the failure: ${plural(changedLines(edits), "line")}`);
  const caption = h("div", { class: "cap" }, h("strong", {}, place), editNote, go);
  return lines.length === 0 ? [caption] : [caption, h("div", { class: "src", dir: "ltr" }, ...sourceRows)];
}

/** Return one source line with its number and a sign. */
function row(className: string, number: number, sign: string, text: string): HTMLElement {
  return h("div", { class: className === "" ? null : className }, h("i", {}, String(number)), h("span", {}, sign), h("span", {}, text));
}

/** Return the number of changed lines. A replaced line counts once. */
function changedLines(edits: readonly EditedLine[]): number {
  const countOf = (wantedKind: string): number => edits.filter(({ kind }) => kind === wantedKind).length;
  return Math.max(countOf("removed"), countOf("added"));
}

/** Return the traceback, folded, with a button to copy it. */
function traceback({ traceback: text }: FailureView): HTMLElement[] {
  if (text === "") return [];
  const copy = copyButton(() => text, { class: "quiet small", "aria-label": "Copy the traceback" });
  const lines = h("pre", { dir: "ltr", tabindex: 0, "aria-label": "Traceback" }, text);
  return [h("details", { class: "trace" }, h("summary", {}, "Traceback"), lines, copy)];
}
