// State of the open questions as sent by the kernel, and the messages about them.

import type { Asked, Inbox, InboxDelta } from "../protocol";
import { Channel, type Follower, type Wire } from "../shared/channel";
import type { Connected } from "../shared/model";
import type { Question } from "../prompt/types";

/** The state, which one view draws. */
export class InboxState implements Follower {
  readonly questions = new Map<string, Question>();
  connected: Connected = "connecting";
  /** Number of the last delta that is in here. */
  last = 0;
  /** Open questions that are too many to be shown. */
  hidden = 0;
  #updatedAt = 0;
  #nowUs = 0;

  /** Told after each change. */
  onChange: () => void = () => undefined;

  constructor(private readonly clock: () => number = () => performance.now()) {}

  /** Returns the kernel's clock, in microseconds since 1970. */
  now(): number {
    return this.#nowUs + (this.clock() - this.#updatedAt) * 1000;
  }

  setConnected(connected: Connected): void {
    this.connected = connected;
    this.onChange();
  }

  take({ asked, hidden, last, now_us }: Inbox | InboxDelta): void {
    for (const { question, workflow, execution_id, cell } of asked) this.questions.set(question.interrupt_id, { ...question, asker: [workflow, execution_id], cell });
    [this.hidden, this.last, this.#nowUs, this.#updatedAt] = [hidden, last, now_us, this.clock()];
    this.onChange();
  }

  /** Marks what a kernel that was asked anew knows nothing of as over. */
  withdrawMissing(asked: readonly Asked[]): void {
    const openIds = new Set(asked.map(({ question }) => question.interrupt_id));
    for (const [id, question] of this.questions) {
      if (question.status === "pending" && !openIds.has(id)) this.questions.set(id, { ...question, status: "cancelled", became: "withdrawn" });
    }
  }
}

/** Keeps the state up to date, and brings answers to the kernel. */
export class InboxChannel extends Channel<Inbox | InboxDelta> {
  readonly #state: InboxState;

  constructor(wire: Wire<Inbox | InboxDelta>, state: InboxState, isHosted?: () => boolean) {
    super(wire, state, isHosted);
    this.#state = state;
  }

  protected override take(message: Inbox | InboxDelta): void {
    if (message.type === "inbox") {
      if (message.view !== this.view) return;
      this.#state.withdrawMissing(message.asked);
      this.#state.take(message);
      this.greeted();
    } else if (!this.isGreeting) {
      if (message.after > this.#state.last) this.greet();
      else this.#state.take(message);
    }
  }
}
