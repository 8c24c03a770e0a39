import { expect, test } from "vitest";
import { Spans } from "../../src/shared/spans";
import { block, type Row } from "../blocks";

function spans(rows: readonly Row[], total = rows.length, floor = 0): Spans {
  const made = new Spans();
  made.add(block(rows), total, floor);
  return made;
}

function within(made: Spans, from: number, to: number): number[] {
  const found: number[] = [];
  made.within(from, to, (id) => found.push(id));
  return found;
}

test("what touches a stretch of time is found, long spans that began before it included", () => {
  const made = spans([
    { id: 0, start: 0, end: 100 },
    { id: 1, start: 10, end: 20 },
    { id: 2, start: 30, end: 40 },
    { id: 3, start: 50 },
  ]);
  expect(within(made, 25, 35)).toEqual([0, 2]);
  expect(within(made, 60, 70)).toEqual([0, 3]);
  expect(within(made, 101, 200)).toEqual([3]);
});

test("of many spans only those near a stretch are looked at", () => {
  const rows = Array.from({ length: 5000 }, (_, id) => ({ id, start: id * 10, end: id * 10 + 5 }));
  expect(within(spans(rows), 30_001, 30_021)).toEqual([3000, 3001, 3002]);
});

test("a clock that was set back loses no span", () => {
  const made = spans([
    { id: 0, start: 100, end: 110 },
    { id: 1, start: 50, end: 120 },
    { id: 2, start: 130, end: 140 },
  ]);
  expect(within(made, 105, 115)).toEqual([0, 1]);
});

test("spans that are not here yet are left out, early ones that run are not", () => {
  const made = spans([{ id: 2, start: 5 }, { id: 8, start: 80, end: 90 }, { id: 9, start: 90, end: 95 }], 10, 8);
  expect(within(made, 0, 100)).toEqual([2, 8, 9]);
  expect(made.early).toEqual([2]);
  made.add(block([{ id: 2, start: 5, end: 20 }]), 10);
  expect(within(made, 30, 100)).toEqual([8, 9]);
});

test("older spans that come later are put in their place", () => {
  const made = spans([{ id: 2, start: 20, end: 30 }], 3, 2);
  expect(made.add(block([{ id: 0, start: 0, end: 5 }, { id: 1, start: 10, end: 15 }]), 3, 0)).toBe(true);
  expect(within(made, 0, 100)).toEqual([0, 1, 2]);
});

test("texts of blocks with tables of their own are told apart", () => {
  const made = spans([{ id: 0, start: 0, step: "a", note: "x" }]);
  made.add(block([{ id: 1, start: 1, step: "x", note: "a", iteration: 3 }]), 2);
  expect([made.text(0, "step"), made.text(1, "step"), made.nameOf(1)]).toEqual(["a", "x", "x[3]"]);
});

test("a span that ended runs no more", () => {
  const made = spans([{ id: 0, start: 0 }]);
  expect([...made.running]).toEqual([0]);
  made.add(block([{ id: 0, start: 0, end: 7 }]), 1);
  expect([...made.running]).toEqual([]);
  expect([made.endOf(0, 99), made.latest]).toEqual([7, 7]);
});
