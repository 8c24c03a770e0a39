// Progress of the steps with items: a bar and words for each step that runs or is incomplete. A step whose results have
// distributions (src/spread) keeps its bar after the run has ended.

import type { Header, StepProgress } from "../protocol";
import { h } from "../shared/dom";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";

const MAX_BARS = 3;
const number = (count: number): string => count.toLocaleString("en");

/** Make the bars; `update` shows the current numbers. */
export function progress(model: Model): { element: HTMLElement; update: () => void } {
  const element = h("div", { class: "db-progress", hidden: true });
  let drawnKey = "";

  function update(): void {
    const rows = rowsOf(model.header);
    const now = model.originUs + model.now();
    const isHeld = model.isHalted || model.header?.doing === "waited"; // the time that a person takes cannot be estimated
    const timeLeft = (row: StepProgress): string => (isHeld ? "" : leftText(row, now));
    const texts = rows.map((row) => [wordsOf(row), timeLeft(row)]);
    if (JSON.stringify([rows, texts]) === drawnKey) return;
    drawnKey = JSON.stringify([rows, texts]);
    element.hidden = rows.length === 0;
    element.replaceChildren(...rows.map((row) => rowOf(row, timeLeft(row))));
  }

  return { element, update };
}

/** Return the steps that get a bar: the running ones; if there are none, the last incomplete step and those with distributions. */
export function rowsOf(header: Header | null): StepProgress[] {
  const current = currentOf(header);
  const steps = stepsWithItems(header);
  const running = steps.filter((step) => step.running);
  if (running.length > 0) return running.slice(-MAX_BARS);
  return steps.filter((step) => step === current || step.spread.length > 0).slice(-MAX_BARS);
}

/** Return the step to show progress for: the last running one, else the last incomplete one. */
export function currentOf(header: Header | null): StepProgress | undefined {
  const steps = stepsWithItems(header);
  return steps.findLast((step) => step.running) ?? steps.findLast((step) => step.done < step.total);
}

/** Return the steps that process items. */
function stepsWithItems(header: Header | null): StepProgress[] {
  return (header?.progress ?? []).filter((step) => step.total > 0);
}

/** Return the text about the results that are kept if the run is cancelled. */
export function keptText(step: StepProgress | undefined): string {
  return step === undefined ? "Completed calls are saved." : `${number(step.done)} of ${number(step.total)} items are saved.`;
}

/** Return how many items are done without a failure. Failed and missing items are shown beside it, and add up to the total with it. */
function wordsOf(row: StepProgress): string {
  return `${row.step}: ${number(soundOf(row))} of ${number(row.total)}`;
}

function soundOf({ done, failed, failed_open: failedOpen }: StepProgress): number {
  return done - (failed - failedOpen);
}

/** Return the estimated remaining time as text. The estimate of the kernel is reduced by its age. */
function leftText({ running, left_us: remaining, at_us: at }: StepProgress, now: number): string {
  return running && remaining !== null && remaining > 0 ? `, about ${duration(Math.max(1e6, remaining - (now - at)))} left` : "";
}

/** Return the bar of a step: done and failed items, remaining time, and missing items. */
function rowOf(row: StepProgress, timeLeft: string): HTMLElement {
  const { done, total, failed, failed_open: failedOpen, running } = row;
  const missing = running ? 0 : total - done - failedOpen;
  const notes = [
    failed > 0 && h("span", { class: "db-bad" }, ` · ${number(failed)} failed`),
    missing > 0 && h("span", { class: "db-faint" }, ` · ${number(missing)} not done`),
  ];
  const label = `${wordsOf(row)} done, ${number(failed)} failed`;
  const bar = h("span", { class: "db-bar", role: "meter", "aria-valuemin": 0, "aria-valuemax": total, "aria-valuenow": done + failedOpen, "aria-label": label });
  const part = (count: number, className: string): HTMLElement => {
    const fill = h("span", { class: className });
    fill.style.width = `${(count / total) * 100}%`;
    return fill;
  };
  bar.append(part(soundOf(row), "db-fill"), ...(failed > 0 ? [part(failed, "db-fill db-fill-failed")] : []));
  return h("div", { class: "db-far" }, bar, h("span", {}, h("strong", {}, wordsOf(row)), timeLeft, ...notes));
}
