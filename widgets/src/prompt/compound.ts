// Controls for values with parts: objects, lists, and values of one kind or another.

import { h, setText } from "../shared/dom";
import { button, newId, setAttribute } from "../shared/element";
import { truncate } from "../shared/values";
import { titleFor, type Control, type Make, type Request } from "./control";
import { asSchema, isRecord, list, nodeOf, numeric, resolve, schemas, text, titleOf, variants, type Schema } from "./schema";
import { empty, groupTitle } from "./simple";
import { problemsOf, type Problem } from "./validate";

function inner(problems: Problem[], key: string | number): Problem[] {
  return problems.filter(({ path }) => path[0] === key).map(({ path, message }) => ({ path: path.slice(1), message }));
}

interface Group {
  element: HTMLElement;
  complain: (problems: Problem[]) => void;
}

/** Puts a border and a heading around parts; the whole form needs none. */
function grouped(request: Request, ...parts: (Node | false)[]): Group {
  const errorId = newId();
  const error = h("div", { id: errorId, class: "error" });
  const description = text(request.node.schema["description"]);
  const hint = description !== "" && h("div", { class: "hint" }, truncate(description, 2000));
  const isWhole = request.depth === 0 || request.isBare === true;
  const element = isWhole
    ? h("div", { class: "form" }, hint, ...parts, error)
    : h("fieldset", { "aria-describedby": errorId }, h("legend", {}, groupTitle(request)), hint, ...parts, error);
  return {
    element,
    complain: (problems) => { setText(error, problems[0] === undefined ? "" : `${titleFor(request) || "It"} ${problems[0].message}.`); },
  };
}

/** An object: one control for each property. */
export function object(request: Request, make: Make): Control {
  if (request.depth > 0 && !request.required) return optional(request, (given) => wholeObject(given, make));
  return wholeObject(request, make);
}

function wholeObject(request: Request, make: Make): Control {
  const { schema } = request.node;
  const given = isRecord(request.value) ? request.value : {};
  const required = list(schema["required"]);
  const parts = Object.entries(asSchema(schema["properties"])).map(([name, property]) => {
    const node = nodeOf(asSchema(property), request.root);
    const value = Object.hasOwn(given, name) ? given[name] : request.value === undefined ? node.schema["default"] : undefined;
    const isTag = node.kind === "const" && request.depth > 0; // tells alternatives apart: nothing to ask
    return { name, isTag, control: make({ node, root: request.root, name, required: required.includes(name), value, depth: request.depth + 1 }) };
  });
  const group = grouped(request, ...parts.filter(({ isTag }) => !isTag).map(({ control }) => control.element));
  const known = new Set(parts.map(({ name }) => name));
  const others = Object.fromEntries(Object.entries(given).filter(([name]) => !known.has(name)));
  return {
    element: group.element,
    value: () => {
      const values = parts.map(({ name, control }) => [name, control.value()] as const).filter(([, value]) => value !== undefined);
      return { ...others, ...Object.fromEntries(values) };
    },
    focus: () => { parts.find(({ isTag }) => !isTag)?.control.focus(); },
    mark: (problems) => {
      for (const { name, control } of parts) control.mark(inner(problems, name));
      group.complain(problems.filter(({ path }) => !known.has(String(path[0]))));
    },
  };
}

/** A part that may be missing: there only once it is asked for, which also ends the recursion of recursive schemas. */
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
    value: () => (control === undefined ? empty(request) : control.value()),
    focus: () => { (control ?? add).focus(); },
    mark: (problems) => { control?.mark(problems); },
  };
}

