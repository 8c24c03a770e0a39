import { StatePanel } from "../../src/replay/state";
import { valueElement } from "../../src/replay/value";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { EventBlock, Header, StateView } from "../../src/protocol";
import { diff } from "../../src/replay/diff";
import { Log } from "../../src/replay/log";
import { Player } from "../../src/replay/player";
import { Replay } from "../../src/replay/replay";
import type { RequestMessages } from "../../src/replay/requestmessages";

const TYPES = ["step_started", "state_mutated", "step_completed"];

/** Makes events of turning types, steps and paths. */
function block(first: number, count: number): EventBlock {
  const names = ["", ...TYPES, "main", "a", "b", "<script>x\u202e"];
  const rows = Array.from({ length: count }, (_, index) => first + index);
  return {
    first,
    sequence: rows,
    origin_us: 0,
    names,
    time: rows.map((sequence) => sequence * 1000),
    type: rows.map((sequence) => ((sequence - 1) % 3) + 1),
    path: rows.map(() => 4),
    step: rows.map((sequence) => (sequence % 2) + 5),
    text: rows.map(() => 7),
    kind: rows.map(() => 0),
    item: rows.map(() => 0),
  };
}

function logOf(count: number): Log {
  const log = new Log();
  log.add(block(1, count));
  return log;
}

function state(sequence: number): StateView {
  return { sequence, status: "running", inputs: {}, outputs: {}, variables: { n: sequence, same: [1] }, paths: [], usage: {}, pending: [], error: "" };
}

beforeEach(() => { vi.useFakeTimers(); });
afterEach(() => { vi.useRealTimers(); });

test("a log takes over what follows and leaves out what it knows", () => {
  const log = logOf(10);
  expect(log.add(block(1, 10))).toBe(false);
  expect(log.add(block(11, 5))).toBe(true);
  expect(log.length).toBe(15);
  expect(log.at(12)).toMatchObject({ sequence: 12, type: "step_completed", path: "main", step: "a" });
  expect([log.at(0), log.at(16)]).toEqual([undefined, undefined]);
  expect(log.values("step")).toEqual(["a", "b"]);
});

test("of a sample the events have places, and keep their numbers", async () => {
  const sample = { ...block(1, 5), sequence: [1, 40, 41, 900, 52_310] };
  const log = new Log();
  log.add(sample);
  expect([0, 1, 2, 5].map((place) => log.sequenceAt(place))).toEqual([0, 1, 40, 52_310]);
  expect([0, 1, 39, 40, 899, 900, 60_000].map((sequence) => log.placeOf(sequence))).toEqual([0, 1, 1, 2, 3, 4, 5]);
  const asked: number[] = [];
  const replay = await shown(0, (sequence) => {
    asked.push(sequence);
    return Promise.resolve(state(sequence));
  });
  replay.add(sample);
  replay.go(900);
  press("ArrowRight");
  await vi.advanceTimersByTimeAsync(0);
  expect(asked).toEqual([0, 900, 52_310]);
  expect(document.querySelector(".place")?.textContent).toBe("event 52,310 of 52,310 · 5 ms");
  expect(document.body.textContent).toContain("State after event 52,310");
});

test("the next and the previous event of a type are found", () => {
  const player = new Player(logOf(30), () => undefined);
  expect(player.seek(1, ({ type }) => type === "step_completed")).toBe(true);
  expect(player.position).toBe(3);
  player.seek(1, ({ type }) => type === "step_completed");
  expect(player.position).toBe(6);
  player.seek(-1, ({ type }) => type === "step_completed");
  expect(player.position).toBe(3);
  expect(player.seek(-1, ({ type }) => type === "step_completed")).toBe(false);
  expect(player.position).toBe(3);
});

test("playing keeps its speed and ends with the log", () => {
  const player = new Player(logOf(30), () => undefined);
  player.speed = 10;
  player.play();
  vi.advanceTimersByTime(1050);
  expect(player.position).toBe(10);
  vi.advanceTimersByTime(10_000);
  expect([player.position, player.isPlaying]).toEqual([30, false]);
  player.play();
  expect(player.position).toBe(0);
});

