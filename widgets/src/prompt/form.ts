// Form for a JSON schema: edits a value and shows errors next to its fields.

import { array, object, union } from "./compound";
import type { Control, Request } from "./control";
import { asSchema, list, nodeOf, type Node, type Schema } from "./schema";
import { checks, choice, constant, json, number, textControl, yesNo } from "./simple";
import { problemsOf, type Problem } from "./validate";

/** Form that edits one value of a schema. */
export interface Form {
  element: HTMLElement;
  value: () => unknown;
  /** Show all problems, focus the first invalid field, and return whether the value is valid. */
  check: () => boolean;
  focus: () => void;
}

const MAX_DEPTH = 12; // deeper values are edited as JSON

/** Make a form with an initial value; undefined means the defaults of the schema. */
export function makeForm(schema: Schema, value: unknown, isRequired = true): Form {
  const node = nodeOf(schema, schema);
  const initial = value === undefined ? node.schema["default"] : value;
  const control = makeControl({ node, root: schema, name: "", required: isRequired, value: initial, depth: 0 });
  let isMarked = false;
  const mark = (): boolean => {
    const problems = formProblems(control.value(), schema, isRequired);
    control.mark(problems);
    isMarked = problems.length > 0;
    return !isMarked;
  };
  // Problems appear only after the first check. From then on each change updates them.
  for (const name of ["input", "change"]) control.element.addEventListener(name, () => { if (isMarked) mark(); });
  return {
    element: control.element,
    value: control.value,
    focus: control.focus,
    check: () => {
      const isValid = mark();
      if (!isValid) focusFirst(control.element);
      return isValid;
    },
  };
}

/** Return the problems of a form's value. An empty value is valid if no answer is required. */
function formProblems(value: unknown, schema: Schema, isRequired: boolean): Problem[] {
  return value === undefined && !isRequired ? [] : problemsOf(value, schema);
}

/** Focus the first invalid field; in a group of radio buttons, the first button. */
function focusFirst(element: HTMLElement): void {
  const invalid = element.querySelector<HTMLElement>("[aria-invalid]");
  (invalid?.tagName === "DIV" ? invalid.querySelector<HTMLElement>("input") : invalid)?.focus();
}

/** Make the control for a schema node. */
function makeControl(request: Request): Control {
  const { node } = request;
  if (request.depth > MAX_DEPTH) return json(request);
  return CONTROL_FACTORIES[node.kind](request);
}

const CONTROL_FACTORIES: Record<Node["kind"], (request: Request) => Control> = {
  const: constant,
  choice,
  boolean: yesNo,
  number,
  text: textControl,
  array: (request) => array(request, makeControl),
  checks: (request) => checks(request, list(nodeOf(asSchema(request.node.schema["items"]), request.root).schema["enum"])),
  object: (request) => object(request, makeControl),
  union: (request) => union(request, makeControl),
  json,
};
