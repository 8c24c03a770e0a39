// A card of one failure: step, arguments, source line, recovery options, and the reused results.

import type { ArgumentView, FailureView } from "../protocol";
import { copyButton } from "../shared/copy";
import { h } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import type { Model } from "../shared/model";
import { canGo, goTo, textOf } from "../shared/celllinks";
import { moment } from "../shared/times";
import { branchOf } from "../shared/words";
import { type Compared, edited } from "./edited";

const HANDLED = {
  "": "",
  skipped: "The run went on without this item.",
  kept: "The run went on; the error stands in the place of the result.",
  caught: "The run went on at the step that catches this.",
} as const;

const SIGNS = { same: "", removed: "−", added: "+" } as const;

/** Names a failure as Python does; a message may begin with the class already. */
export function headline({ error_type: type, message }: FailureView): string {
  if (type === "" || message.startsWith(type)) return message;
  return message === "" ? type : `${type}: ${message}`;
}

/** Returns the two columns of a failure's card. */
export function card(failure: FailureView, kept: string, model: Model, root: HTMLElement): HTMLElement[] {
  const rows: [string, Node | string | false][] = [
    ["Means", failure.means],
    ["Where", where(failure, model)],
    ["Arguments", failure.arguments.length > 0 && given(failure.arguments)],
    ["Then", HANDLED[failure.handled]],
    ["Kept", kept !== "" && `${kept}, safe in the log. Nothing of it is paid again.`],
  ];
  const facts = rows.flatMap(([name, value]) => (value === false || value === "" ? [] : [h("dt", {}, name), h("dd", {}, value)]));
  return [h("dl", {}, ...facts), h("div", { class: "code" }, ...source(failure, root), ...traceback(failure))];
}

function where({ step, item, path, called, attempt, failed_us: moment_us, id }: FailureView, model: Model): HTMLElement {
  const parts: (HTMLElement | string)[] = ["step ", h("strong", {}, step)];
  if (item !== "") parts.push(", item ", h("strong", {}, item));
  if (called !== "" && called !== step) parts.push(", in ", h("strong", {}, called));
  if (branchOf(path) !== "") parts.push(`, ${branchOf(path)}`);
  if (attempt > 1) parts.push(`, try ${attempt}`);
  parts.push(`, at ${moment(moment_us)}`);
  const show = button("Show in timeline", () => { model.reveal(id); }, { class: "quiet small" });
  return h("div", { class: "row" }, h("span", {}, ...parts), id >= 0 && show);
}

function given(named: readonly ArgumentView[]): HTMLElement {
  const text = named.map(({ name, text }) => `${name} = ${text.replaceAll("\n", `\n${" ".repeat(name.length + 3)}`)}`).join("\n");
  return h("div", {}, h("pre", { class: "args", dir: "auto", tabindex: 0, "aria-label": "Arguments" }, text), copyButton(() => text, { class: "quiet small", title: "Copy the arguments as Python", "aria-label": "Copy the arguments as Python" }));
}

function source(failure: FailureView, root: HTMLElement): HTMLElement[] {
  const { place, source: lines, line } = failure;
  if (place === "" && lines.length === 0) return [];
  const go = canGo(failure) && button("Go to line", () => { goTo(root, failure); }, { class: "quiet small" });
  const text = textOf(root, failure.cell);
  const since = text === null ? null : edited(lines, text);
  const shown = since === null
    ? lines.map(({ number, text }) => row(number === line ? "at" : "", number, number === line ? "✕" : "", text))
    : since.map(({ kind, number, text }) => row(kind, number, SIGNS[kind], text));
  const told = since !== null && h("span", { class: "soft" }, `edited since: ${plural(count(since), "line")}`);
  return [h("div", { class: "cap" }, h("strong", {}, place), told, go), ...(lines.length > 0 ? [h("div", { class: "src", dir: "ltr" }, ...shown)] : [])];
}

function row(look: string, number: number, sign: string, text: string): HTMLElement {
  return h("div", { class: look === "" ? null : look }, h("i", {}, String(number)), h("span", {}, sign), h("span", {}, text));
}

/** Returns how many lines are others now. */
function count(since: readonly Compared[]): number {
  const of = (wanted: string): number => since.filter(({ kind }) => kind === wanted).length;
  return Math.max(of("removed"), of("added"));
}

function traceback({ traceback: text }: FailureView): HTMLElement[] {
  if (text === "") return [];
  const copy = copyButton(() => text, { class: "quiet small", "aria-label": "Copy the traceback" });
  return [h("details", { class: "trace" }, h("summary", {}, "Traceback"), h("pre", { dir: "ltr", tabindex: 0, "aria-label": "Traceback" }, text), copy)];
}
