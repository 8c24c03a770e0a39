// Automatic scrolling to a question after Run All, if the person has done nothing since.

import type { CellActions } from "./jupyterlab";
import type { QuestionLocator } from "./locator";
import type { OpenQuestions } from "./openquestions";

const MIN_CELLS = 2; // a person who runs a single cell is already looking at it
const CARD = "article.card"; // using a card belongs to the run and does not count as activity
const USER_EVENTS = ["keydown", "pointerdown", "wheel"] as const;

/** Scroll to new questions of a notebook whose cells a person has run, until the person does something else. */
export function scrollToNewQuestions(openQuestions: OpenQuestions, locator: QuestionLocator, actions: CellActions): void {
  // Number of cells scheduled since the last activity, by notebook.
  const scheduled = new Map<unknown, number>();
  let isScrolling = false;
  const onUserEvent = ({ target }: Event): void => {
    if (!isInCard(target)) scheduled.clear();
  };
  for (const eventName of USER_EVENTS) document.addEventListener(eventName, onUserEvent, { capture: true, passive: true });
  actions.executionScheduled.connect((_, { notebook }) => {
    scheduled.set(notebook, (scheduled.get(notebook) ?? 0) + 1);
  });
  openQuestions.onQuestion.push((openQuestion) => {
    const isUnattended = (): boolean => {
      const notebook = locator.locate(openQuestion)?.panel.content;
      return (scheduled.get(notebook) ?? 0) >= MIN_CELLS;
    };
    if (isScrolling || isInCard(document.activeElement) || !isUnattended()) return;
    isScrolling = true;
    void locator.scrollTo(openQuestion, isUnattended).finally(() => { isScrolling = false; });
  });
}

/** Return whether an element belongs to the card of a question. */
function isInCard(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest(CARD) !== null;
}
