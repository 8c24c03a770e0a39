// What is painted, in which order, as a pen that remembers it tells.

import { expect, test } from "vitest";
import { Spans } from "../../src/shared/spans";
import { draw, type Drawn } from "../../src/timeline/draw";
import { Layout } from "../../src/timeline/layout";
import type { Scene } from "../../src/timeline/scene";
import { TimeMap } from "../../src/timeline/timemap";
import { Viewport } from "../../src/timeline/viewport";
import { block, type Row } from "../blocks";

const [WIDTH, LABELS] = [1132, 132];
const NAMES = ["paper", "ink", "soft", "line", "hover", "dim", "bad", "outline", "failed", "item-tint", "item", "action-tint", "action", "accent"];

interface Painted {
  how: string;
  colour: unknown;
  left: number;
  wide: number;
}

/** Draws spans of a run of one second, a thousand pixels wide, and returns what was filled or outlined there. */
function painted(rows: readonly Row[], at: number | null = null, until = 1_000_000): { shapes: Painted[]; measured: string[]; drawn: Drawn } {
  const [shapes, measured]: [Painted[], string[]] = [[], []];
  const state: Record<string, unknown> = {};
  const pen = new Proxy(state, {
    get: (_, name: string) => {
      if (name in state) return state[name];
      return (...args: unknown[]): unknown => {
        if (name === "fillRect" || name === "roundRect") shapes.push({ how: name, colour: state["fillStyle"], left: Number(args[0]), wide: Number(args[2]) });
        if (name !== "measureText") return null;
        measured.push(String(args[0]));
        return { width: String(args[0]).length * 6 };
      };
    },
  });
  const spans = new Spans();
  spans.add(block(rows), rows.length, 0);
  const [layout, viewport] = [new Layout(), new Viewport()];
  layout.update(spans, 0);
  viewport.extend(1_000_000);
  viewport.show(0, until);
  const palette = Object.fromEntries(NAMES.map((name) => [name, name]));
  const scene: Scene = { spans, layout, viewport, palette, map: new TimeMap(), isMatch: () => true, width: WIDTH, height: 400, scroll: 0, now: 1_000_000, focused: null, selected: null, waits: new Map(), pauses: [], replayTime: at };
  const drawn = draw(pen as unknown as CanvasRenderingContext2D, scene);
  return { shapes, measured, drawn };
}

/** An item and the call in it; milliseconds, which are pixels. */
function pair(id: number, start: number, end: number, within: readonly [start: number, end: number], status = "completed"): Row[] {
  const about = { step: "a", iteration: id, status };
  return [
    { id, kind: "item", start: start * 1000, end: end * 1000, ...about },
    { id: id + 1, kind: "operation", type: "action_execution", label: "Parse", start: within[0] * 1000, end: within[1] * 1000, ...about },
  ];
}

const colours = (shapes: readonly Painted[]): unknown[] => shapes.filter(({ colour }) => /item|action|failed/.test(String(colour))).map(({ colour }) => colour);

test("an item is painted where it shows beside its call, and left out where the call covers it", () => {
  expect(colours(painted(pair(0, 100, 112, [100.2, 111.5])).shapes)).not.toContain("item-tint");
  expect(colours(painted(pair(0, 100, 112, [105, 112])).shapes)).toEqual(["item-tint", "item", "action-tint", "action"]);
  expect(colours(painted(pair(0, 100, 112, [100, 107])).shapes)).toContain("item-tint");
});

test("narrow bars are plain rectangles, wide ones have round corners", () => {
  const { shapes } = painted([...pair(0, 100, 112, [100, 112]), ...pair(2, 200, 300, [200, 300])]);
  const calls = shapes.filter(({ colour }) => colour === "action-tint");
  expect(calls.map(({ how, left }) => [how, left - LABELS])).toEqual([["fillRect", 100], ["roundRect", 200]]);
});

test("what failed is painted after all else, whenever it was", () => {
  const { shapes } = painted([...pair(0, 100, 130, [100, 130], "failed"), ...pair(2, 110, 140, [110, 140]), ...pair(4, 120, 120.5, [120, 120.5])]);
  const order = colours(shapes);
  expect(order.indexOf("failed")).toBeGreaterThan(Math.max(order.lastIndexOf("action-tint"), order.lastIndexOf("action")));
});

test("texts of many bars are fitted from the widths of their letters, each measured once", () => {
  const rows = Array.from({ length: 8 }, (_, place) => pair(place * 2, place * 100, place * 100 + 60, [place * 100, place * 100 + 60])).flat();
  const named = rows.map((row, place): Row => ({ ...row, item: `rows[${1000 + place}] of a long list` }));
  const letters = painted(named).measured.filter((text) => !/^[\d.]+ (ms|s)$|^0$/.test(text));
  expect(Math.max(...letters.map((text) => text.length))).toBe(1);
  expect(new Set(letters).size).toBe(letters.length);
});

test("where a replay stands is a line from the axis down, and nothing without one", () => {
  const line = (at: number | null): number[] => painted(pair(0, 0, 400, [0, 400]), at).shapes.filter(({ colour }) => colour === "accent").map(({ left }) => left);
  expect([line(250_000), line(null)]).toEqual([[LABELS + 250 - 1], []]);
});

/** 2,400 calls in 20 lanes; each takes 7 ms, number 100 takes 400 ms, and number 200 has failed. */
const THOUSANDS = Array.from({ length: 2400 }, (_, id): Row => {
  const start = Math.floor(id / 20) * 8000;
  const took = id === 100 ? 400_000 : 7000;
  return { id, kind: "operation", type: "action_execution", label: `Call ${id}`, start, end: Math.min(999_000, start + took), step: "a", status: id === 200 ? "failed" : "completed" };
});

test("thousands of calls are an area, with failures in it and the slowest calls above it", () => {
  const { shapes, drawn } = painted(THOUSANDS);
  const bars = shapes.filter(({ colour }) => colour === "action-tint");
  expect(bars.length).toBeLessThan(300); // one rectangle for each column, and not one for each call
  expect(bars.filter(({ wide }) => wide > 300 && wide < 420)).toHaveLength(1); // the call of 400 ms
  expect(shapes.some(({ colour }) => colour === "failed")).toBe(true);
  const column = drawn.aggregates.at(LABELS + 500, 120);
  expect(column).toMatchObject({ failed: 0 });
  expect(column !== null && "calls" in column && column.calls).toBeGreaterThanOrEqual(20);
});

test("single calls are drawn again where few are in view", () => {
  const { shapes, drawn } = painted(THOUSANDS, null, 50_000);
  expect(shapes.filter(({ colour, wide }) => colour === "action-tint" && wide > 50).length).toBeGreaterThan(40);
  expect(drawn.aggregates.at(LABELS + 500, 120)).toBeNull();
});
