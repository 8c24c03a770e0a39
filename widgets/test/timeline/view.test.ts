// The timeline, its list and its details in a page: what is shown, and that hostile texts are nothing but text.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Detail } from "../../src/protocol";
import type { View } from "../../src/shared/dom";
import type { Host } from "../../src/shared/lazypart";
import { Model } from "../../src/shared/model";
import part from "../../src/timeline";
import { HEADER, type Row, welcome } from "../blocks";

const HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31mred \u202eevil";
const ROWS: Row[] = [
  { id: 0, start: 0, end: 5_000_000, step: "collect" },
  { id: 1, start: 0, end: 1_000_000, kind: "operation", type: "agent_response", step: "collect", label: HOSTILE },
  { id: 2, start: 2_000_000, kind: "operation", type: "tool_call", step: "collect", label: "search", status: "failed", note: "Timeout", end: 3_000_000 },
];

let page: HTMLElement;
let model: Model;
let view: View;
let asked: [id: number, receive: (answer: Detail) => void][];

beforeEach(() => {
  vi.useFakeTimers();
  page = document.createElement("div");
  page.className = "divebook";
  document.body.append(page);
  model = new Model(() => 0);
  asked = [];
  view = part.make(model, { root: page, detail: (id, receive) => { asked.push([id, receive]); } } as Host);
  page.append(view.element);
});

afterEach(() => {
  view.destroy();
  page.remove();
  vi.useRealTimers();
});

const find = (selector: string): HTMLElement => page.querySelector<HTMLElement>(selector) ?? expect.fail(`no ${selector}`);
const shown = (selector: string): string => find(selector).textContent;

function begin(more: Parameters<typeof welcome>[1] = {}, rows: readonly Row[] = ROWS): void {
  model.welcome(welcome(rows, more));
  vi.advanceTimersByTime(1000);
}

function openRows(): NodeListOf<HTMLElement> {
  const list = find(".db-list");
  Object.defineProperty(list, "clientHeight", { value: 240 });
  find(".db-table").dispatchEvent(new Event("toggle"));
  return page.querySelectorAll(".db-space .db-row:not([hidden])");
}

function openDetail(events: Detail["events"]): void {
  openRows()[0]?.click();
  asked.at(-1)?.[1]({ type: "detail", view: "", id: 1, events, error: "" });
}

const columns = (name: string): (string | null | undefined)[] => [...openRows()].map((row) => row.querySelector(`[data-column=${name}]`)?.textContent);
const press = (text: string): void => { ([...page.querySelectorAll("button")].find((one) => one.textContent.includes(text)) ?? expect.fail(`no ${text}`)).click(); };

const MANY: Row[] = [
  { id: 0, start: 0, step: "classify", end: 9_000_000, status: "failed" },
  ...[2, 10, 1].flatMap((number, place): Row[] => {
    const [id, start, status] = [1 + place * 2, place * 1_000_000, number === 10 ? "failed" : "completed"];
    const about = { step: "classify", item: `rows[${number}]`, iteration: number, start, end: start + number * 100_000, status };
    return [{ id, kind: "item", ...about }, { id: id + 1, kind: "operation", type: "action_execution", label: "Parse", given: `{"row": ${number}}`, came: `{"id": ${number}}`, note: number === 10 ? "KeyError: 'label'" : "", ...about }];
  }),
];

test("each call is listed once, with its item, what it was given and what came of it", () => {
  begin({}, MANY);
  expect(shown("summary")).toBe("All calls (3)");
  expect(columns("item")).toEqual(["rows[2]", "rows[10]", "rows[1]"]);
  expect(columns("call")).toEqual(["A Parse", "A Parse", "A Parse"]);
  expect(columns("arguments")).toEqual(['{"row": 2}', '{"row": 10}', '{"row": 1}']);
  expect(columns("result")).toEqual(['{"id": 2}', "KeyError: 'label'", '{"id": 1}']);
  expect(columns("status")).toEqual(["✓ completed", "✕ failed", "✓ completed"]);
  expect(find(".db-list").getAttribute("aria-rowcount")).toBe("4");
});

