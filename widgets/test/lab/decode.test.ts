// Runs out of saved notebooks: Python's recording comes back state by state, and what strangers made is refused or harmless.

import { expect, test, vi } from "vitest";
import type { ConversationCall, ConversationPart, ConversationRequest, FailureView, Recording, PackedRun, SpreadView, StateView, StepProgress } from "../../src/protocol";
import { checkSaved, decode } from "../../src/lab/decode";
import { RecordedHost } from "../../src/lab/states";
import { savedRun } from "../../src/lab/view";
import { block } from "../blocks";
import formerSnapshot from "./former_snapshot.json";
import fixture from "./saved.json";

const saved: PackedRun = fixture.saved;
const load = (): Promise<unknown> => import("../../src/graph");
const states = fixture.states as unknown as StateView[];

async function repacked(change: (recording: Recording) => void): Promise<PackedRun> {
  const recording = await decode(saved);
  change(recording);
  return { ...saved, recording: await packed(JSON.stringify(recording)) };
}

async function packed(text: string): Promise<string> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

test("every state is the one that Python saved, in any order", async () => {
  const host = new RecordedHost(await decode(checkSaved(saved)));
  expect(host.last).toBe(states.length - 1);
  for (const sequence of [...states.keys(), ...[...states.keys()].reverse()]) {
    expect(await host.stateAt(sequence)).toEqual(states[sequence]);
  }
});

test("a run that was saved while a snapshot had the status picture has the present words", async () => {
  const packedRun = checkSaved(formerSnapshot);
  expect([formerSnapshot.status, packedRun.status]).toEqual(["picture", "snapshot"]);
  const recording = await decode(packedRun);
  expect(recording.header.status).toBe("snapshot");
  const host = new RecordedHost(recording);
  const types = await Promise.all(recording.events.sequence.map(async (sequence) => (await host.eventAt(sequence)).event_type));
  expect(types.filter((type) => type.startsWith("execution_"))).toEqual(["execution_started", "execution_snapshotted", "execution_annotated"]);
  expect((await host.stateAt(host.last)).status).toBe("snapshot");
  const { element, destroy } = await savedRun(formerSnapshot, "plain", load);
  expect(element.textContent).toContain("snapshot");
  expect(element.textContent).not.toContain("picture");
  destroy();
});

test("a step with the name of a former event type keeps its name", async () => {
  const older = await repacked(({ events }) => {
    events.step = events.type;
    events.names = events.names.map((name) => name === "step_started" ? "execution_pictured" : name);
  });
  const { events } = await decode(older);
  const named = (column: number[]): Set<string | undefined> => new Set(column.map((place) => events.names[place]));
  expect([named(events.step).has("execution_pictured"), named(events.step).has("execution_snapshotted")]).toEqual([true, false]);
  expect([named(events.type).has("execution_pictured"), named(events.type).has("execution_snapshotted")]).toEqual([false, true]);
});

test("events come with their types and data", async () => {
  const host = new RecordedHost(await decode(saved));
  expect(await host.eventAt(1)).toMatchObject({ sequence: 1, event_type: "execution_started", data: { workflow_name: "w" } });
  await expect(host.eventAt(0)).rejects.toThrow("There is no event at this position.");
  await expect(host.stateAt(10_000)).rejects.toThrow("Event 10,000 is not in this file.");
});

test("what the model had been told by then is put together of its conversation", async () => {
  const recording = await decode(saved);
  const said = (kind: "user" | "assistant" | "call", text: string): ConversationPart => ({ kind, text, call: kind === "call" ? "c1" : "" });
  const request = (id: number, number: number, sent: ConversationPart[], answer: ConversationPart[]): ConversationRequest => ({ id, number, sent, answer, instructions: "Be brief.", model: "", finish: "", is_cached: false, input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost: null, tools: [], output: "" });
  const call: ConversationCall = { id: 2, call: "c1", request: 1, tool: "weather", server: "", arguments: { city: "Rome" }, result: "rain", lines: 1, outcome: "returned", turn: -1, questions: [] };
  recording.spans = { ...block([0, 1, 2, 3].map((id) => ({ id, type: id % 2 === 1 ? "agent_response" : "tool_call", start: id }))), sequence: [1, 2, 3, 5] };
  recording.members = [[1], [2, 3], [3], [5, 6]];
  recording.conversations = [{ type: "conversation", view: "", id: 0, last: 9, agent: "a", thread: "", requests: [request(1, 1, [said("user", "How is Rome?")], [said("call", "weather")]), request(3, 2, [], [said("assistant", "It rains.")])], calls: [call], error: "" }];
  const host = new RecordedHost(recording);
  const told = async (sequence: number): Promise<string[]> => (await host.messagesAt(sequence)).parts.map(({ kind, text }) => `${kind} ${text}`);
  expect(await host.messagesAt(1)).toEqual({ asked: 0, parts: [] });
  expect(await told(2)).toEqual(["system Be brief.", "user How is Rome?"]);
  expect(await told(4)).toEqual(["system Be brief.", "user How is Rome?", 'call {\n  "city": "Rome"\n}']);
  expect(await told(5)).toEqual(["system Be brief.", "user How is Rome?", 'call {\n  "city": "Rome"\n}', "result rain"]);
  expect((await told(6)).at(-1)).toBe("assistant It rains.");
  recording.conversations = [];
  await expect(host.messagesAt(2)).rejects.toThrow("The messages of this event are not in this file.");
});

