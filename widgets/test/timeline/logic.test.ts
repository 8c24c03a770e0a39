import { describe, expect, test } from "vitest";
import { tickDistance, tickLabel } from "../../src/shared/format";
import { Spans } from "../../src/shared/spans";
import { Layout, MOST_LANES, ROW } from "../../src/timeline/layout";
import { messagesOf } from "../../src/timeline/messages";
import { neighbour } from "../../src/timeline/neighbours";
import { NO_CONDITIONS, Matches } from "../../src/timeline/query";
import { idlePeriods, TimeMap } from "../../src/timeline/timemap";
import { Viewport } from "../../src/timeline/viewport";
import { block, type Row } from "../blocks";

function laidOut(rows: readonly Row[]): { spans: Spans; layout: Layout } {
  const spans = new Spans();
  spans.add(block(rows), rows.length, 0);
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
  test("each path is a band, steps lie in its first row", () => {
    const { layout } = laidOut([{ id: 0, start: 0, path: "a" }, { id: 1, start: 1, path: "b" }, { id: 2, start: 2, path: "a" }]);
    expect(layout.bands.map((band) => [band.name, band.lanes])).toEqual([["a", 0], ["b", 0]]);
    expect([layout.band[2], layout.lane[2]]).toEqual([0, 0]);
  });

  test("calls that run side by side lie below each other, later ones use free lanes", () => {
    const { layout } = laidOut([{ id: 0, start: 0 }, call(1, 0, 10), call(2, 5, 15), call(3, 12, 20), call(4, 13)]);
    expect([1, 2, 3, 4].map((id) => layout.lane[id])).toEqual([1, 2, 1, 3]);
  });

  test("a call lies in the lane of its item", () => {
    const item = (id: number, start: number, iteration: number): Row => ({ id, kind: "item", start, iteration });
    const { layout } = laidOut([{ id: 0, start: 0 }, item(1, 0, 0), item(2, 0, 1), call(3, 1, 2, { iteration: 1 }), call(4, 1, 2, { iteration: 0 })]);
    expect([1, 2, 3, 4].map((id) => layout.lane[id])).toEqual([1, 2, 2, 1]);
  });

  test("a place leads back to its band and lane", () => {
    const { layout } = laidOut([{ id: 0, start: 0 }, call(1, 0, 10)]);
    expect(layout.at(layout.topOf(0) + 2)).toEqual({ band: 0, lane: 0 });
    expect(layout.at(layout.topOf(1) + 2)).toEqual({ band: 0, lane: 1 });
    expect(layout.at(layout.topOf(0) + 2 * ROW + 200)).toBeNull();
  });

  test("spans that come later in order are added, others lead to a new layout", () => {
    const { spans, layout } = laidOut([{ id: 0, start: 0, path: "a" }]);
    spans.add(block([{ id: 1, start: 1, path: "b" }]), 2);
    layout.update(spans, 0);
    expect(layout.bands.map((band) => band.name)).toEqual(["a", "b"]);
    spans.clear();
    spans.add(block([{ id: 0, start: 0, path: "c" }]), 1, 0);
    layout.update(spans, 1);
    expect(layout.bands.map((band) => band.name)).toEqual(["c"]);
  });
});

describe("many lanes, and failures among them", () => {
  const items = (count: number, failed: readonly number[]): Row[] => [
    { id: 0, start: 0 },
    ...Array.from({ length: count }, (_, place) => call(place + 1, 0, 10, failed.includes(place + 1) ? { status: "failed" } : {})),
  ];

  test("all that run at once have lanes of their own, of which some are shown", () => {
    const { spans, layout } = laidOut(items(50, []));
    expect(new Set(layout.lane.slice(1, 51)).size).toBe(50);
    expect([layout.hidden, layout.isDeep]).toEqual([50 - MOST_LANES, true]);
    expect([layout.topOf(8) > 0, layout.topOf(9)]).toEqual([true, -1]);
    layout.isExpanded = true;
    layout.update(spans, 0);
    expect([layout.hidden, layout.topOf(50)]).toEqual([0, layout.topOf(1) + 49 * ROW]);
  });

  test("lanes with a failure come first, in the order of the failures, and lead back to their numbers", () => {
    const { layout } = laidOut(items(50, [17, 31, 40]));
    expect(layout.bands[0]?.visibleLanes).toEqual([17, 31, 40, 1, 2, 3, 4, 5]);
    expect(layout.at(layout.topOf(31) + 2)).toEqual({ band: 0, lane: 31 });
  });

  test("a lane whose failure was made good goes back to its place", () => {
    const { spans, layout } = laidOut(items(50, [17]));
    spans.add(block([call(17, 0, undefined, {})]), 51);
    layout.update(spans, 0);
    expect([layout.failures.ids, layout.bands[0]?.visibleLanes[0]]).toEqual([[], 1]);
    spans.add(block([call(17, 0, 20, { status: "failed" })]), 51);
    layout.update(spans, 0);
    expect([layout.failures.ids, layout.bands[0]?.visibleLanes[0]]).toEqual([[17], 17]);
  });

  test("of a call, its item and its step, which failed together, the call is the failure", () => {
    const item: Row = { id: 1, kind: "item", start: 0, end: 5, iteration: 0, status: "failed" };
    const { layout } = laidOut([{ id: 0, start: 0, end: 5, status: "failed" }, item, call(2, 0, 5, { iteration: 0, status: "failed" }), { id: 3, start: 6, end: 7, status: "failed" }]);
    expect(layout.failures.ids).toEqual([2, 3]);
  });

  test("of many paths those with a failure come first, with the turns below them", () => {
    const rows = Array.from({ length: 20 }, (_, id): Row => ({ id, start: id, end: id + 1, path: `p${id}`, ...(id === 12 ? { status: "failed" } : {}) }));
    const { layout } = laidOut(rows);
    expect([12, 0, 11, 13].map((id) => layout.topOf(id))).toEqual([...[0, 1, 12, 13].map((place) => layout.topOf(12) + place * (ROW + 8))]);
  });
});

