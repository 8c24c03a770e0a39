// Builder for SVG elements. Strings become text nodes, never markup.

import { setAttribute } from "./element";
import { visible } from "./text";

const NAMESPACE = "http://www.w3.org/2000/svg";

/** Create an SVG element. Control characters in strings are spelled out. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number | boolean | null> = {},
  ...children: (Node | string)[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, typeof value === "string" ? visible(value) : value);
  element.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}
