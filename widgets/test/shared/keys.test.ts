// Keys of a view: what presses what, what stays in, and the list of them.

import { afterEach, beforeEach, expect, test } from "vitest";
import { h } from "../../src/shared/dom";
import { containKeys, keysList } from "../../src/shared/keys";

let pressed: string[];
let beyond: string[];
let root: HTMLElement;
let notebook: HTMLElement;

beforeEach(() => {
  [pressed, beyond] = [[], []];
  const fold = h("button", { "aria-keyshortcuts": "F", onclick: () => pressed.push("fold") }, "Fold idle");
  const hidden = h("div", { hidden: true }, h("button", { "aria-keyshortcuts": "N", onclick: () => pressed.push("hidden") }));
  const picture = h("div", { class: "picture", tabindex: 0, "data-keys": "← →: call to call | Enter: details" });
  root = h("div", {}, fold, hidden, picture, h("input", { type: "search", "aria-label": "Search", "aria-keyshortcuts": "/" }));
  containKeys(root);
  notebook = h("div", { tabindex: 0 }, root);
  notebook.addEventListener("keydown", ({ key }) => beyond.push(key));
  document.body.append(notebook);
});

afterEach(() => { notebook.remove(); });

const find = (selector: string): HTMLElement => root.querySelector<HTMLElement>(selector) ?? expect.fail(`no ${selector}`);
function press(key: string, more: KeyboardEventInit = {}, target = document.activeElement ?? root): void {
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
}

test("no key leaves a view, and what has the focus bears the mark that Notebook 7 looks for", () => {
  find(".picture").focus();
  for (const key of ["d", "d", "b", "Enter", "Escape"]) press(key);
  press("Enter", { shiftKey: true });
  expect(beyond).toEqual([]);
  expect(find(".picture").hasAttribute("data-lm-suppress-shortcuts")).toBe(true);
});

test("saving goes on to the page", () => {
  const told: string[] = [];
  const tell = (event: KeyboardEvent): void => { told.push(`${event.target === document.body ? "body" : "else"} ${event.key}`); };
  document.body.addEventListener("keydown", tell);
  find(".picture").focus();
  press("s", { ctrlKey: true });
  press("z", { ctrlKey: true });
  document.body.removeEventListener("keydown", tell);
  expect(told).toEqual(["body s"]);
});

test("a key presses what names it, if that is in sight, and nobody is writing", () => {
  press("f", {}, root);
  press("n", {}, root);
  press("f", { ctrlKey: true }, root);
  press("f", {}, find("input"));
  expect(pressed).toEqual(["fold"]);
  press("/", {}, root);
  expect(document.activeElement).toBe(find("input"));
});

test("the list shows the keys of all that is in sight, and gives the focus back", () => {
  const keys = keysList(root);
  root.prepend(keys.button, keys.element);
  find(".picture").focus();
  press("?");
  expect(keys.element.hidden).toBe(false);
  expect([...keys.element.querySelectorAll("dt, dd")].map((one) => one.textContent)).toEqual([
    "?", "Keys of this view", "F", "Fold idle", "/", "Search", "←→", "call to call", "Enter", "details",
  ]);
  expect(document.activeElement).toBe(keys.element);
  press("Escape");
  expect([keys.element.hidden, document.activeElement]).toEqual([true, find(".picture")]);
});
