// The latest list of runs from the kernel, and the messages about it and about the questions beside it.

import type { Ack, Inbox, InboxDelta, RunsPage, RunsQuery, RunsWish } from "../protocol";
import { type InboxState, InboxChannel } from "../inbox/inbox";
import { freshId, type Wire } from "../shared/channel";

export type ListQuery = Omit<RunsQuery, "type" | "view">;
export type Command = RunsWish["command"];
export type RunsMessage = Inbox | InboxDelta | RunsPage;

/** Keeps the list and the questions up to date, and brings a person's wishes to the kernel. */
export class RunsChannel extends InboxChannel {
  readonly #onList: (page: RunsPage) => void;

  constructor(wire: Wire<RunsMessage>, inbox: InboxState, onList: (page: RunsPage) => void) {
    super(wire as unknown as Wire<Inbox | InboxDelta>, inbox);
    this.#onList = onList;
  }

  /** Asks for another list. */
  list(query: ListQuery): void {
    this.send({ ...query, type: "list", view: this.view });
  }

  /** Asks to do something with runs; resolves when the kernel has done or refused it. */
  command(command: Command, executions: string[], tags: string[] = []): Promise<Ack> {
    return this.insist({ type: "wish", id: freshId(), command, executions, tags });
  }

  protected override take(message: RunsMessage): void {
    if (message.type !== "runs") super.take(message);
    else if (message.view === "" || message.view === this.view) this.#onList(message);
  }
}
