// Run browser: filters, the list with its commands, and the inbox beside it.

import { Asking } from "../inbox/inbox";
import { away, drafts } from "../prompt/host";
import { Prompt } from "../prompt/prompt";
import type { RunsPage, RunView } from "../protocol";
import type { Wire } from "../shared/channel";
import { copyButton } from "../shared/copy";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import { dollars } from "../shared/format";
import { containKeys } from "../shared/keys";
import { onThemeChange } from "../shared/theme";
import { zone } from "../shared/times";
import { kernelStopped } from "../shared/words";
import { Bulk } from "./bulk";
import { type Asked, type Command, RunsChannel, type Told } from "./channel";
import { Filters } from "./filters";
import { Rows } from "./rows";
import "./runs.css";

const MORE = 50;
const WORDS = {
  connecting: "connecting to the kernel …",
  connected: "",
  detached: kernelStopped("go on."),
};

/** How the browser opens a run, where not the kernel does. */
export type Open = (run: RunView) => void;

/** Shows the runs of a store until it is destroyed. */
export class Browser implements View {
  readonly element = h("section", { class: "divebook divebook-runs", "aria-label": "Runs" });
  readonly #asking = new Asking();
  readonly #channel: RunsChannel;
  readonly #prompt: Prompt;
  readonly #rows: Rows;
  readonly #bulk: Bulk;
  readonly #filters: Filters;
  readonly #open: Open | undefined;
  readonly #chosen = new Set<string>();
  readonly #sum = h("span", { class: "soft" });
  readonly #forYou = button("", () => { this.toInbox(); }, { class: "quiet link foryou" });
  readonly #notice = h("p", { class: "notice", role: "status" });
  readonly #foot = h("p", { class: "foot soft small" });
  readonly #none = h("div", { class: "none", hidden: true });
  readonly #nobody = h("p", { class: "nobody soft" }, "Nobody asks you anything. Questions of all runs come here.");
  readonly #box: HTMLElement;
  readonly #forget: () => void;
  #page: RunsPage | undefined;
  #told = "";

