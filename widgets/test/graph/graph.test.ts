import { beforeEach, expect, test, vi } from "vitest";
import { GraphView } from "../../src/graph/graph";
import { StepVisits, type StepState } from "../../src/graph/stepstate";
import type { Graph } from "../../src/protocol";
import { workflow } from "../../src/graph/workflow";
import { Model } from "../../src/shared/model";
import { welcome } from "../blocks";
import { question } from "../prompt/questions";

const GRAPH: Graph = {
  steps: ["plan", "work", "end"].map((name) => ({ name, type: "prompt", each: name === "work" })),
  edges: [
    { source: "plan", target: "work", kind: "next", condition: "" },
    { source: "work", target: "plan", kind: "next", condition: "$(state.again)" },
    { source: "work", target: "end", kind: "catch", condition: "TimeoutError" },
  ],
};

let view: GraphView;
const select = vi.fn();

function step(name: string): Element {
  const found = [...document.querySelectorAll(".step")].find((one) => one.querySelector("title")?.textContent.startsWith(`${name} `));
  if (found === undefined) throw new Error(name);
  return found;
}

function press(key: string): void {
  document.querySelector("svg")?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}

function lit(...states: [string, StepState][]): void {
  view.update(GRAPH, new Map(states));
}

beforeEach(() => {
  select.mockReset();
  view = new GraphView({ select });
  document.body.replaceChildren(view.element);
});

test("each state has its sign, and repeated visits are counted", () => {
  lit(["plan", { status: "completed", visits: 3 }], ["work", { status: "waiting", visits: 1 }]);
  expect(step("plan").textContent).toContain("✓");
  expect(step("plan").textContent).toContain("×3");
  expect(step("plan").querySelector("title")?.textContent).toBe("plan (prompt): completed, 3 visits");
  expect(step("work").getAttribute("data-status")).toBe("waiting");
  expect(step("end").querySelector("title")?.textContent).toBe("end (prompt): not started");
  expect(document.querySelector(".legend")?.textContent).toBe("○ not started   ? waits for you   ✓ completed");
});

test("a change of state does not draw again", () => {
  lit();
  const before = step("plan");
  view.update(structuredClone(GRAPH), new Map([["plan", { status: "running", visits: 1 }]]));
  expect(step("plan")).toBe(before);
  expect(before.getAttribute("data-status")).toBe("running");
});

test("edges tell their conditions", () => {
  lit();
  expect([...document.querySelectorAll(".condition")].map((label) => label.textContent)).toEqual(["$(state.again)", "on failure: TimeoutEr…"]);
});

test("a click selects a step, another one lets go", () => {
  lit();
  step("work").dispatchEvent(new MouseEvent("click", { bubbles: true }));
  expect(select).toHaveBeenLastCalledWith("work");
  expect(step("work").getAttribute("aria-pressed")).toBe("true");
  step("work").dispatchEvent(new MouseEvent("click", { bubbles: true }));
  expect(select).toHaveBeenLastCalledWith(null);
});

test("the keyboard goes from step to step, selects, and lets go", () => {
  lit();
  press("ArrowRight");
  expect(step("work").getAttribute("tabindex")).toBe("0");
  expect(step("plan").getAttribute("tabindex")).toBe("-1");
  press("Enter");
  expect(select).toHaveBeenLastCalledWith("work");
  press("ArrowLeft");
  press("Escape");
  expect(select).toHaveBeenLastCalledWith(null);
});

