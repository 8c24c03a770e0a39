// Form for a JSON schema: takes and returns a value, and shows errors where they are.

import { array, object, union } from "./compound";
import type { Control, Request } from "./control";
import { asSchema, list, nodeOf, type Node, type Schema } from "./schema";
import { checks, choice, constant, json, number, words, yesNo } from "./simple";
import { problemsOf, type Problem } from "./validate";

/** Asks for a value of a schema. */
export interface Form {
  element: HTMLElement;
  value: () => unknown;
  /** Shows what is wrong, moves the focus to the first of it, and returns whether all is well. */
  check: () => boolean;
  focus: () => void;
}

const DEEPEST = 12;

/** Makes a form that begins with a value, or with the schema's defaults where that is undefined. */
export function makeForm(schema: Schema, value: unknown, isRequired = true): Form {
  const node = nodeOf(schema, schema);
  const control = make({ node, root: schema, name: "", required: isRequired, value: value === undefined ? node.schema["default"] : value, depth: 0 });
  let isMarked = false;
  const mark = (): boolean => {
    const problems = found(control.value(), schema, isRequired);
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
      const isWell = mark();
      if (!isWell) focusFirst(control.element);
      return isWell;
    },
  };
}

function found(value: unknown, schema: Schema, isRequired: boolean): Problem[] {
  return value === undefined && !isRequired ? [] : problemsOf(value, schema);
}

function focusFirst(element: HTMLElement): void {
  const wrong = element.querySelector<HTMLElement>("[aria-invalid]");
  (wrong?.tagName === "DIV" ? wrong.querySelector<HTMLElement>("input") : wrong)?.focus();
}

function make(request: Request): Control {
  const { node } = request;
  if (request.depth > DEEPEST) return json(request);
  return makers[node.kind](request);
}

const makers: Record<Node["kind"], (request: Request) => Control> = {
  const: constant,
  choice,
  boolean: yesNo,
  number,
  text: words,
  array: (request) => array(request, make),
  checks: (request) => checks(request, list(nodeOf(asSchema(request.node.schema["items"]), request.root).schema["enum"])),
  object: (request) => object(request, make),
  union: (request) => union(request, make),
  json,
};
