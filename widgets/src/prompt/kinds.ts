// Kinds of questions: their form, and the response that an answer becomes (divebook/questions/question.py).

import type { InterruptKind } from "../protocol";
import { h, longText } from "../shared/dom";
import { button } from "../shared/element";
import { visible } from "../shared/text";
import { plainText, valueText } from "../shared/values";
import { makeForm, type Form } from "./form";
import { asSchema, isRecord, list, numeric, text, titleOf, type Schema } from "./schema";
import { ApprovalRuleForm } from "./rule";
import type { Draft, Question } from "./types";

/** A button that answers. */
export interface Action {
  label: string;
  sign: string;
  /** What is sent; undefined if something is wrong, which is shown by then. */
  response: () => unknown;
  /** Whether Enter presses it; only where nothing is released by that. */
  isDefault?: boolean;
  isHidden?: () => boolean;
}

/** The part of a card that asks. */
export interface AnswerForm {
  parts: HTMLElement[];
  actions: Action[];
  draft: () => Draft;
  focus: () => void;
  /** Leaves what is being edited; false if nothing is. */
  escape?: () => boolean;
  /** Whether no button stands out, since each may do harm. */
  isNeutral?: boolean;
}

export const KINDS: Record<InterruptKind, { word: string; sign: string }> = {
  clarification: { word: "Question", sign: "?" },
  confirmation: { word: "Approval", sign: "!" },
  agent_review: { word: "Review", sign: "✎" },
  checkpoint: { word: "Checkpoint", sign: "⚑" },
  resource_exhausted: { word: "Bound reached", sign: "▲" },
  timeout: { word: "Timeout", sign: "◷" },
  system_error: { word: "Error", sign: "✕" },
  outcome_unknown: { word: "Unknown outcome", sign: "?" },
  agent_changed: { word: "Changed agent", sign: "≠" },
};

/** Keys under which data holds what a person may change. */
const EDITABLE_KEYS = ["parameters", "output", "content", "result"];
/** Keys that are shown in another way, or only meant for programs. */
const HIDDEN_KEYS = new Set(["bound", "used", "limit", "choices", "offers"]);
const MAX_INLINE_LENGTH = 200; // characters of a value that stands on its line
const ANYTHING: Schema = { anyOf: [{ type: "string", title: "Text" }, { title: "JSON" }] };

function subjectOf({ data }: Question): [string, unknown] | undefined {
  const key = EDITABLE_KEYS.find((name) => Object.hasOwn(data, name));
  return key === undefined ? undefined : [key, data[key]];
}

/** Kinds of which one answer may do for all that ask alike; of calls, the arguments stay those of each. */
const SHAREABLE_KINDS = new Set<InterruptKind>(["clarification", "confirmation", "agent_review", "checkpoint", "timeout", "system_error"]);

/** Returns what questions of one kind have in common: the same step asks for the same sort of answer; undefined if each needs its own. */
export function similarityKey({ asker, kind, step, schema, data }: Question): string | undefined {
  const { agent, tool, action } = data;
  return SHAREABLE_KINDS.has(kind) ? JSON.stringify([asker?.[0], kind, step, schema, agent, tool, action]) : undefined;
}

/** Returns an answer as it may be given to others of its kind: changed arguments, and rules, are of one call alone. */
export function sharedResponse({ kind }: Question, response: unknown): unknown {
  if (!EDITABLE_KINDS.has(kind)) return response;
  return Object.fromEntries(Object.entries(asSchema(response)).filter(([name]) => name !== "data"));
}

/** Returns a call as its name and its arguments. */
function callFacts(parameters: unknown): [string, unknown][] {
  const all = asSchema(parameters);
  const [name, callArguments] = [CALL_NAME_KEYS.map((key) => all[key]).find((one) => one !== undefined), ARGUMENT_KEYS.map((key) => all[key]).find(isRecord)];
  return callArguments === undefined ? [["parameters", parameters]] : [["call", name ?? ""], ...Object.entries(callArguments)];
}

