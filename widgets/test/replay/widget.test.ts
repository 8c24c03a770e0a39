// The replay's widget against a kernel that is slow to hear.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { EventsAnswer, ReplayToBrowser, ReplayToKernel } from "../../src/protocol";
import widget from "../../src/replay";
import { runOverview } from "../../src/replay/overview";
import type { View } from "../../src/shared/dom";
import type { Model } from "../../src/shared/model";
import { welcome } from "../blocks";

let heard: ReplayToKernel[];
let say: (message: ReplayToBrowser) => void;
let end: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  heard = [];
  const listeners = new Set<(message: ReplayToBrowser) => void>();
  const model = {
    get: () => undefined,
    send: (message: ReplayToKernel) => heard.push(message),
    on: (_: string, listener: (message: ReplayToBrowser) => void) => listeners.add(listener),
    off: (_: string, listener: (message: ReplayToBrowser) => void) => listeners.delete(listener),
  };
  say = (message) => { listeners.forEach((listener) => { listener(message); }); };
  document.body.replaceChildren();
  end = widget.render({ model, el: document.body } as unknown as Parameters<typeof widget.render>[0]);
});

afterEach(() => {
  end();
  vi.useRealTimers();
});

function events(after: number, count: number, total: number): EventsAnswer {
  const zeros = Array<number>(count).fill(0);
  const view = heard[0]?.view ?? "";
  return { type: "events", view, total, events: { first: after + 1, sequence: Array.from({ length: count }, (_, row) => after + 1 + row), origin_us: 0, names: [""], time: zeros, type: zeros, path: zeros, step: zeros, text: zeros, kind: zeros, item: zeros } };
}

function asked(type: string): ReplayToKernel[] {
  return heard.filter((message) => message.type === type);
}

test("events are asked for until they come, page by page", async () => {
  expect(asked("events")).toHaveLength(1);
  vi.advanceTimersByTime(4500);
  expect(asked("events")).toHaveLength(3);
  say(events(0, 5_000, 5_005));
  await vi.advanceTimersByTimeAsync(0);
  expect(asked("events").at(-1)).toMatchObject({ after: 5_000 });
  say(events(5_000, 5, 5_005));
  await vi.advanceTimersByTimeAsync(5000);
  expect(document.querySelector(".place")?.textContent).toBe("event 0 of 5,005");
  expect(asked("events")).toHaveLength(4);
});

test("a state that is refused, and a kernel that is gone, are told", async () => {
  say({ type: "state", view: heard[0]?.view ?? "", sequence: 0, state: null, error: "there is no position 0" });
  await vi.advanceTimersByTimeAsync(0);
  expect(document.querySelector(".wrong")?.textContent).toBe("there is no position 0");
  await vi.advanceTimersByTimeAsync(30_000);
  expect(document.querySelector(".wrong")?.textContent).toContain("The kernel does not answer");
});

test("answers to other views are not taken, and nothing is sent after the end", () => {
  say({ ...events(0, 5, 5), view: "another" });
  expect(document.querySelector(".place")?.textContent).toBe("event 0 of 0");
  end();
  const before = heard.length;
  vi.advanceTimersByTime(60_000);
  expect(heard).toHaveLength(before);
});

test("it goes where a cell has moved the replay", async () => {
  say(events(0, 5, 5));
  await vi.advanceTimersByTimeAsync(0);
  say({ type: "go", sequence: 3 });
  expect(document.querySelector(".place")?.textContent).toContain("event 3 of 5");
});

test("before its events have come, no event is asked for that cannot be", () => {
  expect(asked("state")).toHaveLength(1);
  expect(asked("event")).toHaveLength(0);
});

test("the kernel is told where somebody has gone, once in a while, and not where it has led", async () => {
  say(events(0, 5, 5));
  await vi.advanceTimersByTimeAsync(200);
  say({ type: "go", sequence: 3 });
  await vi.advanceTimersByTimeAsync(200);
  expect(asked("at")).toEqual([]);
  const list = document.querySelector("[role=listbox]");
  const forward = (): void => { list?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true })); };
  forward();
  forward();
  await vi.advanceTimersByTimeAsync(200);
  expect(asked("at")).toMatchObject([{ sequence: 5 }]);
  list?.dispatchEvent(new KeyboardEvent("keydown", { key: "Home", bubbles: true }));
  say({ type: "go", sequence: 2 }); // a cell was later
  await vi.advanceTimersByTimeAsync(200);
  expect(asked("at")).toHaveLength(1);
});

test("a call that is chosen in the picture is gone to", async () => {
  const gone: number[] = [];
  const made: Model[] = [];
  const make = (model: Model): View => {
    made.push(model);
    return { element: document.createElement("p"), destroy: () => undefined };
  };
  const view = runOverview({ welcome: () => Promise.resolve(welcome([{ id: 0, start: 0, end: 5 }, { id: 1, start: 1, end: 4 }])), load: () => Promise.resolve({ default: { style: "", make } }) }, (sequence) => { gone.push(sequence); }, () => undefined);
  await vi.advanceTimersByTimeAsync(0);
  const [pictured] = made;
  view.setPosition({ sequence: 2, time: 3, step: "s1" });
  expect(pictured?.position).toEqual({ sequence: 2, time: 3, step: "s1" });
  pictured?.select(1);
  expect(gone).toEqual([2]);
  view.destroy();
});

test("of more calls than are sent the picture says how many there are", async () => {
  const make = (): View => ({ element: document.createElement("p"), destroy: () => undefined });
  const load = (): Promise<unknown> => Promise.resolve({ default: { style: "", make } });
  const rows = [{ id: 0, start: 0, end: 5 }, { id: 700, start: 1, end: 4 }];
  const hint = async (total: number): Promise<HTMLElement | null> => {
    const view = runOverview({ welcome: () => Promise.resolve(welcome(rows, { total })), load }, () => undefined, () => undefined);
    await vi.advanceTimersByTimeAsync(0);
    return view.element.querySelector<HTMLElement>(".hint");
  };
  expect((await hint(1234))?.textContent).toBe("The timeline shows a sample: 2 of 1,234 steps and calls. For all of them, see run.operations.");
  expect((await hint(2))?.hidden).toBe(true);
});
