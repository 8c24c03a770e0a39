// Form for a fork or a what-if at the position of a replay: what it repeats and about how much it costs, one change, and the
// Python line that starts it. Starting it is left to a cell, which then contains the new run.

import type { Header, StateView } from "../protocol";
import { insertBelow, isInNotebook } from "../shared/celllinks";
import { copyButton } from "../shared/copy";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { dollars, duration, formatCount, plural } from "../shared/format";
import { python } from "../shared/python";
import { oneLine } from "../shared/text";
import { kindName } from "./badge";
import { remainingAfter, type Log } from "./log";
import { frameOf } from "./value";

const NANODOLLARS = 1e9; // per dollar
const CHANGES = ["Nothing", "Variable", "Prompt", "Answer", "Model"] as const;
type ChangeKind = (typeof CHANGES)[number];

/** Kind of new run: a fork continues in earnest, a what-if only compares. */
export type Mode = "fork" | "what-if";
const TEXTS: Record<Mode, { title: string; about: string; method: string }> = {
  fork: {
    title: "Fork",
    about: "The fork shares the events up to this point, and runs the rest again. This run does not change.",
    method: "fork",
  },
  "what-if": {
    title: "What-if",
    about: "The what-if repeats the rest of the run. It reuses the recorded results of equal calls, blocks calls with side effects, and compares both runs. This run does not change.",
    method: "what_if",
  },
};

/** Data that the form needs about a run. */
export interface ForkSource {
  run: Pick<Header, "execution_id">;
  /** State after an event. */
  stateAt: (sequence: number) => Promise<StateView>;
  /** Prompts of the workflow by step. */
  prompts: () => Promise<Record<string, string>>;
  /** True if the run is saved in a file, and no kernel is connected. */
  isSaved: boolean;
}

/** Form for a fork or a what-if. It is hidden until a person opens it. */
export class ForkForm {
  readonly element = h("section", { class: "fork", "aria-label": "Fork", hidden: true });
  readonly #log: Log;
  readonly #source: ForkSource;
  readonly #title = h("strong", {});
  readonly #about = h("span", { class: "hint" });
  readonly #reason = h("p", { class: "hint", role: "note" });
  readonly #price = h("p", { class: "price", role: "status" });
  readonly #name = h("select", { "aria-label": "What to change" });
  readonly #before = h("pre", { class: "before", tabindex: 0, role: "group", "aria-label": "Before the change" });
  readonly #value = h("textarea", { rows: 3, spellcheck: "false", "aria-label": "New value" });
  readonly #code = h("pre", { class: "line", tabindex: 0, role: "group", "aria-label": "Python code that starts the new run" });
  readonly #fields = h("div", { class: "fields" });
  readonly #insert: HTMLButtonElement;
  readonly #choices: HTMLButtonElement[];
  #kind: ChangeKind = "Nothing";
  #mode: Mode = "fork";
  #position = 0;
  #state: StateView | null = null;
  #end: StateView | null = null;
  #prompts: Record<string, string> = {};

