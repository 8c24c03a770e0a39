// The whole view in a page, without a kernel: what is shown, and what is asked.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import live from "../../src/live";
import { provideNavigation } from "../../src/shared/celllinks";
import type { SpreadView, ToBrowser, ToKernel } from "../../src/protocol";
import { delta, HEADER, type Row, welcome } from "../blocks";
import { buttonOf, question } from "../prompt/questions";

const ROWS: Row[] = [
  { id: 0, start: 0, end: 5_000_000, step: "collect" },
  { id: 1, start: 0, end: 1_000_000, kind: "operation", type: "agent_response", step: "collect", label: "critic" },
  { id: 2, start: 2_000_000, kind: "operation", type: "tool_call", step: "collect", label: "search", status: "failed", note: "Timeout", end: 3_000_000 },
];

let page: HTMLElement;
let heard: ToKernel[];
let say: (message: ToBrowser) => void;
let lose: () => void;
let end: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  page = document.createElement("div");
  document.body.append(page);
  heard = [];
  const listeners = new Set<(message: ToBrowser) => void>();
  const losses = new Set<() => void>();
  const wire = {
    get: () => ({}),
    send: (message: ToKernel) => heard.push(message),
    on: (name: string, listener: (message?: ToBrowser) => void) => (name === "msg:custom" ? listeners.add(listener) : losses.add(listener)),
    off: (_: string, listener: (message: ToBrowser) => void) => listeners.delete(listener),
  };
  say = (message) => { listeners.forEach((listener) => { listener(message); }); };
  lose = () => { losses.forEach((listener) => { listener(); }); };
  end = live.render({ model: wire, el: page } as unknown as Parameters<typeof live.render>[0]);
});

afterEach(() => {
  end();
  page.remove();
  vi.useRealTimers();
});

const find = (selector: string): HTMLElement => page.querySelector<HTMLElement>(selector) ?? expect.fail(`no ${selector}`);
const buttonsOf = (selector: string): string[] => [...find(selector).querySelectorAll<HTMLElement>("button:not([hidden])")].map(({ textContent }) => textContent);
const shown = (selector: string): string => find(selector).textContent;

function begin(more: Parameters<typeof welcome>[1] = {}): void {
  const hello = heard.find((message) => message.type === "hello");
  say(welcome(ROWS, { view: hello?.view ?? "", ...more }));
  vi.advanceTimersByTime(1000);
}

test("the head tells status, facts in their order, bounds and durability", () => {
  const gauges = [{ name: "tokens", spent: 1_234, limit: 1_300, unit: "" }, { name: "loops", spent: 1, limit: 9, unit: "" }];
  const times = { doing: "waited", since_us: 500_000, worked_us: 62_000_000, waited_us: 63_000_000 } as const;
  begin({ header: { ...HEADER, ...times, live: false, cost: 0.5, durability: "memory", gauges } });
  expect(shown(".db-status")).toBe("▸ running");
  expect(shown(".db-when")).toMatch(/^started .*\d\d:\d\d .+/);
  expect([...page.querySelectorAll(".db-fact")].map((fact) => fact.textContent)).toEqual([
    "Cost$0.50", "Model calls2", "▲ Tokens1,234 of 1,300", "Worked1 min 02 s", expect.stringMatching(/^Waited for you1 min \d\d s$/), "Loops1 of 9",
  ]);
  expect(shown(".db-badge")).toBe("memory only");
  expect(find(".db-badge").title).toContain("lost when this process ends");
  expect(find("[role=meter]").getAttribute("aria-label")).toBe("tokens 1,234 of 1,300");
});

test("how far the items are stands in the head, with what is left and what failed", () => {
  const step = { step: "classify", done: 58, total: 60, failed: 1, failed_open: 0, running: true, left_us: 4_000_000, at_us: 5_000_000, spread: [] };
  begin({ header: { ...HEADER, progress: [{ ...step, step: "list", running: false, done: 60 }, step] } });
  expect(shown(".db-progress")).toBe("classify: 57 of 60, about 3.0 s left · 1 failed");
  // Nobody knows how long a person takes.
  say(delta([], { total: ROWS.length, header: { ...HEADER, doing: "waited", progress: [step] } }));
  vi.advanceTimersByTime(1000);
  expect(shown(".db-progress")).toBe("classify: 57 of 60 · 1 failed");
  const ended = { ...step, running: false, done: 40 };
  say(delta([], { total: ROWS.length, header: { ...HEADER, status: "failed", live: false, ended_us: 9_000_000, progress: [ended] } }));
  expect(shown(".db-progress")).toBe("classify: 39 of 60 · 1 failed · 20 not done");
  // An item that failed, and with it the step, runs again: it is not among those that are done.
  const stopped = { ...ended, done: 2, total: 4, failed: 1, failed_open: 1 };
  say(delta([], { total: ROWS.length, header: { ...HEADER, status: "failed", live: false, ended_us: 9_000_000, progress: [stopped] } }));
  expect(shown(".db-progress")).toBe("classify: 2 of 4 · 1 failed · 1 not done");
});

