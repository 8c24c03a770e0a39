// Filters: text, workflow, time, tag and status. The counts of the statuses respect all other filters.

import type { RunsPage } from "../protocol";
import { h } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { oneLine } from "../shared/text";
import type { ListQuery } from "./channel";
import { SavedFilters } from "./savedfilters";
import { statusSign } from "./texts";

const TYPING_DELAY = 200; // milliseconds from the last key press to the request
const DAYS: [number, string][] = [[0, "any time"], [1, "last 24 hours"], [7, "last 7 days"], [30, "last 30 days"]];

/** Filter controls above the list. */
export class Filters {
  readonly element: HTMLElement;
  readonly #requestList: (part: Partial<ListQuery>) => void;
  readonly #text = h("input", { type: "search", "aria-label": "Search runs", placeholder: "Name, input, error, tag", "aria-keyshortcuts": "/", oninput: () => { this.#onInput(); } });
  readonly #workflow = this.#choice("Workflow", (workflow) => ({ workflow }));
  readonly #days = this.#choice("Started", (days) => ({ days: Number(days) }));
  readonly #tag = this.#choice("Tag", (tag) => ({ tag }));
  readonly #statuses = h("div", { class: "seg", role: "group", "aria-label": "Status" });
  readonly #toggle = button("Filters", () => { this.#showSelects(this.#toggle.getAttribute("aria-expanded") === "false"); }, { class: "quiet toggle", "aria-expanded": "false" });
  readonly #saved = new SavedFilters((filter) => { this.#requestList(filter); });
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(requestList: (part: Partial<ListQuery>) => void) {
    this.#requestList = requestList;
    this.element = h("div", { class: "filters" }, h("div", { class: "row" }, this.#text, this.#toggle, this.#workflow, this.#days, this.#tag), h("div", { class: "row" }, this.#statuses, this.#saved.element));
    fillSelect(this.#days, DAYS.map(([days, name]) => [String(days), name]));
  }

  /** Show the filters of a list. The text field is left alone while it has the focus. */
  update({ query, counts, workflows, tags, total }: RunsPage): void {
    if (document.activeElement !== this.#text) this.#text.value = query.text;
    fillSelect(this.#workflow, [["", "all workflows"], ...namedChoices(workflows, query.workflow)], query.workflow);
    fillSelect(this.#tag, [["", "all tags"], ...namedChoices(tags, query.tag)], query.tag);
    this.#days.value = String(query.days);
    this.#tag.hidden = tags.length === 0;
    for (const select of [this.#workflow, this.#days, this.#tag]) select.classList.toggle("active", select.selectedIndex > 0);
    this.element.hidden = total === 0;
    this.#count(counts, query.status);
    this.#saved.update(query);
  }

  /** Show or hide workflow, time and tag in a narrow view (runs.css). A wide view always shows them. */
  #showSelects(isShown: boolean): void {
    setAttribute(this.#toggle, "aria-expanded", String(isShown));
  }

  /** Show a button with a count for each status. The chosen status has a button even if its count is 0. */
  #count(counts: RunsPage["counts"], selected: string): void {
    const all = counts.reduce((sum, { count }) => sum + count, 0);
    const isMissing = selected !== "" && !counts.some(({ status }) => status === selected);
    const allCounts = isMissing ? [...counts, { status: selected, count: 0 }] : counts;
    const focused = [...this.#statuses.children].indexOf(document.activeElement as Element);
    const statusButtons = allCounts.map(({ status, count }) => {
      const word = `${status[0]?.toUpperCase() ?? ""}${status.slice(1).replaceAll("_", " ")}`;
      return this.#status(status, word, count, selected);
    });
    const buttons = [this.#status("", "All", all, selected), ...statusButtons];
    this.#statuses.replaceChildren(...buttons);
    if (focused >= 0) buttons[Math.min(focused, buttons.length - 1)]?.focus();
  }

  /** Return the button of a status. A narrow view hides the word (runs.css), which the label and the title repeat. */
  #status(status: string, word: string, count: number, selected: string): HTMLElement {
    const label = `${word} ${count.toLocaleString("en")}`;
    const element = button("", () => { this.#requestList({ status }); }, { "aria-pressed": String(status === selected), "aria-label": label, title: label });
    const sign = status === "" ? [] : [h("span", { "aria-hidden": "true" }, `${statusSign(status)} `)];
    element.append(...sign, h("span", { class: status === "" ? "" : "word" }, `${word} `), count.toLocaleString("en"));
    return element;
  }

  #choice(label: string, part: (value: string) => Partial<ListQuery>): HTMLSelectElement {
    const select = h("select", { "aria-label": label, onchange: () => { this.#requestList(part(select.value)); } });
    return select;
  }

  #onInput(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => { this.#requestList({ text: this.#text.value }); }, TYPING_DELAY);
  }
}

/** Return the options of a choice, including the chosen one if the store has no such entry. */
function namedChoices(names: string[], selected: string): [string, string][] {
  const all = selected === "" || names.includes(selected) ? names : [...names, selected];
  return all.map((name) => [name, oneLine(name, 60)]);
}

/** Fill a select element, unless it has these options already: replacing them would close an open list. */
function fillSelect(select: HTMLSelectElement, choices: [string, string][], selected = ""): void {
  const content = JSON.stringify(choices);
  if (select.dataset["said"] !== content) {
    select.replaceChildren(...choices.map(([value, name]) => h("option", { value }, name)));
    setAttribute(select, "data-said", content);
  }
  select.value = selected === "" ? (choices[0]?.[0] ?? "") : selected;
}