test("what rows gave is there as it was saved, also by who did not say it, and nobody's links are", async () => {
  const olderStep = { step: "s", done: 2, total: 2, failed: 0, running: false, left_us: null, at_us: 0 };
  const step = { ...olderStep, failed_open: 0 };
  const older = await repacked(({ header }) => { header.progress = [olderStep as unknown as StepProgress]; header.dashboards = ["http://elsewhere.example"]; });
  const { header } = await decode(older);
  expect([header.progress, header.dashboards]).toEqual([[{ ...step, spread: [] }], []]);
  const hostile = await repacked((recording) => { recording.header.progress = [{ ...step, spread: [{ name: "x", parts: "all" } as unknown as SpreadView] }]; });
  await expect(decode(hostile)).rejects.toThrow("spread[0].kind");
});

test("changed files are there as they were saved, also by who did not say what is not kept", async () => {
  const workspace = { name: "app", kind: "local", folder: "", total: 1, added: 1, removed: 0, files: [] };
  const older = await repacked((recording) => { recording.workspaces = [workspace as unknown as Recording["workspaces"][number]]; });
  expect((await decode(older)).workspaces).toEqual([{ ...workspace, left_out: [], points: [] }]);
  const hostile = await repacked((recording) => { recording.workspaces = [{ ...workspace, left_out: "all" as unknown as [], points: [] }]; });
  await expect(decode(hostile)).rejects.toThrow("left_out");
});

test("of a sample the states at the kept events are right, and others are said to be missing", async () => {
  const sampled = await repacked((recording) => {
    const { events } = recording;
    recording.sample = "Sample of 3 of 9 events, with all failures and questions";
    for (const column of [events.sequence, events.time, events.type, events.path, events.step, events.text, events.kind, events.item, recording.data]) column.splice(1, 3);
    recording.changes.splice(1, 4, recording.changes.slice(1, 5).flat());
  });
  const host = new RecordedHost(await decode({ ...sampled, format: 2 }));
  expect(host.events.sequence.slice(0, 3)).toEqual([1, 5, 6]);
  for (const sequence of [0, 1, 5, 6]) expect(await host.stateAt(sequence)).toEqual(states[sequence]);
  await expect(host.stateAt(3)).rejects.toThrow("Event 3 is not in this file.");
  const view = await savedRun({ ...sampled, store: "/the/store.db" }, "", load);
  expect(view.element.querySelector(".db-origin")?.textContent).toBe("Sample of 3 of 9 events, with all failures and questions. The whole log is in /the/store.db. ");
  view.destroy();
});

/** A failure as older versions saved it, without what it means. */
const FAILED = {
  id: 0, sequence: 3, failed_us: 1, error_type: "KeyError", message: "'b'", step: "s", path: "main", item: "", attempt: 1, called: "", arguments: [], place: "", cell: "", line: 0, source: [],
  traceback: "", handled: "", same: 1,
} as unknown as FailureView;

test("a recording of the newest events by an older version is opened", async () => {
  const older = await repacked((recording) => {
    const events = recording.events as Partial<typeof recording.events>;
    delete events.sequence;
    delete (recording as Partial<Recording>).sample;
    recording.events.first = 101;
    recording.failures = { total: 1, kept: "", shown: [{ ...FAILED }] };
  });
  const recording = await decode(older);
  expect(recording.failures.shown[0]?.means).toBe("");
  expect(recording.sample).toBe(`The last ${states.length - 1} of ${99 + states.length} events`);
  const host = new RecordedHost(recording);
  expect([host.events.sequence[0], host.last]).toEqual([101, 99 + states.length]);
  expect((await host.stateAt(100)).sequence).toBe(100);
  await expect(host.stateAt(50)).rejects.toThrow("Event 50 is not");
});

test("what older versions did not write gets its default, each time anew", async () => {
  const question = { interrupt_id: "ask_1", kind: "clarification", question: "Which?", message: "", path: "main", step: "s", status: "completed", response: "MIT", answered_by: null, raised_us: 1 };
  const older = await repacked((recording) => {
    recording.questions = [question, question] as unknown as Recording["questions"];
    delete (recording as Partial<Recording>).conversations;
    delete (recording.header as Partial<Recording["header"]>).spenders;
  });
  const recording = await decode(older);
  expect(recording.questions[0]).toEqual({ ...question, status: "resolved", became: "MIT", data: {}, schema: null, expires_us: null, required: true, answered_us: null, fallback: "", alike: "" });
  expect(recording.questions[0]?.data).not.toBe(recording.questions[1]?.data);
  expect([recording.conversations, recording.header.spenders]).toEqual([[], []]);
});

