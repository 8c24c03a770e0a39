// State of the open questions as sent by the kernel, and the channel that updates it.

import type { Asked, Inbox, InboxDelta } from "../protocol";
import { Channel, type ChannelState, type Wire } from "../shared/channel";
import type { ConnectionStatus } from "../shared/model";
import type { Question } from "../prompt/types";

/** State of an inbox, which one view draws. */
export class InboxState implements ChannelState {
  readonly questions = new Map<string, Question>();
  connected: ConnectionStatus = "connecting";
  readonly feed = "";
  /** Number of the last delta that the state contains. */
  last = 0;
  /** Number of open questions that the kernel has left out because there are too many. */
  hidden = 0;
  #updatedAt = 0;
  #nowUs = 0;

  /** Called after each change. */
  onChange: () => void = () => undefined;

  constructor(private readonly clock: () => number = () => performance.now()) {}

  /** Return the kernel's clock, in microseconds since 1970. Its last message is extrapolated by the local clock. */
  now(): number {
    return this.#nowUs + (this.clock() - this.#updatedAt) * 1000;
  }

  setConnected(connected: ConnectionStatus): void {
    this.connected = connected;
    this.onChange();
  }

  /** Apply a message of the kernel. */
  take({ asked, hidden, last, now_us }: Inbox | InboxDelta): void {
    for (const { question, workflow, execution_id, cell, trial_of: trialOf } of asked) {
      this.questions.set(question.interrupt_id, { ...question, asker: [workflow, execution_id], cell, trialOf });
    }
    this.hidden = hidden;
    this.last = last;
    this.#nowUs = now_us;
    this.#updatedAt = this.clock();
    this.onChange();
  }

  /** Close the open questions that are missing from a complete list, for example because the kernel was restarted. */
  withdrawMissing(asked: readonly Asked[]): void {
    const openIds = new Set(asked.map(({ question }) => question.interrupt_id));
    for (const [id, question] of this.questions) {
      if (question.status === "pending" && !openIds.has(id)) this.questions.set(id, { ...question, status: "cancelled", became: "withdrawn" });
    }
  }
}

/** Channel that keeps the state up to date and sends answers to the kernel. */
export class InboxChannel extends Channel<Inbox | InboxDelta> {
  readonly #state: InboxState;

  constructor(wire: Wire<Inbox | InboxDelta>, state: InboxState, isHosted?: () => boolean) {
    super(wire, state, isHosted);
    this.#state = state;
  }

  /** Receive a complete list, which starts the conversation, or a delta. If deltas are missing, the list is requested again. */
  protected override receive(message: Inbox | InboxDelta): void {
    if (message.type === "inbox") {
      if (message.view !== this.view) return;
      this.#state.withdrawMissing(message.asked);
      this.#state.take(message);
      this.endHandshake();
    } else if (!this.isInHandshake) {
      if (message.after > this.#state.last) this.startHandshake();
      else this.#state.take(message);
    }
  }
}
