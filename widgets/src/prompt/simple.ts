// Controls for single values: text, number, date, choice, yes or no, and JSON for values without a better control.

import { h } from "../shared/dom";
import { newId, setAttribute } from "../shared/element";
import { two } from "../shared/format";
import { valueText } from "../shared/values";
import { fieldFrame, titleFor, type Control, type Frame, type Request } from "./control";
import { isBlank, list, numeric, text, type Schema } from "./schema";
import { parseJson, isEqual, InvalidJson, type Problem } from "./validate";

const MAX_RADIOS = 4;
const SHORT_LENGTH = 120;
const INPUT_TYPES: Record<string, string> = {
  date: "date",
  "date-time": "datetime-local",
  time: "time",
  email: "email",
  uri: "url",
  password: "password",
};

/** Return the control of a frame whose value is entered in one element. */
function inputControl({ element, mark }: Frame, input: HTMLElement | undefined, value: () => unknown): Control {
  return { element, value, focus: () => { input?.focus(); }, mark };
}

/** Value with only one possibility. */
export function constant(request: Request): Control {
  const value = request.node.schema["const"] ?? null;
  const output = h("output", {}, value === null ? "nothing" : valueText(value, SHORT_LENGTH));
  const frame = fieldFrame({ ...request, required: false }, output);
  return { element: frame.element, value: () => value, focus: () => undefined, mark: frame.mark };
}

/** Number, with the browser's step buttons. */
export function number(request: Request): Control {
  const { schema } = request.node;
  const whole = schema["type"] === "integer";
  const input = h("input", {
    type: "number",
    inputmode: whole ? "numeric" : "decimal",
    min: numeric(schema["minimum"]) ?? numeric(schema["exclusiveMinimum"]),
    max: numeric(schema["maximum"]) ?? numeric(schema["exclusiveMaximum"]),
    step: numeric(schema["multipleOf"]) ?? (whole ? 1 : "any"),
    value: numeric(request.value),
  });
  input.addEventListener("wheel", () => { input.blur(); }, { passive: true }); // scrolling must not change numbers
  const frame = fieldFrame(request, input);
  const value = (): unknown => {
    if (input.validity.badInput) return NaN;
    return input.value.trim() === "" ? emptyValue(request) : Number(input.value);
  };
  return inputControl(frame, input, value);
}

/** Text: a line if it is known to be short, else an area. Dates, addresses and passwords use the browser's input types. */
export function textControl(request: Request): Control {
  const { schema } = request.node;
  const format = text(schema["format"]);
  const type = schema["writeOnly"] === true ? "password" : INPUT_TYPES[format];
  const isLine = isShort(schema) || type !== undefined;
  const input = isLine ? h("input", { type: type ?? "text", step: type === "time" ? 1 : null }) : textArea();
  setAttribute(input, "autocomplete", type === "password" ? "new-password" : "off");
  const present = isBlank(request.value) ? "" : request.value;
  const initial = typeof present === "string" ? present : JSON.stringify(present);
  input.value = type === "datetime-local" ? localTime(initial) : initial;
  if (input instanceof HTMLTextAreaElement) growRows(input);
  const frame = fieldFrame(request, input);
  const value = (): unknown => {
    if (input.value === "") return typeof schema["default"] === "string" && !request.node.nullable ? "" : emptyValue(request);
    return type === "datetime-local" ? zonedTime(input.value) : input.value;
  };
  return inputControl(frame, input, value);
}

/** Return whether the text of a schema fits on one line. */
function isShort(schema: Schema): boolean {
  const most = numeric(schema["maxLength"]);
  return schema["pattern"] !== undefined || schema["format"] !== undefined || (most !== undefined && most <= SHORT_LENGTH);
}

/** Make a text area that grows with its text. */
function textArea(): HTMLTextAreaElement {
  const input = h("textarea", { rows: 1, oninput: () => { growRows(input); } });
  return input;
}

/** Grow a text area with its lines, up to 12. It never shrinks, so that the page does not jump. */
function growRows(input: HTMLTextAreaElement): void {
  const lines = input.value.slice(0, 5000).split("\n").length;
  input.rows = Math.min(12, Math.max(input.rows, lines));
}

/** Return the value of an empty control: null if null is accepted and a value is needed (or the default is not null), else undefined. */
export function emptyValue({ node, required }: Request): unknown {
  const fallback = node.schema["default"];
  return node.nullable && (required || (fallback !== undefined && fallback !== null)) ? null : undefined;
}

/** Return a time in the form of the browser's input, in the local time zone. */
function localTime(value: string): string {
  const moment = new Date(value);
  if (Number.isNaN(moment.getTime())) return "";
  const shifted = new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, shifted.getSeconds() === 0 ? 16 : 19);
}

