// Tabs for chat and timeline, which appear after the first model call. A run with one step starts with the chat.

import { h, type View } from "../shared/dom";
import { button } from "../shared/element";
import type { Model, RunTab } from "../shared/model";
import { rootsOf } from "../shared/spans";

const TABS: readonly [RunTab, string][] = [["chat", "Chat"], ["timeline", "Timeline"]];

/** Create the tabs. `parts` are the elements of each tab. */
export function tabs(model: Model, parts: Readonly<Record<RunTab, readonly HTMLElement[]>>): View {
  const buttons = TABS.map(([name, label]) => button(label, () => { choose(name); }, { class: "db-button", role: "tab" }));
  const element = h("div", { class: "db-tabs", role: "tablist", "aria-label": "View", hidden: true }, ...buttons);
  element.addEventListener("keydown", ({ key }) => {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    choose(model.view === "chat" ? "timeline" : "chat");
    buttons[TABS.findIndex(([name]) => name === model.view)]?.focus();
  });
  let hasUserChoice = false;
  let nextId = 0;

  function choose(view: RunTab): void {
    hasUserChoice = true;
    model.show(view);
  }

  /** Show the tabs after the first model call. Switch a run with one step to the chat, unless a person has chosen a tab. */
  function showTabs(): void {
    const { spans } = model;
    if (element.hidden && rootsOf(spans, nextId).length > 0) element.hidden = false;
    nextId = spans.floor === 0 ? spans.total : 0;
    if (!hasUserChoice && !element.hidden && model.graph.steps.length < 2) model.show("chat");
  }

  /** Mark the selected tab, and hide the elements of the other one. */
  function showTab(): void {
    TABS.forEach(([name], place) => {
      const isShown = name === model.view;
      buttons[place]?.setAttribute("aria-selected", String(isShown));
      if (buttons[place] !== undefined) buttons[place].tabIndex = isShown ? 0 : -1;
      for (const part of parts[name]) part.classList.toggle("db-elsewhere", !isShown);
    });
  }

  const undo = model.on((change) => {
    if (change === "view") showTab();
    else if (change === "spans" || change === "graph") showTabs();
  });
  showTabs();
  showTab();
  return { element, destroy: undo };
}
