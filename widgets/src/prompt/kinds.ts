// Kinds of questions: their form, and the response built from the form (divebook/questions/question.py).

import { ANEW, APPROVE, DONE, FAIL, FINISH, JUDGED, MODIFY, RAISE, REJECT, RETRY, STOP } from "../constants";
import type { InterruptKind } from "../protocol";
import { h, longText } from "../shared/dom";
import { button } from "../shared/element";
import { visible } from "../shared/text";
import { plainText, valueText } from "../shared/values";
import { makeForm, type Form } from "./form";
import { asSchema, isRecord, list, numeric, text, titleOf, type Schema } from "./schema";
import { ApprovalRuleForm } from "./rule";
import type { Draft, Question } from "./types";

/** Button that sends an answer. */
export interface Action {
  label: string;
  sign: string;
  /** Return the response; undefined if the form is invalid, in which case the form shows the problems. */
  response: () => unknown;
  /** True if Enter triggers the action. Only for actions that approve nothing. */
  isDefault?: boolean;
  isHidden?: () => boolean;
}

/** Form of a question inside its card. */
export interface AnswerForm {
  parts: HTMLElement[];
  actions: Action[];
  draft: () => Draft;
  focus: () => void;
  /** Close an open editor. Return false if none is open. */
  escape?: () => boolean;
  /** True if no button is highlighted, because each of them may do harm. */
  isNeutral?: boolean;
}

export const KINDS: Record<InterruptKind, { word: string; sign: string }> = {
  clarification: { word: "Question", sign: "?" },
  confirmation: { word: "Approval", sign: "!" },
  agent_review: { word: "Review", sign: "✎" },
  checkpoint: { word: "Checkpoint", sign: "⚑" },
  resource_exhausted: { word: "Budget reached", sign: "▲" },
  timeout: { word: "Timeout", sign: "◷" },
  system_error: { word: "Error", sign: "✕" },
  outcome_unknown: { word: "Unknown outcome", sign: "?" },
  agent_changed: { word: "Changed agent", sign: "≠" },
};

/** Keys of a question's data whose value a person may change. */
const EDITABLE_KEYS = ["parameters", "output", "content", "result"];
/** Keys that are displayed elsewhere or are only meant for programs. */
const HIDDEN_KEYS = new Set(["bound", "used", "limit", "choices", "offers"]);
const MAX_INLINE_LENGTH = 200; // characters; longer values get a block of their own
const ANYTHING: Schema = { anyOf: [{ type: "string", title: "Text" }, { title: "JSON" }] };

/** Return the key and value that a person may change, if the question has one. */
function subjectOf({ data }: Question): [string, unknown] | undefined {
  const key = EDITABLE_KEYS.find((name) => Object.hasOwn(data, name));
  return key === undefined ? undefined : [key, data[key]];
}

/** Return the response for similar questions. Changed arguments and approval rules belong to one call only, so they are left out. */
export function sharedResponse({ kind }: Question, response: unknown): unknown {
  if (!EDITABLE_KINDS.has(kind)) return response;
  return Object.fromEntries(Object.entries(asSchema(response)).filter(([name]) => name !== "data"));
}

/** Return a call as its name and its arguments. The key names depend on the type of the operation. */
function callFacts(parameters: unknown): [string, unknown][] {
  const all = asSchema(parameters);
  const name = CALL_NAME_KEYS.map((key) => all[key]).find((value) => value !== undefined);
  const callArguments = ARGUMENT_KEYS.map((key) => all[key]).find(isRecord);
  return callArguments === undefined ? [["parameters", parameters]] : [["call", name ?? ""], ...Object.entries(callArguments)];
}

const CALL_NAME_KEYS = ["tool", "action_name", "step", "workflow", "agent"];
const ARGUMENT_KEYS = ["arguments", "params", "inputs"];

/** Return the facts of a question to display beside its form, without the value that can be edited. */
export function factsOf(question: Question): [string, unknown][] {
  if (question.kind === "outcome_unknown") return callFacts(question.data["parameters"]).slice(0, 40);
  const subject = EDITABLE_KINDS.has(question.kind) ? subjectOf(question)?.[0] : "";
  return Object.entries(question.data).filter(([key]) => !HIDDEN_KEYS.has(key) && key !== subject).slice(0, 40);
}

const EDITABLE_KINDS = new Set<InterruptKind>(JUDGED);

/** Make the form of a question. */
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

/** Return the schema of an optional text with this title. */
function textSchema(title: string): Schema {
  return { type: "string", title };
}

/** Add the text of a comment form to a response. */
function withText(response: Record<string, unknown>, form: Form): Record<string, unknown> {
  const comment = form.value();
  return comment === undefined ? response : { ...response, text: comment };
}

