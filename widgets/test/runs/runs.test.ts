// The run browser in a page, without a kernel: filters, rows that stay, actions that are asked for first, questions beside.

import axe from "axe-core";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import runs from "../../src/runs";
import type { Inbox, RunsPage, RunView, ToKernel } from "../../src/protocol";
import { wired, type Wire } from "../shared/wire";
import { buttonOf, question, type } from "../prompt/questions";

const NOW = Date.UTC(2026, 10, 22, 15, 30) * 1000;
const HOUR = 3_600_000_000;
const COLUMNS: RunsPage["columns"] = [
  { title: "workflow", by: "", is_number: false },
  { title: "status", by: "", is_number: false },
  { title: "started", by: "started", is_number: false },
  { title: "worked", by: "worked", is_number: true },
  { title: "cost", by: "cost", is_number: true },
];
const QUERY: RunsPage["query"] = { type: "list", view: "", text: "", workflow: "", tag: "", status: "", days: 0, by: "started", limit: 50 };
let wire: Wire<RunsPage | Inbox | { type: "ack"; id: string; accepted: boolean; text: string }, ToKernel>;
let end: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  wire = wired();
  end = runs.render(wire.given as unknown as Parameters<typeof runs.render>[0]);
  wire.say({ type: "inbox", view: view(), last: 0, now_us: NOW, hidden: 0, asked: [] });
});

afterEach(() => {
  end();
  vi.useRealTimers();
});

function view(): string {
  const hello = wire.heard.find((message) => message.type === "hello");
  return hello?.view ?? "";
}

function run(id: string, given: Partial<RunView> = {}): RunView {
  return { execution_id: id, workflow: id, badge: "", tags: [], status: "completed", about: "", is_error: false, stand: "", done: 0, total: 0, questions: 0, began_us: NOW - HOUR, worked_us: 2_500_000, since_us: 0, commands: [], is_open: false, cells: ["", "", "", "", ""], ...given };
}

function show(listed: RunView[], given: Partial<RunsPage> = {}): void {
  const counts = [...new Set(listed.map(({ status }) => status))].map((status) => ({ status, count: listed.filter((one) => one.status === status).length }));
  wire.say({ type: "runs", view: "", last: 1, now_us: NOW, query: QUERY, total: listed.length, is_whole: true, matching: listed.length, running: 0, week_cost: null, counts, workflows: [...new Set(listed.map(({ workflow }) => workflow))], tags: [], columns: COLUMNS, runs: listed, near: "", frame: "divebook.runs().frame()", ...given });
}

const rows = (): HTMLElement[] => [...wire.page.querySelectorAll<HTMLElement>("tr[data-run]")];
const text = (): string => wire.page.textContent;
const asked = (): Record<string, unknown>[] => wire.heard.filter((message) => message.type === "list").map((message) => ({ ...message }));
const wishes = (): Record<string, unknown>[] => wire.heard.filter((message) => message.type === "wish").map((message) => ({ ...message }));
const box = (id: string): HTMLInputElement => wire.page.querySelector<HTMLInputElement>(`tr[data-run="${id}"] input`) ?? raise(id);
const raise = (id: string): never => { throw new Error(`no run ${id}`); };

test("each run is a row that says what tells it from others", () => {
  show([
    run("parse", { status: "failed", about: "KeyError: 'label' in parse, rows[1342] and 2 more", is_error: true, stand: "1,398 of 2,000 kept", tags: ["tickets"], cells: ["", "", "", "", "$1.96"], commands: ["resume"] }),
    run("audit", { status: "running", stand: "58 of 60", done: 58, total: 60, worked_us: 20_000_000, since_us: NOW - 3_000_000, commands: ["cancel"] }),
  ], { running: 1, week_cost: 14.2 });
  const [failed, running] = rows().map((row) => row.textContent);
  for (const part of ["parse", "tickets", "KeyError: 'label'", "✕ failed", "1,398 of 2,000 kept", "2.5 s", "$1.96", "today", "Resume"]) expect(failed).toContain(part);
  for (const part of ["▸ running", "58 of 60", "23.0 s", "Cancel …"]) expect(running).toContain(part);
  expect(text()).toContain("2 runs in the store · 1 running · $14.20 spent this week");
  vi.advanceTimersByTime(2_000);
  expect(rows()[1]?.textContent).toContain("25.0 s");
});

test("what is no run of its own has a badge", () => {
  show([run("audit"), run("if", { workflow: "audit", badge: "what-if" })]);
  expect(rows().map((row) => row.querySelector(".badge")?.textContent)).toEqual([undefined, "what-if"]);
});