test("playing stops at a breakpoint, however fast it is", () => {
  const player = new Player(logOf(3000), () => undefined);
  player.speed = 500;
  player.go(4);
  player.toggle("type", "step_completed");
  player.play();
  vi.advanceTimersByTime(1000);
  expect([player.position, player.isPlaying]).toEqual([6, false]);
  player.breakpoints.forEach((mark) => { mark.isOn = false; });
  player.play();
  vi.advanceTimersByTime(1050);
  expect(player.position).toBeGreaterThan(400);
  player.toggle("type", "step_completed");
  expect(player.breakpoints).toEqual([]);
});

test("breakpoints stand at types, steps and paths", () => {
  const player = new Player(logOf(9), () => undefined);
  player.toggle("step", "a");
  expect([player.seekBreakpoint(1), player.position]).toEqual([true, 2]);
  player.toggle("step", "a");
  expect(player.seekBreakpoint(1)).toBe(false);
  player.toggle("path", "main");
  player.seekBreakpoint(1);
  expect(player.position).toBe(3);
});

test("differences are rows by place", () => {
  const before = { a: 1, b: { c: [1, 2], d: "x" }, gone: true, paths: [{ id: "p", step: "a" }, { id: "q", step: "z" }] };
  const after = { a: 1, b: { c: [1, 3, 4], d: "x" }, paths: [{ id: "q", step: "z" }, { id: "p", step: "b" }], now: null };
  expect(diff(before, after)).toEqual([
    { path: "b.c.1", kind: "changed", before: 2, after: 3 },
    { path: "b.c.2", kind: "added", before: undefined, after: 4 },
    { path: "gone", kind: "removed", before: true, after: undefined },
    { path: "paths.p.step", kind: "changed", before: "a", after: "b" },
    { path: "now", kind: "added", before: undefined, after: null },
  ]);
});

test("values of another kind are one change, equal ones none", () => {
  expect(diff({ a: [1] }, { a: { 0: 1 } })).toHaveLength(1);
  expect(diff({ a: null }, { a: {} })).toEqual([{ path: "a", kind: "changed", before: null, after: {} }]);
  expect(diff({ a: [{ x: 1 }] }, { a: [{ x: 1 }] })).toEqual([]);
});

type SaidAt = (sequence: number) => Promise<RequestMessages>;

async function shown(count: number, stateAt = (sequence: number): Promise<StateView> => Promise.resolve(state(sequence)), saidAt: SaidAt = () => Promise.resolve({ asked: 0, parts: [] })): Promise<Replay> {
  const eventAt = (sequence: number): Promise<never> => Promise.resolve({ sequence, event_type: "x", recorded_us: 1, data: { evil: "<img>\u202e" } } as never);
  const replay = new Replay({ stateAt, eventAt, messagesAt: saidAt });
  document.body.replaceChildren(replay.element);
  replay.add(block(1, count), count);
  replay.complete();
  await vi.advanceTimersByTimeAsync(0);
  return replay;
}

function press(key: string, target: Element | null = document.querySelector("[role=listbox]")): void {
  target?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
}

test("stepping shows the state and what changed", async () => {
  const replay = await shown(100);
  replay.go(5);
  await vi.advanceTimersByTimeAsync(0);
  press("ArrowRight");
  await vi.advanceTimersByTimeAsync(0);
  expect(document.querySelector(".place")?.textContent).toBe("event 6 of 100 · 6 ms");
  expect(document.body.textContent).toContain("Before event 6");
  const changed = document.querySelector(".changed")?.closest("tr");
  expect([...(changed?.children ?? [])].map((cell) => cell.textContent)).toEqual(["≠", "n", "5", "6"]);
  expect(document.body.textContent).toContain("State after event 6");
  press("Home");
  expect(document.querySelector(".place")?.textContent).toBe("event 0 of 100");
  press("End");
  expect(document.querySelector("[aria-selected=true]")?.getAttribute("data-place")).toBe("100");
});

test("costs and durations of a position are in the units of people", () => {
  const usage = { requests: 1, input_tokens: 10_800, cost: 48_000_000 };
  const event = { sequence: 6, event_type: "operation_completed", recorded_us: 6, data: { operation_id: "op_1", duration: 12_000_000, usage, result: null } };
  const panel = new StatePanel(() => Promise.reject(new Error("no messages")));
  document.body.append(panel.element);
  panel.show(event, { ...state(5), usage: { ...usage, cost: 44_000_000 } }, { ...state(6), usage });
  const text = panel.element.textContent;
  for (const part of ["running · 1 request · 10,800 input tokens · $0.0480", "cost$0.0440$0.0480", "duration12 ms", "usage1 request, 10,800 input tokens, $0.0480"]) {
    expect(text).toContain(part);
  }
  expect(text).not.toMatch(/\d{8}|000,000/);
});