test("a wait that is over is completed, one that lasts is waiting", () => {
  const timer = (id: number, end?: number): Row => ({ id, kind: "operation", type: "timer", label: "sleep 1.0 s", start: id, ...(end === undefined ? {} : { end }) });
  begin({}, [timer(0, 1_000_000), timer(1)]);
  expect(columns("status")).toEqual(["✓ completed", "? waiting"]);
  press("Waiting 1");
  expect(columns("status")).toEqual(["? waiting"]);
});

test("a step that failed before any call is listed itself", () => {
  begin();
  expect(columns("status")).toEqual(["✓ completed", "✕ failed"]);
  model.welcome(welcome([{ id: 0, start: 0, end: 1, status: "failed", note: "no such variable" }]));
  vi.advanceTimersByTime(500);
  expect(columns("result")).toEqual(["no such variable"]);
});

test("calls are shown by status, and all again", () => {
  begin({}, MANY);
  press("Failed 1");
  expect(columns("item")).toEqual(["rows[10]"]);
  expect(shown(".db-note")).toBe("1 of 3 calls shown. As a DataFrame: run.operations.query(\"status == 'failed'\")");
  expect([...page.querySelectorAll(".db-statuses button:not([hidden])")].map((one) => [one.textContent, one.getAttribute("aria-pressed")])).toEqual([["All", "false"], ["✕ Failed 1", "true"]]);
  press("All");
  expect(columns("item")).toHaveLength(3);
});

test("once none is left of the status that is listed, all calls are", () => {
  begin({}, [{ id: 0, kind: "operation", type: "tool_call", start: 0 }]);
  press("Running 1");
  model.welcome(welcome([{ id: 0, kind: "operation", type: "tool_call", start: 0, end: 1 }]));
  vi.advanceTimersByTime(500);
  expect(columns("status")).toEqual(["✓ completed"]);
  expect(shown(".db-note")).toBe("As a DataFrame: run.operations");
});

test("of a sample too there is a button for each type that occurs, though nothing comes any more", () => {
  begin({ total: 9 }, [{ id: 0, start: 0, end: 9 }, { id: 3, kind: "operation", type: "tool_call", start: 1, end: 2 }]);
  const later = part.make(model, { root: page, detail: () => undefined } as unknown as Host);
  expect([...later.element.querySelectorAll(".db-filters button")].map((one) => one.textContent)).toEqual(["steps", "Ttool calls"]);
  later.destroy();
});

test.each([
  ["Item", ["rows[1]", "rows[2]", "rows[10]"], "ascending"],
  ["Took", ["rows[10]", "rows[2]", "rows[1]"], "descending"],
  ["Status", ["rows[10]", "rows[2]", "rows[1]"], "ascending"],
  ["Arguments", ["rows[1]", "rows[2]", "rows[10]"], "ascending"],
])("a heading orders by its column, numbers as numbers, and once more the other way: %s", (heading, expected, direction) => {
  begin({}, MANY);
  press(heading);
  expect(columns("item")).toEqual(expected);
  expect(page.querySelectorAll("[aria-sort]")).toHaveLength(1);
  expect(find("[aria-sort]").getAttribute("aria-sort")).toBe(direction);
  press(heading);
  expect(find("[aria-sort]").getAttribute("aria-sort")).not.toBe(direction);
  if (heading !== "Status") expect(columns("item")).toEqual([...expected].reverse());
});

test("a run that has failed shows its failures by itself, once", () => {
  begin({}, MANY);
  expect(find("details").hasAttribute("open")).toBe(false);
  model.welcome(welcome(MANY, { header: { ...HEADER, status: "failed" } }));
  vi.advanceTimersByTime(500);
  expect([find("details").hasAttribute("open"), ...columns("item")]).toEqual([true, "rows[10]"]);
  find("details").removeAttribute("open");
  model.notify("header");
  vi.advanceTimersByTime(500);
  expect(find("details").hasAttribute("open")).toBe(false);
});

