// Choice between chat and timeline, which appears after the first model call. A run of one step begins with the chat.

import { h, type View } from "../shared/dom";
import { button } from "../shared/element";
import type { Model, Shown } from "../shared/model";
import { rootsOf } from "../shared/spans";

const TABS: readonly [Shown, string][] = [["chat", "Chat"], ["timeline", "Timeline"]];

/** Makes the choice; `parts` are the elements of each. */
export function tabs(model: Model, parts: Readonly<Record<Shown, readonly HTMLElement[]>>): View {
  const buttons = TABS.map(([name, label]) => button(label, () => { choose(name); }, { class: "db-button", role: "tab" }));
  const element = h("div", { class: "db-tabs", role: "tablist", "aria-label": "View", hidden: true }, ...buttons);
  element.addEventListener("keydown", ({ key }) => {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    choose(model.view === "chat" ? "timeline" : "chat");
    buttons[TABS.findIndex(([name]) => name === model.view)]?.focus();
  });
  let isChosen = false;
  let looked = 0;

  function choose(view: Shown): void {
    isChosen = true;
    model.show(view);
  }

  function look(): void {
    const { spans } = model;
    if (element.hidden && rootsOf(spans, looked).length > 0) element.hidden = false;
    looked = spans.floor === 0 ? spans.total : 0;
    if (!isChosen && !element.hidden && model.graph.steps.length < 2) model.show("chat");
  }

  function show(): void {
    TABS.forEach(([name], place) => {
      const isShown = name === model.view;
      buttons[place]?.setAttribute("aria-selected", String(isShown));
      if (buttons[place] !== undefined) buttons[place].tabIndex = isShown ? 0 : -1;
      for (const part of parts[name]) part.classList.toggle("db-elsewhere", !isShown);
    });
  }

  const undo = model.on((change) => {
    if (change === "view") show();
    else if (change === "spans" || change === "graph") look();
  });
  look();
  show();
  return { element, destroy: undo };
}