test.each(["kind", "status"] as const)("a question of an unknown %s is refused", async (name) => {
  const question = { interrupt_id: "ask_1", kind: "clarification", question: "Which?", message: "", path: "main", step: "s", status: "pending", response: null, answered_by: null, raised_us: 1 };
  const damaged = await repacked((recording) => { recording.questions = [{ ...question, [name]: "constructor" }] as unknown as Recording["questions"]; });
  await expect(decode(damaged)).rejects.toThrow(`questions[0].${name} is not one of the allowed values`);
});

test.each([[["status", ""]], [["usage", "x", {}]]])("a change that takes away what every state has is refused: %j", async (change) => {
  const damaged = await repacked((recording) => { recording.changes[0] = [change]; });
  await expect(decode(damaged)).rejects.toThrow("is not a valid change of");
});

const broken: Record<string, (recording: Recording) => void> = {
  "a total that would take all memory": (recording) => { recording.total = 1e12; },
  "an id beyond the total": (recording) => { recording.spans.id[0] = 1e9; },
  "an infinite time": (recording) => { recording.spans.start[0] = Infinity; },
  "columns of different lengths": (recording) => { recording.spans.end.push(1); },
  "a name that is not there": (recording) => { recording.events.type[0] = 9999; },
  "an event out of this world": (recording) => { recording.events.sequence.splice(-1, 1, 1e12); },
  "events out of order": (recording) => { recording.events.sequence.reverse(); },
  "a change of nothing that is known": (recording) => { recording.changes[0] = [["__proto__", "polluted", 1]]; },
  "a path that is none": (recording) => { recording.changes[0] = [["paths", "main", "x"]]; },
  "a text for a list": (recording) => { recording.questions = "x" as never; },
};

test.each(Object.keys(broken))("%s is refused", async (name) => {
  const damaged = await repacked(broken[name] ?? (() => undefined));
  await expect(decode(damaged)).rejects.toThrow(/is not|inconsistent|different lengths/);
});

test.each([null, [], "x", {}, { format: 1 }, { ...fixture.saved, recording: 3 }, { ...fixture.saved, format: 3 }])("no saved run: %j", (data) => {
  expect(() => checkSaved(data)).toThrow();
});

test.each(["%%%", "QUJD", "eJwDAA=", fixture.saved.recording.slice(0, 400)])("broken packing: %s", async (recording) => {
  await expect(decode({ ...saved, recording })).rejects.toThrow();
});

test("what is larger than anybody saves is not unpacked", async () => {
  await expect(decode({ ...saved, recording: await packed(" ".repeat(33_000_000)) })).rejects.toThrow("more than 32 MB");
});

test("markup stays text, and nothing of it runs", async () => {
  const alarm = vi.fn();
  vi.stubGlobal("alert", alarm);
  const hostile = "<img src=x onerror=alert(1)><script>alert(1)</script>";
  const damaged = await repacked((recording) => {
    recording.header.workflow = recording.header.error = hostile;
    recording.base.variables = { [hostile]: hostile };
    recording.spans.names = recording.spans.names.map((text) => (text === "each" ? hostile : text));
  });
  const view = await savedRun({ ...damaged, store: hostile, next: hostile }, "", load);
  document.body.append(view.element);
  await vi.waitFor(() => { expect(view.element.querySelector(".db-results")?.textContent).toContain("<img"); });
  expect(view.element.querySelectorAll("img, script")).toHaveLength(0);
  expect(alarm).not.toHaveBeenCalled();
  view.destroy();
  vi.unstubAllGlobals();
});

test("what cannot be shown is said, with the plain text", async () => {
  const view = await savedRun({ ...saved, recording: "" }, "w: completed\u202e", load);
  expect(view.element.textContent).toContain("it was too large to be saved. Its log was in memory:.");
  expect(view.element.textContent).toContain("w: completed\\u202e");
});

test("the log is stepped through from its end, once it is unfolded", async () => {
  const view = await savedRun(saved, "", load);
  document.body.append(view.element);
  const fold = view.element.querySelector<HTMLDetailsElement>(".db-stepping");
  expect(fold?.querySelector(".divebook-replay")).toBeNull();
  fold?.dispatchEvent(new Event("toggle"));
  await vi.waitFor(() => { expect(fold?.textContent).toContain("run completed"); });
  view.destroy();
});

test("a run that had not ended is shown like any other, with the time for which that holds", async () => {
  const open = await repacked(({ header }) => { header.ended_us = null; header.now_us = Date.UTC(2026, 4, 1, 12, 30) * 1000; });
  const view = await savedRun({ ...open, status: "waiting", next: "%dive show exec_1" }, "", load);
  expect(view.element.querySelector(".db-header")).not.toBeNull();
  expect(view.element.querySelector(".db-origin")?.textContent).toMatch(/^This is the state at .*:30.*\. The run may have continued since then\. To open or continue this run: %dive show exec_1$/);
  view.destroy();
});
