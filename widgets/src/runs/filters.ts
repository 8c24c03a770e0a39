// Filters: a text, a workflow, a time, a tag and a status. The counts of statuses respect all other filters.

import type { RunsPage } from "../protocol";
import { h } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { oneLine } from "../shared/text";
import type { Asked } from "./channel";
import { signOf } from "./words";

const TYPING = 200; // milliseconds after which a text is asked for
const DAYS: [number, string][] = [[0, "ever"], [1, "last 24 hours"], [7, "last 7 days"], [30, "last 30 days"]];

/** The controls above the list. */
export class Filters {
  readonly element: HTMLElement;
  readonly #ask: (part: Partial<Asked>) => void;
  readonly #text = h("input", { type: "search", "aria-label": "Search runs", placeholder: "Name, input, error, tag", "aria-keyshortcuts": "/", oninput: () => { this.#typed(); } });
  readonly #workflow = this.#choice("Workflow", (workflow) => ({ workflow }));
  readonly #days = this.#choice("When", (days) => ({ days: Number(days) }));
  readonly #tag = this.#choice("Tag", (tag) => ({ tag }));
  readonly #statuses = h("div", { class: "seg", role: "group", "aria-label": "Status" });
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(ask: (part: Partial<Asked>) => void) {
    this.#ask = ask;
    this.element = h("div", { class: "filters" }, h("div", { class: "row" }, this.#text, this.#workflow, this.#days, this.#tag), this.#statuses);
    offer(this.#days, DAYS.map(([days, name]) => [String(days), name]));
  }

  /** Shows what a page answers; a field that is being typed into is left alone. */
  update({ query, counts, workflows, tags, total }: RunsPage): void {
    if (document.activeElement !== this.#text) this.#text.value = query.text;
    offer(this.#workflow, [["", "every workflow"], ...named(workflows, query.workflow)], query.workflow);
    offer(this.#tag, [["", "every tag"], ...named(tags, query.tag)], query.tag);
    this.#days.value = String(query.days);
    this.#tag.hidden = tags.length === 0;
    this.element.hidden = total === 0;
    this.#count(counts, query.status);
  }

  #count(counts: RunsPage["counts"], chosen: string): void {
    const all = counts.reduce((sum, { count }) => sum + count, 0);
    const known = counts.some(({ status }) => status === chosen) || chosen === "" ? counts : [...counts, { status: chosen, count: 0 }];
    const focused = [...this.#statuses.children].indexOf(document.activeElement as Element);
    const made = [this.#status("", `All ${all.toLocaleString("en")}`, chosen), ...known.map(({ status, count }) => this.#status(status, `${status[0]?.toUpperCase() ?? ""}${status.slice(1).replaceAll("_", " ")} ${count.toLocaleString("en")}`, chosen))];
    this.#statuses.replaceChildren(...made);
    if (focused >= 0) made[Math.min(focused, made.length - 1)]?.focus();
  }

  #status(status: string, label: string, chosen: string): HTMLElement {
    const made = button("", () => { this.#ask({ status }); }, { "aria-pressed": String(status === chosen) });
    made.append(...(status === "" ? [] : [h("span", { "aria-hidden": "true" }, `${signOf(status)} `)]), label);
    return made;
  }

  #choice(label: string, part: (value: string) => Partial<Asked>): HTMLSelectElement {
    const made = h("select", { "aria-label": label, onchange: () => { this.#ask(part(made.value)); } });
    return made;
  }

  #typed(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => { this.#ask({ text: this.#text.value }); }, TYPING);
  }
}

function named(names: string[], chosen: string): [string, string][] {
  const all = chosen === "" || names.includes(chosen) ? names : [...names, chosen];
  return all.map((name) => [name, oneLine(name, 60)]);
}

/** Fills a choice, if it offers something else by now. */
function offer(select: HTMLSelectElement, choices: [string, string][], chosen = ""): void {
  const said = JSON.stringify(choices);
  if (select.dataset["said"] !== said) {
    select.replaceChildren(...choices.map(([value, name]) => h("option", { value }, name)));
    setAttribute(select, "data-said", said);
  }
  select.value = chosen === "" ? (choices[0]?.[0] ?? "") : chosen;
}
