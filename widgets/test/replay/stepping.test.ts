// The replay beside a live view: made once it is wanted, and open at the event that somebody goes to.

import { expect, test, vi } from "vitest";
import type { ReplayToBrowser, ReplayToKernel, StateView } from "../../src/protocol";
import type { StepWire } from "../../src/replay/requests";
import type { Host } from "../../src/shared/lazypart";
import { Model } from "../../src/shared/model";
import part from "../../src/stepping";

/** A kernel that answers at once. */
function kernel(heard: ReplayToKernel[]): StepWire {
  const listeners = new Set<(message: ReplayToBrowser) => void>();
  const say = (message: ReplayToBrowser): void => { listeners.forEach((listener) => { listener(message); }); };
  const rows = [1, 2, 3];
  const events = { first: 1, sequence: rows, origin_us: 0, names: ["", "step_started"], time: rows, type: [1, 1, 1], path: [0, 0, 0], step: [0, 0, 0], text: [0, 0, 0], kind: [0, 0, 0], item: [0, 0, 0] };
  const state = (sequence: number): StateView => ({ sequence, status: "failed", inputs: {}, outputs: {}, variables: {}, paths: [], usage: {}, pending: [], error: "" });
  const send = (message: ReplayToKernel): void => {
    heard.push(message);
    const { view } = message;
    if (message.type === "events") say({ type: "events", view, total: 3, events });
    else if (message.type === "state") say({ type: "state", view, sequence: message.sequence, state: state(message.sequence), error: "" });
    else if (message.type === "event") say({ type: "event", view, sequence: message.sequence, event: { sequence: message.sequence, event_type: "x", recorded_us: 1, data: {} }, error: "" });
  };
  return { send, on: (_, receive) => { listeners.add(receive); }, off: (_, receive) => { listeners.delete(receive); } };
}

test("nothing is asked before somebody wants it, and going to an event opens it there", async () => {
  const heard: ReplayToKernel[] = [];
  const told = vi.fn();
  const model = new Model();
  model.on(told);
  const host = { wire: kernel(heard), replay: undefined } as unknown as Host;
  const view = part.make(model, host);
  document.body.replaceChildren(view.element);
  expect([heard.length, told.mock.calls]).toEqual([0, [["header"]]]);
  expect(view.element.hidden).toBe(true); // the run is not over
  host.replay?.(2);
  expect(view.element.querySelector("details")?.open).toBe(true);
  await vi.waitFor(() => { expect(view.element.textContent).toContain("State after event 2"); });
  model.header = { execution_id: "exec_2", ended_us: 1 } as Model["header"];
  model.notify("header");
  expect([view.element.hidden, view.element.querySelector("details")?.open]).toEqual([false, false]); // of another run
  view.destroy();
  expect(host.replay).toBeUndefined();
});
