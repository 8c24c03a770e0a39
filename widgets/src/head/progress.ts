// How far the steps with items are: a bar and words for each that runs, or is not whole. Where it is told what the rows
// gave (src/spread), the bar stays when the run has ended.

import type { Header, StepProgress } from "../protocol";
import { h } from "../shared/dom";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";

const MOST = 3;
const number = (count: number): string => count.toLocaleString("en");

/** Makes the bars; `update` shows them as they are now. */
export function progress(model: Model): { element: HTMLElement; update: () => void } {
  const element = h("div", { class: "db-progress", hidden: true });
  let shown = "";

  function update(): void {
    const rows = rowsOf(model.header);
    const now = model.originUs + model.now();
    const left = (row: StepProgress): string => (model.isHalted ? "" : leftText(row, now));
    const texts = rows.map((row) => [wordsOf(row), left(row)]);
    if (JSON.stringify([rows, texts]) === shown) return;
    shown = JSON.stringify([rows, texts]);
    element.hidden = rows.length === 0;
    element.replaceChildren(...rows.map((row) => rowOf(row, left(row))));
  }

  return { element, update };
}

/** Returns the steps that are worth a bar: those that run, or the last that is not whole and those of which is told what they gave. */
export function rowsOf(header: Header | null): StepProgress[] {
  const current = currentOf(header);
  const steps = known(header);
  const running = steps.filter((step) => step.running);
  if (running.length > 0) return running.slice(-MOST);
  return steps.filter((step) => step === current || step.spread.length > 0).slice(-MOST);
}

/** Returns the step of which people want to know how far it is. */
export function currentOf(header: Header | null): StepProgress | undefined {
  return known(header).findLast((step) => step.running) ?? known(header).findLast((step) => step.done < step.total);
}

function known(header: Header | null): StepProgress[] {
  return (header?.progress ?? []).filter((step) => step.total > 0);
}

/** Says what is safe whatever happens. */
export function keptText(step: StepProgress | undefined): string {
  return step === undefined ? "What is done is kept." : `${number(step.done)} of ${number(step.total)} are kept.`;
}

function wordsOf({ step, done, total }: StepProgress): string {
  return `${step}: ${number(done)} of ${number(total)}`;
}

function leftText({ running, left_us: left, at_us: at }: StepProgress, now: number): string {
  return running && left !== null && left > 0 ? `, about ${duration(Math.max(1e6, left - (now - at)))} left` : "";
}

function rowOf(row: StepProgress, left: string): HTMLElement {
  const { done, total, failed, running } = row;
  const missing = running ? 0 : total - done;
  const notes = [failed > 0 && h("span", { class: "db-bad" }, ` · ${number(failed)} failed`), missing > 0 && h("span", { class: "db-faint" }, ` · ${number(missing)} not done`)];
  const bar = h("span", { class: "db-bar", role: "meter", "aria-valuemin": 0, "aria-valuemax": total, "aria-valuenow": done, "aria-label": `${wordsOf(row)} done, ${number(failed)} failed` });
  const part = (count: number, className: string): HTMLElement => {
    const fill = h("span", { class: className });
    fill.style.width = `${(count / total) * 100}%`;
    return fill;
  };
  bar.append(part(done, "db-fill"), ...(failed > 0 ? [part(failed, "db-fill db-fill-failed")] : []));
  return h("div", { class: "db-far" }, bar, h("span", {}, h("strong", {}, wordsOf(row)), left, ...notes));
}