/** Return a local time with its offset from UTC. */
function zonedTime(value: string): string {
  const moment = new Date(value);
  if (Number.isNaN(moment.getTime())) return value;
  const minutes = -moment.getTimezoneOffset();
  const seconds = value.length === 16 ? ":00" : "";
  return `${value}${seconds}${minutes < 0 ? "-" : "+"}${two(Math.trunc(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
}

/** One of several values: radio buttons if there are few, else a select element. */
export function choice(request: Request): Control {
  const options = list(request.node.schema["enum"]).filter((option) => option !== null);
  const titles = list(request.node.schema["enumTitles"]).map(String);
  const labels = options.map((option, index) => titles[index] ?? valueText(option, 200));
  const isFew = options.length <= MAX_RADIOS && labels.every((label) => label.length <= 40);
  return (isFew ? radios : select)(request, options, labels);
}

/** Yes or no. */
export function yesNo(request: Request): Control {
  return radios(request, [true, false], ["Yes", "No"]);
}

/** Radio buttons. "No answer" is offered if the value may be empty and has no default. */
function radios(request: Request, options: unknown[], labels: string[]): Control {
  const name = newId();
  const mayBeEmpty = !request.required || request.node.nullable;
  const shownLabels = mayBeEmpty && request.node.schema["default"] === undefined ? [...labels, "No answer"] : labels;
  const inputs = shownLabels.map((_, index) => h("input", { type: "radio", name, value: index }));
  const selected = options.findIndex((option) => isEqual(option, request.value));
  inputs.forEach((input, index) => { input.checked = index === (selected < 0 ? options.length : selected); });
  const group = h("div", { role: "radiogroup", class: "row" }, ...inputs.map((input, index) => h("label", {}, input, shownLabels[index] ?? "")));
  const frame = fieldFrame({ ...request, required: request.required && selected < 0 }, group);
  if (request.required) setAttribute(group, "aria-required", "true");
  const value = (): unknown => {
    const index = inputs.findIndex((input) => input.checked);
    return index < 0 || index >= options.length ? emptyValue(request) : options[index];
  };
  const focus = (): void => { (inputs.find((input) => input.checked) ?? inputs[0])?.focus(); };
  return { element: frame.element, value, focus, mark: frame.mark };
}

/** Select element. It has an empty option unless an answer is required and given. */
function select(request: Request, options: unknown[], labels: string[]): Control {
  const entries = labels.map((label, index) => h("option", { value: index }, label));
  const selected = options.findIndex((option) => isEqual(option, request.value));
  const isAnswered = selected >= 0 && request.required && !request.node.nullable; // it cannot become empty again
  const none = isAnswered ? [] : [h("option", { value: "" }, request.required ? "Choose…" : "No answer")];
  const input = h("select", {}, ...none, ...entries);
  input.value = selected < 0 ? "" : String(selected);
  const frame = fieldFrame({ ...request, required: request.required && !isAnswered }, input);
  const value = (): unknown => (input.value === "" ? emptyValue(request) : options[Number(input.value)]);
  return inputControl(frame, input, value);
}

/** Several of a few values. */
export function checks(request: Request, options: unknown[]): Control {
  const initialValues = list(request.value);
  const inputs = options.map((option) => {
    const input = h("input", { type: "checkbox" });
    input.checked = initialValues.some((value) => isEqual(value, option));
    return input;
  });
  const labels = inputs.map((input, index) => h("label", {}, input, valueText(options[index], 200)));
  const group = h("div", { role: "group", class: "row" }, ...labels);
  const frame = fieldFrame(request, group);
  const value = (): unknown => options.filter((_, index) => inputs[index]?.checked === true);
  return inputControl(frame, inputs[0], value);
}

/** Any JSON value, typed as JSON. */
export function json(request: Request): Control {
  const input = h("textarea", { rows: 3, spellcheck: "false", class: "code" });
  if (request.value instanceof InvalidJson) input.value = request.value.text; // a draft
  else if (!isBlank(request.value)) input.value = JSON.stringify(request.value, null, 2);
  growRows(input);
  const kind = request.node.schema["type"] === "object" ? "A JSON object" : "JSON; put strings in quotes";
  const description = text(request.node.schema["description"]) || kind;
  const frame = fieldFrame({ ...request, node: { ...request.node, schema: { ...request.node.schema, description } } }, input);
  const value = (): unknown => parseJson(input.value) ?? emptyValue(request);
  const mark: Control["mark"] = (problems) => {
    // The parts of the value have no fields of their own, so the message names the part.
    const messageOf = ({ path, message }: Problem): string => (path.length === 0 ? message : `is not valid: ${path.join(".")} ${message}`);
    frame.mark(problems.map((problem) => ({ path: problem.path, message: messageOf(problem) })));
  };
  return { element: frame.element, value, focus: () => { input.focus(); }, mark };
}

/** Return the heading of a compound control, with a star if it is required. */
export function groupTitle(request: Request): string {
  return titleFor(request) + (request.required ? " *" : "");
}
