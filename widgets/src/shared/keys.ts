// The keys of a view: none that is pressed in it reaches the notebook, and "?" lists those that it has.
//
// An element says beside itself which key presses or focuses it (aria-keyshortcuts), or which keys it understands while it
// has the focus (data-keys: "Enter: details | 0: fit all"). Nobody keeps a second list.

import { h, type View } from "./dom";
import { button, setAttribute } from "./element";

const SUPPRESS = "data-lm-suppress-shortcuts";
const OUT_OF_SIGHT = "[hidden], .db-elsewhere, details:not([open]) > :not(summary)";
const WRITES = "textarea, select, [contenteditable], input:not([type=radio], [type=checkbox], [type=range], [type=button])";

/**
 * Keeps every key that is pressed in a view from the notebook around it.
 *
 * JupyterLab listens at the document on the way up, Notebook 7 on the way down. Their shortcuts are for whatever has the
 * focus in a notebook (`:focus`), so the mark on the view alone is of no use: each element that gets the focus has to
 * bear it (tests/browser/test_keys.py presses the keys in both). A click on what cannot have the focus would give it to
 * the cell, and the next key to the notebook; so the view itself can have it.
 */
export function contain(root: HTMLElement): void {
  root.setAttribute(SUPPRESS, "true");
  if (!root.hasAttribute("tabindex")) root.tabIndex = -1;
  root.addEventListener("focusin", ({ target }) => { (target as Element).setAttribute(SUPPRESS, "true"); });
  root.addEventListener("keydown", (event) => {
    if (isForPage(event)) passOn(event);
    else if (!event.defaultPrevented) press(root, event);
    event.stopPropagation();
  });
  for (const type of ["keypress", "keyup"]) root.addEventListener(type, (event) => { event.stopPropagation(); });
}

/** Tells whether a key is meant for the whole page: it saves, or opens the palette. */
function isForPage({ key, ctrlKey, metaKey, altKey, shiftKey }: KeyboardEvent): boolean {
  return (ctrlKey || metaKey) && !altKey && key.toLowerCase() === (shiftKey ? "c" : "s");
}

function passOn(event: KeyboardEvent): void {
  if (!document.body.dispatchEvent(new KeyboardEvent("keydown", event))) event.preventDefault();
}

/** Presses what has this key, or gives it the focus if it is a field. */
function press(root: HTMLElement, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || (event.target as Element).closest(WRITES) !== null) return;
  const wanted = event.key.toLowerCase();
  const found = inSight(root, "[aria-keyshortcuts]").find((element) => shortcutsOf(element).some((key) => key.toLowerCase() === wanted));
  if (found === undefined) return;
  event.preventDefault();
  if (found.matches(WRITES)) found.focus();
  else found.click();
}

function inSight(root: HTMLElement, selector: string): HTMLElement[] {
  return [...root.querySelectorAll<HTMLElement>(selector)].filter((element) => element.closest(OUT_OF_SIGHT) === null);
}

function shortcutsOf(element: Element): string[] {
  return (element.getAttribute("aria-keyshortcuts") ?? "").split(" ");
}

/** Makes the list of a view's keys, and the button that shows it. */
export function keysList(root: HTMLElement): View & { button: HTMLElement } {
  const body = h("dl", { class: "db-keys-list" });
  const element = h("div", { class: "db-keys", role: "region", "aria-label": "Keys", tabindex: -1, hidden: true }, h("h3", {}, "Keys"), body);
  const opener = button("?", () => { show(element.hidden === true); }, { class: "quiet small", title: "Keys of this view", "aria-label": "Keys of this view", "aria-keyshortcuts": "?", "aria-expanded": "false" });
  let from: Element | null = null;

  function show(isShown: boolean): void {
    if (isShown) {
      from = document.activeElement;
      body.replaceChildren(...rowsOf(root).flatMap(([keys, does]) => [h("dt", {}, ...keys.map((key) => h("kbd", {}, key))), h("dd", {}, does)]));
    }
    element.hidden = !isShown;
    setAttribute(opener, "aria-expanded", String(isShown));
    if (isShown) element.focus();
    else (root.contains(from) && from instanceof HTMLElement ? from : opener).focus();
  }

  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "?") return;
    event.preventDefault();
    show(false);
  });
  return { element, button: opener, destroy: () => { element.remove(); } };
}

/** Returns what each key does, of all that is in sight. */
function rowsOf(root: HTMLElement): [string[], string][] {
  const single = inSight(root, "[aria-keyshortcuts]").map((element): [string[], string] => [shortcutsOf(element), nameOf(element)]);
  const own = inSight(root, "[data-keys]").flatMap((element) => (element.dataset["keys"] ?? "").split("|").map(split));
  const seen = new Set<string>();
  return [...single, ...own].filter(([keys, does]) => {
    const id = `${keys.join(" ")} ${does}`;
    return !seen.has(id) && seen.add(id);
  });
}

function nameOf(element: HTMLElement): string {
  const name = element.getAttribute("aria-label") ?? element.textContent;
  return name.trim();
}

/** "← →: call to call" is the keys, and what they do. */
function split(row: string): [string[], string] {
  const [keys = "", does = ""] = row.split(": ");
  return [keys.trim().split(" "), does.trim()];
}
