// Makes elements. Whatever was written by models, users and logs gets in as text, never as markup.

import { visible } from "./text";

type Child = Node | string | null | undefined | false;
type Value = string | number | boolean | null | undefined;
type Listeners = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };

/** Attributes by name; true is an empty attribute, false and null are none. */
export type Attributes = Record<string, Value>;

const SVG = "http://www.w3.org/2000/svg";
const base = Math.random().toString(36).slice(2, 8); // several widgets share a page
let count = 0;

/** Returns an id that no other element of the page has. */
export function newId(): string {
  count += 1;
  return `divebook-${base}-${count}`;
}

/** Makes an HTML element. */
export function html<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

/** Makes an SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Sets an attribute, or takes it away. */
export function setAttribute(element: Element, name: string, value: Value): void {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** Adds listeners and returns the element. */
export function listen<E extends HTMLElement>(element: E, listeners: Listeners): E {
  for (const [name, listener] of Object.entries(listeners)) element.addEventListener(name, listener as EventListener);
  return element;
}

/** Makes a button that submits nothing. */
export function button(label: string, attributes: Attributes, click: () => void): HTMLButtonElement {
  return listen(html("button", { type: "button", ...attributes }, label), { click });
}

/** Sets an element's text if it differs, so that nothing is announced or laid out again in vain. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Keeps the notebook's shortcuts away from what has its own keys: Enter on a button presses it. */
export function ownKeys(element: HTMLElement): void {
  element.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab, Notebook 7
  element.addEventListener("keydown", (event) => {
    event.stopPropagation(); // the classic notebook
  });
}

/** Returns a text for people: visible signs only, at most `limit` characters and a count of what is missing. */
export function shown(text: string, limit: number): string {
  const missing = text.length - limit;
  if (missing <= 0) return visible(text);
  return `${visible(text.slice(0, limit))}… (${missing.toLocaleString("en")} more character${missing === 1 ? "" : "s"})`;
}

/** Returns a value for people: a text as it is, anything else as indented JSON. */
export function valueText(value: unknown, limit: number): string {
  return shown(typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? ""), limit);
}
