// The latest list of runs from the kernel, and the messages about it and about the questions beside it.

import type { Ack, Inbox, InboxDelta, RunsPage, RunsQuery, RunsWish } from "../protocol";
import { type Asking, InboxChannel } from "../inbox/inbox";
import { freshId, type Wire } from "../shared/channel";

export type Asked = Omit<RunsQuery, "type" | "view">;
export type Command = RunsWish["command"];
export type Told = Inbox | InboxDelta | RunsPage;

/** Keeps the list and the questions up to date, and brings a person's wishes to the kernel. */
export class RunsChannel extends InboxChannel {
  readonly #listed: (page: RunsPage) => void;

  constructor(wire: Wire<Told>, asking: Asking, listed: (page: RunsPage) => void) {
    super(wire as unknown as Wire<Inbox | InboxDelta>, asking);
    this.#listed = listed;
  }

  /** Asks for another list. */
  list(query: Asked): void {
    this.send({ ...query, type: "list", view: this.view });
  }

  /** Asks to do something with runs; resolves when the kernel has done or refused it. */
  wish(command: Command, executions: string[], tags: string[] = []): Promise<Ack> {
    return this.sendUntilAcknowledged({ type: "wish", id: freshId(), command, executions, tags });
  }

  protected override receive(message: Told): void {
    if (message.type !== "runs") super.receive(message);
    else if (message.view === "" || message.view === this.view) this.#listed(message);
  }
}
