// Run browser: filters, the list of runs with its commands, and the inbox beside it.

import { InboxState } from "../inbox/inbox";
import { blockedReason, drafts } from "../prompt/host";
import { Prompt } from "../prompt/prompt";
import { keepCardsInPlace } from "../prompt/steady";
import type { RunsPage, RunView } from "../protocol";
import type { Wire } from "../shared/channel";
import { copyButton } from "../shared/copy";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import { dollars, plural } from "../shared/format";
import { containKeys } from "../shared/keys";
import { onThemeChange } from "../shared/theme";
import { zone } from "../shared/times";
import { KERNEL_SILENT, kernelStopped } from "../shared/words";
import { Bulk } from "./bulk";
import { type ListQuery, type Command, RunsChannel, type RunsMessage } from "./channel";
import { Filters } from "./filters";
import { Rows } from "./rows";
import "./runs.css";

const PAGE_SIZE = 50; // runs per request
const WORDS = {
  connecting: "connecting to the kernel …",
  connected: "",
  silent: KERNEL_SILENT,
  detached: kernelStopped("continue."),
};

/** Callback that opens a run or compares several, if the page does that itself instead of the kernel. */
export type OpenRuns = (runs: readonly RunView[]) => void;

/** View of the runs of a store. */
export class Browser implements View {
  readonly element = h("section", { class: "divebook divebook-runs", "aria-label": "Runs" });
  readonly #inbox = new InboxState();
  readonly #channel: RunsChannel;
  readonly #prompt: Prompt;
  readonly #rows: Rows;
  readonly #bulk: Bulk;
  readonly #filters: Filters;
  readonly #open: OpenRuns | undefined;
  readonly #selectedIds = new Set<string>();
  readonly #summary = h("span", { class: "soft" });
  readonly #questionCount = button("", () => { this.toInbox(); }, { class: "quiet link foryou" });
  readonly #notice = h("p", { class: "notice", role: "status" });
  readonly #footer = h("p", { class: "foot soft small" });
  readonly #emptyState = h("div", { class: "none", hidden: true });
  readonly #noQuestions = h("p", { class: "empty soft" }, "No open questions. Questions from all runs appear here.");
  readonly #inboxSection: HTMLElement;
  readonly #stopThemeUpdates: () => void;
  readonly #stopAnchor: () => void;
  #page: RunsPage | undefined;
  #error = "";