test("the bar of a step of which is told what its rows gave stays when they have ended", () => {
  const step = { step: "label", done: 60, total: 60, failed: 3, failed_open: 0, running: false, left_us: null, at_us: 5_000_000, spread: [] };
  const column: SpreadView = { name: "n", kind: "values", parts: [{ name: "1", count: 57 }], others: { name: "0 others", count: 0 }, empty: 0, least: "", greatest: "", words: "n: 1 57" };
  begin({ header: { ...HEADER, progress: [{ ...step, step: "list" }, { ...step, spread: [column] }] } });
  expect(shown(".db-progress")).toBe("label: 57 of 60 · 3 failed");
  expect(heard).toContainEqual(expect.objectContaining({ type: "bundle", name: "spread" }));
});

test("dashboards are links to pages of the web while the run is live", () => {
  begin({ header: { ...HEADER, dashboards: ["http://localhost:8787/status?a=<b>", "javascript:alert(1)", "/proxy/8787", "HTTPS://cloud.example/"] } });
  const links = (): string[][] => [...page.querySelectorAll(".db-dashboards a")].map((link) => ["href", "target", "rel"].map((name) => link.getAttribute(name) ?? ""));
  const safely = ["_blank", "noopener noreferrer"];
  expect(links()).toEqual([["http://localhost:8787/status?a=<b>", ...safely], ["HTTPS://cloud.example/", ...safely]]);
  say(delta([], { header: { ...HEADER, live: false, dashboards: ["http://localhost:8787/status"] } }));
  expect([links(), find(".db-dashboards").hidden]).toEqual([[], true]);
});

test("cancelling asks once more, and says what is kept", () => {
  const step = { step: "classify", done: 58, total: 60, failed: 0, failed_open: 0, running: true, left_us: null, at_us: 0, spread: [] };
  begin({ header: { ...HEADER, progress: [step] } });
  const cancel = (): void => { buttonOf(page, "Cancel …").click(); };
  cancel();
  expect(shown(".db-sure")).toBe("Cancel the run? 58 of 60 items are saved.Cancel the runKeep running");
  expect(document.activeElement).toBe(buttonOf(page, "Keep running"));
  find(".db-sure").dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  expect([find(".db-sure").hidden, document.activeElement]).toEqual([true, buttonOf(page, "Cancel …")]);
  expect(heard.some((message) => message.type === "control")).toBe(false);
  cancel();
  buttonOf(page, "Cancel the run").click();
  expect(heard.find((message) => message.type === "control")?.command).toBe("cancel");
});

test("until the kernel answers the view says that it connects, and buttons wait", () => {
  expect(shown(".db-notice")).toContain("connecting");
  expect(find(".db-actions button").hasAttribute("disabled")).toBe(true);
  begin();
  expect(find(".db-notice").hidden).toBe(true);
});

test("a kernel that is gone is told of, with the way on", () => {
  begin();
  say({ type: "delta", feed: "feed", after: 99, last: 100, origin_us: 0, total: 3, spans: welcome([]).spans, header: HEADER, failures: null, questions: [], streamed: [] });
  lose();
  expect(shown(".db-status")).toBe("‖ kernel stopped");
  expect(shown(".db-notice")).toBe("The kernel stopped. Run the notebook up to this cell again to continue, or run %dive resume exec_1. Completed calls are saved.");
  expect(buttonsOf(".db-notice")).toEqual([]);
});

test("where a page can run cells, a run whose kernel is gone has a button that continues it, and says what is kept", () => {
  const rerun = vi.fn();
  provideNavigation({ go: () => undefined, read: () => null, insert: () => undefined, rerun });
  page.classList.add("jp-Notebook");
  const step = { step: "classify", done: 58, total: 60, failed: 0, failed_open: 0, running: true, left_us: null, at_us: 0, spread: [] };
  begin({ header: { ...HEADER, progress: [step] } });
  say(delta([], { after: 99, last: 100 }));
  lose();
  expect(shown(".db-notice > span")).toBe("The kernel stopped. 58 of 60 items are saved.");
  buttonOf(find(".db-notice"), "Resume").click();
  expect(rerun).toHaveBeenCalledOnce();
  delete document.documentElement.dataset["divebookGuide"];
});

test("a kernel that does not answer is not said to have stopped", () => {
  begin({ header: { ...HEADER, live: true } });
  say(delta([], { after: 99, last: 100 }));
  vi.advanceTimersByTime(20_000);
  expect(shown(".db-status")).toBe("‖ kernel does not answer");
  expect(shown(".db-notice > span")).toContain("busy with a cell or not connected");
  begin({ header: { ...HEADER, live: true } });
  expect(shown(".db-status")).toBe("▸ running");
});

test("a kernel that stopped before its first message is said to have stopped", () => {
  lose();
  expect(shown(".db-status")).toBe("‖ kernel stopped");
});

