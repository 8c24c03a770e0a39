// Marks of open questions while nobody looks: a count in the status bar, and a mark in tabs and the window title.

import { setText } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import type { Panel, Tracker } from "./jupyterlab";
import type { Places } from "./places";
import type { Waits } from "./waits";

const MARK = "divebook-asked";
const PREFIX = /^\(\d+\?\) /;

/** Makes the item of the status bar; a click goes to the questions one after the other. */
export function counter(waits: Waits, places: Places): HTMLElement {
  let at = 0;
  const element = button("", () => {
    const { open } = waits;
    const waiting = open[at % open.length];
    at += 1;
    if (waiting !== undefined) void places.go(waiting);
  }, { class: "divebook divebook-count" });
  waits.changed.push(() => {
    const count = waits.open.length;
    const text = plural(count, "question");
    setText(element, count === 0 ? "" : `? ${text}`);
    element.title = count === 0 ? "" : `divebook: ${text} for you. Click to go there.`;
  });
  return element;
}

/** Marks the tabs of notebooks that ask, and the title of the window. */
export function markTabs(waits: Waits, places: Places, tracker: Tracker): void {
  let count = 0;
  const name = (): void => {
    const title = document.title.replace(PREFIX, "");
    const wanted = count === 0 ? title : `(${count}?) ${title}`;
    if (document.title !== wanted) document.title = wanted;
  };
  waits.changed.push(() => {
    const { open } = waits;
    count = open.length;
    const asking = new Set(open.map((waiting) => places.of(waiting)?.panel));
    tracker.forEach((panel) => { mark(panel, asking.has(panel)); });
    name();
  });
  new MutationObserver(name).observe(document.head, { childList: true, subtree: true, characterData: true }); // JupyterLab names it anew
}

function mark({ title }: Panel, isAsked: boolean): void {
  const others = title.className.split(" ").filter((part) => part !== MARK && part !== "");
  const wanted = [...others, ...(isAsked ? [MARK] : [])].join(" ");
  if (title.className !== wanted) title.className = wanted;
}