/** Form for a text, or for a value with a schema. */
function valueForm(question: Question, draft: Draft, label: string): AnswerForm {
  const { schema, kind } = question;
  const isCheckpoint = kind === "checkpoint";
  const isRequired = question.required && !(isCheckpoint && schema === null);
  const form = makeForm(schema ?? textSchema(isCheckpoint ? "Comment" : "Your answer"), draft["value"], isRequired);
  const response = (): unknown => {
    if (!form.check()) return undefined;
    const value = form.value();
    if (isCheckpoint && schema === null) return withText({ decision: "continue" }, form);
    if (value === undefined) return {};
    return schema === null ? { text: value } : value;
  };
  const skip: Action = { label: "Skip", sign: "→", response: () => ({}) };
  return {
    parts: [form.element],
    actions: [{ label, sign: "✓", response, isDefault: true }, ...(isRequired || isCheckpoint ? [] : [skip])],
    draft: () => ({ value: form.value() }),
    focus: form.focus,
  };
}

/**
 * Return the answer that can be given directly from a notification: the default, the only choice, or the choice that
 * equals the fallback.
 */
export function obviousAnswer({ kind, schema, fallback }: Question): { label: string; response: unknown } | undefined {
  if (kind !== "clarification") return undefined;
  const choices = list(schema?.["enum"]);
  const candidates = [
    schema?.["default"],
    choices.length === 1 ? choices[0] : undefined,
    choices.find((choice) => choice === fallback),
  ];
  const value = candidates.find((candidate) => typeof candidate === "string" || typeof candidate === "number");
  return value === undefined ? undefined : { label: String(value), response: value };
}

/** Form for the approval of a call, or the review of a result. The arguments or the result can be changed. */
function approvalForm(question: Question, draft: Draft): AnswerForm {
  const isReview = question.kind === "agent_review";
  const comment = makeForm(textSchema("Comment"), draft["comment"], false);
  const editor = new Editor(question, isReview ? "Value to review" : "Arguments", draft["edited"]);
  const ruleForm = new ApprovalRuleForm(question, draft["standing"]);
  ruleForm.setArgumentsEdited(editor.isOpen);
  editor.element.addEventListener("input", () => { ruleForm.setArgumentsEdited(editor.isOpen); });
  const responseFor = (decision: string): unknown => {
    const isChanged = editor.isOpen && decision !== REJECT;
    if (isChanged && !editor.check()) return undefined;
    const approved = decision === APPROVE;
    if (approved && !ruleForm.check()) return undefined;
    const rule = approved ? ruleForm.rule() : undefined;
    const data = rule === undefined ? editor.value() : { ...asSchema(editor.value()), rule };
    const decisionPart = isReview ? { decision } : {};
    const dataPart = isChanged || rule !== undefined ? { data } : {};
    return withText({ approved, ...decisionPart, ...dataPart }, comment);
  };
  const changes: Action = { label: "Send changes", sign: "✎", response: () => responseFor(MODIFY), isHidden: () => !editor.isOpen };
  return {
    parts: [editor.element, ruleForm.element, comment.element],
    actions: [
      ...(isReview ? [changes] : []),
      { label: "Approve", sign: "✓", response: () => responseFor(APPROVE), isHidden: () => isReview && editor.isOpen },
      { label: isReview ? "Reject" : "Deny", sign: "✕", response: () => responseFor(REJECT) },
    ],
    draft: () => ({ comment: comment.value(), edited: editor.value(), standing: ruleForm.draft() }),
    focus: comment.focus,
    escape: () => editor.close(),
  };
}

/** Form for a budget that is used up: raise the bound, or stop. */
function boundForm({ data }: Question, draft: Draft): AnswerForm {
  const bound = text(data["bound"]);
  const used = Number(data["used"] ?? 0);
  const limit = Number(data["limit"] ?? 0);
  const least = Math.max(used || 0, limit || 0);
  // The same proposal as that of `proposed_bound` in divebook/questions/answer.py.
  const nextCall = Number(data["reserved"] ?? 0) + Number(data["needed"] ?? 0);
  const proposal = Number(Math.max(least * 2, (used || 0) + (nextCall || 0)).toFixed(9)) || 2;
  const isWhole = bound !== "max_cost" && bound !== "max_seconds";
  const unit = { max_cost: " US dollars", max_seconds: " seconds" }[bound] ?? "";
  const title = unit === "" ? "New limit" : `New limit in${unit}`;
  const schema = { type: isWhole ? "integer" : "number", title, exclusiveMinimum: least };
  const form = makeForm(schema, numeric(draft["to"]) ?? proposal);
  const name = titleOf({}, bound.replace(/^max_/, "")) || "The limit";
  const usage = h("p", { class: "used" }, `${name}: ${valueText(data["used"] ?? 0, 40)} of ${valueText(data["limit"] ?? 0, 40)}${unit} used`);
  const raise = (): unknown => {
    if (!form.check()) return undefined;
    const to = bound === "max_cost" ? String(form.value()) : form.value(); // costs are decimal numbers, sent as strings
    return { decision: RAISE, data: { to } };
  };
  return {
    parts: [usage, form.element],
    actions: [
      { label: "Raise and continue", sign: "▲", response: raise, isDefault: true },
      { label: "Stop", sign: "◼", response: () => ({ decision: STOP }) },
    ],
    draft: () => ({ to: form.value() }),
    focus: form.focus,
  };
}

