// Marks of open questions for a person who looks elsewhere: a count in the status bar, and marks in tabs and the window
// title.

import { setText } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import type { Panel, Tracker } from "./jupyterlab";
import type { QuestionLocator } from "./locator";
import type { OpenQuestions } from "./openquestions";

const MARK = "divebook-asked";
const PREFIX = /^\(\d+\?\) /;

/** Return the item of the status bar. Each click goes to the next question. */
export function statusItem(openQuestions: OpenQuestions, locator: QuestionLocator): HTMLElement {
  let index = 0;
  const element = button("", () => {
    const { open } = openQuestions;
    const openQuestion = open[index % open.length];
    index += 1;
    if (openQuestion !== undefined) void locator.navigate(openQuestion);
  }, { class: "divebook divebook-count" });
  openQuestions.onChange.push(() => {
    const count = openQuestions.open.length;
    const text = plural(count, "question");
    setText(element, count === 0 ? "" : `? ${text}`);
    element.title = count === 0 ? "" : `divebook: ${text} for you. Click to go to the next question.`;
  });
  return element;
}

/** Mark the tabs of notebooks with open questions, and the title of the window. */
export function markTabs(openQuestions: OpenQuestions, locator: QuestionLocator, tracker: Tracker): void {
  let count = 0;
  const updateTitle = (): void => {
    const title = document.title.replace(PREFIX, "");
    const updated = count === 0 ? title : `(${count}?) ${title}`;
    if (document.title !== updated) document.title = updated;
  };
  openQuestions.onChange.push(() => {
    const { open } = openQuestions;
    count = open.length;
    // A kernel reports the questions of all runs of its store. Only the notebook with the cell of the run asks.
    const places = open.map((openQuestion) => locator.locate(openQuestion));
    const asking = new Set(places.filter((place) => place !== undefined && place.cell >= 0).map((place) => place?.panel));
    tracker.forEach((panel) => { mark(panel, asking.has(panel)); });
    updateTitle();
  });
  new MutationObserver(updateTitle).observe(document.head, { childList: true, subtree: true, characterData: true }); // JupyterLab replaces the title
}

/** Add or remove the mark of a tab, without touching the classes of others. */
function mark({ title }: Panel, hasQuestion: boolean): void {
  const otherClasses = title.className.split(" ").filter((part) => part !== MARK && part !== "");
  const updated = [...otherClasses, ...(hasQuestion ? [MARK] : [])].join(" ");
  if (title.className !== updated) title.className = updated;
}