test("a run that had ended before its kernel stopped offers nothing", () => {
  begin({ header: { ...HEADER, status: "completed", live: false, ended_us: 9_000_000 } });
  say(delta([], { after: 99, last: 100, header: { ...HEADER, status: "completed", live: false, ended_us: 9_000_000 } }));
  lose();
  expect([shown(".db-status"), shown(".db-notice > span")]).toEqual(["✓ completed", "The kernel stopped after the run had ended."]);
});

test("the view of a what-if says so beside its name and on its questions", () => {
  begin({ header: { ...HEADER, badge: "what-if", status: "waiting" }, questions: [question()] });
  expect(find(".db-trial").textContent).toBe("what-if");
  expect(find("article.card").getAttribute("aria-label")).toContain(" in a what-if: ");
});

test("a run that has ended asks nothing until it is resumed", () => {
  begin({ questions: [question({ interrupt_id: "ask_7", kind: "confirmation" })] });
  const asks = (): unknown[] => [document.querySelectorAll("article.card").length, find(".db-asks").hidden];
  expect(asks()).toEqual([1, false]);
  const told = (header: Partial<typeof HEADER>): void => { say({ ...delta([]), header: { ...HEADER, ...header } }); };
  told({ status: "failed", ended_us: 5 });
  expect(asks()).toEqual([0, true]);
  told({});
  expect(asks()).toEqual([1, false]);
});

test("the questions of a kernel that is gone say how to answer them", () => {
  begin({ questions: [question({ interrupt_id: "ask_7", kind: "confirmation" })] });
  say({ type: "delta", feed: "feed", after: 99, last: 100, origin_us: 0, total: 3, spans: welcome([]).spans, header: HEADER, failures: null, questions: [], streamed: [] });
  lose();
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

test("a run that somebody paused says so, and how to go on", () => {
  begin({ header: { ...HEADER, doing: "paused", live: false, commands: ["resume", "cancel"] } });
  expect(shown(".db-status")).toBe("‖ paused");
  expect(shown(".db-notice")).toBe("The run is paused. Run the cell again to continue the run.");
});

test("a run that waits for a worker is not taken for one that somebody paused", () => {
  const waits = "waits in the queue labels for a worker";
  begin({ header: { ...HEADER, status: "enqueued", doing: "paused", live: false, waits, commands: ["cancel"] } });
  expect([find(".db-status").dataset["status"], shown(".db-notice"), shown(".db-waits")]).toEqual(["enqueued", "", waits]);
});

test("a run that lets time pass does not look as if it waited for a person", () => {
  begin({ header: { ...HEADER, status: "waiting", doing: "asleep" } });
  expect([shown(".db-status"), find(".db-status").dataset["status"]]).toEqual(["… asleep", "asleep"]);
  say(delta([], { total: ROWS.length, header: { ...HEADER, status: "waiting", doing: "waited" } }));
  expect([shown(".db-status"), find(".db-status").title]).toEqual(["? waiting", ""]);
});

test("a run that completed after its cell had failed says how to come by its result", () => {
  begin({ header: { ...HEADER, status: "failed", live: false } });
  expect(page.querySelector<HTMLElement>(".db-notice")?.hidden).toBe(true);
  say(delta([], { total: ROWS.length, header: { ...HEADER, status: "completed", live: false } }));
  expect(shown(".db-notice")).toBe("The run has completed, but its cell had failed before. Run the cell again to get the result from the log.");
});

test("only the commands that are possible are offered", () => {
  begin({ header: { ...HEADER, commands: ["resume"] } });
  const offered = [...page.querySelectorAll<HTMLElement>(".db-commands button")].filter((button) => !button.hidden);
  expect(offered.map((button) => button.textContent)).toEqual(["Resume"]);
});

test("nothing is left behind when the view goes", () => {
  begin();
  end();
  const before = heard.length;
  vi.advanceTimersByTime(20_000);
  expect(heard).toHaveLength(before);
  expect(page.children).toHaveLength(0);
});

test("nothing of a run stays when the kernel shows another one in the same view", () => {
  const failed = { ...HEADER, status: "failed", live: false, ended_us: 9_000_000, execution_id: "run_1", commands: ["resume" as const] };
  begin({ header: failed, failures: { total: 1, kept: "", shown: [] } });
  const first = heard.findLast((message) => message.type === "hello")?.view ?? "";
  buttonOf(page, "Resume").click(); // not acknowledged yet
  const completed = { ...HEADER, workflow: "again", status: "completed", live: false, ended_us: 9_000_000, execution_id: "run_2" };
  heard = [];
  say(welcome(ROWS.slice(0, 1), { view: first, feed: "other", header: completed }));
  expect(shown(".db-status")).toBe("✓ completed");
  expect(page.querySelectorAll(".db-status")).toHaveLength(1);
  // The kernel still knows the view, and gets the command until it acknowledges it.
  expect(heard.some((message) => message.type === "bye" || message.type === "hello")).toBe(false);
  vi.advanceTimersByTime(1000);
  expect(heard).toContainEqual(expect.objectContaining({ type: "control", command: "resume" }));
  // What the kernel still says of the run before is not taken.
  say(delta([], { feed: "feed", after: 10, last: 11, header: failed }));
  expect(shown(".db-status")).toBe("✓ completed");
});