/** A list: one control for each entry, and buttons that add and remove. */
export function array(request: Request, make: Make): Control {
  const { schema } = request.node;
  const fixed = schemas(schema["prefixItems"]);
  const rest = schema["items"] === undefined && fixed.length > 0 ? undefined : asSchema(schema["items"]);
  const rows: { control: Control; element: HTMLElement }[] = [];
  const place = h("div", { class: "items" });
  const noun = itemNoun(request, rest);
  const insert = (value: unknown, item: Schema, removable: boolean): Control => {
    const control = make({ node: nodeOf(item, request.root), root: request.root, name: `${noun} ${rows.length + 1}`, required: true, value, depth: request.depth + 1 });
    const element = h("div", { class: "item" }, control.element);
    const row = { control, element };
    if (removable) element.append(button("✕", () => { remove(row); }, { class: "small", "aria-label": `Remove ${noun} ${rows.length + 1}` }));
    rows.push(row);
    place.append(element);
    return control;
  };
  const remove = (row: (typeof rows)[number]): void => {
    const index = rows.indexOf(row);
    rows.splice(index, 1);
    row.element.remove();
    changed(place);
    (rows[index] ?? rows[index - 1])?.control.focus();
    if (rows.length === 0) add.focus();
  };
  const grow = (): void => {
    insert(undefined, rest ?? {}, true).focus();
    changed(place);
  };
  const add = button(`Add ${noun}`, grow, { class: "small" });
  const given = list(request.value);
  fixed.forEach((item, index) => { insert(given[index], resolve(item, request.root), false); });
  if (rest !== undefined) {
    const count = Math.max(given.length, Math.min(20, numeric(schema["minItems"]) ?? 0));
    for (let index = fixed.length; index < count; index += 1) insert(given[index], rest, true);
  }
  const group = grouped(request, place, rest !== undefined && add);
  const isEmpty = (): boolean => rows.length === 0 && !request.required && !Array.isArray(request.value);
  return {
    element: group.element,
    value: () => (isEmpty() ? empty(request) : rows.map(({ control }) => control.value())),
    focus: () => { (rows[0]?.control ?? add).focus(); },
    mark: (problems) => {
      rows.forEach(({ control }, index) => { control.mark(inner(problems, index)); });
      group.complain(problems.filter(({ path }) => typeof path[0] !== "number" || path[0] >= rows.length));
    },
  };
}

function itemNoun(request: Request, items: Schema | undefined): string {
  const title = text(resolve(items ?? {}, request.root)["title"]);
  return (title === "" ? "entry" : truncate(title, 40)).toLowerCase();
}

/** Tells the form that something in it changed that was not typed. */
function changed(element: HTMLElement): void {
  element.dispatchEvent(new Event("input", { bubbles: true }));
}

/** A value of one kind or another: the kind is chosen, then the value given. */
export function union(request: Request, make: Make): Control {
  const options = variants(request.node.schema, request.root);
  const select = h("select", { "aria-label": `Kind of ${titleFor(request) || "answer"}` });
  select.append(...options.map((option, index) => h("option", { value: index }, variantTitle(option, index))));
  if (!request.required || request.node.nullable) select.prepend(h("option", { value: "" }, text(request.node.schema["noneTitle"]) || "No answer"));
  const place = h("div");
  const group = grouped({ ...request, depth: Math.max(1, request.depth) }, h("div", { class: "row" }, select), place);
  let control: Control | undefined;
  const show = (value: unknown): void => {
    const option = options[Number(select.value)];
    control = select.value === "" || option === undefined ? undefined : make({ node: nodeOf(bare(option), request.root), root: request.root, name: titleFor(request), required: true, value, depth: request.depth + 1, isBare: true });
    place.replaceChildren(...(control === undefined ? [] : [control.element]));
  };
  select.addEventListener("change", () => { show(undefined); });
  const fitting = request.value === undefined || request.value === null ? -1 : nearest(request.value, options, request.root);
  select.value = fitting >= 0 ? String(fitting) : (select.options[0]?.value ?? "");
  show(fitting >= 0 ? request.value : undefined);
  return {
    element: group.element,
    value: () => (control === undefined ? empty(request) : control.value()),
    focus: () => { select.focus(); },
    mark: (problems) => {
      control?.mark(problems);
      setAttribute(select, "aria-invalid", control === undefined && problems.length > 0 ? "true" : null);
      group.complain(control === undefined ? problems : []);
    },
  };
}

/** Takes away the title that the choice shows already. */
function bare(schema: Schema): Schema {
  return { ...schema, title: undefined };
}

const TYPE_WORDS: Record<string, string> = { string: "Text", integer: "Whole number", number: "Number", boolean: "Yes or no", array: "List", object: "Details" };

function variantTitle(schema: Schema, index: number): string {
  const type = TYPE_WORDS[text(schema["type"])] ?? `Kind ${index + 1}`;
  return truncate(titleOf(schema, type), 80);
}

/** Returns the alternative that a value fits best. */
function nearest(value: unknown, options: Schema[], root: Schema): number {
  const counts = options.map((option) => problemsOf(value, option, root)).map((found) => found.reduce((sum, { path }) => sum + (path.length <= 1 ? 10 : 1), 0));
  return counts.indexOf(Math.min(...counts));
}