const CALL_NAME_KEYS = ["tool", "action_name", "step", "workflow", "agent"];
const ARGUMENT_KEYS = ["arguments", "params", "inputs"];

/** Returns what is shown of a question besides what may be edited. */
export function factsOf(question: Question): [string, unknown][] {
  if (question.kind === "outcome_unknown") return callFacts(question.data["parameters"]).slice(0, 40);
  const [subject] = EDITABLE_KINDS.has(question.kind) ? (subjectOf(question) ?? [""]) : [""];
  return Object.entries(question.data).filter(([key]) => !HIDDEN_KEYS.has(key) && key !== subject).slice(0, 40);
}

const EDITABLE_KINDS = new Set<InterruptKind>(["confirmation", "agent_review"]);

/** Makes what asks for the answer to a question. */
export function answerForm(question: Question, draft: Draft): AnswerForm {
  return BUILDERS[question.kind](question, draft);
}

const BUILDERS: Record<InterruptKind, (question: Question, draft: Draft) => AnswerForm> = {
  clarification: (question, draft) => valueForm(question, draft, "Answer"),
  checkpoint: (question, draft) => valueForm(question, draft, "Continue"),
  timeout: (question, draft) => valueForm(question, draft, "Answer"),
  system_error: (question, draft) => valueForm(question, draft, "Answer"),
  confirmation: approvalForm,
  agent_review: approvalForm,
  resource_exhausted: boundForm,
  outcome_unknown: outcomeForm,
  agent_changed: changedAgentForm,
};

/** Returns the schema of a text that may stay empty, with its title. */
function textSchema(title: string): Schema {
  return { type: "string", title };
}

function withText(response: Record<string, unknown>, form: Form): Record<string, unknown> {
  const comment = form.value();
  return comment === undefined ? response : { ...response, text: comment };
}

/** A text, or a value by a schema. */
function valueForm(question: Question, draft: Draft, label: string): AnswerForm {
  const { schema, kind } = question;
  const isCheckpoint = kind === "checkpoint";
  const isRequired = question.required && !(isCheckpoint && schema === null);
  const form = makeForm(schema ?? textSchema(isCheckpoint ? "Comment" : "Your answer"), draft["value"], isRequired);
  const response = (): unknown => {
    if (!form.check()) return undefined;
    const value = form.value();
    if (isCheckpoint && schema === null) return withText({ decision: "continue" }, form);
    return value === undefined ? {} : schema === null ? { text: value } : value;
  };
  const skip: Action = { label: "Skip", sign: "→", response: () => ({}) };
  return {
    parts: [form.element],
    actions: [{ label, sign: "✓", response, isDefault: true }, ...(isRequired || isCheckpoint ? [] : [skip])],
    draft: () => ({ value: form.value() }),
    focus: form.focus,
  };
}

/** Returns the answer that stands out, which may be given without looking further: of a value, the one its question names. */
export function obviousAnswer({ kind, schema, fallback }: Question): { label: string; response: unknown } | undefined {
  if (kind !== "clarification") return undefined;
  const choices = list(schema?.["enum"]);
  const candidates = [schema?.["default"], choices.length === 1 ? choices[0] : undefined, choices.find((one) => one === fallback)];
  const value = candidates.find((one) => typeof one === "string" || typeof one === "number");
  return value === undefined ? undefined : { label: String(value), response: value };
}

