// What a replay asks its kernel, sent again until it is answered: the first requests may be lost.

import type { DetailEvent, ReplayToBrowser, ReplayToKernel, StateView } from "../protocol";
import { freshId } from "../shared/channel";
import type { Replay } from "./replay";
import type { Filled } from "./stepping";

const PAGE = 10_000;
const AGAIN_MS = 2000;
const PATIENCE_MS = 20_000;

interface Waiting {
  resolve: (message: ReplayToBrowser) => void;
  stop: () => void;
}

/** The part of anywidget's model that is used. */
export interface StepWire {
  send: (message: ReplayToKernel) => void;
  on: (name: "msg:custom", receive: (message: ReplayToBrowser) => void) => void;
  off: (name: "msg:custom", receive: (message: ReplayToBrowser) => void) => void;
}

/** Answers what a replay asks, by asking a kernel. */
export class Requests implements Filled {
  readonly #wire: StepWire;
  readonly #waiting = new Map<string, Waiting>();
  readonly #view = freshId();
  #replay: Replay | null = null;

  constructor(wire: StepWire) {
    this.#wire = wire;
    wire.on("msg:custom", this.#receive);
  }

  readonly #receive = (message: ReplayToBrowser): void => {
    if (message.type === "go") {
      this.#replay?.go(message.sequence); // a cell has moved it
      return;
    }
    if (message.view !== this.#view) return;
    const key = message.type === "events" ? `events ${message.events.first - 1}` : `${message.type} ${message.sequence}`;
    const waiting = this.#waiting.get(key);
    this.#waiting.delete(key);
    waiting?.stop();
    waiting?.resolve(message);
  };

  async stateAt(sequence: number): Promise<StateView> {
    const answer = await this.#ask(`state ${sequence}`, { type: "state", view: this.#view, sequence });
    if (answer.type === "state" && answer.state !== null) return answer.state;
    throw new Error("error" in answer ? answer.error : "");
  }

  async eventAt(sequence: number): Promise<DetailEvent> {
    const answer = await this.#ask(`event ${sequence}`, { type: "event", view: this.#view, sequence });
    if (answer.type === "event" && answer.event !== null) return answer.event;
    throw new Error("error" in answer ? answer.error : "");
  }

  /** Asks for all events, page by page. */
  async fill(replay: Replay): Promise<void> {
    this.#replay = replay;
    for (let [after, total] = [0, 1]; after < total; after += PAGE) {
      const answer = await this.#ask(`events ${after}`, { type: "events", view: this.#view, after, stop: after + PAGE });
      if (answer.type !== "events") return;
      replay.take(answer.events);
      total = answer.total;
    }
  }

  close(): void {
    this.#wire.off("msg:custom", this.#receive);
    for (const { stop } of this.#waiting.values()) stop();
    this.#waiting.clear();
  }

  #ask(key: string, message: ReplayToKernel): Promise<ReplayToBrowser> {
    return new Promise((resolve, reject) => {
      this.#waiting.get(key)?.stop();
      const again = setInterval(() => { this.#wire.send(message); }, AGAIN_MS);
      const stop = (): void => {
        clearInterval(again);
        clearTimeout(end);
      };
      const end = setTimeout(() => {
        stop();
        this.#waiting.delete(key);
        reject(new Error("The kernel does not answer. Restart it, and run the notebook up to this cell again."));
      }, PATIENCE_MS);
      this.#waiting.set(key, { resolve, stop });
      this.#wire.send(message);
    });
  }
}
