// Bundle with the distributions of the rows that steps return, shown below the progress bars of the steps. Columns of texts
// show their most frequent values, columns of numbers show a histogram.

import { rowsOf } from "../head/progress";
import type { SpreadPart, SpreadView, StepProgress } from "../protocol";
import { h, type View } from "../shared/dom";
import { formatCount } from "../shared/format";
import type { Part } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import style from "./spread.css";

const UPDATE_EVERY = 200; // milliseconds between two updates; faster changes cannot be read
// Limits that the kernel observes too, but a saved file might not.
const MOST_COLUMNS = 3;
const MOST_PARTS = 64;
const NAME = 60; // characters

/** Show the distributions of all steps with a progress bar. */
function distributions(model: Model): View {
  const element = h("div", { class: "db-spreads" });
  let shownState = "";
  let timer: ReturnType<typeof setTimeout> | undefined;

  function show(): void {
    timer = undefined;
    const steps = rowsOf(model.header).filter(({ spread }) => spread.length > 0);
    const currentState = JSON.stringify(steps.map(({ step, spread, failed }) => [step, spread, failed]));
    if (currentState === shownState) return;
    shownState = currentState;
    element.replaceChildren(...steps.map((step) => distributionOf(step, steps.length > 1)));
  }

  const undo = model.on((change) => {
    if (change === "header") timer ??= setTimeout(show, UPDATE_EVERY);
  });
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
  };
  show();
  return { element, destroy };
}

/** Show the columns of a step. Failed rows are counted in the first column of values. */
function distributionOf({ step, spread, failed }: StepProgress, hasName: boolean): HTMLElement {
  const first = spread.findIndex(({ kind }) => kind === "values");
  const columns = spread.slice(0, MOST_COLUMNS).map((column, at) => columnOf(column, at === first ? failed : 0));
  return h("div", { class: "db-spread" }, hasName && h("div", { class: "db-step" }, step), ...columns);
}

function columnOf(column: SpreadView, failed: number): HTMLElement {
  const words = oneLine(column.words, 600) + (failed > 0 ? `, ${formatCount(failed)} failed` : "");
  const body = column.kind === "values" ? valuesOf(column, failed) : binsOf(column);
  return h("div", { class: "db-column", role: "img", "aria-label": words }, h("div", { class: "db-title" }, oneLine(column.name, NAME)), body);
}

/** Show the most frequent values as bars, relative to the highest count. */
function valuesOf({ parts, others, empty }: SpreadView, failed: number): HTMLElement {
  const rows: [SpreadPart, string][] = [
    ...parts.slice(0, MOST_PARTS).map((part): [SpreadPart, string] => [part, "value"]),
    [others, "rest"],
    [{ name: "empty", count: empty }, "rest"],
    [{ name: "failed", count: failed }, "failed"],
  ];
  const visibleRows = rows.filter(([{ count }]) => count > 0);
  const most = Math.max(...visibleRows.map(([{ count }]) => count));
  return h("div", { class: "db-values" }, ...visibleRows.flatMap(([{ name, count }, kind]) => {
    const fill = h("span", { class: "db-fill" });
    fill.style.width = `${(count / most) * 100}%`;
    const label = oneLine(name, NAME);
    return [
      h("span", { class: "db-of", "data-kind": kind, title: label, dir: "auto" }, label),
      h("span", { class: "db-to", "data-kind": kind }, fill),
      h("span", { class: "db-count" }, formatCount(count)),
    ];
  }));
}

/** Show a histogram with its range. */
function binsOf({ parts, others, empty, least, greatest }: SpreadView): HTMLElement {
  const bins = parts.slice(0, MOST_PARTS);
  const most = Math.max(1, ...bins.map(({ count }) => count));
  const bars = bins.map(({ name, count }) => {
    const fill = h("span", { class: "db-fill" });
    fill.style.height = `${(count / most) * 100}%`;
    return h("span", { class: "db-bin", "data-is-empty": count === 0, title: `${oneLine(name, NAME)}: ${formatCount(count)}` }, fill);
  });
  const remainder = [others, { name: "empty", count: empty }].filter(({ count }) => count > 0);
  const note = remainder.map(({ name, count }) => `${formatCount(count)} ${oneLine(name, NAME)}`).join(", ");
  const labels = [h("span", {}, oneLine(least, NAME)), h("span", { class: "db-faint" }, note), h("span", {}, oneLine(greatest, NAME))];
  const ends = h("div", { class: "db-ends" }, ...labels);
  return h("div", {}, h("div", { class: "db-bins" }, ...bars), ends);
}

const part: Part = { style, make: distributions };

export default part;
