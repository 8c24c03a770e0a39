// Parts of a view that are loaded when a run first needs them.

import { expect, test, vi } from "vitest";
import { h } from "../../src/shared/dom";
import { type Host, lazyPart } from "../../src/shared/lazypart";
import { Model } from "../../src/shared/model";
import { welcome } from "../blocks";

const HOST = {} as Host;
const GRAPH = { steps: ["a", "b"].map((name) => ({ name, type: "prompt", each: false })), edges: [] };

function placed(load: () => Promise<unknown>): { model: Model; text: () => string | null; destroy: () => void } {
  const model = new Model(() => 0);
  const { element, destroy } = lazyPart(model, () => model.graph.steps.length > 1, load, HOST);
  return { model, text: () => element.textContent, destroy };
}

test("a part is loaded once, when there is something for it", async () => {
  const destroyed = vi.fn();
  const part = { style: "a{}", make: () => ({ element: h("p", {}, "here"), destroy: destroyed }) };
  const load = vi.fn(() => Promise.resolve({ default: part }));
  const { model, text, destroy } = placed(load);
  model.welcome(welcome([]));
  expect(load).not.toHaveBeenCalled();
  model.welcome(welcome([], { graph: GRAPH }));
  model.notify("graph");
  await vi.waitFor(() => { expect(text()).toBe("a{}here"); });
  expect(load).toHaveBeenCalledOnce();
  destroy();
  expect(destroyed).toHaveBeenCalledOnce();
});

test("a part that cannot be loaded is said to be missing, with the way on", async () => {
  const { model, text } = placed(() => Promise.reject(new Error("blocked")));
  model.welcome(welcome([], { graph: GRAPH }));
  await vi.waitFor(() => { expect(text()).toContain("(Error: blocked); reload the page"); });
});

test("a part that comes after its view has gone is not made", async () => {
  const make = vi.fn();
  let come: (module: unknown) => void = () => undefined;
  const { model, destroy } = placed(() => new Promise((resolve) => { come = resolve; }));
  model.welcome(welcome([], { graph: GRAPH }));
  destroy();
  come({ default: { style: "", make } });
  await Promise.resolve();
  expect(make).not.toHaveBeenCalled();
});
