// Filter of the listed events: by step, by branch, by a word in them.

import { h } from "../shared/dom";
import { branchOf, eventName } from "../shared/words";
import type { Entry, Log } from "./log";

const EVERY = "";

/** Fields by which events are left out of a list. */
export class Filter {
  readonly element: HTMLElement;
  readonly #step = h("select", { "aria-label": "Step whose events are listed" });
  readonly #path = h("select", { "aria-label": "Branch whose events are listed" });
  readonly #word = h("input", { type: "search", placeholder: "Search events", "aria-label": "Search events", "aria-keyshortcuts": "/" });
  readonly #told = h("span", { class: "hint", role: "status" });
  readonly #log: Log;

  /** `changed` is called with the places that fit; with null where all do. */
  constructor(log: Log, changed: (places: number[] | null) => void) {
    this.#log = log;
    const tell = (): void => { changed(this.places()); };
    for (const field of [this.#step, this.#path]) field.addEventListener("change", tell);
    this.#word.addEventListener("input", tell);
    this.element = h("div", { class: "row filter" }, this.#step, this.#path, this.#word, this.#told);
    this.fill();
  }

  /** Offers the steps and branches that the log has by now. */
  fill(): void {
    offer(this.#step, "every step", this.#log.values("step"), (step) => step);
    offer(this.#path, "every branch", this.#log.values("path"), (path) => branchOf(path) || path);
  }

  /** Returns the places of the events that fit, and says how many; null where nothing is filtered. */
  places(): number[] | null {
    const [step, path, word] = [this.#step.value, this.#path.value, this.#word.value.trim().toLowerCase()];
    if (step === EVERY && path === EVERY && word === "") {
      this.#told.textContent = "";
      return null;
    }
    const found = this.#log.places((entry) => (step === EVERY || entry.step === step) && (path === EVERY || entry.path === path) && says(entry, word));
    this.#told.textContent = `${found.length.toLocaleString("en")} of ${this.#log.length.toLocaleString("en")}`;
    return found;
  }
}

/** Tells whether a word, in small letters, stands in what the list shows of an event. */
function says({ type, path, step, text }: Entry, word: string): boolean {
  return word === "" || `${eventName(type)} ${branchOf(path)} ${step} ${text}`.toLowerCase().includes(word);
}

function offer(field: HTMLSelectElement, every: string, values: string[], name: (value: string) => string): void {
  const chosen = field.value;
  field.replaceChildren(h("option", { value: EVERY }, every), ...values.map((value) => h("option", { value }, name(value))));
  field.value = values.includes(chosen) ? chosen : EVERY;
}
