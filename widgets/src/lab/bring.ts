// After Run All has stopped at a question: scroll a person who has done nothing since to its card.

import type { CellActions } from "./jupyterlab";
import type { Places } from "./places";
import type { Waits } from "./waits";

const SEVERAL = 2; // who runs one cell looks at it
const CARD = "article.card"; // what is done in one belongs to the run
const DOINGS = ["keydown", "pointerdown", "wheel"] as const;

/** Brings readers to new questions of the notebook whose cells they ran. */
export function bringReaders(waits: Waits, places: Places, actions: CellActions): void {
  const scheduled = new Map<unknown, number>();
  let isGoing = false;
  const forget = ({ target }: Event): void => { if (!isInCard(target)) scheduled.clear(); };
  for (const doing of DOINGS) document.addEventListener(doing, forget, { capture: true, passive: true });
  actions.executionScheduled.connect((_, { notebook }) => { scheduled.set(notebook, (scheduled.get(notebook) ?? 0) + 1); });
  waits.asked.push((waiting) => {
    const isWanted = (): boolean => (scheduled.get(places.of(waiting)?.panel.content) ?? 0) >= SEVERAL;
    if (isGoing || isInCard(document.activeElement) || !isWanted()) return;
    isGoing = true;
    void places.bring(waiting, isWanted).finally(() => { isGoing = false; });
  });
}

function isInCard(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest(CARD) !== null;
}