/** Form for an operation whose outcome is unknown. A person states whether it took effect. */
function outcomeForm(_question: Question, draft: Draft): AnswerForm {
  const form = makeForm({ ...ANYTHING, title: "Result of the call, if it went through", noneTitle: "No result" }, draft["result"], false);
  const doneResponse = (): unknown => (form.check() ? { choice: DONE, result: form.value() ?? null } : undefined);
  return {
    parts: [form.element],
    isNeutral: true,
    actions: [
      { label: "It went through", sign: "✓", response: doneResponse },
      { label: "It did not. Fail the step", sign: "✕", response: () => ({ choice: FAIL }) },
      { label: "Repeat the call", sign: "↻", response: () => ({ choice: RETRY }) },
    ],
    draft: () => ({ result: form.value() }),
    focus: form.focus,
  };
}

/** Form for a turn whose agent has changed since the turn started. */
function changedAgentForm({ data }: Question): AnswerForm {
  const choices = Array.isArray(data["choices"]) ? data["choices"] : [];
  const finish: Action = { label: "Finish with the old agent", sign: "→", response: () => ({ choice: FINISH }) };
  return {
    parts: [],
    actions: [...(choices.includes(FINISH) ? [finish] : []), { label: "Start the turn again", sign: "↻", response: () => ({ choice: ANEW }) }],
    draft: () => ({}),
    focus: () => undefined,
  };
}

/** Editor of an approved value. It shows the value, and opens a form on request. */
class Editor {
  readonly element = h("div", { class: "editor" });
  readonly #subject: unknown;
  readonly #schema: Schema;
  readonly #title: string;
  /** Property of the schema that holds the value; undefined if the schema describes the value itself. */
  readonly #part: string | undefined;
  #form: Form | undefined;

  constructor(question: Question, title: string, draft: unknown) {
    const { schema, kind } = question;
    const subject = subjectOf(question);
    const part = asSchema(schema?.["properties"])[subject?.[0] ?? ""];
    this.#subject = subject?.[1];
    this.#part = part === undefined ? part : subject?.[0];
    this.#title = title;
    const subjectSchema = part === undefined
      ? (schema ?? schemaFor(this.#subject))
      : standaloneSchema(part, `#/properties/${this.#part ?? ""}`);
    this.#schema = { title, ...subjectSchema };
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

/** Return a part of a schema as a schema of its own. References into the part are made relative to it. */
function standaloneSchema(part: unknown, place: string): Schema {
  return asSchema(JSON.parse(JSON.stringify(part).replaceAll(`"$ref":"${place}`, '"$ref":"#')));
}

/** Return a schema for a value that has none. */
function schemaFor(subject: unknown): Schema {
  if (subject === undefined) return ANYTHING;
  if (typeof subject === "string") return { type: "string" };
  return isRecord(subject) ? { type: "object" } : {};
}

/** Show the value that the question is about: one line for each argument, unambiguous (strings that look like other values are quoted). */
function subjectView(subject: unknown): HTMLElement {
  if (!isRecord(subject) || Object.keys(subject).length === 0) return valueView(subject);
  const rows = Object.entries(subject).flatMap(([name, value]) => {
    const valueLine = plainText(value);
    const isLong = valueLine.includes("\n") || valueLine.length > MAX_INLINE_LENGTH;
    return [h("dt", {}, visible(name)), h("dd", {}, isLong ? valueView(valueLine) : h("code", { dir: "auto" }, valueLine))];
  });
  return h("dl", { class: "values" }, ...rows);
}

/** Show a value. The whole value can be unfolded, because a person may be about to approve it. */
export function valueView(value: unknown): HTMLElement {
  const view = longText(typeof value === "string" ? value : JSON.stringify(value, null, 2));
  for (const more of view.querySelectorAll("button")) more.classList.add("small");
  return view;
}
