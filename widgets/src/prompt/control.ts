// Interface of all controls, each of which edits one value of a schema, and the frame around each.

import { h, setText } from "../shared/dom";
import { newId, setAttribute } from "../shared/element";
import { plural } from "../shared/format";
import { truncate } from "../shared/values";
import { list, numeric, text, titleOf, type Node, type Schema } from "./schema";
import type { Problem } from "./validate";

/** Asks for a value. */
export interface Control {
  element: HTMLElement;
  /** What was given so far, fitting or not; undefined if nothing was. */
  value: () => unknown;
  focus: () => void;
  /** Shows what is wrong at the place where it is wrong; an empty list takes it away. */
  mark: (problems: Problem[]) => void;
}

/** What a control is made of. */
export interface Request {
  node: Node;
  /** The whole schema, which references point into. */
  root: Schema;
  name: string;
  required: boolean;
  /** What it begins with; undefined for nothing. */
  value: unknown;
  /** How deep it lies; 0 for the whole form. */
  depth: number;
  /** Whether it stands below a heading that names it already. */
  isBare?: boolean;
}

export type Make = (request: Request) => Control;

const MOST_TEXT = 2000;

export function titleFor({ node, name }: Request): string {
  return truncate(titleOf(node.schema, name), 200);
}

/** The input of a single value with all that belongs to it. */
export interface Frame {
  element: HTMLElement;
  /** Shows what is wrong at this control, or takes it away. */
  complain: (problems: Problem[]) => void;
}

/** Puts label, description and complaints around the input of a single value. */
export function framed(request: Request, input: HTMLElement): Frame {
  const title = titleFor(request);
  const isGroup = input.tagName === "DIV";
  const [inputId, labelId, hintId, errorId] = [newId(), newId(), newId(), newId()] as const;
  input.id = inputId;
  const star = request.required && h("span", { class: "star", title: "needs an answer" }, " *");
  const label = title === "" || request.isBare === true ? null : h(isGroup ? "span" : "label", { id: labelId, class: "title", for: isGroup ? null : inputId }, title, star);
  const hint = h("div", { id: hintId, class: "hint" }, hintFor(request.node.schema));
  const error = h("div", { id: errorId, class: "error" });
  setAttribute(input, "aria-describedby", `${errorId} ${hintId}`);
  if (label === null) setAttribute(input, "aria-label", title || "Answer");
  else if (isGroup) setAttribute(input, "aria-labelledby", labelId);
  if (request.required && !isGroup) setAttribute(input, "aria-required", "true");
  return {
    element: h("div", { class: "field" }, label, hint.textContent !== "" && hint, input, error),
    complain: (problems) => {
      setText(error, problems[0] === undefined ? "" : `${title || "It"} ${problems[0].message}.`);
      setAttribute(input, "aria-invalid", problems.length > 0 ? "true" : null);
    },
  };
}

/** Returns the description of a schema with what it allows. */
function hintFor(schema: Schema): string {
  const allowed = [...ranges(schema)].join(", ");
  const description = text(schema["description"]).trim();
  const examples = list(schema["examples"]).slice(0, 3).map((one) => (typeof one === "string" ? one : JSON.stringify(one)));
  const parts = [description, allowed, examples.length > 0 ? `for example ${examples.join(", ")}` : ""];
  return truncate(parts.filter((part) => part !== "").join(" · "), MOST_TEXT);
}

function* ranges(schema: Schema): Generator<string> {
  const [least, most] = [numeric(schema["minimum"]), numeric(schema["maximum"])];
  const [above, below] = [numeric(schema["exclusiveMinimum"]), numeric(schema["exclusiveMaximum"])];
  if (least !== undefined) yield `at least ${least}`;
  if (most !== undefined) yield `at most ${most}`;
  if (above !== undefined) yield `more than ${above}`;
  if (below !== undefined) yield `less than ${below}`;
  const step = numeric(schema["multipleOf"]);
  if (step !== undefined) yield `in steps of ${step}`;
  const length = numeric(schema["maxLength"]);
  if (length !== undefined) yield `at most ${plural(length, "character")}`;
}
