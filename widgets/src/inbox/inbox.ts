// State of the open questions as sent by the kernel, and the messages about them.

import type { Asked, Inbox, InboxDelta } from "../protocol";
import { Channel, type ChannelState, type Wire } from "../shared/channel";
import type { ConnectionStatus } from "../shared/model";
import type { Question } from "../prompt/types";

/** The state, which one view draws. */
export class Asking implements ChannelState {
  readonly questions = new Map<string, Question>();
  connected: ConnectionStatus = "connecting";
  /** Number of the last delta that is in here. */
  last = 0;
  /** Open questions that are too many to be shown. */
  hidden = 0;
  #toldAt = 0;
  #nowUs = 0;

  /** Told after each change. */
  changed: () => void = () => undefined;

  constructor(private readonly clock: () => number = () => performance.now()) {}

  /** Returns the kernel's clock, in microseconds since 1970. */
  now(): number {
    return this.#nowUs + (this.clock() - this.#toldAt) * 1000;
  }

  setConnected(connected: ConnectionStatus): void {
    this.connected = connected;
    this.changed();
  }

  take({ asked, hidden, last, now_us }: Inbox | InboxDelta): void {
    for (const { question, workflow, execution_id, cell } of asked) this.questions.set(question.interrupt_id, { ...question, asker: [workflow, execution_id], cell });
    [this.hidden, this.last, this.#nowUs, this.#toldAt] = [hidden, last, now_us, this.clock()];
    this.changed();
  }

  /** Marks what a kernel that was asked anew knows nothing of as over. */
  forget(asked: readonly Asked[]): void {
    const known = new Set(asked.map(({ question }) => question.interrupt_id));
    for (const [id, question] of this.questions) {
      if (question.status === "pending" && !known.has(id)) this.questions.set(id, { ...question, status: "cancelled", became: "withdrawn" });
    }
  }
}

/** Keeps the state up to date, and brings answers to the kernel. */
export class InboxChannel extends Channel<Inbox | InboxDelta> {
  readonly #asking: Asking;

  constructor(wire: Wire<Inbox | InboxDelta>, asking: Asking, isHosted?: () => boolean) {
    super(wire, asking, isHosted);
    this.#asking = asking;
  }

  protected override receive(message: Inbox | InboxDelta): void {
    if (message.type === "inbox") {
      if (message.view !== this.view) return;
      this.#asking.forget(message.asked);
      this.#asking.take(message);
      this.endHandshake();
    } else if (!this.isInHandshake) {
      if (message.after > this.#asking.last) this.startHandshake();
      else this.#asking.take(message);
    }
  }
}
