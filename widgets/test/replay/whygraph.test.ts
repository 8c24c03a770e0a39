// The graph of causes: each value once, causes left of what was made from them, one click to an event.

import { expect, test } from "vitest";
import type { WhyLine } from "../../src/protocol";
import { causeGraph, nodesOf } from "../../src/replay/whygraph";

const line = (depth: number, sequence: number, name: string, kind = "set"): WhyLine => ({ depth, sequence, kind, operation: "", name, value: `"${name}"`, text: `step ${name}` });
// total is made from a and b, and b from a.
const CHAIN = [line(0, 9, "total"), line(1, 4, "a"), line(2, 0, "inputs.x", "input"), line(1, 6, "b"), { ...line(2, 4, "", "again"), text: "a: see above (event 4)" }];

test("a value that occurs again is one node, in the column after all that was made from it", () => {
  const nodes = nodesOf(CHAIN);
  expect(nodes.map(({ line: { name }, column }) => [name, column])).toEqual([["total", 0], ["a", 2], ["inputs.x", 3], ["b", 1]]);
  expect(nodes.map(({ causes }) => causes.map((cause) => cause.line.name))).toEqual([["a", "b"], ["inputs.x"], [], ["a"]]);
});

test("nodes of a column do not overlap", () => {
  const nodes = nodesOf([line(0, 9, "total"), ...Array.from({ length: 20 }, (_, place) => line(1, place + 1, `part ${place}`))]);
  const tops = nodes.slice(1).map(({ y }) => y).sort((one, other) => one - other);
  expect(tops.every((top, place) => place === 0 || top - (tops[place - 1] ?? 0) >= 66)).toBe(true);
});

test("a box shows its value and leads to its event; an input leads nowhere", () => {
  const visits: number[] = [];
  const graph = causeGraph(CHAIN, () => document.createElement("i"), (sequence) => visits.push(sequence));
  const boxes = [...graph.querySelectorAll<HTMLElement>(".node")];
  expect(boxes.map(({ tagName }) => tagName)).toEqual(["BUTTON", "BUTTON", "DIV", "BUTTON"]);
  expect(boxes[1]?.textContent).toBe('a"a"step a');
  boxes[1]?.click();
  expect(visits).toEqual([4]);
  expect(graph.querySelectorAll(".edge")).toHaveLength(4);
});

test("a long chain that refers to itself ends", () => {
  expect(nodesOf([line(0, 1, "a"), line(1, 1, "a", "again")])).toHaveLength(1);
  const loop = nodesOf([line(0, 2, "a"), line(1, 1, "b"), line(2, 2, "a", "again")]);
  expect(loop.length).toBe(2);
});