  constructor(wire: Wire<Told>, open?: Open) {
    this.#open = open;
    this.#channel = new RunsChannel(wire, this.#asking, (page) => { this.#take(page); });
    this.#prompt = new Prompt({ answer: (id, response) => this.#channel.answer(id, response), away: away(this.#asking), now: () => this.#asking.now(), drafts });
    this.#filters = new Filters((part) => { this.#ask({ limit: MORE, ...part }); });
    this.#bulk = new Bulk((command, runs, tags) => { this.#wish(command, runs, tags); }, () => { this.#choose(null); }, () => this.#page?.tags ?? []);
    this.#rows = new Rows({
      act: (command, run) => { this.#act(command, run); },
      choose: (run, isChosen) => { this.#choose(run, isChosen); },
      chooseAll: (isChosen) => { this.#chooseAll(isChosen); },
      sort: (by) => { this.#ask({ by }); },
      toQuestions: () => { this.toInbox(); },
    });
    this.#box = h("section", { class: "box", "aria-label": "Inbox" }, h("h3", {}, "Inbox"), this.#prompt.element, this.#nobody);
    const frame = copyButton(() => this.#page?.frame ?? "", { title: "Copies the code that gives this list as a DataFrame" }, "As a frame");
    const head = h("div", { class: "row head" }, h("h2", {}, "Runs"), this.#sum, this.#forYou, h("span", { class: "grow" }), h("span", { class: "soft small" }, `live · times in ${zone()}`), frame);
    const list = h("div", { class: "list" }, this.#bulk.element, this.#rows.element, this.#none, this.#foot);
    this.element.append(head, this.#notice, this.#filters.element, h("div", { class: "lay" }, list, this.#box));
    containKeys(this.element);
    this.#forget = onThemeChange(this.element);
    this.#asking.changed = () => { this.#showQuestions(); };
    this.#showQuestions();
  }

  /** Brings a person to the questions. */
  toInbox(): void {
    this.#box.scrollIntoView({ block: "nearest" });
    this.#prompt.element.focus();
  }

  destroy(): void {
    this.#forget();
    this.#channel.close();
    this.#prompt.destroy();
    this.#rows.destroy();
    this.element.remove();
  }

  // --- what the kernel says

  #take(page: RunsPage): void {
    this.#page = page;
    const now = performance.now();
    for (const id of this.#chosen) {
      if (!page.runs.some(({ execution_id: shown }) => shown === id)) this.#chosen.delete(id);
    }
    this.#filters.update(page);
    this.#rows.update(page, this.#chosen, () => page.now_us + (performance.now() - now) * 1000);
    this.#showChosen();
    this.#showSums(page);
    this.#showNone(page);
  }

  #showSums({ total, running, week_cost: cost, is_whole: isWhole, runs, matching, query }: RunsPage): void {
    const parts = [`${total.toLocaleString("en")}${isWhole ? "" : "+"} in the store`, running > 0 && `${running} running`, cost !== null && cost > 0 && `${dollars(cost)} this week`];
    setText(this.#sum, total === 0 ? "" : parts.filter((part) => part !== false).join(" · "));
    const left = matching - runs.length;
    const more = button(`Show ${Math.min(left, MORE)} more`, () => { this.#ask({ limit: query.limit + MORE }); }, { class: "quiet" });
    this.#foot.replaceChildren(...(left > 0 ? [`${runs.length.toLocaleString("en")} of ${matching.toLocaleString("en")} shown. `, more] : []));
  }

  #showNone({ total, matching, is_whole: isWhole, near, query }: RunsPage): void {
    this.#none.hidden = matching > 0 || !isWhole;
    this.#rows.element.hidden = matching === 0;
    if (this.#none.hidden) return;
    if (total === 0) {
      this.#none.replaceChildren(h("h3", {}, "No runs yet"), h("p", {}, "Define a workflow in a cell, then run it. Every run is kept here: look at it again or go on with it, also after the kernel has stopped."), h("pre", {}, "%%dive workflow hello      # a cell that defines one\n%dive run hello            # a cell that runs it"));
      return;
    }
    const drop = button("Drop the filters", () => { this.#ask({ text: "", workflow: "", tag: "", status: "", days: 0 }); });
    const told = near === "" ? "Nothing fits all that is asked for." : `Nothing fits “${query.text}”. Did you mean “${near}”?`;
    const search = near === "" ? [] : [button(`Search “${near}”`, () => { this.#ask({ text: near }); }, { class: "primary" })];
    this.#none.replaceChildren(h("h3", {}, "No run matches"), h("p", {}, told), h("div", { class: "row" }, ...search, drop));
  }

  #showQuestions(): void {
    const { questions, connected, hidden } = this.#asking;
    this.#prompt.update([...questions.values()]);
    this.#prompt.reach();
    const open = [...questions.values()].filter(({ status }) => status === "pending").length + hidden;
    this.#forYou.hidden = open === 0;
    setText(this.#forYou, `? ${open.toLocaleString("en")} for you`);
    this.#nobody.hidden = questions.size > 0;
    setText(this.#notice, WORDS[connected] || this.#told);
  }

  // --- what a person wants

  #ask(part: Partial<Asked>): void {
    if (this.#page === undefined) return;
    const { text, workflow, tag, status, days, by, limit } = { ...this.#page.query, ...part };
    this.#page.query = { ...this.#page.query, ...part }; // two that follow each other quickly are both asked for
    this.#channel.list({ text, workflow, tag, status, days, by, limit });
  }

  #act(command: Command, run: RunView): void {
    if (command === "cancel") this.#bulk.cancel([run]);
    else if (command === "open" && this.#open !== undefined) this.#open(run);
    else this.#wish(command, [run]);
  }

  #wish(command: Command, runs: RunView[], tags: string[] = []): void {
    void this.#channel.wish(command, runs.map(({ execution_id: id }) => id), tags).then(({ accepted, text }) => {
      this.#told = accepted ? "" : text;
      this.#notice.classList.toggle("wrong", !accepted);
      this.#showQuestions();
      if (accepted && (command === "tag" || command === "untag")) this.#choose(null);
    });
  }

  #choose(run: RunView | null, isChosen = false): void {
    if (run === null) this.#chosen.clear();
    else if (isChosen) this.#chosen.add(run.execution_id);
    else this.#chosen.delete(run.execution_id);
    this.#showChosen();
  }

  #chooseAll(isChosen: boolean): void {
    for (const { execution_id: id } of this.#page?.runs ?? []) {
      if (isChosen) this.#chosen.add(id);
      else this.#chosen.delete(id);
    }
    this.#showChosen();
  }

  #showChosen(): void {
    this.#rows.mark(this.#chosen);
    this.#bulk.update((this.#page?.runs ?? []).filter(({ execution_id: id }) => this.#chosen.has(id)));
  }
}
