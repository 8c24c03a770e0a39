import { describe, expect, test } from "vitest";
import { tickDistance, tickLabel } from "../../src/shared/format";
import { Spans } from "../../src/shared/spans";
import { Layout, ROW_HEIGHT, STEP_HEIGHT } from "../../src/timeline/layout";
import { conversation } from "../../src/timeline/messages";
import { neighbour } from "../../src/timeline/neighbours";
import { EVERYTHING, Matches } from "../../src/timeline/query";
import { idle, TimeMap } from "../../src/timeline/timemap";
import { Viewport } from "../../src/timeline/viewport";
import { block, type Row } from "../blocks";

function laidOut(rows: readonly Row[]): { spans: Spans; layout: Layout } {
  const spans = new Spans();
  spans.take(block(rows), rows.length, 0);
  const layout = new Layout();
  layout.update(spans, 0);
  return { spans, layout };
}

const call = (id: number, start: number, end?: number, more: Partial<Row> = {}): Row => ({
  id,
  kind: "operation",
  type: "agent_response",
  start,
  ...(end === undefined ? {} : { end }),
  ...more,
});

describe("layout", () => {
  test("each path is a lane, steps lie in its first row", () => {
    const { layout } = laidOut([{ id: 0, start: 0, path: "a" }, { id: 1, start: 1, path: "b" }, { id: 2, start: 2, path: "a" }]);
    expect(layout.lanes.map((lane) => [lane.path, lane.rows])).toEqual([["a", 1], ["b", 1]]);
    expect([layout.lane[2], layout.row[2]]).toEqual([0, 0]);
  });

  test("calls that run side by side lie below each other, later ones use free rows", () => {
    const { layout } = laidOut([{ id: 0, start: 0 }, call(1, 0, 10), call(2, 5, 15), call(3, 12, 20), call(4, 13)]);
    expect([1, 2, 3, 4].map((id) => layout.row[id])).toEqual([1, 2, 1, 3]);
  });

  test("a call lies in the row of its item", () => {
    const item = (id: number, start: number, iteration: number): Row => ({ id, kind: "item", start, iteration });
    const { layout } = laidOut([{ id: 0, start: 0 }, item(1, 0, 0), item(2, 0, 1), call(3, 1, 2, { iteration: 1 }), call(4, 1, 2, { iteration: 0 })]);
    expect([1, 2, 3, 4].map((id) => layout.row[id])).toEqual([1, 2, 2, 1]);
  });

  test("a place leads back to its lane and row", () => {
    const { layout } = laidOut([{ id: 0, start: 0 }, call(1, 0, 10)]);
    expect(layout.at(layout.topOf(0) + 2)).toEqual({ lane: 0, row: 0 });
    expect(layout.at(layout.topOf(1) + 2)).toEqual({ lane: 0, row: 1 });
    expect(layout.at(layout.topOf(0) + STEP_HEIGHT + ROW_HEIGHT + 200)).toBeNull();
  });

  test("spans that come later in order are added, others lead to a new layout", () => {
    const { spans, layout } = laidOut([{ id: 0, start: 0, path: "a" }]);
    spans.take(block([{ id: 1, start: 1, path: "b" }]), 2);
    layout.update(spans, 0);
    expect(layout.lanes.map((lane) => lane.path)).toEqual(["a", "b"]);
    spans.clear();
    spans.take(block([{ id: 0, start: 0, path: "c" }]), 1, 0);
    layout.update(spans, 1);
    expect(layout.lanes.map((lane) => lane.path)).toEqual(["c"]);
  });
});

describe("idle time", () => {
  test("stretches that nothing touches are found", () => {
    expect(idle([[0, 10], [5, 8], [30, 40], [100, 101]], 15)).toEqual([[10, 30], [40, 100]]);
  });

  test("a folded gap has its width, and time goes there and back", () => {
    const map = new TimeMap([[10, 30], [40, 100]], 2);
    expect([5, 10, 20, 30, 40, 70, 100, 110].map((moment) => map.toDrawn(moment))).toEqual([5, 10, 11, 12, 22, 23, 24, 34]);
    for (const moment of [0, 10, 17, 30, 35, 99, 150]) expect(map.toReal(map.toDrawn(moment))).toBeCloseTo(moment);
  });

  test("without gaps time is as it is", () => {
    expect(new TimeMap().toDrawn(42)).toBe(42);
  });
});

describe("viewport", () => {
  function viewportOf(end: number): Viewport {
    const viewport = new Viewport();
    viewport.extend(end);
    return viewport;
  }

  test("a fitted view shows all there is, also when it grows", () => {
    const viewport = viewportOf(1_000_000);
    viewport.extend(2_000_000);
    expect([viewport.from, viewport.to]).toEqual([0, 2_040_000]);
  });

  test("zooming keeps the point under the hand", () => {
    const viewport = viewportOf(1_000_000);
    const point = (viewport.to - viewport.from) * 0.3;
    viewport.zoom(0.5, 0.3);
    expect(viewport.from + (viewport.to - viewport.from) * 0.3).toBeCloseTo(point);
  });

  test("what is zoomed ends with the run and follows its end", () => {
    const viewport = viewportOf(1_000_000);
    viewport.zoom(0.5, 1);
    const length = viewport.to - viewport.from;
    viewport.extend(1_500_000);
    expect(viewport.to).toBeGreaterThanOrEqual(1_500_000);
    expect(viewport.to - viewport.from).toBeCloseTo(length);
  });

  test("moving stops at both ends, zooming out at all", () => {
    const viewport = viewportOf(1_000_000);
    viewport.zoom(0.1, 0);
    viewport.pan(-5_000_000);
    expect(viewport.from).toBe(0);
    viewport.zoom(1000);
    expect(viewport.fitted).toBe(true);
  });

  test("a bar out of sight is brought into it", () => {
    const viewport = viewportOf(1_000_000);
    viewport.show(0, 100_000);
    viewport.reveal(500_000, 510_000);
    expect(viewport.from).toBeLessThan(500_000);
    expect(viewport.to).toBeGreaterThan(510_000);
  });
});

