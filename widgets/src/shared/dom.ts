// Builders for HTML elements. Strings become text nodes, never markup: model output cannot inject elements into the page.

import { formatCount } from "./format";
import { visible } from "./text";

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

/**
 * Create an element. `on...` attributes are event listeners. True sets an empty attribute; false, null and undefined leave
 * the attribute out. Control characters in strings are spelled out.
 */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, visible(String(value)));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false).map(visibleChild));
  return element;
}

function visibleChild(child: Node | string): Node | string {
  return typeof child === "string" ? visible(child) : child;
}

/** Set an element's text only if it differs, so that screen readers do not repeat it and selections stay. */
export function setText(element: Element, text: string): void {
  const visibleText = visible(text);
  if (element.textContent !== visibleText) element.textContent = visibleText;
}

const FIRST_SHOWN = 2_000;
const MORE_SHOWN = 20_000;

/** Show the beginning of a text, and a button for more. The box has a tab stop, so that keys can scroll it. */
export function longText(text: string): HTMLElement {
  const body = h("pre", { class: "db-text", dir: "auto", tabindex: 0 });
  let shownLength = 0;
  const more = h("button", { type: "button", class: "db-more", onclick: () => { show(MORE_SHOWN); } });
  function show(count: number): void {
    body.append(visible(text.slice(shownLength, shownLength + count)));
    shownLength += count;
    const remaining = text.length - shownLength;
    more.hidden = remaining <= 0;
    more.textContent = remaining <= 0 ? "" : `Show ${formatCount(remaining)} more characters`;
  }
  show(FIRST_SHOWN);
  return h("div", {}, body, more);
}

/** An element of the page with a cleanup function. */
export interface View {
  element: HTMLElement;
  destroy: () => void;
}
