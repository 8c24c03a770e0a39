// The whole view in a page, without a kernel: what is shown, and that hostile texts are nothing but text.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import live from "../../src/live";
import type { Detail, ToBrowser, ToKernel } from "../../src/protocol";
import { HEADER, type Row, welcome } from "../blocks";
import { buttonOf, question } from "../prompt/questions";

const HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31mred \u202eevil";
const ROWS: Row[] = [
  { id: 0, start: 0, end: 5_000_000, step: "collect" },
  { id: 1, start: 0, end: 1_000_000, kind: "operation", type: "agent_response", step: "collect", label: HOSTILE },
  { id: 2, start: 2_000_000, kind: "operation", type: "tool_call", step: "collect", label: "search", status: "failed", note: "Timeout", end: 3_000_000 },
];

let page: HTMLElement;
let heard: ToKernel[];
let say: (message: ToBrowser) => void;
let end: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  page = document.createElement("div");
  document.body.append(page);
  heard = [];
  const listeners = new Set<(message: ToBrowser) => void>();
  const wire = {
    get: () => ({}),
    send: (message: ToKernel) => heard.push(message),
    on: (name: string, listener: (message: ToBrowser) => void) => name === "msg:custom" && listeners.add(listener),
    off: (_: string, listener: (message: ToBrowser) => void) => listeners.delete(listener),
  };
  say = (message) => { listeners.forEach((listener) => { listener(message); }); };
  end = live.render({ model: wire, el: page } as unknown as Parameters<typeof live.render>[0]);
});

afterEach(() => {
  end();
  page.remove();
  vi.useRealTimers();
});

const find = (selector: string): HTMLElement => page.querySelector<HTMLElement>(selector) ?? expect.fail(`no ${selector}`);
const shown = (selector: string): string => find(selector).textContent;

function begin(more: Parameters<typeof welcome>[1] = {}): void {
  const hello = heard.find((message) => message.type === "hello");
  say(welcome(ROWS, { view: hello?.view ?? "", ...more }));
  vi.advanceTimersByTime(1000);
}

function openRows(): NodeListOf<HTMLElement> {
  const list = find(".db-list");
  Object.defineProperty(list, "clientHeight", { value: 240 });
  find(".db-table").dispatchEvent(new Event("toggle"));
  return page.querySelectorAll(".db-space .db-row:not([hidden])");
}

function openDetail(events: Detail["events"]): void {
  openRows()[1]?.click();
  const request = heard.find((message) => message.type === "detail");
  say({ type: "detail", view: request?.view ?? "", id: 1, events, error: "" });
}

test("the head tells status, numbers and durability", () => {
  begin({ header: { ...HEADER, cost: 0.5, durability: "memory", gauges: [{ name: "tokens", spent: 90, limit: 100, unit: "" }] } });
  expect(shown(".db-status")).toBe("▸ running");
  expect(shown(".db-line")).toContain("2 model calls · 1,234 tokens · $0.50");
  expect(shown(".db-badge")).toBe("memory only");
  expect(find("[role=meter]").getAttribute("aria-label")).toBe("tokens 90 of 100");
  expect(find(".db-gauge").dataset["level"]).toBe("near");
});

test("until the kernel answers the view says that it connects, and buttons wait", () => {
  expect(shown(".db-notice")).toContain("connecting");
  expect(find(".db-actions button").hasAttribute("disabled")).toBe(true);
  begin();
  expect(find(".db-notice").hidden).toBe(true);
});

test("a kernel that is gone is told of, with the way on", () => {
  begin();
  say({ type: "delta", after: 99, last: 100, origin_us: 0, total: 3, spans: welcome([]).spans, header: HEADER, questions: [], streamed: [] });
  vi.advanceTimersByTime(20_000);
  expect(shown(".db-notice")).toContain("%dive resume exec_1");
});

test("the questions of a kernel that is gone say how to answer them", () => {
  begin({ questions: [question({ interrupt_id: "ask_7", kind: "confirmation" })] });
  say({ type: "delta", after: 99, last: 100, origin_us: 0, total: 3, spans: welcome([]).spans, header: HEADER, questions: [], streamed: [] });
  vi.advanceTimersByTime(20_000);
  expect(shown(".card .status")).toContain("%dive answer ask_7 ANSWER");
  expect(buttonOf(page, "Approve").getAttribute("aria-disabled")).toBe("true");
});

test("a button asks once and shows why it was refused", async () => {
  begin();
  const pause = [...page.querySelectorAll<HTMLElement>(".db-actions button")].find((button) => button.textContent === "Pause");
  pause?.click();
  const asked = heard.find((message) => message.type === "control");
  expect(asked?.command).toBe("pause");
  say({ type: "ack", id: asked?.id ?? "", accepted: false, text: "it has ended already" });
  await vi.advanceTimersByTimeAsync(0);
  expect(shown(".db-notice")).toBe("it has ended already");
});

test("a run that waits for a signal says which, and what sends it", () => {
  begin({ header: { ...HEADER, status: "waiting", waits: "waits for the signal 'go': %dive signal exec_1 go" } });
  expect(shown(".db-waits")).toBe("waits for the signal 'go': %dive signal exec_1 go");
});

test("only the commands that are possible are offered", () => {
  begin({ header: { ...HEADER, commands: ["resume"] } });
  const offered = [...page.querySelectorAll<HTMLElement>(".db-actions button")].filter((button) => !button.hidden);
  expect(offered.map((button) => button.textContent)).toEqual(["Resume"]);
});

test("rows say in words what the bars show", () => {
  begin();
  const rows = openRows();
  expect([...rows].map((row) => row.children[1]?.textContent)).toEqual(["collect", "collect", "collect"]);
  expect(rows[2]?.textContent).toContain("✕ failed");
  expect(find(".db-list").getAttribute("aria-rowcount")).toBe("4");
});

test("search leaves what is meant", () => {
  begin();
  const search = find(".db-search") as HTMLInputElement;
  search.value = "timeout";
  search.dispatchEvent(new Event("input"));
  vi.advanceTimersByTime(500);
  expect(shown(".db-found")).toBe("1 of 3");
  expect(openRows()).toHaveLength(1);
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

test("a text of five million characters is cut, and goes on by request", () => {
  begin();
  openDetail([{ sequence: 7, event_type: "operation_completed", recorded_us: 1, data: { result: "x".repeat(5_000_000) } }]);
  const before = shown(".db-event pre").length;
  expect(before).toBeLessThan(3000);
  find(".db-more").click();
  expect(shown(".db-event pre").length).toBeGreaterThan(before + 10_000);
  expect(shown(".db-more")).toMatch(/^more \(4,9\d\d,\d{3} characters\)$/);
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
  expect(heard.at(-1)).toMatchObject({ type: "detail", id: 0 });
});

test("nothing is left behind when the view goes", () => {
  begin();
  end();
  const before = heard.length;
  vi.advanceTimersByTime(20_000);
  expect(heard).toHaveLength(before);
  expect(page.children).toHaveLength(0);
});
