// Ids, attributes and buttons.

import { h } from "./dom";

type Value = string | number | boolean | null | undefined;

const base = Math.random().toString(36).slice(2, 8); // several widgets share a page
let count = 0;

/** Returns an id that no other element of the page has. */
export function newId(): string {
  count += 1;
  return `divebook-${base}-${count}`;
}

/** Sets an attribute, or takes it away: true is an empty attribute, false and null are none. */
export function setAttribute(element: Element, name: string, value: Value): void {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** Makes a button that submits nothing. */
export function button(label: string, onclick: () => void, attributes: Record<string, Value> = {}): HTMLButtonElement {
  return h("button", { type: "button", ...attributes, onclick }, label);
}
