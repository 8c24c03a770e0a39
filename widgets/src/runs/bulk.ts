// Commands for the selected runs, and their confirmations.

import type { RunView } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { formatCount, plural } from "../shared/format";
import { oneLine } from "../shared/text";
import type { Command } from "./channel";

export type SendCommand = (command: Command, runs: RunView[], tags?: string[]) => void;

/** Bar with commands above the list. */
export class Bulk {
  readonly element = h("div", { class: "bulk row", role: "group", "aria-label": "Actions for the selected runs" });
  readonly #sendCommand: SendCommand;
  readonly #clearSelection: () => void;
  readonly #allTags: () => string[];
  #runs: RunView[] = [];
  #isAsking = false;

  constructor(sendCommand: SendCommand, clearSelection: () => void, allTags: () => string[]) {
    this.#sendCommand = sendCommand;
    this.#clearSelection = clearSelection;
    this.#allTags = allTags;
    this.#showCommands();
  }

  /** Show the commands for the selected runs. An open confirmation stays as long as any run is selected. */
  update(runs: RunView[]): void {
    const isSame = JSON.stringify(runs.map(identity)) === JSON.stringify(this.#runs.map(identity));
    const isGone = runs.length === 0 && this.#runs.length > 0;
    this.#runs = runs;
    if (isGone) this.#back();
    else if (!this.#isAsking && !isSame) this.#showCommands();
  }

  /** Ask for confirmation before runs are cancelled. */
  cancel(runs: RunView[]): void {
    const [only] = runs.length === 1 ? runs : [];
    const hasProgress = only !== undefined && only.total > 0;
    const reassurance = hasProgress ? ` ${formatCount(only.done)} of ${formatCount(only.total)} items are saved.` : " Completed calls are saved.";
    const target = only === undefined ? plural(runs.length, "run") : `the run of ${oneLine(only.workflow, 40)}`;
    this.#ask(`Cancel ${target}?${reassurance}`, [
      button(only === undefined ? `Cancel ${plural(runs.length, "run")}` : "Cancel the run", () => { this.#finish("cancel", runs); }),
      button("Keep running", () => { this.#back(); }),
    ]);
  }

  #showCommands(): void {
    const runsWith = (command: "resume" | "cancel"): RunView[] => this.#runs.filter(({ commands }) => commands.includes(command));
    const resumable = runsWith("resume");
    const cancellable = runsWith("cancel");
    this.element.hidden = this.#runs.length === 0;
    this.element.replaceChildren(
      h("b", {}, `${this.#runs.length.toLocaleString("en")} selected`),
      ...(this.#runs.length < 2 ? [] : [button(`Compare ${this.#runs.length}`, () => { this.#finish("compare", [...this.#runs].sort((one, other) => one.began_us - other.began_us)); })]),
      ...(resumable.length === 0 ? [] : [button(`Resume ${resumable.length}`, () => { this.#finish("resume", resumable); })]),
      button("Tag …", () => { this.#tag(); }),
      ...(cancellable.length === 0 ? [] : [button(`Cancel ${cancellable.length} …`, () => { this.cancel(cancellable); })]),
      h("span", { class: "grow" }),
      button("Clear selection", () => { this.#clearSelection(); }, { class: "quiet" }),
    );
  }

  #tag(): void {
    const list = h("datalist", { id: `${Math.random().toString(36).slice(2)}-tags` }, ...this.#allTags().map((tag) => h("option", { value: tag })));
    const word = h("input", { type: "text", "aria-label": "Tag", placeholder: "Tag", list: list.id });
    const runs = this.#runs;
    const send = (command: Command): void => {
      if (word.value.trim() === "") word.focus();
      else this.#finish(command, runs, [word.value.trim()]);
    };
    word.addEventListener("keydown", ({ key }) => {
      if (key === "Enter") send("tag");
    });
    const add = button("Add", () => { send("tag"); });
    const remove = button("Remove", () => { send("untag"); });
    const back = button("Back", () => { this.#back(); }, { class: "quiet" });
    this.#ask(`Tag ${plural(runs.length, "run")}:`, [list, word, add, remove, back]);
    word.focus();
  }

  /** Replace the commands by a question and its buttons. Escape returns to the commands. */
  #ask(text: string, parts: HTMLElement[]): void {
    const message = h("span");
    setText(message, text);
    this.#isAsking = true;
    this.element.hidden = false;
    this.element.replaceChildren(message, ...parts);
    this.element.onkeydown = (event) => {
      if (event.key === "Escape") this.#back();
    };
    parts.find((part) => part.tagName === "BUTTON")?.focus();
  }

  #finish(command: Command, runs: RunView[], tags: string[] = []): void {
    this.#sendCommand(command, runs, tags);
    this.#back();
  }

  #back(): void {
    this.#isAsking = false;
    this.element.onkeydown = null;
    this.#showCommands();
  }
}

/** Return the properties of a run that the bar depends on. */
function identity({ execution_id: id, commands }: RunView): unknown {
  return [id, commands];
}
