// Filters that a person has saved under a name. They are stored in the browser, for all notebooks of its server.

import { h } from "../shared/dom";
import { button } from "../shared/element";
import { oneLine } from "../shared/text";
import type { ListQuery } from "./channel";

const KEY = "divebook:filters";
const MAX_SAVED = 20;

/** The part of a request that a person saves. */
export type SavedFilter = Pick<ListQuery, "text" | "workflow" | "tag" | "status" | "days" | "by">;

/** Menu of saved filters. It is empty, and saving has no effect, where the page may store nothing. */
export class SavedFilters {
  readonly element: HTMLElement;
  readonly #apply: (filter: SavedFilter) => void;
  readonly #menu = h("select", { "aria-label": "Saved filters", hidden: true, onchange: () => { this.#choose(this.#menu.value); } });
  readonly #save = button("Save filter", () => { this.#askName(); }, { class: "quiet", hidden: true });
  readonly #remove = button("Delete filter", () => { this.#delete(); }, { class: "quiet", hidden: true });
  readonly #name = h("input", { type: "text", "aria-label": "Name of the filter", placeholder: "Name of the filter", hidden: true, onkeydown: (event: KeyboardEvent) => { this.#onKey(event); } });
  #current: SavedFilter | undefined;

  constructor(apply: (filter: SavedFilter) => void) {
    this.#apply = apply;
    this.element = h("span", { class: "saved" }, this.#menu, this.#name, this.#save, this.#remove);
  }

  /** Show which saved filter is in use. */
  update({ text, workflow, tag, status, days, by }: SavedFilter): void {
    this.#current = { text, workflow, tag, status, days, by };
    const filters = read();
    const names = Object.keys(filters);
    const activeName = names.find((name) => JSON.stringify(filters[name]) === JSON.stringify(this.#current)) ?? "";
    const isFiltered = text !== "" || workflow !== "" || tag !== "" || status !== "" || days !== 0;
    if (JSON.stringify(names) !== this.#menu.dataset["names"]) {
      this.#menu.dataset["names"] = JSON.stringify(names);
      this.#menu.replaceChildren(...["", ...names].map((value) => h("option", { value }, value === "" ? "saved filters" : oneLine(value, 40))));
    }
    this.#menu.hidden = names.length === 0;
    this.#menu.value = activeName;
    this.#save.hidden = activeName !== "" || !isFiltered;
    this.#remove.hidden = activeName === "";
    if (this.#save.hidden) this.#name.hidden = true;
  }

  #choose(name: string): void {
    const filter = read()[name];
    if (filter !== undefined) this.#apply(filter);
  }

  /** Ask for a name first. The same button then saves the filter. */
  #askName(): void {
    if (this.#name.hidden) {
      this.#name.hidden = false;
      this.#name.focus();
      return;
    }
    const name = this.#name.value.trim();
    if (name === "" || this.#current === undefined) return;
    write({ ...read(), [name]: this.#current });
    this.#name.value = "";
    this.update(this.#current);
    this.#menu.focus();
  }

  #onKey({ key }: KeyboardEvent): void {
    if (key === "Enter") this.#askName();
    if (key !== "Escape") return;
    this.#name.hidden = true;
    this.#save.focus();
  }

  #delete(): void {
    const name = this.#menu.value;
    write(Object.fromEntries(Object.entries(read()).filter(([other]) => other !== name)));
    if (this.#current !== undefined) this.update(this.#current);
  }
}

/** Return the saved filters by name. */
function read(): Record<string, SavedFilter> {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}") as Record<string, SavedFilter>;
  } catch { // the page may store nothing, or another program has written the entry
    return {};
  }
}

function write(filters: Record<string, SavedFilter>): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(Object.entries(filters).slice(-MAX_SAVED))));
  } catch { /* the page may store nothing */ }
}