  constructor(log: Log, source: ForkSource, onClose: () => void) {
    this.#log = log;
    this.#source = source;
    this.#choices = CHANGES.map((kind) => button(kind, () => { this.#choose(kind); }, { class: "small" }));
    const choices = h("div", { class: "seg", role: "group", "aria-label": "Change" }, ...this.#choices);
    const column = (label: string, field: HTMLElement): HTMLElement => h("div", {}, h("p", { class: "hint" }, label), field);
    this.#fields.append(h("div", {}, this.#name), h("div", { class: "two" }, column("Before", this.#before), column("After", this.#value)));
    this.#insert = button("", () => { insertBelow(this.element, this.#line()); }, { class: "primary" });
    const copy = copyButton(() => this.#line(), {}, "Copy the code");
    const close = button("Close", () => { this.element.hidden = true; onClose(); }, { class: "quiet" });
    this.element.append(h("div", { class: "row" }, this.#title, this.#about), h("div", { class: "row" }, h("span", { class: "hint" }, "Change"), choices), this.#fields, this.#code, h("div", { class: "row" }, this.#insert, copy, close, this.#price), this.#reason);
    this.#name.addEventListener("change", () => { this.#fill(); });
    this.#value.addEventListener("input", () => { this.#showLine(); });
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close.click();
    });
  }

  /** Open the form at a position, whose state may not be loaded yet. */
  open(position: number, state: StateView | null, mode: Mode = "fork"): void {
    this.element.hidden = false;
    this.#mode = mode;
    const { title, about } = TEXTS[mode];
    this.element.setAttribute("aria-label", title);
    setText(this.#about, about);
    setText(this.#insert, `${title} in a new cell`);
    this.#insert.hidden = !isInNotebook(this.element);
    setText(this.#reason, this.#reasonText());
    this.#reason.hidden = this.#reason.textContent === "";
    const { stateAt, prompts } = this.#source;
    stateAt(this.#log.last).then((end) => {
      this.#end = end;
      this.#showPrice();
    }, () => undefined);
    prompts().then((texts) => { this.#prompts = texts; this.#enable(); }, () => undefined);
    this.update(position, state);
    this.#insert.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
  }

  /** Mode of the open form; null while it is closed. */
  get mode(): Mode | null {
    return this.element.hidden ? null : this.#mode;
  }

  /** Return why the run cannot be forked here without further steps; an empty text if it can. */
  #reasonText(): string {
    const { title } = TEXTS[this.#mode];
    if (!isInNotebook(this.element)) return `A ${title.toLowerCase()} needs a kernel, but this page has none. Run the code in a notebook or in Python, with the store that contains this run.`;
    return this.#source.isSaved ? `This view was saved without its kernel. The new cell needs a running kernel, with the store that contains this run.` : "";
  }

  /** Show another position. A change that was typed stays, if its name exists there. */
  update(position: number, state: StateView | null): void {
    this.#position = position;
    this.#state = state;
    if (this.element.hidden) return;
    setText(this.#title, `${TEXTS[this.#mode].title} at event ${formatCount(this.#log.sequenceAt(position))}`);
    this.#enable();
    this.#fillNames();
    this.#showPrice();
    this.#showLine();
  }

  #choose(kind: ChangeKind): void {
    this.#kind = kind;
    this.#enable();
    this.#fillNames();
    this.#fill();
  }

  /** Names of the things of the chosen kind that can be changed here. */
  #names(kind: ChangeKind): string[] {
    if (kind === "Variable") return Object.entries(this.#state?.variables ?? {}).filter(([, value]) => frameOf(value) === undefined).map(([name]) => name);
    if (kind === "Prompt") return Object.keys(this.#prompts);
    if (kind === "Answer") return (this.#state?.pending ?? []).map(({ interrupt_id: id }) => id);
    return [];
  }

  #enable(): void {
    this.#choices.forEach((choice, place) => {
      const kind = CHANGES[place] ?? "Nothing";
      choice.hidden = kind !== "Nothing" && kind !== "Model" && this.#names(kind).length === 0;
      choice.setAttribute("aria-pressed", String(kind === this.#kind));
    });
    this.#fields.hidden = this.#kind === "Nothing";
    this.#name.hidden = this.#kind === "Model";
  }

  #fillNames(): void {
    const names = this.#names(this.#kind);
    const before = this.#name.value;
    const questions = new Map(this.#state?.pending.map(({ interrupt_id: id, question }) => [id, question]));
    this.#name.replaceChildren(...names.map((name) => h("option", { value: name }, oneLine(questions.get(name) ?? name, 80))));
    if (names.includes(before)) this.#name.value = before;
    else this.#fill();
  }

  /** Show the present value, and start the new one with it. */
  #fill(): void {
    const present = this.#present();
    const text = typeof present === "string" ? present : python(present);
    setText(this.#before, text);
    this.#value.value = text;
    this.#showLine();
  }

  #present(): unknown {
    if (this.#kind === "Variable") return this.#state?.variables[this.#name.value] ?? null;
    return this.#kind === "Prompt" ? (this.#prompts[this.#name.value] ?? "") : "";
  }

  /** Return the new value: a text if the present value is one, otherwise JSON if it can be read as JSON. */
  #newValue(): unknown {
    const text = this.#value.value;
    if (this.#kind !== "Answer" && typeof this.#present() === "string") return text;
    try {
      return JSON.parse(text.replace(/\bNone\b/g, "null").replace(/\bTrue\b/g, "true").replace(/\bFalse\b/g, "false")) as unknown;
    } catch {
      return text;
    }
  }

  /** Return the change as Python code; an empty text without a change. */
  #change(): string {
    const value = this.#newValue();
    const name = this.#name.value;
    if (this.#kind === "Model") return value === "" ? "" : python({ model: value });
    const key = { Variable: "variables", Prompt: "prompts", Answer: "answers", Nothing: "" }[this.#kind];
    const isSame = this.#kind !== "Answer" && python(value) === python(this.#present());
    return key === "" || name === "" || isSame ? "" : python({ [key]: { [name]: value } });
  }

  #line(): string {
    const change = this.#change();
    const at = this.#log.sequenceAt(this.#position);
    let args = change === "" ? `${at}` : `${at}, ${change}`;
    if (this.#mode === "what-if") args = `${change === "" ? "" : `${change}, `}at=${at}`;
    return `import divebook\ndivebook.show(${python(this.#source.run.execution_id)}).${TEXTS[this.#mode].method}(${args})`;
  }

  #showLine(): void {
    setText(this.#code, this.#line());
  }

  /** Show what is shared, and what the run did after the position, which the fork repeats. */
  #showPrice(): void {
    const { calls, micros } = remainingAfter(this.#log, this.#position);
    const parts = [...calls].map(([kind, count]) => plural(count, kindName(kind)));
    const cost = ((this.#end?.usage["cost"] ?? 0) - (this.#state?.usage["cost"] ?? 0)) / NANODOLLARS;
    const prices = [...(cost > 0 ? [dollars(cost)] : []), ...(parts.length > 0 ? [duration(micros)] : [])];
    const repeats = parts.length === 0 ? "The recorded run has no calls after this event." : `${this.#mode === "fork" ? "Repeats" : "Repeats at most"} ${parts.join(", ")}${prices.length > 0 ? `, about ${prices.join(" and ")}` : ""}.`;
    this.#price.replaceChildren(h("strong", {}, `${plural(this.#log.sequenceAt(this.#position), "event")} shared.`), ` ${repeats}`);
  }
}
