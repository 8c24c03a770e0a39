// Commands for the selected runs, and their confirmations.

import type { RunView } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import { oneLine } from "../shared/text";
import type { Command } from "./channel";

export type Wish = (command: Command, runs: RunView[], tags?: string[]) => void;

/** The bar above the list. */
export class Bulk {
  readonly element = h("div", { class: "bulk row", role: "group", "aria-label": "With those that are chosen" });
  readonly #wish: Wish;
  readonly #none: () => void;
  readonly #known: () => string[];
  #runs: RunView[] = [];
  #asks = false;

  constructor(wish: Wish, none: () => void, known: () => string[]) {
    [this.#wish, this.#none, this.#known] = [wish, none, known];
    this.#offer();
  }

  /** Shows what can be done with these; what is being asked stays as long as any of them is there. */
  update(runs: RunView[]): void {
    const isSame = JSON.stringify(runs.map(told)) === JSON.stringify(this.#runs.map(told));
    const isGone = runs.length === 0 && this.#runs.length > 0;
    this.#runs = runs;
    if (isGone) this.#back();
    else if (!this.#asks && !isSame) this.#offer();
  }

  /** Asks before runs are cancelled. */
  cancel(runs: RunView[]): void {
    const [only] = runs.length === 1 ? runs : [];
    const kept = only !== undefined && only.stand !== "" && only.total > 0 ? ` ${only.stand} are kept.` : " What is done is kept.";
    const which = only === undefined ? plural(runs.length, "run") : `the run of ${oneLine(only.workflow, 40)}`;
    this.#ask(`Cancel ${which}?${kept}`, [
      button(only === undefined ? `Cancel ${plural(runs.length, "run")}` : "Cancel the run", () => { this.#done("cancel", runs); }),
      button("Go on", () => { this.#back(); }),
    ]);
  }

  #offer(): void {
    const can = (command: "resume" | "cancel"): RunView[] => this.#runs.filter(({ commands }) => commands.includes(command));
    const [resumable, cancellable] = [can("resume"), can("cancel")];
    this.element.hidden = this.#runs.length === 0;
    this.element.replaceChildren(
      h("b", {}, `${this.#runs.length.toLocaleString("en")} chosen`),
      ...(resumable.length === 0 ? [] : [button(`Resume ${resumable.length}`, () => { this.#done("resume", resumable); })]),
      button("Tag …", () => { this.#tag(); }),
      ...(cancellable.length === 0 ? [] : [button(`Cancel ${cancellable.length} …`, () => { this.cancel(cancellable); })]),
      h("span", { class: "grow" }),
      button("Choose none", () => { this.#none(); }, { class: "quiet" }),
    );
  }

  #tag(): void {
    const list = h("datalist", { id: `${Math.random().toString(36).slice(2)}-tags` }, ...this.#known().map((tag) => h("option", { value: tag })));
    const word = h("input", { type: "text", "aria-label": "Tag", placeholder: "Tag", list: list.id });
    const runs = this.#runs;
    const send = (command: Command): void => {
      if (word.value.trim() === "") word.focus();
      else this.#done(command, runs, [word.value.trim()]);
    };
    word.addEventListener("keydown", ({ key }) => {
      if (key === "Enter") send("tag");
    });
    this.#ask(`Tag ${plural(runs.length, "run")}:`, [list, word, button("Add", () => { send("tag"); }), button("Take away", () => { send("untag"); }), button("Back", () => { this.#back(); }, { class: "quiet" })]);
    word.focus();
  }

  #ask(text: string, parts: HTMLElement[]): void {
    const said = h("span");
    setText(said, text);
    this.#asks = true;
    this.element.hidden = false;
    this.element.replaceChildren(said, ...parts);
    this.element.onkeydown = (event) => {
      if (event.key === "Escape") this.#back();
    };
    parts.find((part) => part.tagName === "BUTTON")?.focus();
  }

  #done(command: Command, runs: RunView[], tags: string[] = []): void {
    this.#wish(command, runs, tags);
    this.#back();
  }

  #back(): void {
    this.#asks = false;
    this.element.onkeydown = null;
    this.#offer();
  }
}

function told({ execution_id: id, commands }: RunView): unknown {
  return [id, commands];
}
