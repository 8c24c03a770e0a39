// Open questions of all kernels whose notebooks this page shows, and the notifications about them.

import type { Inbox, InboxDelta } from "../protocol";
import type { Question } from "../prompt/types";
import { Asking, InboxChannel } from "../inbox/inbox";
import type { Kernel, Tracker } from "./jupyterlab";
import { followLines } from "./lines";

export const TARGET = "divebook.inbox";
const FRESH_US = 30_000_000; // what is older was told, or seen, before this page was loaded

/** A question and the kernels that tell of it; one is enough to answer it. */
export interface Waiting {
  question: Question;
  kernels: readonly Kernel[];
}

/** Keeps what waits for an answer. */
export class Waits {
  readonly #askings = new Map<Kernel, Asking>();
  readonly #channels = new Map<Kernel, InboxChannel>();
  readonly #told = new Set<string>();

  /** Told after each change of the questions. */
  readonly changed: (() => void)[] = [];
  /** Told of each question that is new. */
  readonly asked: ((waiting: Waiting) => void)[] = [];

  follow(tracker: Tracker): void {
    followLines<Inbox | InboxDelta>(tracker, TARGET, (kernel, wire) => {
      const asking = new Asking();
      this.#askings.set(kernel, asking);
      asking.changed = () => { this.#tell(asking); };
      const channel = new InboxChannel(wire, asking, () => true); // where this is heard, views are hosted
      this.#channels.set(kernel, channel);
      return () => {
        asking.changed = () => undefined;
        this.#askings.delete(kernel);
        this.#channels.delete(kernel);
        channel.close();
        for (const tell of this.changed) tell();
      };
    });
  }

  /** The open questions, the oldest first. */
  get open(): Waiting[] {
    const found = new Map<string, { question: Question; kernels: Kernel[] }>();
    for (const [kernel, { questions }] of this.#askings) {
      for (const [id, question] of questions) {
        if (question.status !== "pending") continue;
        const known = found.get(id);
        if (known === undefined) found.set(id, { question, kernels: [kernel] });
        else known.kernels.push(kernel);
      }
    }
    return [...found.values()].sort((one, other) => one.question.raised_us - other.question.raised_us);
  }

  /** Sends an answer to a kernel that tells of the question; returns whether it was taken. */
  async answer({ question, kernels: [kernel] }: Waiting, response: unknown): Promise<boolean> {
    const channel = kernel === undefined ? undefined : this.#channels.get(kernel);
    const said = await channel?.answer(question.interrupt_id, response);
    return said?.accepted === true;
  }

  #tell(asking: Asking): void {
    const now = asking.now();
    for (const tell of this.changed) tell();
    for (const waiting of this.open) {
      const { interrupt_id: id, raised_us: raised } = waiting.question;
      if (this.#told.has(id)) continue;
      this.#told.add(id);
      if (now - raised < FRESH_US) for (const tell of this.asked) tell(waiting);
    }
  }
}

/** Returns the workflow that asks. */
export function askerOf({ asker }: Question): string {
  return asker?.[0] ?? "A run";
}
