// The pane of variables: asked for while it is unfolded, at most once a second, and shown as texts only.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import axe from "axe-core";
import type { Variables, VariableView } from "../../src/protocol";
import type { Host } from "../../src/shared/lazypart";
import { Model } from "../../src/shared/model";
import { variables } from "../../src/variables";
import { delta, welcome } from "../blocks";

const TEXT: VariableView = { name: "folder", source: "input", type: "text", size: "13", text: "site-packages", columns: [], rows: [], total: 0 };
const TABLE: VariableView = { name: "rows", source: "list", type: "DataFrame", size: "58 x 2", text: "", columns: ["bird", "seen"], rows: [["owl", "1"], ["<b>", "2"]], total: 58 };
const UNSET: VariableView = { ...TEXT, name: "report", source: "tell", type: "", size: "", text: "not set yet" };

let model: Model;
let pane: ReturnType<typeof variables>;
const asked = vi.fn<Host["variables"]>();

function answer(told: VariableView[] | null, version = 1): void {
  const [, receive] = asked.mock.lastCall ?? [];
  receive?.({ type: "variables", view: "v", version, variables: told } satisfies Variables);
}

function text(): string {
  return pane.element.textContent;
}

beforeEach(() => {
  vi.useFakeTimers();
  asked.mockReset();
  model = new Model();
  model.welcome(welcome([]));
  pane = variables(model, { variables: asked } as unknown as Host);
  document.body.replaceChildren(pane.element);
});

afterEach(() => {
  pane.destroy();
  vi.useRealTimers();
});

test("each variable stands with its type and size, and those that are not set yet say so", () => {
  answer([TEXT, TABLE, UNSET]);
  expect(pane.element.querySelector("summary")?.textContent).toBe("Variables (3)");
  const rows = [...pane.element.querySelectorAll(".all tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent));
  expect(rows).toEqual([["folder", "text", "13", "site-packages"], ["rows", "DataFrame", "58 x 2", "a table; select it to see it"], ["report", "not set yet"]]);
  const cut = [...pane.element.querySelectorAll<HTMLElement>("tbody th")].map((name) => name.title || name.querySelector("[aria-expanded]")?.textContent);
  expect(cut).toEqual(["folder", "rows", "report"]); // where a name is too long, each can be read whole
});

test("a table shows its first rows beside, as text", () => {
  answer([TEXT, TABLE]);
  expect(pane.element.querySelector(".aside")?.textContent).toBe("rows first 2 of 58 rows · set by listbirdseenowl1<b>2");
});

test("what is chosen is shown whole, and stays chosen when there is news", () => {
  answer([TEXT, TABLE]);
  pane.element.querySelector<HTMLElement>("[data-variable='input folder']")?.click();
  expect(pane.element.querySelector(".aside")?.textContent).toContain("folder text · input of the run");
  vi.advanceTimersByTime(2_000);
  model.delta(delta([]));
  answer([{ ...TEXT, text: "elsewhere" }, TABLE], 2);
  expect(pane.element.querySelector(".aside")?.textContent).toContain("elsewhere");
  expect(pane.element.querySelector("[aria-expanded='true']")?.textContent).toBe("folder");
});

test("it asks once, and after news at most once a second", () => {
  expect(asked.mock.calls.map(([version]) => version)).toEqual([0]);
  model.delta(delta([]));
  expect(asked).toHaveBeenCalledTimes(1);
  answer([TEXT], 4);
  vi.advanceTimersByTime(1_000);
  expect(asked.mock.calls.map(([version]) => version)).toEqual([0, 4]);
  answer(null, 4);
  vi.advanceTimersByTime(5_000);
  expect(asked).toHaveBeenCalledTimes(2);
  expect(text()).toContain("site-packages");
});

test("it asks for nothing while it is folded", () => {
  answer([TEXT]);
  (pane.element as HTMLDetailsElement).open = false;
  vi.advanceTimersByTime(5_000);
  model.delta(delta([]));
  expect(asked).toHaveBeenCalledTimes(1);
  (pane.element as HTMLDetailsElement).open = true;
  pane.element.dispatchEvent(new Event("toggle"));
  expect(asked).toHaveBeenCalledTimes(2);
});

test("an answer that never comes is asked for again, with the version that the view has", () => {
  answer([TEXT], 7);
  vi.advanceTimersByTime(1_000);
  model.welcome(welcome([]));
  expect(asked.mock.lastCall?.[0]).toBe(7);
  vi.advanceTimersByTime(6_000);
  model.delta(delta([]));
  expect(asked).toHaveBeenCalledTimes(3);
});

test("a run without variables shows no pane", () => {
  answer([]);
  expect(pane.element.hidden).toBe(true);
});

test("the pane has no accessibility violations", async () => {
  vi.useRealTimers();
  answer([TEXT, TABLE, UNSET]);
  const { violations } = await axe.run(pane.element);
  expect(violations.map(({ id }) => id)).toEqual([]);
});

test("a figure is an image, HTML has a frame in which nothing runs or loads, and nothing else is either", () => {
  const image: VariableView = { ...TEXT, source: "draw", name: "figure", type: "an image", text: "data:image/png;base64,iVBORw0=" };
  const page: VariableView = { ...TEXT, source: "draw", name: "page", type: "HTML output", text: "<b>owls</b><script>alert(1)</script>" };
  const forged: VariableView = { ...TEXT, source: "draw", name: "forged", type: "an image", text: "https://example.org/pixel.png" };
  const plain: VariableView = { ...TEXT, source: "draw", name: "plain", text: image.text };
  answer([plain, image, page, forged]);
  expect(pane.element.querySelector(".aside img")?.getAttribute("src")).toBe(image.text); // like the first table
  const choose = (name: string): void => { pane.element.querySelector<HTMLElement>(`[data-variable="${name}"]`)?.click(); };
  choose("page");
  const frame = pane.element.querySelector("iframe");
  expect([frame?.getAttribute("sandbox"), frame?.srcdoc.includes("default-src 'none'"), frame?.srcdoc.endsWith(page.text)]).toEqual(["", true, true]);
  for (const name of ["forged", "plain"]) {
    choose(name);
    expect(pane.element.querySelectorAll(".aside :is(img, iframe)")).toHaveLength(0);
  }
});
