// Notification for each run with a question, with a link to it: in JupyterLab, and on the desktop if a person enabled it.

import { oneLine } from "../shared/text";
import { obviousAnswer } from "../prompt/kinds";
import type { NoticeAction, Notices } from "./jupyterlab";
import type { Places } from "./places";
import { askerOf, type Waiting, type Waits } from "./waits";

const MOST = 140; // JupyterLab cuts longer ones

const MOST_ANSWER = 30;

/** Tells of new questions until they are answered; `isWanted` says whether the desktop may be used. */
export function notify(waits: Waits, notices: Notices, places: Places, isWanted: () => boolean): void {
  const shown = new Map<string, { id: string; text: string }>();
  const hide = (run: string): void => {
    const notice = shown.get(run);
    shown.delete(run);
    if (notice !== undefined) notices.dismiss(notice.id);
  };
  const look = (): void => {
    const runs = byRun(waits.open);
    for (const run of shown.keys()) if (!runs.has(run)) hide(run);
    for (const [run, asked] of runs) if (shown.has(run) && shown.get(run)?.text !== textOf(asked)) tell(run, asked);
  };
  const tell = (run: string, asked: Waiting[]): void => {
    const [first] = asked;
    if (first === undefined) return;
    hide(run);
    const text = textOf(asked);
    const go = (): void => { void places.go(first); };
    const obvious = asked.length === 1 ? obviousAnswer(first.question) : undefined;
    const answer = (): void => { void waits.answer(first, obvious?.response).then((isTaken) => { if (!isTaken) go(); }); };
    const actions: NoticeAction[] = [
      { label: "Go there", displayType: "accent", callback: go },
      ...(obvious === undefined ? [] : [{ label: `Answer: ${oneLine(obvious.told, MOST_ANSWER)}`, callback: answer }]),
      { label: "Later", callback: () => { shown.delete(run); } },
    ];
    shown.set(run, { text, id: notices.emit(text, "default", { autoClose: false, actions }) });
  };
  waits.changed.push(look);
  waits.asked.push((waiting) => {
    const run = runOf(waiting);
    const asked = byRun(waits.open).get(run) ?? [waiting];
    tell(run, asked);
    if (isWanted()) tellDesktop(textOf(asked), run, () => { void places.go(waiting); });
  });
}

/** Tells a person who is in another window or program. */
function tellDesktop(body: string, tag: string, go: () => void): void {
  if (document.hasFocus() || Notification.permission !== "granted") return;
  const notice = new Notification("divebook", { body, tag });
  notice.onclick = () => {
    window.focus();
    go();
  };
}

function runOf({ question }: Waiting): string {
  return question.asker?.[1] ?? question.interrupt_id;
}

function byRun(open: readonly Waiting[]): Map<string, Waiting[]> {
  const runs = new Map<string, Waiting[]>();
  for (const waiting of open) runs.set(runOf(waiting), [...(runs.get(runOf(waiting)) ?? []), waiting]);
  return runs;
}

/** Returns who asks what, on one line. */
function textOf([first, ...more]: readonly Waiting[]): string {
  if (first === undefined) return "";
  const rest = more.length === 0 ? "" : ` (and ${more.length} more)`;
  return `${oneLine(`${askerOf(first.question)} asks: ${first.question.question}`, MOST - rest.length)}${rest}`;
}