test("columns that Python defines have a title and a cell in each row", () => {
  const titles = (): string[] => [...wire.page.querySelectorAll("th")].map((cell) => cell.textContent).filter((title) => title !== "");
  const columns = [...COLUMNS.slice(0, 2), { title: "owner", by: "" as const, is_number: false }];
  show([run("a", { cells: ["", "", "ann"] }), run("b", { cells: ["", "", "bob"] })], { columns });
  expect(titles()).toEqual(["Workflow", "Status", "Owner", "Actions"]);
  expect(rows().map((row) => row.querySelector("td.further")?.textContent)).toEqual(["ann", "bob"]);
  show([run("a"), run("b")]);
  expect(titles()).toEqual(["Workflow", "Status", "Started", "Worked", "Cost", "Actions"]);
  expect(rows().map((row) => row.children.length)).toEqual([7, 7]);
});

test("filters are sent as they are chosen, and shown as the kernel has them", () => {
  show([run("a"), run("b", { status: "failed" })], { tags: ["nightly"] });
  expect(text()).toContain("All 2");
  buttonOf(wire.page, "Failed 1").click();
  expect(asked().at(-1)).toMatchObject({ status: "failed", text: "", view: view() });
  type(wire.page.querySelector("input[type=search]"), "refund");
  vi.advanceTimersByTime(300);
  expect(asked().at(-1)).toMatchObject({ status: "failed", text: "refund" });
  show([], { query: { ...QUERY, status: "failed", text: "refund" }, total: 2, near: "fund" });
  expect(text()).toContain("Did you mean “fund”?");
  buttonOf(wire.page, "Clear the filters").click();
  expect(asked().at(-1)).toMatchObject({ status: "", text: "" });
  buttonOf(wire.page, "Cost").click();
  expect(asked().at(-1)).toMatchObject({ by: "cost" });
});

test("a row that says the same stays the same element, and the focus stays in one that changes", () => {
  show([run("a"), run("b")]);
  const [first] = rows();
  wire.page.querySelector<HTMLElement>("tr[data-run=b] .name")?.focus();
  show([run("new"), run("a"), run("b", { tags: ["seen"] })]);
  expect(rows()[1]).toBe(first);
  expect(document.activeElement?.textContent).toBe("b");
  expect(rows()[2]?.textContent).toContain("seen");
});

test("keys go from run to run, choose and open", () => {
  show([run("a"), run("b")]);
  const name = wire.page.querySelector<HTMLElement>(".name");
  const press = (key: string): void => { document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); };
  name?.focus();
  press("ArrowDown");
  expect(document.activeElement?.textContent).toBe("b");
  press(" ");
  expect(box("b").checked).toBe(true);
  press("Enter");
  expect(wishes().at(-1)).toMatchObject({ command: "open", executions: ["b"] });
});

test("a run is cancelled only once a person has said so", () => {
  show([run("audit", { status: "running", stand: "58 of 60", total: 60, done: 58, commands: ["cancel"] })]);
  buttonOf(wire.page, "Cancel …").click();
  expect(wishes()).toEqual([]);
  expect(text()).toContain("Cancel the run of audit? 58 of 60 items are saved.");
  buttonOf(wire.page, "Keep running").click();
  expect(text()).not.toContain("are kept");
  buttonOf(wire.page, "Cancel …").click();
  buttonOf(wire.page, "Cancel the run").click();
  expect(wishes()).toMatchObject([{ command: "cancel", executions: ["audit"] }]);
});

test("several are chosen, resumed as far as they can be, and tagged; what is refused is said", async () => {
  show([run("a", { status: "failed", commands: ["resume"] }), run("b"), run("c")]);
  box("a").click();
  box("b").click();
  expect(text()).toContain("2 selected");
  buttonOf(wire.page, "Resume 1").click();
  expect(wishes().at(-1)).toMatchObject({ command: "resume", executions: ["a"] });
  wire.say({ type: "ack", id: String(wishes().at(-1)?.["id"]), accepted: false, text: "a: another process runs it" });
  await vi.advanceTimersByTimeAsync(0);
  expect(wire.page.querySelector(".notice.wrong")?.textContent).toBe("a: another process runs it");
  buttonOf(wire.page, "Tag …").click();
  type(wire.page.querySelector(".bulk input"), " baseline ");
  buttonOf(wire.page, "Add").click();
  expect(wishes().at(-1)).toMatchObject({ command: "tag", executions: ["a", "b"], tags: ["baseline"] });
  wire.say({ type: "ack", id: String(wishes().at(-1)?.["id"]), accepted: true, text: "" });
  await vi.advanceTimersByTimeAsync(0);
  expect(wire.page.querySelector<HTMLElement>(".bulk")?.hidden).toBe(true);
});

