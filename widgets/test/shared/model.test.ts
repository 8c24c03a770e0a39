import { expect, test } from "vitest";
import { Model } from "../../src/shared/model";
import { delta, HEADER, welcome } from "../blocks";

function modelOf(now = { at: 0 }): Model {
  const model = new Model(() => now.at);
  model.welcome(welcome([{ id: 0, start: 0 }]));
  return model;
}

test("a delta that continues is taken", () => {
  const model = modelOf();
  expect(model.delta(delta([{ id: 1, start: 5, end: 6 }], { total: 2 }))).toBe(true);
  expect([model.spans.total, model.last]).toEqual([2, 11]);
});

test("a delta behind a gap is refused", () => {
  const model = modelOf();
  expect(model.delta(delta([], { after: 12, last: 13 }))).toBe(false);
  expect(model.last).toBe(10);
});

test("a delta that is known already changes nothing but the head", () => {
  const model = modelOf();
  expect(model.delta(delta([{ id: 0, start: 0, end: 1 }], { after: 3, last: 4, total: 1 }))).toBe(true);
  expect([...model.spans.running]).toEqual([0]);
});

test("time goes on between messages while the execution is driven", () => {
  const now = { at: 0 };
  const model = modelOf(now);
  now.at = 250;
  expect(model.now()).toBe(250_000);
  model.delta(delta([], { header: { ...HEADER, live: false } }));
  now.at = 900;
  expect(model.now()).toBe(0);
});

test("the wall clock advances whatever the run does", () => {
  const now = { at: 0 };
  const model = modelOf(now);
  for (const header of [HEADER, { ...HEADER, live: false, doing: "waited" as const, commands: [] }, { ...HEADER, live: false, ended_us: 5 }]) {
    model.delta(delta([], { header }));
    const before = model.wallClock();
    now.at += 250;
    expect(model.wallClock() - before).toBe(250_000);
  }
});

test("streamed text is put together, twice told parts count once, a gap shows", () => {
  const model = modelOf();
  const tell = (at: number, text: string): void => {
    model.delta(delta([], { streamed: [{ id: 0, part: "text", at, text }] }));
  };
  tell(0, "Hello ");
  tell(0, "Hello ");
  tell(3, "lo world");
  expect(model.streams.get(0)?.get("text")?.text).toBe("Hello world");
  tell(20, "later");
  expect(model.streams.get(0)?.get("text")?.text).toBe("Hello world…later");
});

test("what a model thinks and what it says are texts of their own", () => {
  const model = modelOf();
  const streamed = [{ id: 0, part: "thinking", at: 0, text: "Hm" }, { id: 0, part: "text", at: 0, text: "So" }, { id: 0, part: "thinking", at: 2, text: "." }];
  model.delta(delta([], { streamed }));
  expect([...(model.streams.get(0) ?? [])].map(([part, { text }]) => `${part} ${text}`)).toEqual(["thinking Hm.", "text So"]);
});

test("the text of a call that is made again begins anew", () => {
  const model = modelOf();
  for (const [at, text] of [[0, "Roses are"], [0, "Vio"], [3, "lets"]] as const) {
    model.delta(delta([], { streamed: [{ id: 0, part: "text", at, text }] }));
  }
  expect(model.streams.get(0)?.get("text")?.text).toBe("Violets");
});

test("the text of a call that ended is forgotten", () => {
  const model = modelOf();
  model.delta(delta([], { streamed: [{ id: 0, part: "text", at: 0, text: "x" }] }));
  model.delta(delta([{ id: 0, start: 0, end: 1 }], { after: 11, last: 12, total: 1 }));
  expect(model.streams.size).toBe(0);
});

test("history fills in what is older and does not overwrite what is newer", () => {
  const model = new Model(() => 0);
  model.welcome(welcome([{ id: 1, start: 3, end: 9 }, { id: 2, start: 5, end: 6 }], { total: 3 }));
  expect(model.spans.floor).toBe(1);
  const older = welcome([{ id: 0, start: 0, end: 1 }, { id: 1, start: 3 }]);
  model.history({ type: "history", view: "v", first: 0, stop: 2, last: 10, spans: older.spans });
  expect([model.spans.floor, model.spans.end[1], model.spans.has(0)]).toEqual([0, 9, true]);
});

test("a welcome after a gap adds to what is there, one from the start replaces it", () => {
  const model = modelOf();
  model.welcome(welcome([{ id: 1, start: 2, end: 3 }], { since: 10, last: 20, total: 2 }));
  expect([model.spans.has(0), model.spans.has(1)]).toEqual([true, true]);
  model.welcome(welcome([{ id: 0, start: 0, end: 3 }], { last: 5 }));
  expect([model.spans.total, model.spans.has(1), model.last]).toEqual([1, false, 5]);
});

test("nobody hears of one part of a message before all of it is there", () => {
  const model = new Model(() => 0);
  const heard: [string, boolean][] = [];
  model.on((change) => heard.push([change, model.graph.steps.length > 0 && model.last === 10 && model.failures.total === 1 && model.header !== null]));
  const graph = { steps: [{ name: "a" }], edges: [] } as unknown as Model["graph"];
  model.welcome(welcome([{ id: 0, start: 0 }], { graph, failures: { total: 1, kept: "", shown: [] } }));
  expect(heard).toEqual(["spans", "header", "failures", "questions", "graph"].map((change) => [change, true]));
});

test("bars of a run that rests end where nothing ran any more, while its clock goes on as long as it can be asked for something", () => {
  let clock = 0;
  const model = new Model(() => clock);
  const header = { ...HEADER, live: false, doing: "paused", since_us: 3_000_000, now_us: 4_000_000, commands: ["resume"] } as const;
  model.welcome(welcome([{ id: 0, start: 0 }], { header: { ...header, commands: [...header.commands] } }));
  clock = 1_000;
  expect([model.now(), model.clockNow()]).toEqual([2_000_000, 4_000_000]);
  model.delta(delta([], { header: { ...header, commands: [] } }));
  expect(model.clockNow()).toBe(2_000_000);
});
