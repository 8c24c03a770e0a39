// What the rows of steps gave: bars with names and counts, bins with their ends, and the same in words for those who do not see them.

import axe from "axe-core";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { SpreadView, StepProgress } from "../../src/protocol";
import type { View } from "../../src/shared/dom";
import type { Host } from "../../src/shared/lazypart";
import { Model } from "../../src/shared/model";
import part from "../../src/spread";
import { delta, HEADER, welcome } from "../blocks";

const LABELS: SpreadView = {
  name: "label", kind: "values", parts: [{ name: "praise", count: 40 }, { name: "<b>blame</b>", count: 10 }], others: { name: "2 others", count: 5 }, empty: 2, least: "", greatest: "",
  words: "label: praise 40, <b>blame</b> 10, 2 others 5, 2 empty",
};
const SCORES: SpreadView = {
  name: "score", kind: "numbers", parts: [{ name: "0 to 1", count: 10 }, { name: "1 to 2", count: 0 }, { name: "2 to 3", count: 40 }], others: { name: "infinite", count: 0 }, empty: 7,
  least: "0.5", greatest: "2.9", words: "score: 0.5 to 2.9, median about 2.5, 7 empty",
};
const STEP: StepProgress = { step: "label", done: 60, total: 60, failed: 3, failed_open: 0, running: true, left_us: null, at_us: 5_000_000, spread: [LABELS, SCORES] };

let model: Model;
let view: View;

beforeEach(() => {
  vi.useFakeTimers();
  model = new Model(() => 0);
  model.welcome(welcome([], { header: { ...HEADER, progress: [STEP] } }));
  view = part.make(model, {} as Host);
  document.body.replaceChildren(view.element);
});

afterEach(() => {
  view.destroy();
  vi.useRealTimers();
});

const all = (selector: string): HTMLElement[] => [...view.element.querySelectorAll<HTMLElement>(selector)];
const texts = (selector: string): string[] => all(selector).map((element) => element.textContent);

test("values are bars with their names and counts, rows that failed among them", () => {
  expect(texts(".db-of")).toEqual(["praise", "<b>blame</b>", "2 others", "empty", "failed"]);
  expect(texts(".db-count")).toEqual(["40", "10", "5", "2", "3"]);
  expect(all(".db-to .db-fill").map((fill) => fill.style.width)).toEqual(["100%", "25%", "12.5%", "5%", "7.5%"]);
});

test("numbers are bins between the least and the greatest", () => {
  expect(all(".db-bin").map((bin) => [bin.title, bin.querySelector<HTMLElement>(".db-fill")?.style.height])).toEqual([["0 to 1: 10", "25%"], ["1 to 2: 0", "0%"], ["2 to 3: 40", "100%"]]);
  expect(texts(".db-ends > span")).toEqual(["0.5", "7 empty", "2.9"]);
});

test("each column is said in words, and nothing is wrong for those who hear it", async () => {
  expect(all(".db-column").map((column) => column.getAttribute("aria-label"))).toEqual([`${LABELS.words}, 3 failed`, SCORES.words]);
  vi.useRealTimers();
  expect((await axe.run(view.element)).violations).toEqual([]);
});

test("what changes is drawn a few times a second, and what does not stays as it is", () => {
  const [column] = all(".db-column");
  const tell = (spread: SpreadView[]): void => { model.delta(delta([], { header: { ...HEADER, progress: [{ ...STEP, spread }] } })); };
  tell([LABELS, SCORES]);
  vi.advanceTimersByTime(1000);
  expect(all(".db-column")[0]).toBe(column);
  tell([SCORES]);
  expect(texts(".db-title")).toEqual(["label", "score"]);
  vi.advanceTimersByTime(1000);
  expect(texts(".db-title")).toEqual(["score"]);
});

test("of several steps each is named", () => {
  model.delta(delta([], { header: { ...HEADER, progress: [STEP, { ...STEP, step: "rate", spread: [SCORES] }] } }));
  vi.advanceTimersByTime(1000);
  expect(texts(".db-step")).toEqual(["label", "rate"]);
});
