// Bar over queued cells that wait for a question in another cell, so that a person below it sees the reason.

import { h } from "../shared/dom";
import { button } from "../shared/element";
import { oneLine } from "../shared/text";
import type { CellActions, Panel, Tracker } from "./jupyterlab";
import type { QuestionLocator } from "./locator";
import { askerName, type OpenQuestion, type OpenQuestions } from "./openquestions";

const BAR = "divebook-queued";

/** Add and remove the bars as questions and cells change. */
export function showQueuedBars(openQuestions: OpenQuestions, locator: QuestionLocator, tracker: Tracker, actions: CellActions): void {
  const update = (): void => {
    const questionByPanel = new Map<Panel, OpenQuestion>();
    for (const openQuestion of openQuestions.open) {
      const panel = locator.locate(openQuestion)?.panel;
      const isRunning = locator.cellOf(openQuestion)?.model.executionState === "running";
      if (panel !== undefined && isRunning && !questionByPanel.has(panel)) questionByPanel.set(panel, openQuestion);
    }
    tracker.forEach((panel) => { draw(panel, questionByPanel.get(panel), locator); });
  };
  const updateLater = (): void => { setTimeout(update, 0); }; // cells update their state after the signal
  openQuestions.onChange.push(update);
  actions.executionScheduled.connect(updateLater);
  actions.executed.connect(updateLater);
}

/** Add the bar to the queued cells of a notebook and remove it from the others. An unchanged bar is kept. */
function draw(panel: Panel, openQuestion: OpenQuestion | undefined, locator: QuestionLocator): void {
  const runningCell = openQuestion === undefined ? undefined : locator.cellOf(openQuestion);
  for (const cell of panel.content.widgets) {
    const place = cell.node.querySelector(".jp-CellHeader");
    const isQueued = openQuestion !== undefined && cell !== runningCell && cell.model.executionState === "running";
    const old = place?.querySelector(`.${BAR}`);
    if (isQueued && old?.getAttribute("data-for") === openQuestion.question.interrupt_id) continue;
    old?.remove();
    if (isQueued) place?.append(bar(openQuestion, locator));
  }
}

function bar(openQuestion: OpenQuestion, locator: QuestionLocator): HTMLElement {
  const { interrupt_id: id, question } = openQuestion.question;
  const text = `${askerName(openQuestion.question)} asks: ${question}`;
  const go = button("Go to question", () => { void locator.navigate(openQuestion); }, { class: "small" });
  return h(
    "div",
    { class: `divebook ${BAR}`, "data-for": id, role: "note" },
    h("span", { class: "why" }, "? This cell runs after you answer a question. ", oneLine(text, 120)),
    go,
  );
}
