// What the rows of steps gave, as a bundle of its own: of each column the most frequent values with their names, or
// numbers in bins. It stands under the bars of those steps.

import { rowsOf } from "../head/progress";
import type { SpreadPart, SpreadView, StepProgress } from "../protocol";
import { h, type View } from "../shared/dom";
import type { Part } from "../shared/later";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import style from "./spread.css";

const SETTLED = 200; // milliseconds; what changes faster than that nobody reads
const [MOST_COLUMNS, MOST_PARTS, NAME] = [3, 64, 60]; // a kernel sends no more, but a file might
const number = (count: number): string => count.toLocaleString("en");

/** Shows what the rows of steps gave, of those that have a bar. */
function spreads(model: Model): View {
  const element = h("div", { class: "db-spreads" });
  let shown = "";
  let timer: ReturnType<typeof setTimeout> | undefined;

  function show(): void {
    timer = undefined;
    const steps = rowsOf(model.header).filter(({ spread }) => spread.length > 0);
    const present = JSON.stringify(steps.map(({ step, spread, failed }) => [step, spread, failed]));
    if (present === shown) return;
    shown = present;
    element.replaceChildren(...steps.map((step) => spreadOf(step, steps.length > 1)));
  }

  const undo = model.on((change) => { if (change === "header") timer ??= setTimeout(show, SETTLED); });
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
  };
  show();
  return { element, destroy };
}

/** Rows that failed stand with the first names. */
function spreadOf({ step, spread, failed }: StepProgress, isNamed: boolean): HTMLElement {
  const first = spread.findIndex(({ kind }) => kind === "values");
  const columns = spread.slice(0, MOST_COLUMNS).map((column, at) => columnOf(column, at === first ? failed : 0));
  return h("div", { class: "db-spread" }, isNamed && h("div", { class: "db-step" }, step), ...columns);
}

function columnOf(column: SpreadView, failed: number): HTMLElement {
  const words = oneLine(column.words, 600) + (failed > 0 ? `, ${number(failed)} failed` : "");
  const body = column.kind === "values" ? valuesOf(column, failed) : binsOf(column);
  return h("div", { class: "db-column", role: "img", "aria-label": words }, h("div", { class: "db-title" }, oneLine(column.name, NAME)), body);
}

function valuesOf({ parts, others, empty }: SpreadView, failed: number): HTMLElement {
  const rows: [SpreadPart, string][] = [
    ...parts.slice(0, MOST_PARTS).map((part): [SpreadPart, string] => [part, "value"]),
    [others, "rest"],
    [{ name: "empty", count: empty }, "rest"],
    [{ name: "failed", count: failed }, "failed"],
  ];
  const shown = rows.filter(([{ count }]) => count > 0);
  const most = Math.max(...shown.map(([{ count }]) => count));
  return h("div", { class: "db-values" }, ...shown.flatMap(([{ name, count }, kind]) => {
    const fill = h("span", { class: "db-fill" });
    fill.style.width = `${(count / most) * 100}%`;
    const label = oneLine(name, NAME);
    return [h("span", { class: "db-of", "data-kind": kind, title: label, dir: "auto" }, label), h("span", { class: "db-to", "data-kind": kind }, fill), h("span", { class: "db-count" }, number(count))];
  }));
}

function binsOf({ parts, others, empty, least, greatest }: SpreadView): HTMLElement {
  const shown = parts.slice(0, MOST_PARTS);
  const most = Math.max(1, ...shown.map(({ count }) => count));
  const bars = shown.map(({ name, count }) => {
    const fill = h("span", { class: "db-fill" });
    fill.style.height = `${(count / most) * 100}%`;
    return h("span", { class: "db-bin", "data-is-empty": count === 0, title: `${oneLine(name, NAME)}: ${number(count)}` }, fill);
  });
  const beside = [others, { name: "empty", count: empty }].filter(({ count }) => count > 0).map(({ name, count }) => `${number(count)} ${oneLine(name, NAME)}`).join(", ");
  const ends = h("div", { class: "db-ends" }, h("span", {}, oneLine(least, NAME)), h("span", { class: "db-faint" }, beside), h("span", {}, oneLine(greatest, NAME)));
  return h("div", {}, h("div", { class: "db-bins" }, ...bars), ends);
}

const part: Part = { style, make: spreads };

export default part;
