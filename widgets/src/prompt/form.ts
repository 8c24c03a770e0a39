// Form for a JSON schema: takes and returns a value, and shows errors where they are.

import { array, object, union } from "./compound";
import type { Control, Request } from "./control";
import { asSchema, list, nodeOf, type Node, type Schema } from "./schema";
import { checks, choice, constant, json, number, textControl, yesNo } from "./simple";
import { problemsOf, type Problem } from "./validate";

/** Asks for a value of a schema. */
export interface Form {
  element: HTMLElement;
  value: () => unknown;
  /** Shows what is wrong, moves the focus to the first of it, and returns whether all is well. */
  check: () => boolean;
  focus: () => void;
}

const MAX_DEPTH = 12;

/** Makes a form that begins with a value, or with the schema's defaults where that is undefined. */
export function makeForm(schema: Schema, value: unknown, isRequired = true): Form {
  const node = nodeOf(schema, schema);
  const control = makeControl({ node, root: schema, name: "", required: isRequired, value: value === undefined ? node.schema["default"] : value, depth: 0 });
  let isMarked = false;
  const mark = (): boolean => {
    const problems = formProblems(control.value(), schema, isRequired);
    control.mark(problems);
    isMarked = problems.length > 0;
    return !isMarked;
  };
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

function formProblems(value: unknown, schema: Schema, isRequired: boolean): Problem[] {
  return value === undefined && !isRequired ? [] : problemsOf(value, schema);
}

function focusFirst(element: HTMLElement): void {
  const invalid = element.querySelector<HTMLElement>("[aria-invalid]");
  (invalid?.tagName === "DIV" ? invalid.querySelector<HTMLElement>("input") : invalid)?.focus();
}

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
