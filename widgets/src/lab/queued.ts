// Bar over cells that cannot run before a question is answered, so that a person below it sees why they wait.

import { h } from "../shared/dom";
import { button } from "../shared/element";
import { oneLine } from "../shared/text";
import type { CellActions, Panel, Tracker } from "./jupyterlab";
import type { Places } from "./places";
import { askerOf, type Waiting, type Waits } from "./waits";

const BAR = "divebook-queued";

/** Keeps the bars up to date. */
export function showQueued(waits: Waits, places: Places, tracker: Tracker, actions: CellActions): void {
  const look = (): void => {
    const asking = new Map<Panel, Waiting>();
    for (const waiting of waits.open) {
      const panel = places.of(waiting)?.panel;
      const isHeldUp = places.cellOf(waiting)?.model.executionState === "running";
      if (panel !== undefined && isHeldUp && !asking.has(panel)) asking.set(panel, waiting);
    }
    tracker.forEach((panel) => { draw(panel, asking.get(panel), places); });
  };
  const soon = (): void => { setTimeout(look, 0); }; // cells say how they are after the signal
  waits.changed.push(look);
  actions.executionScheduled.connect(soon);
  actions.executed.connect(soon);
}

function draw(panel: Panel, waiting: Waiting | undefined, places: Places): void {
  const holder = waiting === undefined ? undefined : places.cellOf(waiting);
  for (const cell of panel.content.widgets) {
    const place = cell.node.querySelector(".jp-CellHeader");
    const isQueued = waiting !== undefined && cell !== holder && cell.model.executionState === "running";
    const old = place?.querySelector(`.${BAR}`);
    if (isQueued && old?.getAttribute("data-for") === waiting.question.interrupt_id) continue;
    old?.remove();
    if (isQueued) place?.append(bar(waiting, places));
  }
}

function bar(waiting: Waiting, places: Places): HTMLElement {
  const { interrupt_id: id, question } = waiting.question;
  const text = `${askerOf(waiting.question)} asks: ${question}`;
  const go = button("Go there", () => { void places.go(waiting); }, { class: "small" });
  return h(
    "div",
    { class: `divebook ${BAR}`, "data-for": id, role: "note" },
    h("span", { class: "why" }, "? Queued behind a question. ", oneLine(text, 120)),
    go,
  );
}