test("what is chosen elsewhere is marked in the list, and the other way round", () => {
  begin({}, MANY);
  openRows();
  model.select(4);
  expect([...page.querySelectorAll(".db-chosen")].map((row) => row.children[1]?.textContent)).toEqual(["rows[10]"]);
  openRows()[2]?.click();
  expect(model.selected).toBe(6);
});

test("keys go from failure to failure", () => {
  begin({}, MANY);
  press("›");
  expect(model.selected).toBe(4);
  expect([...page.querySelectorAll("[aria-keyshortcuts]")].map((one) => one.getAttribute("aria-keyshortcuts"))).toEqual(["/", "P", "N", "F"]);
});

test("search finds items, arguments, results and errors", () => {
  begin({}, MANY);
  const search = find(".db-search") as HTMLInputElement;
  const found = (words: string): (string | null | undefined)[] => {
    search.value = words;
    search.dispatchEvent(new Event("input"));
    vi.advanceTimersByTime(500);
    return columns("item");
  };
  expect(found("keyerror LABEL")).toEqual(["rows[10]"]);
  expect(found('"row": 2')).toEqual(["rows[2]"]);
  expect(found("rows[1]")).toEqual(["rows[1]"]);
  expect(found("nothing")).toEqual([]);
});

test("a type that is switched off is left out", () => {
  begin();
  find(".db-chip[data-key=tool]").click();
  expect(find(".db-chip[data-key=tool]").getAttribute("aria-pressed")).toBe("false");
  expect(shown(".db-found")).toBe("2 of 3");
});

test("hostile labels, details and streams are text with visible control characters", () => {
  begin({ streamed: [{ id: 0, part: "text", at: 0, text: HOSTILE }] });
  const data = { operation_type: "agent_response", parameters: { prompt: HOSTILE, instructions: "x" } };
  openDetail([{ sequence: 7, event_type: "operation_started", recorded_us: 1, data }]);
  expect(page.querySelector("script, img")).toBeNull();
  expect(shown(".db-said")).not.toMatch(/[\x1b\u202e]/); // eslint-disable-line no-control-regex -- that is the point
  expect(shown(".db-detail")).toContain("<script>alert(1)</script>");
  expect(shown(".db-detail")).toContain("\\u202eevil");
});

test("what models write and commands print now stands below the picture, each with its sign", () => {
  begin({ streamed: [{ id: 0, part: "text", at: 0, text: "Roses" }, { id: 1, part: "output", at: 0, text: "1%\r2%\r" }] }, [
    { id: 0, kind: "operation", type: "agent_response", label: "poet", start: 0 },
    { id: 1, kind: "operation", type: "tool_call", label: "shell", start: 0 },
  ]);
  expect([...page.querySelectorAll(".db-writer")].map((one) => one.textContent)).toEqual(["M s0Roses", "$ s12%"]);
  model.select(1);
  expect(shown(".db-written")).toBe("2%");
});

test("a text of five million characters is cut, and goes on by request", () => {
  begin();
  openDetail([{ sequence: 7, event_type: "operation_completed", recorded_us: 1, data: { result: "x".repeat(5_000_000) } }]);
  const before = shown(".db-event pre").length;
  expect(before).toBeLessThan(3000);
  find(".db-more").click();
  expect(shown(".db-event pre").length).toBeGreaterThan(before + 10_000);
  expect(shown(".db-more")).toMatch(/^Show 4,9\d\d,\d{3} more characters$/);
});

test("details are closed by Escape", () => {
  begin();
  openDetail([]);
  expect(find(".db-detail").hidden).toBe(false);
  find(".db-detail").dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  expect(find(".db-detail").hidden).toBe(true);
});

test("the keyboard goes from bar to bar, and what it comes to is said", () => {
  begin();
  const canvas = find(".db-canvas");
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Home" }));
  expect(shown("[aria-live=polite]")).toContain("collect: ✓ completed");
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
  expect(asked.at(-1)?.[0]).toBe(0);
});