/** Answers that come when a test lets them, in any order. */
function held(): { asked: number[]; stateAt: (sequence: number) => Promise<StateView>; answer: (sequence: number) => Promise<void> } {
  const waiting = new Map<number, () => void>();
  const asked: number[] = [];
  const stateAt = (sequence: number): Promise<StateView> => {
    asked.push(sequence);
    return new Promise((resolve) => waiting.set(sequence, () => { resolve(state(sequence)); }));
  };
  const answer = async (sequence: number): Promise<void> => {
    waiting.get(sequence)?.();
    await vi.advanceTimersByTimeAsync(0);
  };
  return { asked, stateAt, answer };
}

const panel = (): Element | null => document.querySelector(".panel");

test("number and bar move at once, and the state is dimmed until that of the position is here", async () => {
  const { stateAt, answer } = held();
  const replay = await shown(60_000, stateAt);
  await answer(0);
  expect([panel()?.getAttribute("aria-busy"), panel()?.querySelector<HTMLElement>(".loading")?.hidden]).toEqual(["false", true]);
  replay.go(52_310);
  expect(document.querySelector(".place")?.textContent).toContain("event 52,310 of 60,000");
  expect(document.querySelector<HTMLInputElement>("[type=range]")?.value).toBe("52310");
  expect(panel()?.getAttribute("aria-busy")).toBe("true");
  expect(panel()?.querySelector(".loading")?.textContent).toBe("loading event 52,310");
  expect(panel()?.textContent).not.toContain("State after event 52,310");
  await answer(52_310);
  expect(panel()?.getAttribute("aria-busy")).toBe("false");
  expect(panel()?.textContent).toContain("State after event 52,310");
});

test("what comes late or out of order is never shown under another number", async () => {
  const { stateAt, answer } = held();
  const replay = await shown(100, stateAt);
  await answer(0);
  replay.go(10);
  replay.go(20);
  await answer(20);
  expect(panel()?.textContent).toContain("State after event 20");
  await answer(10);
  expect(panel()?.textContent).toContain("State after event 20");
  expect(panel()?.getAttribute("aria-busy")).toBe("false");
  replay.go(30);
  expect(panel()?.querySelector(".loading")?.textContent).toBe("loading event 30");
  replay.go(20);
  expect(panel()?.getAttribute("aria-busy")).toBe("false");
  await answer(30);
  expect(panel()?.textContent).toContain("State after event 20");
  replay.go(10);
  expect(panel()?.textContent).toContain("State after event 10");
});

test("no more is asked for at a time than a few positions, and in the end the present one", async () => {
  const { asked, stateAt, answer } = held();
  const replay = await shown(100, stateAt);
  for (let position = 1; position <= 50; position += 1) replay.go(position);
  expect(asked).toEqual([0, 1, 2]);
  await answer(1);
  expect(asked).toEqual([0, 1, 2, 50]);
  await answer(50);
  expect(panel()?.textContent).toContain("State after event 50");
});

test("a state that cannot be had is told", async () => {
  const replay = await shown(3, (sequence) => (sequence === 0 ? Promise.resolve(state(0)) : Promise.reject(new Error("the kernel is gone"))));
  replay.go(1);
  await vi.advanceTimersByTimeAsync(0);
  expect(document.querySelector(".wrong")?.textContent).toBe("the kernel is gone");
  expect(document.querySelector(".panel")?.getAttribute("aria-busy")).toBe("false");
});

test("of a long log only what is seen is on the page", async () => {
  await shown(100_000);
  expect(document.querySelectorAll("[role=option]").length).toBeLessThan(60);
});

test("breakpoints are added, switched off and taken away", async () => {
  await shown(30);
  const details = document.querySelector<HTMLDetailsElement>(".breakpoints");
  details?.dispatchEvent(new Event("toggle"));
  const [, value] = details?.querySelectorAll("select") ?? [];
  if (value !== undefined) value.value = "state_mutated";
  details?.querySelector("button")?.click();
  expect(details?.querySelector("li")?.textContent).toContain("type: variables changed");
  click("Go to the next breakpoint");
  expect(document.querySelector("[aria-selected=true]")?.getAttribute("data-place")).toBe("2");
  expect(document.querySelector("[aria-selected=true] .dot")?.textContent).toBe("●");
  details?.querySelector<HTMLInputElement>("li input")?.click();
  click("Go to the next breakpoint");
  expect(document.querySelector("[aria-selected=true]")?.getAttribute("data-place")).toBe("2");
  details?.querySelector<HTMLButtonElement>("li button")?.click();
  expect(details?.querySelector("li")).toBeNull();
});