/** A decision on what an agent wants to do, or has done; what it is about may be changed. */
function approvalForm(question: Question, draft: Draft): AnswerForm {
  const isReview = question.kind === "agent_review";
  const comment = makeForm(textSchema("Comment"), draft["comment"], false);
  const editor = new Editor(question, isReview ? "Under review" : "Arguments", draft["edited"]);
  const ruleForm = new ApprovalRuleForm(question, draft["standing"]);
  ruleForm.setArgumentsEdited(editor.isOpen);
  editor.element.addEventListener("input", () => { ruleForm.setArgumentsEdited(editor.isOpen); });
  const responseFor = (decision: string): unknown => {
    const isChanged = editor.isOpen && decision !== "reject";
    if (isChanged && !editor.check()) return undefined;
    const approved = decision === "approve";
    if (approved && !ruleForm.check()) return undefined;
    const rule = approved ? ruleForm.rule() : undefined;
    const data = rule === undefined ? editor.value() : { ...asSchema(editor.value()), rule };
    return withText({ approved, ...(isReview ? { decision } : {}), ...(isChanged || rule !== undefined ? { data } : {}) }, comment);
  };
  const changes: Action = { label: "Send changes", sign: "✎", response: () => responseFor("modify"), isHidden: () => !editor.isOpen };
  return {
    parts: [editor.element, ruleForm.element, comment.element],
    actions: [
      ...(isReview ? [changes] : []),
      { label: "Approve", sign: "✓", response: () => responseFor("approve"), isHidden: () => isReview && editor.isOpen },
      { label: isReview ? "Reject" : "Deny", sign: "✕", response: () => responseFor("reject") },
    ],
    draft: () => ({ comment: comment.value(), edited: editor.value(), standing: ruleForm.draft() }),
    focus: comment.focus,
    escape: () => editor.close(),
  };
}

function boundForm({ data }: Question, draft: Draft): AnswerForm {
  const bound = text(data["bound"]);
  const [used, limit] = [Number(data["used"] ?? 0), Number(data["limit"] ?? 0)];
  const least = Math.max(used || 0, limit || 0);
  const isWhole = bound !== "max_cost" && bound !== "max_seconds";
  const unit = { max_cost: " US dollars", max_seconds: " seconds" }[bound] ?? "";
  const schema = { type: isWhole ? "integer" : "number", title: `New bound${unit === "" ? "" : ` in${unit}`}`, exclusiveMinimum: least };
  const form = makeForm(schema, numeric(draft["to"]) ?? Math.max(least, 1) * 2);
  const name = titleOf({}, bound.replace(/^max_/, "")) || "The bound";
  const usage = h("p", { class: "used" }, `${name}: ${valueText(data["used"] ?? 0, 40)} used of ${valueText(data["limit"] ?? 0, 40)}${unit}`);
  const to = (): unknown => (bound === "max_cost" ? String(form.value()) : form.value());
  return {
    parts: [usage, form.element],
    actions: [
      { label: "Raise and go on", sign: "▲", response: () => (form.check() ? { decision: "raise", data: { to: to() } } : undefined), isDefault: true },
      { label: "Stop", sign: "◼", response: () => ({ decision: "stop" }) },
    ],
    draft: () => ({ to: form.value() }),
    focus: form.focus,
  };
}

function outcomeForm(_question: Question, draft: Draft): AnswerForm {
  const form = makeForm({ ...ANYTHING, title: "What it returned, if it went through", noneTitle: "Nothing" }, draft["result"], false);
  const done = (): unknown => (form.check() ? { choice: "done", result: form.value() ?? null } : undefined);
  return {
    parts: [form.element],
    isNeutral: true,
    actions: [
      { label: "It went through", sign: "✓", response: done },
      { label: "It did not: the step fails", sign: "✕", response: () => ({ choice: "fail" }) },
      { label: "Make the call again", sign: "↻", response: () => ({ choice: "retry" }) },
    ],
    draft: () => ({ result: form.value() }),
    focus: form.focus,
  };
}

/** What is to become of a turn whose agent is another one by now. */
function changedAgentForm({ data }: Question): AnswerForm {
  const choices = Array.isArray(data["choices"]) ? data["choices"] : [];
  const finish: Action = { label: "Finish as it began", sign: "→", response: () => ({ choice: "finish" }) };
  return {
    parts: [],
    actions: [...(choices.includes("finish") ? [finish] : []), { label: "Begin anew", sign: "↻", response: () => ({ choice: "anew" }) }],
    draft: () => ({}),
    focus: () => undefined,
  };
}

