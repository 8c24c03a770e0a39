// Keyboard handling of a view: its keys do not reach the notebook, and "?" lists them.
//
// Each element declares its keys: aria-keyshortcuts names the key that clicks or focuses it, data-keys names the keys that
// it handles while it has the focus ("Enter: details | 0: fit all"). The list of keys is read from these attributes.

import { h, type View } from "./dom";
import { button, setAttribute } from "./element";

const SUPPRESS = "data-lm-suppress-shortcuts";
const INVISIBLE = "[hidden], .db-elsewhere, details:not([open]) > :not(summary)";
const EDITABLE = "textarea, select, [contenteditable], input:not([type=radio], [type=checkbox], [type=range], [type=button])";

/**
 * Stop every key that is pressed in a view from reaching the notebook around it.
 *
 * JupyterLab listens at the document in the bubbling phase, Notebook 7 in the capturing phase. Both look for the mark
 * `data-lm-suppress-shortcuts` on the focused element (`:focus`), so the mark on the view alone has no effect: every
 * element that gets the focus is marked (tests/browser/test_keys.py presses the keys in both). A click on an element that
 * cannot have the focus would focus the cell, and the next key would go to the notebook. Therefore the view itself can have
 * the focus.
 */
export function containKeys(root: HTMLElement): void {
  root.setAttribute(SUPPRESS, "true");
  if (!root.hasAttribute("tabindex")) root.tabIndex = -1;
  root.addEventListener("focusin", ({ target }) => { (target as Element).setAttribute(SUPPRESS, "true"); });
  root.addEventListener("keydown", (event) => {
    if (isForPage(event)) dispatchOutside(event);
    else if (!event.defaultPrevented) press(root, event);
    event.stopPropagation();
  });
  for (const type of ["keypress", "keyup"]) root.addEventListener(type, (event) => { event.stopPropagation(); });
}

/** Return true if a key is meant for the whole page: it saves, or opens the command palette. */
function isForPage({ key, ctrlKey, metaKey, altKey, shiftKey }: KeyboardEvent): boolean {
  return (ctrlKey || metaKey) && !altKey && key.toLowerCase() === (shiftKey ? "c" : "s");
}

/** Dispatch a key again outside of the view. */
function dispatchOutside(event: KeyboardEvent): void {
  if (!document.body.dispatchEvent(new KeyboardEvent("keydown", event))) event.preventDefault();
}

/** Click the element with this key, or focus it if it is a field. */
function press(root: HTMLElement, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || (event.target as Element).closest(EDITABLE) !== null) return;
  const pressedKey = event.key.toLowerCase();
  const hasKey = (one: HTMLElement): boolean => shortcutsOf(one).some((key) => key.toLowerCase() === pressedKey);
  const element = visibleElements(root, "[aria-keyshortcuts]").find(hasKey);
  if (element === undefined) return;
  event.preventDefault();
  if (element.matches(EDITABLE)) element.focus();
  else element.click();
}

function visibleElements(root: HTMLElement, selector: string): HTMLElement[] {
  return [...root.querySelectorAll<HTMLElement>(selector)].filter((element) => element.closest(INVISIBLE) === null);
}

function shortcutsOf(element: Element): string[] {
  return (element.getAttribute("aria-keyshortcuts") ?? "").split(" ");
}

/** Create the list of a view's keys and the button that opens it. */
export function keysList(root: HTMLElement): View & { button: HTMLElement } {
  const body = h("dl", { class: "db-keys-list" });
  const element = h("div", { class: "db-keys", role: "region", "aria-label": "Keys", tabindex: -1, hidden: true }, h("h3", {}, "Keys"), body);
  const openButton = button("?", () => { show(element.hidden === true); }, {
    class: "quiet small",
    title: "Keys of this view",
    "aria-label": "Keys of this view",
    "aria-keyshortcuts": "?",
    "aria-expanded": "false",
  });
  let previousFocus: Element | null = null;

  /** Open or close the list. Closing returns the focus to the element that had it before. */
  function show(isShown: boolean): void {
    if (isShown) {
      previousFocus = document.activeElement;
      body.replaceChildren(...rowsOf(root).flatMap(([keys, effect]) => [h("dt", {}, ...keys.map((key) => h("kbd", {}, key))), h("dd", {}, effect)]));
    }
    element.hidden = !isShown;
    setAttribute(openButton, "aria-expanded", String(isShown));
    if (isShown) element.focus();
    else (root.contains(previousFocus) && previousFocus instanceof HTMLElement ? previousFocus : openButton).focus();
  }

  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "?") return;
    event.preventDefault();
    show(false);
  });
  return { element, button: openButton, destroy: () => { element.remove(); } };
}

/** Return the keys of all visible elements with their effects, without duplicates. */
function rowsOf(root: HTMLElement): [string[], string][] {
  const shortcuts = visibleElements(root, "[aria-keyshortcuts]").map((element): [string[], string] => [shortcutsOf(element), nameOf(element)]);
  const keyLists = visibleElements(root, "[data-keys]").flatMap((element) => (element.dataset["keys"] ?? "").split("|").map(split));
  const rowKeys = new Set<string>();
  return [...shortcuts, ...keyLists].filter(([keys, effect]) => {
    const id = `${keys.join(" ")} ${effect}`;
    return !rowKeys.has(id) && rowKeys.add(id);
  });
}

function nameOf(element: HTMLElement): string {
  const name = element.getAttribute("aria-label") ?? element.textContent;
  return name.trim();
}

/** Split a text like "← →: call to call" into keys and their effect. */
function split(row: string): [string[], string] {
  const [keys = "", effect = ""] = row.split(": ");
  return [keys.trim().split(" "), effect.trim()];
}