test("hostile texts are text", async () => {
  const replay = await shown(3);
  replay.go(1);
  await vi.advanceTimersByTimeAsync(0);
  expect(document.querySelector("script, img")).toBeNull();
  expect(document.body.textContent).toContain("<img>\\u202e");
});

/** Makes a log of one step in which much happens. */
function eventful(): EventBlock {
  const rows: [type: string, step: string, text: string][] = [
    ["step_started", "ask", ""],
    ["operation_started", "ask", "agent_response"],
    ["operation_failed", "ask", "429"],
    ["operation_started", "work", "action_call"],
    ["state_mutated", "work", "n, total"],
    ["interrupt_raised", "judge", "Which?"],
    ["operation_started", "ask", "cached_response"],
    ["state_mutated", "work", "n"],
  ];
  const names = ["", "main", ...new Set(rows.flat())].filter((name, place, all) => all.indexOf(name) === place);
  const column = (part: 0 | 1 | 2): number[] => rows.map((row) => names.indexOf(row[part]));
  const numbers = rows.map((_, row) => row + 1);
  return { first: 1, sequence: numbers, origin_us: 0, names, time: numbers, type: column(0), path: numbers.map(() => 1), step: column(1), text: column(2), kind: numbers.map(() => 0), item: numbers.map(() => 0) };
}

function click(label: string): void {
  document.querySelector<HTMLButtonElement>(`[aria-label="${label}"]`)?.click();
}

function listed(): string[] {
  return [...document.querySelectorAll(".event .number")].map((cell) => cell.textContent);
}

async function eventfulReplay(): Promise<() => number> {
  const replay = await shown(0, (sequence) => Promise.resolve(state(sequence)));
  replay.add(eventful());
  return () => Number(/event (\d+) of/u.exec(document.querySelector(".place")?.textContent ?? "")?.[1]);
}

test.each([
  ["Go to the next error", [3, 3]],
  ["Go to the next question", [6, 6]],
  ["Go to the next model call", [2, 7, 7]],
  ["Go to the next change of the variable", [5, 8, 8]],
])("%s: to each in turn, and it stays behind the last", async (label, wanted) => {
  const position = await eventfulReplay();
  const met = wanted.map(() => { click(label); return position(); });
  expect(met).toEqual(wanted);
  expect(document.querySelector(".ways [role=status]")?.textContent).toMatch(/^There is no .* after this event\.$/u);
});

test("it goes back to where a variable changed last", async () => {
  const position = await eventfulReplay();
  const variable = document.querySelector<HTMLSelectElement>("[aria-label='Variable whose changes to find']");
  expect([...(variable?.options ?? [])].map(({ value }) => value)).toEqual(["n", "total"]);
  press("End");
  click("Go to the previous change of the variable");
  expect(position()).toBe(5);
  if (variable !== null) variable.value = "total";
  press("End");
  click("Go to the previous change of the variable");
  expect(position()).toBe(5);
  click("Go to the previous change of the variable");
  expect(document.querySelector(".ways [role=status]")?.textContent).toBe("There is no change of total before this event.");
});