/** Shows what may be changed, and a form for it once somebody wants to. */
class Editor {
  readonly element = h("div", { class: "editor" });
  readonly #subject: unknown;
  readonly #schema: Schema;
  readonly #title: string;
  /** Under which name the schema wants it, if it is a part only. */
  readonly #part: string | undefined;
  #form: Form | undefined;

  constructor(question: Question, title: string, draft: unknown) {
    const { schema, kind } = question;
    const subject = subjectOf(question);
    const part = asSchema(schema?.["properties"])[subject?.[0] ?? ""];
    this.#subject = subject?.[1];
    this.#part = part === undefined ? part : subject?.[0];
    this.#title = title;
    this.#schema = { title, ...(part === undefined ? (schema ?? schemaFor(this.#subject)) : standaloneSchema(part, `#/properties/${this.#part ?? ""}`)) };
    if (subject === undefined && schema === null && kind === "confirmation") return;
    if (draft === undefined) this.#show();
    else this.#open(this.#part === undefined ? draft : asSchema(draft)[this.#part]);
  }

  get isOpen(): boolean {
    return this.#form !== undefined;
  }

  value(): unknown {
    const value = this.#form?.value();
    return this.#part === undefined || value === undefined ? value : { [this.#part]: value };
  }

  check(): boolean {
    return this.#form?.check() ?? true;
  }

  close(): boolean {
    if (!this.isOpen) return false;
    this.#form = undefined;
    this.#show().focus();
    this.#dispatchInput();
    return true;
  }

  #show(): HTMLButtonElement {
    const begin = (): void => {
      this.#open(this.#subject).focus();
      this.#dispatchInput();
    };
    const edit = button("Edit", begin, { class: "small" });
    const value = this.#subject === undefined ? null : subjectView(this.#subject);
    this.element.replaceChildren(h("div", { class: "title row" }, this.#title, edit), ...(value === null ? [] : [value]));
    return edit;
  }

  #open(value: unknown): Form {
    this.#form = makeForm(this.#schema, value);
    const undo = button("Undo changes", () => { this.close(); }, { class: "small" });
    const heading = isRecord(this.#schema["properties"]) && h("div", { class: "title" }, this.#title);
    this.element.replaceChildren(...(heading === false ? [] : [heading]), this.#form.element, h("div", { class: "row" }, undo));
    return this.#form;
  }

  #dispatchInput(): void {
    this.element.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

/** Returns a part of a schema as one that stands alone: what it refers to lies in itself. */
function standaloneSchema(part: unknown, place: string): Schema {
  return asSchema(JSON.parse(JSON.stringify(part).replaceAll(`"$ref":"${place}`, '"$ref":"#')));
}

function schemaFor(subject: unknown): Schema {
  if (subject === undefined) return ANYTHING;
  return typeof subject === "string" ? { type: "string" } : isRecord(subject) ? { type: "object" } : {};
}

/** Shows what is asked about: arguments a line each, with nothing that can be taken for another value. */
function subjectView(subject: unknown): HTMLElement {
  if (!isRecord(subject) || Object.keys(subject).length === 0) return valueView(subject);
  const rows = Object.entries(subject).flatMap(([name, value]) => {
    const valueLine = plainText(value);
    return [h("dt", {}, visible(name)), h("dd", {}, valueLine.includes("\n") || valueLine.length > MAX_INLINE_LENGTH ? valueView(valueLine) : h("code", { dir: "auto" }, valueLine))];
  });
  return h("dl", { class: "values" }, ...rows);
}

/** Shows a value: all of it if somebody wants to see it, since it may be about to be approved. */
export function valueView(value: unknown): HTMLElement {
  const view = longText(typeof value === "string" ? value : JSON.stringify(value, null, 2));
  for (const more of view.querySelectorAll("button")) more.classList.add("small");
  return view;
}
