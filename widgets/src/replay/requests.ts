// Requests of a replay to its kernel, repeated until they are answered, because the first ones may be lost.

import type { BundleName, DetailEvent, ReplayToBrowser, ReplayToKernel, StateView, Welcome } from "../protocol";
import { freshId } from "../shared/channel";
import { moduleOf } from "../shared/later";
import type { Position } from "../shared/model";
import type { PictureHost } from "./picture";
import type { Replay } from "./replay";
import type { SaidThen } from "./said";
import type { Filled } from "./stepping";

const PAGE = 10_000;
const AGAIN_MS = 2000;
const PATIENCE_MS = 20_000;
const PICTURE_MS = 120_000; // a long log is read aside meanwhile
const TOLD_EVERY_MS = 100; // that somebody moves it

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
export class Requests implements Filled, PictureHost {
  readonly #wire: StepWire;
  readonly #waiting = new Map<string, Waiting>();
  readonly #view = freshId();
  #replay: Replay | null = null;
  #isLed = false;
  #telling: ReturnType<typeof setTimeout> | undefined;
  #stands = 0;

  constructor(wire: StepWire) {
    this.#wire = wire;
    wire.on("msg:custom", this.#receive);
  }

  readonly #receive = (message: ReplayToBrowser): void => {
    if (message.type === "go") {
      clearTimeout(this.#telling); // a cell has moved it, later than somebody here
      this.#telling = undefined;
      this.#isLed = true;
      this.#replay?.go(message.sequence);
      this.#isLed = false;
      return;
    }
    if (message.view !== this.#view) return;
    const key = keyOf(message);
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

  async saidAt(sequence: number): Promise<SaidThen> {
    const answer = await this.#ask(`said ${sequence}`, { type: "said", view: this.#view, sequence });
    if (answer.type === "said" && answer.error === "") return answer;
    throw new Error("error" in answer ? answer.error : "");
  }

  /** Returns a part of the front end. */
  readonly load = async (name: BundleName): Promise<unknown> => {
    const answer = await this.#ask(`bundle ${name}`, { type: "bundle", view: this.#view, name });
    return moduleOf(answer.type === "bundle" ? answer.script : "");
  };

  /** Returns what the timeline and the graph show. */
  readonly welcome = async (): Promise<Welcome> => {
    const answer = await this.#ask("welcome", { type: "picture", view: this.#view }, PICTURE_MS);
    if (answer.type === "welcome") return answer;
    throw new Error("there is no picture");
  };

  /** Tells the kernel, now and then, where somebody has gone here; not what it has said itself. */
  moved({ sequence }: Position): void {
    const isKnown = this.#isLed || sequence === this.#stands;
    this.#stands = sequence;
    if (isKnown) return;
    this.#telling ??= setTimeout(() => {
      this.#telling = undefined;
      this.#wire.send({ type: "at", view: this.#view, sequence: this.#stands });
    }, TOLD_EVERY_MS);
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
    clearTimeout(this.#telling);
  }

  #ask(key: string, message: ReplayToKernel, patience = PATIENCE_MS): Promise<ReplayToBrowser> {
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
      }, patience);
      this.#waiting.set(key, { resolve, stop });
      this.#wire.send(message);
    });
  }
}

function keyOf(message: Exclude<ReplayToBrowser, { type: "go" }>): string {
  if (message.type === "events") return `events ${message.events.first - 1}`;
  if (message.type === "bundle") return `bundle ${message.name}`;
  return message.type === "welcome" ? "welcome" : `${message.type} ${message.sequence}`;
}