  constructor(wire: Wire<RunsMessage>, open?: OpenRuns) {
    this.#open = open;
    this.#channel = new RunsChannel(wire, this.#inbox, (page) => { this.#setPage(page); });
    this.#prompt = new Prompt({
      answer: (id, response) => this.#channel.answer(id, response),
      blockedReason: blockedReason(this.#inbox),
      now: () => this.#inbox.now(),
      drafts,
    });
    this.#filters = new Filters((part) => { this.#requestList({ limit: PAGE_SIZE, ...part }); });
    this.#bulk = new Bulk(
      (command, runs, tags) => { this.#sendCommand(command, runs, tags); },
      () => { this.#select(null); },
      () => this.#page?.tags ?? [],
    );
    this.#rows = new Rows({
      act: (command, run) => { this.#runCommand(command, run); },
      select: (run, isSelected) => { this.#select(run, isSelected); },
      selectAll: (isSelected) => { this.#selectAll(isSelected); },
      sort: (by) => { this.#requestList({ by }); },
      toQuestions: () => { this.toInbox(); },
    });
    this.#inboxSection = h("section", { class: "box", "aria-label": "Inbox", tabindex: -1 }, h("h3", {}, "Inbox"), this.#prompt.element, this.#noQuestions);
    const frame = copyButton(() => this.#page?.frame ?? "", { title: "Copy the code that returns this list as a DataFrame" }, "As a DataFrame");
    const zoneText = h("span", { class: "soft small zone" }, `live · times in ${zone()}`);
    const head = h("div", { class: "row head" }, h("h2", {}, "Runs"), this.#summary, this.#questionCount, h("span", { class: "grow" }), zoneText, frame);
    const list = h("div", { class: "list" }, this.#bulk.element, this.#rows.element, this.#emptyState, this.#footer);
    this.element.append(head, this.#notice, this.#filters.element, h("div", { class: "lay" }, list, this.#inboxSection));
    containKeys(this.element);
    this.#stopThemeUpdates = onThemeChange(this.element);
    this.#stopAnchor = keepCardsInPlace(this.element);
    this.#inbox.onChange = () => { this.#showQuestions(); };
    this.#showQuestions();
  }

  /** Scroll to the inbox and focus it. */
  toInbox(): void {
    this.#inboxSection.scrollIntoView({ block: "nearest" });
    this.#inboxSection.focus({ preventScroll: true });
  }

  destroy(): void {
    this.#stopThemeUpdates();
    this.#stopAnchor();
    this.#channel.close();
    this.#prompt.destroy();
    this.#rows.destroy();
    this.element.remove();
  }

  // --- messages from the kernel

  /** Show a list of runs. Runs that have left the list are no longer selected. */
  #setPage(page: RunsPage): void {
    this.#page = page;
    const now = performance.now();
    for (const id of this.#selectedIds) {
      if (!page.runs.some(({ execution_id: shown }) => shown === id)) this.#selectedIds.delete(id);
    }
    this.#filters.update(page);
    this.#rows.update(page, this.#selectedIds, () => page.now_us + (performance.now() - now) * 1000);
    this.#showSelected();
    this.#showSums(page);
    this.#showEmptyState(page);
  }

  #showSums({ total, running, week_cost: cost, is_whole: isWhole, runs, matching, query }: RunsPage): void {
    const parts = [
      `${total.toLocaleString("en")}${isWhole ? "" : "+"} ${total === 1 && isWhole ? "run" : "runs"} in the store`,
      running > 0 && `${running} running`,
      cost !== null && cost > 0 && `${dollars(cost)} spent this week`,
    ];
    setText(this.#summary, total === 0 ? "" : parts.filter((part) => part !== false).join(" · "));
    const remaining = matching - runs.length;
    const more = button(`Show ${Math.min(remaining, PAGE_SIZE)} more`, () => { this.#requestList({ limit: query.limit + PAGE_SIZE }); }, { class: "quiet" });
    const countText = `${runs.length.toLocaleString("en")} of ${matching.toLocaleString("en")} runs shown. `;
    this.#footer.replaceChildren(...(remaining > 0 ? [countText, more] : []));
  }

  /** Explain an empty list. While the kernel still reads the store (`isWhole` is false), the list may fill up, so nothing is explained. */
  #showEmptyState({ total, matching, is_whole: isWhole, near, query }: RunsPage): void {
    this.#emptyState.hidden = matching > 0 || !isWhole;
    this.#rows.element.hidden = matching === 0;
    if (this.#emptyState.hidden) return;
    if (total === 0) {
      const text = "Define a workflow in a cell, then run it. Every run is listed here. You can open and continue a run even after the kernel has stopped.";
      const example = "%%dive workflow hello      # a cell that defines a workflow\n%dive run hello            # a cell that runs the workflow";
      this.#emptyState.replaceChildren(h("h3", {}, "No runs yet"), h("p", {}, text), h("pre", {}, example));
      return;
    }
    const clearFilters = button("Clear the filters", () => { this.#requestList({ text: "", workflow: "", tag: "", status: "", days: 0 }); });
    const reason = near === "" ? "No runs match these filters." : `No runs match “${query.text}”. Did you mean “${near}”?`;
    const search = near === "" ? [] : [button(`Search “${near}”`, () => { this.#requestList({ text: near }); }, { class: "primary" })];
    this.#emptyState.replaceChildren(h("h3", {}, "No matching runs"), h("p", {}, reason), h("div", { class: "row" }, ...search, clearFilters));
  }

  #showQuestions(): void {
    const { questions, connected, hidden } = this.#inbox;
    this.#prompt.update([...questions.values()]);
    this.#prompt.showStatus();
    const open = [...questions.values()].filter(({ status }) => status === "pending").length + hidden;
    this.#questionCount.hidden = open === 0;
    setText(this.#questionCount, `? ${plural(open, "question")} for you`);
    this.#noQuestions.hidden = questions.size > 0;
    setText(this.#notice, WORDS[connected] || this.#error);
  }

  // --- requests of a person

  /** Request a list with changed filters. */
  #requestList(part: Partial<ListQuery>): void {
    if (this.#page === undefined) return;
    const { text, workflow, tag, status, days, by, limit } = { ...this.#page.query, ...part };
    this.#page.query = { ...this.#page.query, ...part }; // two quick changes are combined, before the first answer arrives
    this.#channel.list({ text, workflow, tag, status, days, by, limit });
  }

  #runCommand(command: Command, run: RunView): void {
    if (command === "cancel") this.#bulk.cancel([run]);
    else if (command === "open" && this.#open !== undefined) this.#open([run]);
    else this.#sendCommand(command, [run]);
  }

  /** Send a command for some runs, and show the reason if the kernel refuses it. */
  #sendCommand(command: Command, runs: RunView[], tags: string[] = []): void {
    if (command === "compare" && this.#open !== undefined) {
      this.#open(runs);
      return;
    }
    const ids = runs.map(({ execution_id: id }) => id);
    void this.#channel.command(command, ids, tags).then(({ accepted, text }) => {
      this.#error = accepted ? "" : text;
      this.#notice.classList.toggle("wrong", !accepted);
      this.#showQuestions();
      if (accepted && (command === "tag" || command === "untag")) this.#select(null);
    });
  }

  #select(run: RunView | null, isSelected = false): void {
    if (run === null) this.#selectedIds.clear();
    else if (isSelected) this.#selectedIds.add(run.execution_id);
    else this.#selectedIds.delete(run.execution_id);
    this.#showSelected();
  }

  #selectAll(isSelected: boolean): void {
    for (const { execution_id: id } of this.#page?.runs ?? []) {
      if (isSelected) this.#selectedIds.add(id);
      else this.#selectedIds.delete(id);
    }
    this.#showSelected();
  }

  #showSelected(): void {
    this.#rows.mark(this.#selectedIds);
    this.#bulk.update((this.#page?.runs ?? []).filter(({ execution_id: id }) => this.#selectedIds.has(id)));
  }
}