test("the picture is magnified", () => {
  lit();
  const scale = (): number => Number(/scale\(([\d.]+)/.exec(document.querySelector("svg > g")?.getAttribute("transform") ?? "")?.[1]);
  const before = scale();
  press("+");
  expect(scale()).toBeCloseTo(1.25 * before, 3);
});

const under = (name: string): string | null | undefined => step(name).querySelector(".type")?.textContent;

test("a step with items says how many are done and how many failed", () => {
  const progress = { step: "work", done: 58, total: 60, failed: 0, failed_open: 0, running: true, left_us: null, at_us: 0, spread: [] };
  const running = new Map<string, StepState>([["work", { status: "running", visits: 1 }]]);
  view.update(GRAPH, running, [progress]);
  expect(under("work")).toBe("58 of 60");
  view.update(GRAPH, running, [{ ...progress, done: 1398, total: 2000, failed: 3 }]);
  expect(under("work")).toBe("1,398 of 2,000, 3 failed");
  expect(step("work").querySelector("title")?.textContent).toBe("work (prompt · per item): running, 1,398 of 2,000, 3 failed");
  view.update(GRAPH, running, [{ ...progress, total: 0 }]);
  expect(under("work")).toBe("58 done");
});

test("steps that were never taken say so once the run has ended, and not before", () => {
  const states = new Map<string, StepState>([["plan", { status: "completed", visits: 1 }], ["work", { status: "failed", visits: 1 }]]);
  view.update(GRAPH, states);
  expect([step("end").getAttribute("data-status"), under("end")]).toEqual(["pending", "prompt"]);
  view.update(GRAPH, states, [], true);
  expect([step("end").getAttribute("data-status"), under("end"), under("work")]).toEqual(["untaken", "not taken", "prompt · per item"]);
  expect(document.querySelector(".legend")?.textContent).toBe("– not taken   ✓ completed   ✕ failed");
});

test("a step that asks is a question, and waits for you while it does", () => {
  const asking: Graph = { steps: [{ name: "ask", type: "interrupt", each: false }], edges: [] };
  view.update(asking, new Map());
  expect(under("ask")).toBe("question");
  view.update(asking, new Map([["ask", { status: "waiting", visits: 1 }]]));
  expect(under("ask")).toBe("waits for you");
});

test("names are text, cut to what fits, and whole in the title", () => {
  const name = `<script>${"x".repeat(100)}\u202e`;
  view.update({ steps: [{ name, type: "script", each: false }], edges: [] }, new Map());
  expect(document.querySelector("script")).toBeNull();
  expect(document.querySelector(".name")?.textContent).toMatch(/^<script>x+…$/);
  expect(document.querySelector("title")?.textContent).toContain("\\u202e");
});

function tallied(...rows: [number, string, string, string][]): StepVisits {
  const tally = new StepVisits();
  for (const [id, path, step, status] of rows) tally.add({ id, path, step, status, sequence: id });
  return tally;
}

test("the latest visit on each path counts, and of the paths the worst", () => {
  const tally = tallied(
    [5, "main", "c", "running"],
    [2, "main", "a", "completed"],
    [1, "main", "a", "failed"],
    [2, "main", "a", "completed"],
    [3, "main", "b", "completed"],
    [4, "other", "b", "failed"],
  );
  expect(Object.fromEntries(tally.states())).toEqual({
    a: { status: "completed", visits: 2 },
    b: { status: "failed", visits: 2 },
    c: { status: "running", visits: 1 },
  });
});

test("a failure from which its path has gone on is caught, until it is looked at again", () => {
  const tally = tallied([1, "main", "a", "failed"], [2, "other", "a", "completed"]);
  expect(tally.states().get("a")?.status).toBe("failed");
  tally.add({ id: 3, path: "main", step: "b", status: "running", sequence: 3 });
  expect(tally.states().get("a")?.status).toBe("caught");
});

test("what undoes a step is no visit of it", () => {
  const tally = tallied([1, "main", "a", "completed"], [2, "rollback-1", "a", "running"]);
  expect(Object.fromEntries(tally.states())).toEqual({ a: { status: "completed", visits: 1 } });
});

test("a step that asks waits", () => {
  const tally = tallied([1, "main", "review", "running"]);
  expect(tally.states([question()]).get("review")?.status).toBe("waiting");
  expect(tally.states([question({ status: "resolved" })]).get("review")?.status).toBe("running");
  expect(tally.states([], true).get("review")?.status).toBe("stopped");
  expect(tally.states([question()], true).get("review")?.status).toBe("waiting");
});

test("a workflow that is wider than its place scrolls, and no text is smaller than 11 pixels", () => {
  const chain = Array.from({ length: 8 }, (_, place) => `step ${place}`);
  const edges = chain.slice(1).map((target, place) => ({ source: chain[place] ?? "", target, kind: "next" as const, condition: "" }));
  const svg = document.querySelector("svg");
  const shown = (width: number, key = ""): { wide: number; scale: number; name: number; classes: string } => {
    Object.defineProperty(document.querySelector(".scroll"), "clientWidth", { value: width, configurable: true });
    view.update({ steps: chain.slice(0, width > 0 ? 8 : 0).map((name) => ({ name, type: "script", each: false })), edges }, new Map());
    view.fit(11 / 12);
    if (key !== "") press(key);
    const scale = Number(/scale\(([\d.]+)/.exec(svg?.firstElementChild?.nextElementSibling?.getAttribute("transform") ?? "")?.[1]);
    return { wide: Number(svg?.getAttribute("width")), scale, name: parseFloat(svg?.style.getPropertyValue("--name-size") ?? ""), classes: svg?.getAttribute("class") ?? "" };
  };
  expect(shown(2_000)).toMatchObject({ wide: 2_000, scale: 1, classes: "near" });
  const narrow = shown(1_050);
  expect(narrow.wide).toBeGreaterThan(1_050); // the place scrolls
  expect(12 * narrow.scale).toBeGreaterThan(10.99);
  const far = shown(1_050, "0"); // a person has fitted it: small texts are hidden, and names if they would be small
  expect([far.wide <= 1_050, far.classes]).toEqual([true, "far"]);
  const between = shown(1_700, "0");
  expect([between.classes, between.name * between.scale > 10.9]).toEqual([between.scale < 11 / 12 ? "" : "near", true]);
});

test("where a replay stands its step is marked, and the steps are as they were then", async () => {
  const model = new Model();
  const shown = workflow(model);
  document.body.replaceChildren(shown.element);
  model.welcome(welcome([{ id: 0, step: "plan", start: 0, end: 10 }, { id: 4, step: "work", start: 10, end: 30, status: "failed" }], { graph: GRAPH, total: 5 }));
  const status = (): (string | null)[] => ["plan", "work", "end"].map((name) => step(name).getAttribute("data-status"));
  const here = (): string[] => [...document.querySelectorAll(".step.here .name")].map(({ textContent }) => textContent);
  model.setPosition({ sequence: 3, time: 5, step: "plan" });
  await vi.waitFor(() => { expect(status()).toEqual(["running", "pending", "pending"]); });
  expect(here()).toEqual(["plan"]);
  model.setPosition({ sequence: 7, time: 30, step: "work" });
  await vi.waitFor(() => { expect(status()).toEqual(["completed", "failed", "pending"]); });
  expect(here()).toEqual(["work"]);
  model.setPosition(null);
  await vi.waitFor(() => { expect(here()).toEqual([]); });
  shown.destroy();
});
