import { expect, test } from "vitest";
import type { Graph, GraphEdge } from "../../src/protocol";
import { HEIGHT, layout, WIDTH } from "../../src/graph/layout";

/** Makes a graph of edges such as "a b"; steps come in the order in which they are first named. */
export function graphOf(...ways: string[]): Graph {
  const pairs = ways.map((way) => way.split(" "));
  const names = [...new Set(pairs.flat())];
  const edges: GraphEdge[] = pairs.filter((pair) => pair.length === 2).map(([source = "", target = ""]) => ({ source, target, kind: "next", condition: "" }));
  return { steps: names.map((name) => ({ name, type: "script", each: false })), edges };
}

/** Makes a large graph that looks arbitrary and is always the same. */
function large(count: number): Graph {
  const ways = Array.from({ length: count - 1 }, (_, index) => `s${Math.floor(index / 2)} s${index + 1}`);
  const back = Array.from({ length: count / 20 }, (_, index) => `s${index * 20 + 19} s${index * 7}`);
  return graphOf(...ways, ...back, ...Array.from({ length: 40 }, (_, index) => `s${index} s${count - 1 - index}`));
}

function columns(graph: Graph): string[][] {
  const byX = new Map<number, string[]>();
  for (const [name, { x }] of layout(graph).steps) byX.set(x, [...(byX.get(x) ?? []), name]);
  return [...byX].sort(([one], [other]) => one - other).map(([, names]) => names.sort());
}

test("steps stand in the order in which they run", () => {
  expect(columns(graphOf("a b", "b c"))).toEqual([["a"], ["b"], ["c"]]);
  expect(columns(graphOf("a b", "a c", "b d", "c d", "a d"))).toEqual([["a"], ["b", "c"], ["d"]]);
});

test("a way back leads back and does not move its steps", () => {
  const graph = graphOf("a b", "b c", "c a", "c c");
  expect(columns(graph)).toEqual([["a"], ["b"], ["c"]]);
  const back = layout(graph).edges.filter(({ isBack }) => isBack).map(({ edge }) => `${edge.source} ${edge.target}`);
  expect(back).toEqual(["c a", "c c"]);
});

test("the same workflow gives the same picture", () => {
  expect(layout(large(200))).toEqual(layout(large(200)));
});

test("no two steps overlap, and all lie inside the picture", () => {
  const { steps, width, height } = layout(large(200));
  const places = [...steps.values()];
  places.forEach((one, index) => {
    expect(one.x - WIDTH / 2).toBeGreaterThanOrEqual(0);
    expect(one.x + WIDTH / 2).toBeLessThanOrEqual(width + 0.001);
    expect(one.y - HEIGHT / 2).toBeGreaterThanOrEqual(-0.001);
    expect(one.y + HEIGHT / 2).toBeLessThanOrEqual(height + 0.001);
    for (const other of places.slice(index + 1)) {
      expect(Math.abs(one.x - other.x) >= WIDTH || Math.abs(one.y - other.y) >= HEIGHT).toBe(true);
    }
  });
});

test("two lines of steps do not cross", () => {
  const { steps } = layout(graphOf("a x1", "a y1", "y1 y2", "x1 x2", "y2 y3", "x2 x3"));
  const y = (name: string): number => steps.get(name)?.y ?? NaN;
  expect(Math.sign(y("x1") - y("y1"))).toBe(Math.sign(y("x3") - y("y3")));
  expect(y("x1")).toBeCloseTo(y("x3"));
});

test("a long way passes between steps, not over them", () => {
  const { steps, edges } = layout(graphOf("a b", "b c", "c d", "a d"));
  const long = edges.find(({ edge }) => edge.source === "a" && edge.target === "d");
  expect(long?.points).toHaveLength(4);
  for (const passed of long?.points.slice(1, -1) ?? []) {
    for (const { x, y } of steps.values()) expect(passed.x !== x || Math.abs(passed.y - y) > HEIGHT / 2).toBe(true);
  }
});

test("an edge to a step that nobody defined is left out", () => {
  const graph = graphOf("a b");
  graph.edges.push({ source: "a", target: "nowhere", kind: "next", condition: "" });
  expect(layout(graph).edges).toHaveLength(1);
  expect(layout({ steps: [], edges: [] }).steps.size).toBe(0);
});