test("a change is that of the event, however far somebody came from, and other values are the same", async () => {
  const values = (sequence: number): StateView => ({ ...state(sequence), variables: { n: sequence, list: sequence < 50 ? [1] : [1, { deep: sequence }], kept: "k" } });
  const replay = await shown(100, (sequence) => Promise.resolve(values(sequence)));
  replay.go(50);
  await vi.advanceTimersByTimeAsync(0);
  const rows = [...document.querySelectorAll("[role=tabpanel]:not([hidden]) tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent));
  expect(rows.slice(0, 4)).toEqual([
    ["", "kept", "same", "k"],
    ["≠", "list", "[1]", '[1, {deep: 50}]'],
    ["+", "· 1", "", "{deep: 50}"],
    ["≠", "n", "49", "50"],
  ]);
});

test("where nothing was set nobody is offered a variable", async () => {
  await shown(0, (sequence) => Promise.resolve(state(sequence)));
  expect(document.querySelector("[aria-label='Variable whose changes to find']")?.closest<HTMLElement>(".row[hidden]")).not.toBeNull();
});

test("messages are asked for once somebody looks, and are those of the position", async () => {
  const asked: number[] = [];
  const replay = await shown(0, (sequence) => Promise.resolve(state(sequence)), (sequence) => {
    asked.push(sequence);
    return sequence === 8 ? Promise.reject(new Error("not in this file")) : Promise.resolve({ asked: 2, parts: [{ kind: "user", text: `said at ${sequence}`, call: "" }] });
  });
  replay.add(eventful());
  replay.go(3);
  await vi.advanceTimersByTimeAsync(0);
  expect(asked).toEqual([]);
  [...document.querySelectorAll<HTMLElement>("[role=tab]")].find(({ textContent }) => textContent === "Messages")?.click();
  await vi.advanceTimersByTimeAsync(0);
  expect(document.querySelector("[role=tabpanel]:not([hidden])")?.textContent).toBe("Messages of the model request at event 2, as the model received them.Usersaid at 3");
  replay.go(8);
  await vi.advanceTimersByTimeAsync(0);
  expect(asked).toEqual([3, 8]);
  expect(document.querySelector("[role=tabpanel]:not([hidden]) .wrong")?.textContent).toBe("not in this file");
});

test("breakpoints stand at calls and at changes of a variable", () => {
  const log = new Log();
  log.add(eventful());
  const player = new Player(log, () => undefined);
  expect([log.values("operation"), log.values("variable")]).toEqual([["action_call", "agent_response", "cached_response"], ["n", "total"]]);
  player.toggle("operation", "action_call");
  player.toggle("variable", "n");
  const met = [1, 2, 3].map(() => (player.seekBreakpoint(1) ? player.position : 0));
  expect(met).toEqual([4, 5, 8]);
});

test("it says where it stands, each time", async () => {
  const stood: unknown[] = [];
  const replay = new Replay({ stateAt: (sequence) => Promise.resolve(state(sequence)), eventAt: () => Promise.reject(new Error("none")), messagesAt: () => Promise.reject(new Error("none")) }, (at) => { stood.push(at); });
  replay.add(eventful());
  replay.go(4);
  expect(stood.at(-1)).toEqual({ sequence: 4, time: 4, step: "work" });
  await vi.advanceTimersByTimeAsync(0);
  replay.destroy();
});

test("the list shows the events of a step, or with a word, and says how many", async () => {
  await eventfulReplay();
  const step = document.querySelector<HTMLSelectElement>("[aria-label='Filter events by step']");
  const word = document.querySelector<HTMLInputElement>("[aria-label='Search events']");
  if (step === null || word === null) throw new Error("there is no filter");
  step.value = "ask";
  step.dispatchEvent(new Event("change"));
  expect(listed()).toEqual(["1", "2", "3", "7"]);
  expect(document.querySelector(".filter [role=status]")?.textContent).toBe("4 of 8");
  word.value = " 429";
  word.dispatchEvent(new Event("input"));
  expect(listed()).toEqual(["3"]);
  step.value = "";
  word.value = "";
  step.dispatchEvent(new Event("change"));
  expect(listed()).toHaveLength(8);
});

test("playing stops at an error where somebody wants that", () => {
  const log = new Log();
  log.add(eventful());
  const player = new Player(log, () => undefined);
  player.toggle("error", "any");
  expect(player.seekBreakpoint(1)).toBe(true);
  expect(player.position).toBe(3);
  expect(player.seekBreakpoint(1)).toBe(false);
});

test("the envelope of a pipeline stands in a table of its own, from the input on, with what the event changed in it", async () => {
  const given = { envelope_id: "env_1", raw_input: "Write it", current_stage: "start", errors: [], outputs: {}, iteration: 0 };
  const at = (sequence: number): StateView => {
    const held = { envelope: { ...given, current_stage: "draft", outputs: { draft: { text: "one" } } }, next: ["check"] };
    return { ...state(sequence), inputs: { envelope: given }, variables: sequence < 2 ? {} : { pipeline: held } };
  };
  const replay = await shown(2, (sequence) => Promise.resolve(at(sequence)));
  const rows = (head: string): string[] => [...replay.element.querySelectorAll("table")]
    .filter((table) => table.querySelector("thead")?.textContent.includes(head))
    .flatMap((table) => [...table.querySelectorAll("tbody tr")].map((row) => row.textContent));
  press("ArrowRight");
  await vi.advanceTimersByTimeAsync(0);
  expect(rows("Envelope")).toEqual(["current_stagesamestart", "envelope_idsameenv_1", "raw_inputsameWrite it"]);
  press("ArrowRight");
  await vi.advanceTimersByTimeAsync(0);
  expect(rows("Envelope")).toEqual(["≠current_stagestartdraft", "envelope_idsameenv_1", '≠outputs{}{draft: {text: one}}', '+· draft{text: one}', "raw_inputsameWrite it"]);
  expect(rows("Variable")).toEqual(['+pipeline{next: [check]}']);
});

test("an event of an item has its number, its kind and its time, and words in place of JSON", async () => {
  const replay = await shown(0);
  const names = ["", "operation_completed", "main", "read", "agent_response", "1", "amount: 12"];
  const column = (place: number): number[] => [place];
  replay.add({ first: 1, sequence: [7], origin_us: 0, names, time: [9_074_000], type: column(1), path: column(2), step: column(3), kind: column(4), item: column(5), text: column(6) }, 7);
  const row = document.querySelector(".event");
  const text = (part: string): string | undefined => row?.querySelector(part)?.textContent ?? undefined;
  expect([".number", ".badge", ".type", ".where", ".text", ".time"].map(text)).toEqual(["7", "M", "model call completed", "read[1]", "amount: 12", "9.07 s"]);
});

test("while a log is loading its progress is shown, and a requested position is not lost", async () => {
  const asked: number[] = [];
  const replay = await shown(0, (sequence) => { asked.push(sequence); return Promise.resolve(state(sequence)); });
  const loading = (): HTMLElement | null => document.querySelector(".filling");
  const place = (): string => document.querySelector(".place")?.textContent ?? "";
  const fresh = new Replay({ stateAt: (sequence) => Promise.resolve(state(sequence)), eventAt: () => Promise.reject(new Error("no event")), messagesAt: () => Promise.reject(new Error("no messages")) });
  replay.destroy();
  document.body.replaceChildren(fresh.element);
  fresh.add(block(1, 10), 30);
  expect(loading()?.textContent).toBe("10 of 30 events loaded");
  fresh.go(25); // not loaded yet
  expect(place()).toContain("event 0 of 30");
  const row = document.querySelector(".event");
  fresh.add(block(11, 10), 30);
  expect(document.querySelector(".event")).toBe(row); // a click that has begun on it is not lost
  expect(place()).toContain("event 0 of 30");
  fresh.add(block(21, 10), 30);
  fresh.complete();
  expect(place()).toContain("event 25 of 30");
  expect(loading()?.hidden).toBe(true);
  const other = new Replay({ stateAt: (sequence) => Promise.resolve(state(sequence)), eventAt: () => Promise.reject(new Error("no event")), messagesAt: () => Promise.reject(new Error("no messages")) });
  document.body.replaceChildren(other.element);
  other.go(Infinity);
  other.add(block(1, 10), 20);
  press("ArrowRight"); // a person has moved it meanwhile: the end is no longer wanted
  other.add(block(11, 10), 20);
  other.complete();
  expect(place()).toContain("event 1 of 20");
});

test("values are shown as people read them", () => {
  const text = (value: unknown): string | null => valueElement(value).textContent;
  expect(text([{ a: 1 }, { a: 2 }])).toBe("[{a: 1}, {a: 2}]");
  expect(text({ $frame: { type: "DataFrame", size: "9 x 3", columns: ["x"], rows: [["1"]] } })).toBe("DataFrame 9 × 3");
  expect(text("long ".repeat(100))).toContain("(500 characters)");
  const records = valueElement(Array.from({ length: 30 }, (_, place) => ({ place, text: "x".repeat(9) })));
  expect(records.textContent).toBe("list, 30 records");
  records.dispatchEvent(new Event("toggle"));
  expect([...records.querySelectorAll("th")].map((cell) => cell.textContent)).toEqual(["place", "text"]);
  expect(records.textContent).toContain("and 10 more");
});

test("why opens the causes of a value in place, and each leads to its event", async () => {
  const causes = [
    { depth: 0, sequence: 8, kind: "set", operation: "script_execution", name: "n", value: "8", text: "step b at event 8" },
    { depth: 1, sequence: 3, kind: "input", operation: "", name: "inputs.x", value: "3", text: "given at the start" },
  ];
  const whyAt = vi.fn((sequence: number, name: string) => (name === "n" ? Promise.resolve(causes) : Promise.reject(new Error(`no cause ${sequence}`))));
  const replay = new Replay({ stateAt: (sequence) => Promise.resolve(state(sequence)), eventAt: (sequence) => Promise.resolve({ sequence, event_type: "x", recorded_us: 1, data: {} }), messagesAt: () => Promise.reject(new Error("no messages")), whyAt });
  document.body.replaceChildren(replay.element);
  replay.add(block(1, 10), 10);
  replay.complete();
  replay.go(9);
  await vi.advanceTimersByTimeAsync(0);
  click("Why n has this value");
  await vi.advanceTimersByTimeAsync(0);
  expect(whyAt).toHaveBeenCalledWith(9, "n");
  expect(document.querySelector(".why .title")?.textContent).toBe("Why is n = 8 after event 9?");
  expect([...document.querySelectorAll(".causes li")].map((row) => row.textContent)).toEqual(["8Sn = 8 step b at event 8Go", "3→inputs.x = 3 given at the startGo"]);
  document.querySelectorAll<HTMLButtonElement>(".causes button")[1]?.click();
  expect(document.querySelector(".place")?.textContent).toContain("event 3 of 10");
  press("Escape", document.querySelector(".why"));
  expect(document.querySelector<HTMLElement>(".why")?.hidden).toBe(true);
});

test("a fork says what it repeats and about what it costs, and its line has the change", async () => {
  const names = ["", "operation_completed", "main", "a", "agent_response", "script_execution"];
  const rows = [1, 2, 3, 4];
  const events = { first: 1, sequence: rows, origin_us: 0, names, time: rows.map((row) => row * 1_000_000), type: rows.map(() => 1), path: rows.map(() => 2), step: rows.map(() => 3), kind: [4, 4, 4, 5], item: [0, 0, 0, 0], text: [0, 0, 0, 0] };
  const stateAt = (sequence: number): Promise<StateView> => Promise.resolve({ ...state(sequence), usage: { cost: sequence * 1_000_000 } });
  const definition = { steps: [{ name: "a", prompt: "Sort ${inputs.x}" }] };
  const replay = new Replay({ stateAt, eventAt: (sequence) => Promise.resolve({ sequence, event_type: "x", recorded_us: 1, data: { definition } }), messagesAt: () => Promise.reject(new Error("no messages")) });
  document.body.replaceChildren(replay.element);
  replay.add(events, 4);
  replay.complete();
  replay.showRun({ execution_id: "exec_1", workflow: "w", status: "completed", started_us: null } as Header, true);
  replay.go(2);
  await vi.advanceTimersByTimeAsync(0);
  const press2 = (label: string): void => { [...document.querySelectorAll("button")].find((one) => one.textContent === label)?.click(); };
  press2("Fork from here");
  await vi.advanceTimersByTimeAsync(0);
  const line = (): string | undefined => document.querySelector(".fork .line")?.textContent ?? undefined;
  expect(document.querySelector(".price")?.textContent).toBe("2 events shared. Repeats 1 model call, 1 script, about $0.0020 and 2.0 s.");
  expect(line()).toBe('import divebook\ndivebook.show("exec_1").fork(2)');
  const change = (text: string): void => {
    const field = document.querySelector<HTMLTextAreaElement>(".fork textarea");
    if (field !== null) field.value = text;
    field?.dispatchEvent(new Event("input"));
  };
  press2("Variable");
  change("[1, None]");
  expect(line()).toContain('.fork(2, {"variables": {"n": [1, None]}})');
  press2("Prompt");
  expect(document.querySelector(".fork .before")?.textContent).toBe("Sort ${inputs.x}");
  change('Say "so"');
  expect(line()).toContain('.fork(2, {"prompts": {"a": "Say \\"so\\""}})');
  expect(document.querySelector(".fork [role=note]")?.textContent).toContain("needs a kernel, but this page has none");
  press2("What-if from here");
  expect(document.querySelector(".fork strong")?.textContent).toBe("What-if at event 2");
  expect(line()).toContain('.what_if({"prompts": {"a": "Say \\"so\\""}}, at=2)');
  press2("Nothing");
  expect(line()).toBe('import divebook\ndivebook.show("exec_1").what_if(at=2)');
  press2("What-if from here");
  expect(document.querySelector<HTMLElement>(".fork")?.hidden).toBe(true);
});
