// Elements in one call. Texts become text nodes, never markup: what models wrote cannot become part of the page.

import { visible } from "./text";

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

/** Makes an element: `on...` attributes are listeners, true and false set and leave out, texts become harmless. */
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
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false).map(harmless));
  return element;
}

function harmless(child: Node | string): Node | string {
  return typeof child === "string" ? visible(child) : child;
}

/** Changes an element's text only if it differs, so that screen readers and selections are left alone. */
export function setText(element: Element, text: string): void {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

const FIRST_SHOWN = 2_000;
const MORE_SHOWN = 20_000;

/** Shows a text of any length: its beginning, and a button for more of it. Keys can scroll it where it is too high. */
export function longText(text: string): HTMLElement {
  const body = h("pre", { class: "db-text", dir: "auto", tabindex: 0 });
  let shown = 0;
  const more = h("button", { type: "button", class: "db-more", onclick: () => { show(MORE_SHOWN); } });
  function show(count: number): void {
    body.append(visible(text.slice(shown, shown + count)));
    shown += count;
    const left = text.length - shown;
    more.hidden = left <= 0;
    more.textContent = left <= 0 ? "" : `more (${left.toLocaleString("en")} characters)`;
  }
  show(FIRST_SHOWN);
  return h("div", {}, body, more);
}

/** A view that has its place in the page until it is destroyed. */
export interface View {
  element: HTMLElement;
  destroy: () => void;
}
