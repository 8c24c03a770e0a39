// Open questions of all kernels whose notebooks this page shows, and notification of listeners.

import { INBOX_TARGET } from "../constants";
import type { Inbox, InboxDelta } from "../protocol";
import type { Question } from "../prompt/types";
import { byAge } from "../shared/order";
import { InboxState, InboxChannel } from "../inbox/inbox";
import type { Kernel, Tracker } from "./jupyterlab";
import { followComms } from "./comms";

const MAX_AGE_US = 30_000_000; // older questions were announced, or seen, before this page was loaded

/** A question and the kernels that report it. Any of them accepts the answer. */
export interface OpenQuestion {
  question: Question;
  kernels: readonly Kernel[];
}

/** The questions that wait for an answer. */
export class OpenQuestions {
  readonly #inboxes = new Map<Kernel, InboxState>();
  readonly #channels = new Map<Kernel, InboxChannel>();
  readonly #announced = new Set<string>();

  /** Called after each change of the questions. */
  readonly onChange: (() => void)[] = [];
  /** Called for each new question. */
  readonly onQuestion: ((openQuestion: OpenQuestion) => void)[] = [];

  follow(tracker: Tracker): void {
    followComms<Inbox | InboxDelta>(tracker, INBOX_TARGET, (kernel, wire) => {
      const inbox = new InboxState();
      this.#inboxes.set(kernel, inbox);
      inbox.onChange = () => { this.#notify(inbox); };
      const channel = new InboxChannel(wire, inbox, () => true); // this code runs in the extension, which also hosts the views
      this.#channels.set(kernel, channel);
      return () => {
        inbox.onChange = () => undefined;
        this.#inboxes.delete(kernel);
        this.#channels.delete(kernel);
        channel.close();
        for (const listener of this.onChange) listener();
      };
    });
  }

  /**
   * Open questions, oldest first. Several kernels may report the same question. Questions of what-ifs and trials are in the inbox
   * and in the view of the run, but notify nobody: the run that they examine continues without an answer.
   */
  get open(): OpenQuestion[] {
    const byId = new Map<string, { question: Question; kernels: Kernel[] }>();
    for (const [kernel, { questions }] of this.#inboxes) {
      for (const [id, question] of questions) {
        if (question.status !== "pending" || (question.trialOf ?? "") !== "") continue;
        const entry = byId.get(id);
        if (entry === undefined) byId.set(id, { question, kernels: [kernel] });
        else entry.kernels.push(kernel);
      }
    }
    return [...byId.values()].sort((one, other) => byAge(one.question, other.question));
  }

  /** Send an answer to a kernel that reports the question. Return whether it was accepted. */
  async answer({ question, kernels: [kernel] }: OpenQuestion, response: unknown): Promise<boolean> {
    const channel = kernel === undefined ? undefined : this.#channels.get(kernel);
    const ack = await channel?.answer(question.interrupt_id, response);
    return ack?.accepted === true;
  }

  #notify(inbox: InboxState): void {
    const now = inbox.now();
    for (const listener of this.onChange) listener();
    for (const openQuestion of this.open) {
      const { interrupt_id: id, raised_us: raised } = openQuestion.question;
      if (this.#announced.has(id)) continue;
      this.#announced.add(id);
      if (now - raised < MAX_AGE_US) for (const listener of this.onQuestion) listener(openQuestion);
    }
  }
}

/** Return the workflow that asks, for display. */
export function askerName({ asker }: Question): string {
  return asker?.[0] ?? "A run";
}