describe("search and filter", () => {
  const { spans } = laidOut([
    { id: 0, start: 0, step: "collect", end: 1 },
    call(1, 0, 1, { step: "collect", label: "critic" }),
    call(2, 2, 3, { step: "judge", label: "critic", status: "failed", note: "Timeout" }),
  ]);
  const found = (wanted: Partial<typeof EVERYTHING>): number[] => {
    const matches = new Matches();
    matches.want({ ...EVERYTHING, ...wanted });
    matches.update(spans);
    return [...matches.ids];
  };

  test("all words must be there, in any column and case", () => {
    expect(found({ words: "CRITIC timeout" })).toEqual([2]);
    expect(found({ words: "critic" })).toEqual([1, 2]);
    expect(found({ words: "nothing" })).toEqual([]);
  });

  test("types and steps", () => {
    expect(found({ hidden: new Set(["model"]) })).toEqual([0]);
    expect(found({ step: "judge" })).toEqual([2]);
    expect(found({})).toEqual([0, 1, 2]);
  });
});

describe("keys", () => {
  const { spans, layout } = laidOut([{ id: 0, start: 0, end: 9 }, call(1, 1, 2), { id: 2, start: 10, end: 20 }, call(3, 11, 12), { id: 4, start: 11, path: "b" }]);
  const go = (from: number | null, key: string): number | null | undefined => neighbour(spans, layout, () => true, from, key);

  test("along a row, from row to row, to both ends", () => {
    expect([go(0, "ArrowRight"), go(2, "ArrowLeft"), go(2, "ArrowRight")]).toEqual([2, 0, null]);
    expect([go(2, "ArrowDown"), go(3, "ArrowDown"), go(1, "ArrowUp")]).toEqual([3, 4, 0]);
    expect([go(3, "Home"), go(0, "End"), go(null, "ArrowDown")]).toEqual([0, 4, 0]);
  });

  test("other keys lead nowhere", () => {
    expect(go(0, "x")).toBeUndefined();
    expect(go(0, "ArrowUp")).toBeNull();
  });
});

describe("what a model saw", () => {
  const started = { sequence: 1, event_type: "operation_started", recorded_us: 0, data: { operation_type: "agent_response", parameters: { instructions: "Be brief", prompt: "Hi" } } };

  test("instructions, prompt, text and tool calls are told apart", () => {
    const parts = [{ part_kind: "text", content: "Hello" }, { part_kind: "tool-call", tool_name: "search", args: { q: 1 } }];
    const completed = { sequence: 2, event_type: "operation_completed", recorded_us: 0, data: { result: { parts } } };
    expect(conversation([started, completed]).map((said) => said.by)).toEqual(["instructions", "prompt", "model", "calls search"]);
  });

  test("other operations are no conversation", () => {
    expect(conversation([{ ...started, data: { operation_type: "action_execution" } }])).toEqual([]);
  });
});

describe("ticks", () => {
  test.each([[1000, 1e5], [20_000, 2e6], [1e6, 120e6]])("%d microseconds a pixel give round distances", (perPixel, distance) => {
    expect(tickDistance(perPixel)).toBe(distance);
  });

  test("labels suit the distance", () => {
    expect([tickLabel(0, 1e6), tickLabel(5e6, 1e6), tickLabel(1.5e6, 5e5), tickLabel(65e6, 5e6), tickLabel(3665e6, 5e6)]).toEqual(["0", "5 s", "1.5 s", "1:05", "1:01:05"]);
  });
});

describe("lanes of turns", () => {
  const turn = (id: number, label: string, within: number): Row => ({ id, kind: "operation", type: "agent_turn", label, start: id, end: 90, within });
  const request = (id: number, within: number): Row => ({ id, kind: "operation", type: "agent_response", start: id, end: id + 1, within });

  test("a turn that was given its work has a lane below the one that gave it, with its own calls", () => {
    const rows = [{ id: 0, start: 0 }, turn(1, "fixer", -1), request(2, 1), turn(3, "reader", 1), request(4, 3), { id: 5, start: 5, path: "b" }, turn(6, "clerk", 3), request(7, 6), turn(8, "tester", 1)];
    const { layout } = laidOut(rows);
    const lanes = [...layout.lanes].sort((one, other) => one.top - other.top);
    expect(lanes.map(({ path, depth }) => [path, depth])).toEqual([["main", 0], ["↳ reader", 1], ["↳ clerk", 2], ["↳ tester", 1], ["b", 0]]);
    const laneOf = (id: number): string | undefined => layout.lanes[layout.lane[id] ?? -1]?.path;
    expect([1, 2, 3, 4, 6, 7].map(laneOf)).toEqual(["main", "main", "↳ reader", "↳ reader", "↳ clerk", "↳ clerk"]);
    expect([layout.row[3], layout.row[4]]).toEqual([0, 1]);
  });

  test("keys go down through the lanes as they stand", () => {
    const { spans, layout } = laidOut([{ id: 0, start: 0 }, { id: 1, start: 1, path: "b" }, turn(2, "fixer", -1), turn(3, "reader", 2)]);
    const down = (from: number): number | null | undefined => neighbour(spans, layout, () => true, from, "ArrowDown");
    expect([down(0), down(2), down(3)]).toEqual([2, 3, 1]);
  });
});
