// Interface of controls (each edits one value of a schema), and the frame around a single control.

import { h, setText } from "../shared/dom";
import { newId, setAttribute } from "../shared/element";
import { plural } from "../shared/format";
import { truncate } from "../shared/values";
import { list, numeric, text, titleOf, type Node, type Schema } from "./schema";
import type { Problem } from "./validate";

/** Control that edits one value. */
export interface Control {
  element: HTMLElement;
  /** Current value, valid or not; undefined if it is empty. */
  value: () => unknown;
  focus: () => void;
  /** Show problems next to the fields that have them. An empty list removes them. */
  mark: (problems: Problem[]) => void;
}

/** Arguments for building a control. */
export interface Request {
  node: Node;
  /** The whole schema, which `$ref` points into. */
  root: Schema;
  name: string;
  required: boolean;
  /** Initial value; undefined if there is none. */
  value: unknown;
  /** Nesting depth; 0 for the whole form. */
  depth: number;
  /** True if a heading above the control already names it. */
  isTitled?: boolean;
}

export type ControlFactory = (request: Request) => Control;

const MAX_HINT_LENGTH = 2000;

/** Return the title of a control, from the schema or the name of the property. */
export function titleFor({ node, name }: Request): string {
  return truncate(titleOf(node.schema, name), 200);
}

/** Label, hint and error line around one input. */
export interface Frame {
  element: HTMLElement;
  /** Show the first problem of this control; an empty list removes it. */
  mark: (problems: Problem[]) => void;
}

/** Put a label, a description and an error line around one input. */
export function fieldFrame(request: Request, input: HTMLElement): Frame {
  const title = titleFor(request);
  const isGroup = input.tagName === "DIV";
  const inputId = newId();
  const labelId = newId();
  const hintId = newId();
  const errorId = newId();
  input.id = inputId;
  const star = request.required && h("span", { class: "star", title: "required" }, " *");
  const hasLabel = title !== "" && request.isTitled !== true;
  const label = hasLabel ? h(isGroup ? "span" : "label", { id: labelId, class: "title", for: isGroup ? null : inputId }, title, star) : null;
  const hint = h("div", { id: hintId, class: "hint" }, hintFor(request.node.schema));
  const error = h("div", { id: errorId, class: "error" });
  setAttribute(input, "aria-describedby", `${errorId} ${hintId}`);
  if (label === null) setAttribute(input, "aria-label", title || "Answer");
  else if (isGroup) setAttribute(input, "aria-labelledby", labelId);
  if (request.required && !isGroup) setAttribute(input, "aria-required", "true");
  return {
    element: h("div", { class: "field" }, label, hint.textContent !== "" && hint, input, error),
    mark: (problems) => {
      setText(error, problems[0] === undefined ? "" : `${title || "The value"} ${problems[0].message}.`);
      setAttribute(input, "aria-invalid", problems.length > 0 ? "true" : null);
    },
  };
}

/** Return the description of a schema, its limits and its examples. */
function hintFor(schema: Schema): string {
  const allowed = [...ranges(schema)].join(", ");
  const description = text(schema["description"]).trim();
  const examples = list(schema["examples"]).slice(0, 3).map((example) => (typeof example === "string" ? example : JSON.stringify(example)));
  const parts = [description, allowed, examples.length > 0 ? `for example ${examples.join(", ")}` : ""];
  return truncate(parts.filter((part) => part !== "").join(" · "), MAX_HINT_LENGTH);
}

/** Yield the limits of a schema as text. */
function* ranges(schema: Schema): Generator<string> {
  const least = numeric(schema["minimum"]);
  const most = numeric(schema["maximum"]);
  const above = numeric(schema["exclusiveMinimum"]);
  const below = numeric(schema["exclusiveMaximum"]);
  if (least !== undefined) yield `at least ${least}`;
  if (most !== undefined) yield `at most ${most}`;
  if (above !== undefined) yield `more than ${above}`;
  if (below !== undefined) yield `less than ${below}`;
  const step = numeric(schema["multipleOf"]);
  if (step !== undefined) yield `in steps of ${step}`;
  const length = numeric(schema["maxLength"]);
  if (length !== undefined) yield `at most ${plural(length, "character")}`;
}
