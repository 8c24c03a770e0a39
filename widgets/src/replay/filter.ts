// Filter of the event list by step, branch and text.

import { h } from "../shared/dom";
import { formatCount } from "../shared/format";
import { branchOf } from "../shared/words";
import { nameOf, placeOf, textOf } from "./events";
import type { Entry, Log } from "./log";

const ALL = "";

/** Form fields of the filter. */
export class Filter {
  readonly element: HTMLElement;
  readonly #step = h("select", { "aria-label": "Filter events by step" });
  readonly #path = h("select", { "aria-label": "Filter events by branch" });
  readonly #word = h("input", { type: "search", placeholder: "Search events", "aria-label": "Search events", "aria-keyshortcuts": "/" });
  readonly #matchCount = h("span", { class: "hint", role: "status" });
  readonly #log: Log;

  /** `onChange` is called with the positions of the matching events; with null if the filter is empty. */
  constructor(log: Log, onChange: (places: number[] | null) => void) {
    this.#log = log;
    const notify = (): void => { onChange(this.places()); };
    for (const field of [this.#step, this.#path]) field.addEventListener("change", notify);
    this.#word.addEventListener("input", notify);
    this.element = h("div", { class: "row filter" }, h("strong", {}, "Events"), this.#step, this.#path, this.#word, this.#matchCount);
    this.fill();
  }

  /** Fill the choices with the steps and branches of the log. */
  fill(): void {
    setOptions(this.#step, "all steps", this.#log.values("step"), (step) => step);
    setOptions(this.#path, "all branches", this.#log.values("path"), (path) => branchOf(path) || path);
  }

  /** Return the positions of the matching events, and show their number. Return null if the filter is empty. */
  places(): number[] | null {
    const step = this.#step.value;
    const path = this.#path.value;
    const word = this.#word.value.trim().toLowerCase();
    if (step === ALL && path === ALL && word === "") {
      this.#matchCount.textContent = "";
      return null;
    }
    const isMatch = (entry: Entry): boolean => (step === ALL || entry.step === step) && (path === ALL || entry.path === path) && contains(entry, word);
    const places = this.#log.places(isMatch);
    this.#matchCount.textContent = `${formatCount(places.length)} of ${formatCount(this.#log.length)}`;
    return places;
  }
}

/** Return true if the row of an event contains a word in lower case. */
function contains(entry: Entry, word: string): boolean {
  return word === "" || `${nameOf(entry)} ${placeOf(entry)} ${textOf(entry)}`.toLowerCase().includes(word);
}

/** Set the options of a field, and keep the choice if it is still available. */
function setOptions(field: HTMLSelectElement, every: string, values: string[], name: (value: string) => string): void {
  const choice = field.value;
  field.replaceChildren(h("option", { value: ALL }, every), ...values.map((value) => h("option", { value }, name(value))));
  field.value = values.includes(choice) ? choice : ALL;
}
