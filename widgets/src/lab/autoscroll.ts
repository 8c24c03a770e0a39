// After Run All has stopped at a question: scroll a person who has done nothing since to its card.

import type { CellActions } from "./jupyterlab";
import type { QuestionLocator } from "./locator";
import type { OpenQuestions } from "./openquestions";

const MIN_CELLS = 2; // who runs one cell looks at it
const CARD = "article.card"; // what is done in one belongs to the run
const USER_EVENTS = ["keydown", "pointerdown", "wheel"] as const;

/** Brings readers to new questions of the notebook whose cells they ran. */
export function scrollToNewQuestions(openQuestions: OpenQuestions, locator: QuestionLocator, actions: CellActions): void {
  const scheduled = new Map<unknown, number>();
  let isScrolling = false;
  const onUserEvent = ({ target }: Event): void => { if (!isInCard(target)) scheduled.clear(); };
  for (const eventName of USER_EVENTS) document.addEventListener(eventName, onUserEvent, { capture: true, passive: true });
  actions.executionScheduled.connect((_, { notebook }) => { scheduled.set(notebook, (scheduled.get(notebook) ?? 0) + 1); });
  openQuestions.onQuestion.push((openQuestion) => {
    const isUnattended = (): boolean => (scheduled.get(locator.locate(openQuestion)?.panel.content) ?? 0) >= MIN_CELLS;
    if (isScrolling || isInCard(document.activeElement) || !isUnattended()) return;
    isScrolling = true;
    void locator.scrollTo(openQuestion, isUnattended).finally(() => { isScrolling = false; });
  });
}

function isInCard(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest(CARD) !== null;
}
