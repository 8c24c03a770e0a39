// Sends what a person wants until the kernel has confirmed it: messages may be lost while a kernel is busy or a page
// reloads. The same id is sent again, and the kernel does it once.

import type { Ack } from "../protocol";

/** What became of an intent. */
export interface Outcome {
  accepted: boolean;
  /** Why it was refused. */
  text: string;
}

interface Sent {
  send: () => void;
  settle: (outcome: Outcome) => void;
}

const AGAIN_MS = 2000;

/** Intents that wait for their acknowledgement. */
export class Outbox {
  readonly #waiting = new Map<string, Sent>();
  readonly #post: (message: unknown) => void;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(post: (message: unknown) => void) {
    this.#post = post;
  }

  /** Sends a message until its acknowledgement comes; an id that is under way already is not sent twice. */
  put(message: { id: string }): Promise<Outcome> {
    return new Promise((resolve) => {
      const known = this.#waiting.get(message.id);
      const settle = (outcome: Outcome): void => {
        known?.settle(outcome);
        resolve(outcome);
      };
      const send = known?.send ?? ((): void => { this.#post(message); });
      this.#waiting.set(message.id, { send, settle });
      if (known === undefined) send();
      this.#timer ??= setInterval(() => { this.again(); }, AGAIN_MS);
    });
  }

  /** Takes an acknowledgement. */
  receive(ack: Ack): void {
    const sent = this.#waiting.get(ack.id);
    this.#waiting.delete(ack.id);
    if (this.#waiting.size === 0) this.dispose();
    sent?.settle({ accepted: ack.accepted, text: ack.text });
  }

  /** Sends everything again that is not acknowledged, as after a new connection. */
  again(): void {
    for (const { send } of this.#waiting.values()) send();
  }

  /** Stops sending. */
  dispose(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
