// Form with which a person gives results to the blocked calls of a what-if. The what-if continues in a new cell below, so
// that the notebook contains the results.

import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import { python } from "../shared/python";
import { insertBelow, isInNotebook } from "../shared/celllinks";

/** Blocked call of a what-if. */
interface BlockedCall {
  /** Id of the operation, under which the next what-if gives it a result. */
  operation: string;
  /** Kind and name of the call, such as `action pay`. */
  what: string;
  step: string;
}

/** Data about a what-if in the output of a comparison. */
export interface WhatIfData {
  run: string;
  blocked: readonly BlockedCall[];
}

/** Return the data about a what-if, checked because a notebook may come from anywhere; null if there are no blocked calls. */
export function whatIfOf(data: unknown): WhatIfData | null {
  const { what_if: whatIf } = (data ?? {}) as { what_if?: unknown };
  const { run, blocked } = (whatIf ?? {}) as { run?: unknown; blocked?: unknown };
  if (typeof run !== "string" || !/^\w+$/.test(run) || !Array.isArray(blocked) || blocked.length === 0) return null;
  return blocked.every(isBlockedCall) ? { run, blocked } : null;
}

function isBlockedCall(call: unknown): call is BlockedCall {
  const { operation, what, step } = (call ?? {}) as Record<string, unknown>;
  return [operation, what, step].every((text) => typeof text === "string");
}

/** Return the value of an input: JSON if it is valid JSON, otherwise the text itself. */
export function valueOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** Return the code that makes the what-if again with these results, by operation id. */
export function codeFor(run: string, results: ReadonlyMap<string, unknown>): string {
  return `import divebook\n\ndivebook.show(${python(run)}).what_if({"results": ${python(Object.fromEntries(results))}})`;
}

/** Return the type of a value in words, for the line below an input. */
function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return `a list of ${value.length}`;
  return { string: "a string", number: "a number", boolean: "a boolean", object: "an object" }[typeof value as string] ?? "";
}

/** Form with an input for each blocked call. It is folded to one button at first. */
export function blockedCalls({ run, blocked }: WhatIfData): HTMLElement {
  const inputs = new Map<string, HTMLTextAreaElement>();
  const fields = blocked.map((call, place) => field(call, place === 0, inputs, () => { update(); }));
  const results = (): Map<string, unknown> => {
    const filled = [...inputs].filter(([, { value }]) => value.trim() !== "");
    return new Map(filled.map(([operation, { value }]) => [operation, valueOf(value)]));
  };
  const submit = button("Continue the what-if", () => { insertBelow(form, codeFor(run, results()), true); }, { class: "primary" });
  const note = h("span", { class: "note", role: "status" });
  const update = (): void => {
    const count = results().size;
    submit.disabled = count === 0 || !isInNotebook(form);
    setText(note, noteFor(count, blocked.length));
  };
  const cancel = button("Cancel", () => { setOpen(false); });
  const form = h("div", { class: "fields", hidden: true }, ...fields, h("div", { class: "row" }, submit, cancel, note));
  const open = button("Enter a result", () => { setOpen(true); }, { "aria-expanded": "false" });
  const setOpen = (isOpen: boolean): void => {
    form.hidden = !isOpen;
    open.hidden = isOpen;
    open.setAttribute("aria-expanded", String(isOpen));
    update();
    if (isOpen) form.querySelector("textarea")?.focus();
    else open.focus();
  };
  const count = blocked.length === 1 ? "1 call was blocked" : `${blocked.length} calls were blocked`;
  const title = h("span", {}, h("strong", {}, count), `, because a what-if has no side effects. Later steps ran without ${blocked.length === 1 ? "its result" : "their results"}.`);
  return h("div", { class: "blocked", role: "group", "aria-label": count }, h("div", { class: "row" }, title, open), form);
}

function noteFor(count: number, total: number): string {
  if (count === 0) return "Enter a result first.";
  return count < total ? `${plural(total - count, "call")} without a result stay${total - count === 1 ? "s" : ""} blocked.` : "Runs in a new cell below, and reuses the recorded results.";
}

function field(call: BlockedCall, isFirst: boolean, inputs: Map<string, HTMLTextAreaElement>, onChange: () => void): HTMLElement {
  const type = h("span", { class: "note" });
  const input = h("textarea", {
    rows: 2,
    spellcheck: false,
    placeholder: isFirst ? 'JSON such as {"id": 7}, or text' : "JSON, or text",
    oninput: () => {
      setText(type, input.value.trim() === "" ? "" : `is ${typeOf(valueOf(input.value))}`);
      onChange();
    },
  });
  inputs.set(call.operation, input);
  const place = call.step === "" ? "" : `, step ${call.step}`;
  return h("label", {}, h("span", {}, `Result of ${call.what}${place} `, type), input);
}
