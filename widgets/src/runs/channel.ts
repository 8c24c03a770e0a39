// Channel of the run browser: the list of runs from the kernel, commands for runs, and the questions of the inbox.

import type { Ack, Inbox, InboxDelta, RunsPage, RunsQuery, RunsWish } from "../protocol";
import { type InboxState, InboxChannel } from "../inbox/inbox";
import { freshId, type Wire } from "../shared/channel";

export type ListQuery = Omit<RunsQuery, "type" | "view">;
export type Command = RunsWish["command"];
export type RunsMessage = Inbox | InboxDelta | RunsPage;

/** Channel that keeps the list and the inbox up to date and sends requests and commands to the kernel. */
export class RunsChannel extends InboxChannel {
  readonly #onList: (page: RunsPage) => void;

  constructor(wire: Wire<RunsMessage>, inbox: InboxState, onList: (page: RunsPage) => void) {
    super(wire as unknown as Wire<Inbox | InboxDelta>, inbox);
    this.#onList = onList;
  }

  /** Request a list with other filters. */
  list(query: ListQuery): void {
    this.send({ ...query, type: "list", view: this.view });
  }

  /** Send a command for runs. Resolve when the kernel has run or refused it. */
  command(command: Command, executions: string[], tags: string[] = []): Promise<Ack> {
    return this.sendUntilAcknowledged({ type: "wish", id: freshId(), command, executions, tags });
  }

  /** Receive a list (a list for another view is ignored) or a message about questions. */
  protected override receive(message: RunsMessage): void {
    if (message.type !== "runs") super.receive(message);
    else if (message.view === "" || message.view === this.view) this.#onList(message);
  }
}
