// Questions and workflow within the live view.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Graph } from "../../src/protocol";
import { questions } from "../../src/live/questions";
import { workflow } from "../../src/graph/workflow";
import type { Connection } from "../../src/shared/connection";
import type { View } from "../../src/shared/dom";
import { Model } from "../../src/shared/model";
import { HEADER, type Row, block, welcome } from "../blocks";
import { buttonOf, question, type } from "../prompt/questions";

const GRAPH: Graph = {
  steps: ["a", "b"].map((name) => ({ name, type: "prompt", each: false })),
  edges: [{ source: "a", target: "b", kind: "next", condition: "" }],
};

let model: Model;
let view: View;

beforeEach(() => {
  vi.useFakeTimers();
  model = new Model(() => 0);
});

afterEach(() => {
  view.destroy();
  vi.useRealTimers();
});

function begin(rows: Row[], ...asked: ReturnType<typeof question>[]): void {
  model.welcome(welcome(rows, { graph: GRAPH, questions: asked }));
}

function change(rows: Row[], total: number): void {
  model.delta({ type: "delta", feed: "feed", after: model.last, last: model.last + 1, total, origin_us: 0, spans: block(rows), header: HEADER, failures: null, questions: [], streamed: [] });
  vi.advanceTimersByTime(50);
}

function states(): (string | null)[] {
  return [...document.querySelectorAll(".step")].map((step) => step.getAttribute("data-status"));
}

test("an answer goes through the connection", () => {
  const answer = vi.fn(() => Promise.resolve({ type: "ack", id: "1", accepted: true, text: "" }));
  view = questions(model, { answer } as unknown as Connection);
  document.body.replaceChildren(view.element);
  expect(view.element.hidden).toBe(true);
  begin([], question());
  expect(view.element.hidden).toBe(false);
  type(document.querySelector("textarea"), "MIT");
  buttonOf(document.body, "Answer").click();
  expect(answer).toHaveBeenCalledWith("int_1", { text: "MIT" });
});

test("a second welcome leaves the card in which somebody writes, and takes away what is no longer asked", () => {
  view = questions(model, {} as unknown as Connection);
  document.body.replaceChildren(view.element);
  begin([], question());
  const written = document.querySelector("textarea");
  type(written, "half an ans");
  written?.focus();
  begin([], question());
  expect([document.activeElement === written, written?.isConnected]).toEqual([true, true]);
  begin([]);
  expect(document.querySelector("article.card")).toBeNull();
});

test("steps follow the spans, those that run again as well", () => {
  view = workflow(model);
  document.body.replaceChildren(view.element);
  begin([{ id: 0, step: "a", start: 0 }]);
  vi.advanceTimersByTime(50);
  expect(states()).toEqual(["running", "pending"]);
  change([{ id: 0, step: "a", start: 0, end: 5, status: "failed" }], 1);
  expect(states()).toEqual(["failed", "pending"]);
  change([{ id: 0, step: "a", start: 0 }], 1);
  expect(states()).toEqual(["running", "pending"]);
  change([{ id: 0, step: "a", start: 0, end: 9 }, { id: 1, step: "b", start: 9 }], 2);
  expect(states()).toEqual(["completed", "running"]);
  model.setConnected("detached");
  vi.advanceTimersByTime(50);
  expect(states()).toEqual(["completed", "stopped"]);
});

test("older spans that come later count", () => {
  view = workflow(model);
  document.body.replaceChildren(view.element);
  model.welcome(welcome([{ id: 1, step: "b", start: 5, end: 6 }], { graph: GRAPH, total: 2 }));
  vi.advanceTimersByTime(50);
  expect(states()).toEqual(["pending", "completed"]);
  model.history({ type: "history", view: "v", first: 0, stop: 1, last: model.last, spans: block([{ id: 0, step: "a", start: 0, end: 4 }]) });
  vi.advanceTimersByTime(50);
  expect(states()).toEqual(["completed", "completed"]);
});

test("a question lights its step, and a click filters", () => {
  view = workflow(model);
  document.body.replaceChildren(view.element);
  begin([{ id: 0, step: "a", start: 0 }], question({ step: "a" }));
  vi.advanceTimersByTime(50);
  expect(states()).toEqual(["waiting", "pending"]);
  document.querySelector(".step")?.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  expect(model.step).toBe("a");
  model.filterStep(null);
  expect(document.querySelector(".selected")).toBeNull();
});
