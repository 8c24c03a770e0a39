// Requests of a replay to its kernel. They are repeated until they are answered, because the first ones may be lost.

import type { BundleName, DetailEvent, ReplayToBrowser, ReplayToKernel, StateView, Welcome, WhyLine } from "../protocol";
import { freshId } from "../shared/channel";
import { moduleOf } from "../shared/lazypart";
import type { Position } from "../shared/model";
import type { OverviewHost } from "./overview";
import type { Replay } from "./replay";
import type { RequestMessages } from "./requestmessages";
import type { ReplaySource } from "./stepping";

const PAGE = 5_000; // events per request
const RESEND_MS = 2000; // until a request is repeated
const TIMEOUT_MS = 20_000; // until a request fails
const OVERVIEW_TIMEOUT_MS = 120_000; // the same for the timeline: the kernel reads a long log in the background
const POSITION_EVERY_MS = 100; // between two messages with the position

interface PendingRequest {
  resolve: (message: ReplayToBrowser) => void;
  stop: () => void;
}

/** The part of anywidget's model that a replay uses. */
export interface StepWire {
  send: (message: ReplayToKernel) => void;
  on: (name: "msg:custom", receive: (message: ReplayToBrowser) => void) => void;
  off: (name: "msg:custom", receive: (message: ReplayToBrowser) => void) => void;
}

/**
 * Data source of a replay that reads from a kernel.
 *
 * Answers carry no request id. They are matched by their content (`keyOf`), so a second request for the same thing replaces
 * the first one.
 */
export class Requests implements ReplaySource, OverviewHost {
  readonly #wire: StepWire;
  readonly #pending = new Map<string, PendingRequest>();
  readonly #view = freshId();
  #replay: Replay | null = null;
  #isKernelMove = false;
  #positionTimer: ReturnType<typeof setTimeout> | undefined;
  #position = 0;

  constructor(wire: StepWire) {
    this.#wire = wire;
    wire.on("msg:custom", this.#onMessage);
  }

  readonly #onMessage = (message: ReplayToBrowser): void => {
    if (message.type === "go") {
      // Code in the kernel moved the replay later than the person here: drop the position that was not sent yet.
      clearTimeout(this.#positionTimer);
      this.#positionTimer = undefined;
      this.#isKernelMove = true;
      this.#replay?.go(message.sequence);
      this.#isKernelMove = false;
      return;
    }
    if (message.view !== this.#view) return;
    const key = keyOf(message);
    const request = this.#pending.get(key);
    this.#pending.delete(key);
    request?.stop();
    request?.resolve(message);
  };

  async stateAt(sequence: number): Promise<StateView> {
    const answer = await this.#request(`state ${sequence}`, { type: "state", view: this.#view, sequence });
    if (answer.type === "state" && answer.state !== null) return answer.state;
    throw new Error("error" in answer ? answer.error : "");
  }

  async eventAt(sequence: number): Promise<DetailEvent> {
    const answer = await this.#request(`event ${sequence}`, { type: "event", view: this.#view, sequence });
    if (answer.type === "event" && answer.event !== null) return answer.event;
    throw new Error("error" in answer ? answer.error : "");
  }

  async messagesAt(sequence: number): Promise<RequestMessages> {
    const answer = await this.#request(`said ${sequence}`, { type: "said", view: this.#view, sequence });
    if (answer.type === "said" && answer.error === "") return answer;
    throw new Error("error" in answer ? answer.error : "");
  }

  readonly whyAt = async (sequence: number, name: string): Promise<WhyLine[]> => {
    const answer = await this.#request(`why ${sequence} ${name}`, { type: "why", view: this.#view, sequence, name });
    if (answer.type === "why" && answer.error === "") return answer.lines;
    throw new Error("error" in answer ? answer.error : "");
  };

  /** Load a bundle of the front end. */
  readonly load = async (name: BundleName): Promise<unknown> => {
    const answer = await this.#request(`bundle ${name}`, { type: "bundle", view: this.#view, name });
    return moduleOf(answer.type === "bundle" ? answer.script : "");
  };

  /** Return the data of the timeline and the graph. */
  readonly welcome = async (): Promise<Welcome> => {
    const answer = await this.#request("welcome", { type: "picture", view: this.#view }, OVERVIEW_TIMEOUT_MS);
    if (answer.type === "welcome") return answer;
    throw new Error("The kernel has no timeline of this run.");
  };

  /** Report a position to the kernel, throttled. Positions that the kernel has set itself are not reported back. */
  sendPosition({ sequence }: Position): void {
    const isReported = this.#isKernelMove || sequence === this.#position;
    this.#position = sequence;
    if (isReported) return;
    this.#positionTimer ??= setTimeout(() => {
      this.#positionTimer = undefined;
      this.#wire.send({ type: "at", view: this.#view, sequence: this.#position });
    }, POSITION_EVERY_MS);
  }

  /** Load all events, page by page. */
  async fill(replay: Replay): Promise<void> {
    this.#replay = replay;
    let total = 1; // at least one page; the answer contains the number of events
    for (let after = 0; after < total; after += PAGE) {
      const answer = await this.#request(`events ${after}`, { type: "events", view: this.#view, after, stop: after + PAGE });
      if (answer.type !== "events") return;
      total = answer.total;
      replay.add(answer.events, total);
    }
    replay.complete();
  }

  close(): void {
    this.#wire.off("msg:custom", this.#onMessage);
    for (const { stop } of this.#pending.values()) stop();
    this.#pending.clear();
    clearTimeout(this.#positionTimer);
  }

  /** Send a request repeatedly. The promise is rejected if there is no answer in time. */
  #request(key: string, message: ReplayToKernel, timeoutMs = TIMEOUT_MS): Promise<ReplayToBrowser> {
    return new Promise((resolve, reject) => {
      this.#pending.get(key)?.stop();
      const resendTimer = setInterval(() => { this.#wire.send(message); }, RESEND_MS);
      const stop = (): void => {
        clearInterval(resendTimer);
        clearTimeout(timeout);
      };
      const timeout = setTimeout(() => {
        stop();
        this.#pending.delete(key);
        reject(new Error("The kernel does not answer. Restart it, and run the notebook up to this cell again."));
      }, timeoutMs);
      this.#pending.set(key, { resolve, stop });
      this.#wire.send(message);
    });
  }
}

/** Return the key of the request that a message answers. */
function keyOf(message: Exclude<ReplayToBrowser, { type: "go" }>): string {
  if (message.type === "events") return `events ${message.events.first - 1}`;
  if (message.type === "bundle") return `bundle ${message.name}`;
  if (message.type === "why") return `why ${message.sequence} ${message.name}`;
  return message.type === "welcome" ? "welcome" : `${message.type} ${message.sequence}`;
}