describe("idle time", () => {
  const seconds = (rows: readonly Row[], now: number): number[][] =>
    idlePeriods(laidOut(rows.map((row) => ({ ...row, start: row.start * 1e6, ...(row.end === undefined ? {} : { end: row.end * 1e6 }) }))).spans, now * 1e6).map(([from, to]) => [from / 1e6, to / 1e6]);

  test("stretches in which nobody works are found, be it between calls or at the end", () => {
    expect(seconds([{ id: 0, start: 0 }, call(1, 0, 10), call(2, 5, 8), call(3, 30, 40)], 100)).toEqual([[10, 30], [40, 100]]);
  });

  test("a run that stood still is folded though a bar stretches over it: its call was open when the kernel stopped", () => {
    const { spans } = laidOut([call(0, 0, 10e6), call(1, 9e6, 100e6)]);
    expect(idlePeriods(spans, 110e6, [[12e6, 90e6], [90e6, 95e6], [109e6, Infinity]])).toEqual([[12e6, 95e6], [100e6, 110e6]]);
  });

  test("short ones, and those that are short beside the work, stay", () => {
    expect(seconds([call(0, 0, 1), call(1, 2.5, 3)], 3)).toEqual([]);
    expect(seconds([call(0, 0, 100), call(1, 104, 110)], 110)).toEqual([]);
  });

  test("what only waits, and a turn that holds its work, are idle", () => {
    const turn = call(1, 10, 100, { type: "agent_turn" });
    expect(seconds([call(0, 0, 10), turn, call(2, 10, 90, { type: "timer" }), call(3, 90, 100)], 100)).toEqual([[10, 90]]);
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

  test("who has moved away goes back to the present, and along with it, at the same zoom", () => {
    const viewport = viewportOf(1_000_000);
    viewport.show(0, 100_000);
    expect(viewport.isFollowing).toBe(false);
    viewport.follow();
    viewport.extend(2_000_000);
    expect([viewport.isFollowing, Math.round(viewport.to - viewport.from)]).toEqual([true, 100_000]);
    expect(viewport.to).toBeGreaterThanOrEqual(2_000_000);
  });

  test("moving stops at both ends, zooming out at all", () => {
    const viewport = viewportOf(1_000_000);
    viewport.zoom(0.1, 0);
    viewport.pan(-5_000_000);
    expect(viewport.from).toBe(0);
    viewport.zoom(1000);
    expect(viewport.isFitted).toBe(true);
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
  const found = (wanted: Partial<typeof NO_CONDITIONS>): number[] => {
    const matches = new Matches();
    matches.setConditions({ ...NO_CONDITIONS, ...wanted });
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
    expect(messagesOf([started, completed]).map((said) => said.by)).toEqual(["instructions", "prompt", "model", "calls search"]);
  });

  test("other operations are no conversation", () => {
    expect(messagesOf([{ ...started, data: { operation_type: "action_execution" } }])).toEqual([]);
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

describe("bands of turns", () => {
  const turn = (id: number, label: string, within: number): Row => ({ id, kind: "operation", type: "agent_turn", label, start: id, end: 90, within });
  const request = (id: number, within: number): Row => ({ id, kind: "operation", type: "agent_response", start: id, end: id + 1, within });

  test("a turn that was given its work has a band below the one that gave it, with its own calls", () => {
    const rows = [{ id: 0, start: 0 }, turn(1, "fixer", -1), request(2, 1), turn(3, "reader", 1), request(4, 3), { id: 5, start: 5, path: "b" }, turn(6, "clerk", 3), request(7, 6), turn(8, "tester", 1)];
    const { layout } = laidOut(rows);
    const bands = [...layout.bands].sort((one, other) => one.top - other.top);
    expect(bands.map(({ name, depth }) => [name, depth])).toEqual([["main", 0], ["↳ reader", 1], ["↳ clerk", 2], ["↳ tester", 1], ["b", 0]]);
    const bandOf = (id: number): string | undefined => layout.bands[layout.band[id] ?? -1]?.name;
    expect([1, 2, 3, 4, 6, 7].map(bandOf)).toEqual(["main", "main", "↳ reader", "↳ reader", "↳ clerk", "↳ clerk"]);
    expect([layout.lane[3], layout.lane[4]]).toEqual([0, 1]);
  });

  test("keys go down through the bands as they stand", () => {
    const { spans, layout } = laidOut([{ id: 0, start: 0 }, { id: 1, start: 1, path: "b" }, turn(2, "fixer", -1), turn(3, "reader", 2)]);
    const down = (from: number): number | null | undefined => neighbour(spans, layout, () => true, from, "ArrowDown");
    expect([down(0), down(2), down(3)]).toEqual([2, 3, 1]);
  });
});
