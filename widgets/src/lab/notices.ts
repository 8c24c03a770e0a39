// Notification for each run with a question, with a link to it: in JupyterLab, and on the desktop if a person has
// enabled that.

import { plural } from "../shared/format";
import { oneLine } from "../shared/text";
import { obviousAnswer } from "../prompt/kinds";
import type { NoticeAction, Notices } from "./jupyterlab";
import type { QuestionLocator } from "./locator";
import { askerName, type OpenQuestion, type OpenQuestions } from "./openquestions";

const MAX_LENGTH = 140; // characters; JupyterLab cuts longer notifications

const MAX_ANSWER_LENGTH = 30;

/**
 * Show a notification for each run with open questions, and dismiss it once they are closed.
 * `isDesktopEnabled` returns whether notifications may also be shown on the desktop.
 */
export function notify(openQuestions: OpenQuestions, notices: Notices, locator: QuestionLocator, isDesktopEnabled: () => boolean): void {
  const noticeByRun = new Map<string, { id: string; text: string }>();
  const hide = (run: string): void => {
    const notice = noticeByRun.get(run);
    noticeByRun.delete(run);
    if (notice !== undefined) notices.dismiss(notice.id);
  };
  const update = (): void => {
    const runs = byRun(openQuestions.open);
    for (const run of noticeByRun.keys()) if (!runs.has(run)) hide(run);
    for (const [run, group] of runs) {
      // A notification that a person has dismissed stays away until the run asks something new.
      const notice = noticeByRun.get(run);
      if (notice !== undefined && notice.text !== textOf(group)) showNotice(run, group);
    }
  };
  const showNotice = (run: string, group: OpenQuestion[]): void => {
    const [first] = group;
    if (first === undefined) return;
    hide(run);
    const text = textOf(group);
    const go = (): void => { void locator.navigate(first); };
    const suggestion = group.length === 1 ? obviousAnswer(first.question) : undefined;
    const answer = (): void => {
      void openQuestions.answer(first, suggestion?.response).then((isAccepted) => {
        if (!isAccepted) go();
      });
    };
    const actions: NoticeAction[] = [
      { label: "Go to question", displayType: "accent", callback: go },
      ...(suggestion === undefined ? [] : [{ label: `Answer: ${oneLine(suggestion.label, MAX_ANSWER_LENGTH)}`, callback: answer }]),
      { label: "Later", callback: () => { noticeByRun.delete(run); } },
    ];
    noticeByRun.set(run, { text, id: notices.emit(text, "default", { autoClose: false, actions }) });
  };
  openQuestions.onChange.push(update);
  openQuestions.onQuestion.push((openQuestion) => {
    const run = runOf(openQuestion);
    const group = byRun(openQuestions.open).get(run) ?? [openQuestion];
    showNotice(run, group);
    if (isDesktopEnabled()) notifyDesktop(textOf(group), run, () => { void locator.navigate(openQuestion); });
  });
}

/** Show a notification on the desktop, if the person is in another window or program. */
function notifyDesktop(body: string, tag: string, go: () => void): void {
  if (document.hasFocus() || Notification.permission !== "granted") return;
  const notice = new Notification("divebook", { body, tag });
  notice.onclick = () => {
    window.focus();
    go();
  };
}

/** Return the id of the run that asks. */
function runOf({ question }: OpenQuestion): string {
  return question.asker?.[1] ?? question.interrupt_id;
}

/** Group open questions by run, in their order. */
function byRun(open: readonly OpenQuestion[]): Map<string, OpenQuestion[]> {
  const runs = new Map<string, OpenQuestion[]>();
  for (const openQuestion of open) {
    const run = runOf(openQuestion);
    runs.set(run, [...(runs.get(run) ?? []), openQuestion]);
  }
  return runs;
}

/** Return the workflow and the first question of a run on one line. */
function textOf([first, ...more]: readonly OpenQuestion[]): string {
  if (first === undefined) return "";
  const rest = more.length === 0 ? "" : ` (and ${plural(more.length, "more question")})`;
  return `${oneLine(`${askerName(first.question)} asks: ${first.question.question}`, MAX_LENGTH - rest.length)}${rest}`;
}
