// Runs out of saved notebooks: Python's recording comes back state by state, and what strangers made is refused or harmless.

import { expect, test, vi } from "vitest";
import type { Recording, PackedRun, StateView } from "../../src/protocol";
import { checkSaved, decode } from "../../src/lab/decode";
import { RecordedHost } from "../../src/lab/states";
import { savedRun } from "../../src/lab/view";
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

test("events come with their types and data", async () => {
  const host = new RecordedHost(await decode(saved));
  expect(await host.eventAt(1)).toMatchObject({ sequence: 1, event_type: "execution_started", data: { workflow_name: "w" } });
  await expect(host.eventAt(0)).rejects.toThrow("there is no event here");
  await expect(host.stateAt(10_000)).rejects.toThrow("Only events 1 to");
});

test("events that were not saved are said to be missing", async () => {
  const host = new RecordedHost(await decode(await repacked((recording) => { recording.events.first = 101; })));
  expect(host.blocks.map((block) => [block.first, block.type.length])).toEqual([[1, 100], [101, states.length - 1]]);
  expect(host.blocks[0]?.names[1]).toBe("not in this notebook");
  await expect(host.stateAt(50)).rejects.toThrow("Only events 101 to");
  expect((await host.stateAt(100)).sequence).toBe(100);
});

const broken: Record<string, (recording: Recording) => void> = {
  "a total that would take all memory": (recording) => { recording.total = 1e12; },
  "an id beyond the total": (recording) => { recording.spans.id[0] = 1e9; },
  "an infinite time": (recording) => { recording.spans.start[0] = Infinity; },
  "columns of different lengths": (recording) => { recording.spans.end.push(1); },
  "a name that is not there": (recording) => { recording.events.type[0] = 9999; },
  "a first event out of this world": (recording) => { recording.events.first = 1e12; },
  "a change of nothing that is known": (recording) => { recording.changes[0] = [["__proto__", "polluted", 1]]; },
  "a path that is none": (recording) => { recording.changes[0] = [["paths", "main", "x"]]; },
  "a text for a list": (recording) => { recording.questions = "x" as never; },
};

test.each(Object.keys(broken))("%s is refused", async (name) => {
  const damaged = await repacked(broken[name] ?? (() => undefined));
  await expect(decode(damaged)).rejects.toThrow(/is not|contradict|same length/);
});

test.each([null, [], "x", {}, { format: 1 }, { ...fixture.saved, recording: 3 }, { ...fixture.saved, format: 2 }])("no saved run: %j", (data) => {
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
  await vi.waitFor(() => { expect(fold?.textContent).toContain("execution_completed"); });
  view.destroy();
});

test("a run that had not ended takes one line until it is unfolded", async () => {
  const view = await savedRun({ ...saved, status: "waiting", next: "%dive show exec_1" }, "", load);
  expect(view.element.textContent).toBe("w: waiting when its cell ended To look again or go on: %dive show exec_1");
  view.element.dispatchEvent(new Event("toggle"));
  expect(view.element.querySelector(".db-timeline")).not.toBeNull();
  view.destroy();
});
