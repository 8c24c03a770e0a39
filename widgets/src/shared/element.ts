// Unique ids, attributes and buttons.

import { h } from "./dom";

type Value = string | number | boolean | null | undefined;

const base = Math.random().toString(36).slice(2, 8); // several widgets share a page
let count = 0;

/** Return an id that no other element of the page has. */
export function newId(): string {
  count += 1;
  return `divebook-${base}-${count}`;
}

/** Set or remove an attribute: true is an empty attribute; false, null and undefined remove it. */
export function setAttribute(element: Element, name: string, value: Value): void {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** Create a button that does not submit a form. */
export function button(label: string, onclick: () => void, attributes: Record<string, Value> = {}): HTMLButtonElement {
  return h("button", { type: "button", ...attributes, onclick }, label);
}
