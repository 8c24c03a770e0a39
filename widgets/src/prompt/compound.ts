// Controls for compound values: objects, lists, and unions of several kinds.

import { h, setText } from "../shared/dom";
import { button, newId, setAttribute } from "../shared/element";
import { truncate } from "../shared/values";
import { titleFor, type Control, type ControlFactory, type Request } from "./control";
import { asSchema, isRecord, list, nodeOf, numeric, resolve, schemas, text, titleOf, variants, type Schema } from "./schema";
import { emptyValue, groupTitle } from "./simple";
import { problemsOf, type Problem } from "./validate";

/** Return the problems inside one property or entry, with paths relative to it. */
function problemsBelow(problems: Problem[], key: string | number): Problem[] {
  return problems.filter(({ path }) => path[0] === key).map(({ path, message }) => ({ path: path.slice(1), message }));
}

/** Frame of a compound control, with a line for the problems of the whole value. */
interface Group {
  element: HTMLElement;
  mark: (problems: Problem[]) => void;
}

/** Put a border and a heading around parts. The whole form and a titled alternative need neither. */
function groupFrame(request: Request, ...parts: (Node | false)[]): Group {
  const errorId = newId();
  const error = h("div", { id: errorId, class: "error" });
  const description = text(request.node.schema["description"]);
  const hint = description !== "" && h("div", { class: "hint" }, truncate(description, 2000));
  const isWhole = request.depth === 0 || request.isTitled === true;
  const element = isWhole
    ? h("div", { class: "form" }, hint, ...parts, error)
    : h("fieldset", { "aria-describedby": errorId }, h("legend", {}, groupTitle(request)), hint, ...parts, error);
  return {
    element,
    mark: (problems) => { setText(error, problems[0] === undefined ? "" : `${titleFor(request) || "The value"} ${problems[0].message}.`); },
  };
}

/** Object: one control for each property. */
export function object(request: Request, make: ControlFactory): Control {
  if (request.depth > 0 && !request.required) return optional(request, (part) => wholeObject(part, make));
  return wholeObject(request, make);
}

function wholeObject(request: Request, make: ControlFactory): Control {
  const { schema } = request.node;
  const initialValues = isRecord(request.value) ? request.value : {};
  const required = list(schema["required"]);
  const parts = Object.entries(asSchema(schema["properties"])).map(([name, property]) => {
    const node = nodeOf(asSchema(property), request.root);
    const missing = request.value === undefined ? node.schema["default"] : undefined;
    const value = Object.hasOwn(initialValues, name) ? initialValues[name] : missing;
    const isTag = node.kind === "const" && request.depth > 0; // a constant that tells the alternatives of a union apart; there is nothing to ask
    const control = make({ node, root: request.root, name, required: required.includes(name), value, depth: request.depth + 1 });
    return { name, isTag, control };
  });
  const group = groupFrame(request, ...parts.filter(({ isTag }) => !isTag).map(({ control }) => control.element));
  // Properties of the value that the schema does not name are kept.
  const names = new Set(parts.map(({ name }) => name));
  const extraValues = Object.fromEntries(Object.entries(initialValues).filter(([name]) => !names.has(name)));
  return {
    element: group.element,
    value: () => {
      const values = parts.map(({ name, control }) => [name, control.value()] as const).filter(([, value]) => value !== undefined);
      return { ...extraValues, ...Object.fromEntries(values) };
    },
    focus: () => { parts.find(({ isTag }) => !isTag)?.control.focus(); },
    mark: (problems) => {
      for (const { name, control } of parts) control.mark(problemsBelow(problems, name));
      group.mark(problems.filter(({ path }) => !names.has(String(path[0]))));
    },
  };
}

/** Optional part, built only after a click on "Add". Building on demand also ends the recursion of recursive schemas. */
function optional(request: Request, build: (request: Request) => Control): Control {
  const title = titleFor(request);
  const place = h("div", { class: "optional" });
  let control: Control | undefined;
  const show = (value: unknown, isNew: boolean): void => {
    control = build({ ...request, required: true, value });
    place.replaceChildren(control.element, button(`Remove ${title}`, hide, { class: "small" }));
    if (isNew) control.focus();
  };
  const add = button(`Add ${title}`, () => { show(undefined, true); }, { class: "small" });
  const hide = (): void => {
    control = undefined;
    place.replaceChildren(add);
    add.focus();
  };
  place.append(add);
  if (isRecord(request.value) || Array.isArray(request.value)) show(request.value, false);
  return {
    element: place,
    value: () => (control === undefined ? emptyValue(request) : control.value()),
    focus: () => { (control ?? add).focus(); },
    mark: (problems) => { control?.mark(problems); },
  };
}

/**
 * List: one control for each entry, with buttons that add and remove entries.
 * Entries of `prefixItems` are always present; entries of `items` can be added and removed.
 */