test("what is being asked in the bar stays while the list changes", () => {
  show([run("a"), run("b")]);
  box("a").click();
  buttonOf(wire.page, "Tag …").click();
  type(wire.page.querySelector(".bulk input"), "half a wo");
  show([run("a", { tags: ["x"] }), run("b"), run("c")]);
  expect(wire.page.querySelector<HTMLInputElement>(".bulk input")?.value).toBe("half a wo");
});

test("what was asked about runs that are no longer listed is asked no more", () => {
  show([run("a"), run("b")]);
  box("a").click();
  buttonOf(wire.page, "Tag …").click();
  show([run("b")]);
  expect(wire.page.querySelector<HTMLElement>(".bulk")?.hidden).toBe(true);
});

test("questions stand beside the list and are answered in place", () => {
  show([run("order", { status: "waiting", stand: "1 question", questions: 1 })]);
  expect(text()).toContain("No open questions");
  wire.say({ type: "inbox", view: view(), last: 1, now_us: NOW, hidden: 0, asked: [{ execution_id: "order", workflow: "order", cell: "", trial_of: "", question: question({ interrupt_id: "ask_1", kind: "confirmation", question: "Order it?" }) }] });
  expect(text()).toContain("? 1 question for you");
  buttonOf(wire.page, "Approve").click();
  expect(wire.heard.at(-1)).toMatchObject({ type: "answer", interrupt_id: "ask_1", response: { approved: true } });
});

test("a page for another view is not ours, and a store without runs says how to begin", () => {
  show([run("a")], { view: "somebody" });
  expect(rows()).toEqual([]);
  show([], { total: 0 });
  expect(text()).toContain("No runs yet");
  expect(text()).toContain("%%dive workflow hello");
});

test("nothing serious is wrong for people who cannot see it", async () => {
  show([run("a", { status: "running", stand: "1 of 2", done: 1, total: 2, commands: ["cancel"] }), run("b", { status: "failed", is_error: true, about: "no", commands: ["resume"] })]);
  box("a").click();
  vi.useRealTimers();
  const { violations } = await axe.run(wire.page, { rules: { "color-contrast": { enabled: false }, region: { enabled: false } } });
  expect(violations.filter(({ impact }) => impact === "serious" || impact === "critical").map(({ id, nodes }) => [id, nodes[0]?.html])).toEqual([]);
});

test("a filter is saved under a name, chosen again and deleted", () => {
  localStorage.clear();
  const menu = (): HTMLSelectElement | null => wire.page.querySelector("select[aria-label='Saved filters']");
  show([run("a")]);
  expect([menu()?.hidden, buttonOf(wire.page, "Save filter").hidden]).toEqual([true, true]);
  show([run("a")], { query: { ...QUERY, status: "failed", tag: "nightly" } });
  buttonOf(wire.page, "Save filter").click();
  type(wire.page.querySelector("input[aria-label='Name of the filter']"), "broken");
  buttonOf(wire.page, "Save filter").click();
  expect([menu()?.hidden, menu()?.value, buttonOf(wire.page, "Save filter").hidden]).toEqual([false, "broken", true]);
  show([run("a")]);
  expect(menu()?.value).toBe("");
  const select = menu();
  if (select !== null) select.value = "broken";
  select?.dispatchEvent(new Event("change"));
  expect(asked().at(-1)).toMatchObject({ status: "failed", tag: "nightly", text: "" });
  show([run("a")], { query: { ...QUERY, status: "failed", tag: "nightly" } });
  buttonOf(wire.page, "Delete filter").click();
  expect([menu()?.hidden, localStorage.getItem("divebook:filters")]).toEqual([true, "{}"]);
});

test("a long text about a run is one line that unfolds, and two runs are compared", () => {
  const about = "KeyError: 'label' in parse, rows[1342] and 2 more";
  show([run("a", { is_error: true, about }), run("b", { about: "50 rows" })]);
  const text = rows()[0]?.querySelector<HTMLElement>("button.about");
  text?.click();
  show([run("a", { is_error: true, about, tags: ["new"] }), run("b", { about: "50 rows", began_us: NOW - 2 * HOUR })]);
  expect(rows().map((row) => row.querySelector(".about")?.getAttribute("aria-expanded"))).toEqual(["true", null]);
  box("a").click();
  box("b").click();
  buttonOf(wire.page, "Compare 2").click();
  expect(wishes().at(-1)).toMatchObject({ command: "compare", executions: ["b", "a"] });
});