export function array(request: Request, make: ControlFactory): Control {
  const { schema } = request.node;
  const prefixSchemas = schemas(schema["prefixItems"]);
  const itemSchema = schema["items"] === undefined && prefixSchemas.length > 0 ? undefined : asSchema(schema["items"]);
  const rows: { control: Control; element: HTMLElement }[] = [];
  const place = h("div", { class: "items" });
  const noun = itemNoun(request, itemSchema);
  const insert = (value: unknown, item: Schema, removable: boolean): Control => {
    const number = rows.length + 1;
    const control = make({ node: nodeOf(item, request.root), root: request.root, name: `${noun} ${number}`, required: true, value, depth: request.depth + 1 });
    const element = h("div", { class: "item" }, control.element);
    const row = { control, element };
    if (removable) element.append(button("✕", () => { remove(row); }, { class: "small", "aria-label": `Remove ${noun} ${number}` }));
    rows.push(row);
    place.append(element);
    return control;
  };
  const remove = (row: (typeof rows)[number]): void => {
    const index = rows.indexOf(row);
    rows.splice(index, 1);
    row.element.remove();
    dispatchInput(place);
    (rows[index] ?? rows[index - 1])?.control.focus();
    if (rows.length === 0) add.focus();
  };
  const addEntry = (): void => {
    insert(undefined, itemSchema ?? {}, true).focus();
    dispatchInput(place);
  };
  const add = button(`Add ${noun}`, addEntry, { class: "small" });
  const initialValues = list(request.value);
  prefixSchemas.forEach((item, index) => { insert(initialValues[index], resolve(item, request.root), false); });
  if (itemSchema !== undefined) {
    const count = Math.max(initialValues.length, Math.min(20, numeric(schema["minItems"]) ?? 0));
    for (let index = prefixSchemas.length; index < count; index += 1) insert(initialValues[index], itemSchema, true);
  }
  const group = groupFrame(request, place, itemSchema !== undefined && add);
  const isEmpty = (): boolean => rows.length === 0 && !request.required && !Array.isArray(request.value);
  return {
    element: group.element,
    value: () => (isEmpty() ? emptyValue(request) : rows.map(({ control }) => control.value())),
    focus: () => { (rows[0]?.control ?? add).focus(); },
    mark: (problems) => {
      rows.forEach(({ control }, index) => { control.mark(problemsBelow(problems, index)); });
      group.mark(problems.filter(({ path }) => typeof path[0] !== "number" || path[0] >= rows.length));
    },
  };
}

/** Return the word for an entry of a list, from the title of its schema. */
function itemNoun(request: Request, items: Schema | undefined): string {
  const title = text(resolve(items ?? {}, request.root)["title"]);
  return (title === "" ? "entry" : truncate(title, 40)).toLowerCase();
}

/** Dispatch an input event, so that the form notices a change that was not typed. */
function dispatchInput(element: HTMLElement): void {
  element.dispatchEvent(new Event("input", { bubbles: true }));
}

/** Union: a choice of the kind, then a control for the value of that kind. */
export function union(request: Request, make: ControlFactory): Control {
  const options = variants(request.node.schema, request.root);
  const select = h("select", { "aria-label": `Type of ${titleFor(request) || "answer"}` });
  select.append(...options.map((option, index) => h("option", { value: index }, variantTitle(option, index))));
  if (!request.required || request.node.nullable) select.prepend(h("option", { value: "" }, text(request.node.schema["noneTitle"]) || "No answer"));
  const place = h("div");
  const group = groupFrame({ ...request, depth: Math.max(1, request.depth) }, h("div", { class: "row" }, select), place);
  let control: Control | undefined;
  const show = (value: unknown): void => {
    const option = options[Number(select.value)];
    control = undefined;
    if (select.value !== "" && option !== undefined) {
      const node = nodeOf(withoutTitle(option), request.root);
      control = make({ node, root: request.root, name: titleFor(request), required: true, value, depth: request.depth + 1, isTitled: true });
    }
    place.replaceChildren(...(control === undefined ? [] : [control.element]));
  };
  select.addEventListener("change", () => { show(undefined); });
  const initialIndex = request.value === undefined || request.value === null ? -1 : nearest(request.value, options, request.root);
  select.value = initialIndex >= 0 ? String(initialIndex) : (select.options[0]?.value ?? "");
  show(initialIndex >= 0 ? request.value : undefined);
  return {
    element: group.element,
    value: () => (control === undefined ? emptyValue(request) : control.value()),
    focus: () => { select.focus(); },
    mark: (problems) => {
      control?.mark(problems);
      setAttribute(select, "aria-invalid", control === undefined && problems.length > 0 ? "true" : null);
      group.mark(control === undefined ? problems : []);
    },
  };
}

/** Remove the title of an alternative, which the select element already shows. */
function withoutTitle(schema: Schema): Schema {
  return { ...schema, title: undefined };
}

const TYPE_WORDS: Record<string, string> = { string: "Text", integer: "Integer", number: "Number", boolean: "Yes or no", array: "List", object: "Details" };

function variantTitle(schema: Schema, index: number): string {
  const type = TYPE_WORDS[text(schema["type"])] ?? `Kind ${index + 1}`;
  return truncate(titleOf(schema, type), 80);
}

/** Return the index of the alternative that a value fits best. A problem of the value itself or of a direct part counts ten times. */
function nearest(value: unknown, options: Schema[], root: Schema): number {
  const counts = options.map((option) => {
    const problems = problemsOf(value, option, root);
    return problems.reduce((sum, { path }) => sum + (path.length <= 1 ? 10 : 1), 0);
  });
  return counts.indexOf(Math.min(...counts));
}
