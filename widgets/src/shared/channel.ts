// Messages of every view to the kernel: hello until welcomed, alive, and intents until acknowledged.

import type { Ack, InboxToBrowser, OfferToBrowser, RunsToBrowser, ToBrowser, ToKernel } from "../protocol";
import type { Connected } from "./model";

const HELLO_EVERY = 500;
const HELLO_WHEN_DETACHED = 5_000;
const HELLOS_BEFORE_DETACHED = 20;
const RESEND_EVERY = 1_000;
const ALIVE_EVERY = 10_000; // the kernel forgets views after much more: divebook/widgets/publisher.py

/** A message; or the kernel that knew this widget is gone. */
type Signal = "msg:custom" | "comm_live_update";
/** What a kernel says besides acknowledging. */
export type Told = Exclude<ToBrowser | InboxToBrowser | OfferToBrowser | RunsToBrowser, Ack>;

/** The part of anywidget's model that is used; a test brings its own. */
export interface Wire<T extends Told> {
  send: (message: ToKernel) => void;
  on: (name: Signal, receive: (message: T | Ack) => void) => void;
  off: (name: Signal, receive: (message: T | Ack) => void) => void;
}

/** Whoever is kept up to date. */
export interface Follower {
  /** Number of the last thing it knows of. */
  readonly last: number;
  readonly connected: Connected;
  setConnected: (connected: Connected) => void;
}

interface Pending {
  timer: ReturnType<typeof setInterval>;
  resolve: (ack: Ack) => void;
}

/** Returns an id that no other view or wish has; `crypto.randomUUID` is missing on pages without https. */
export function freshId(): string {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
}

/** Tells whether an element lies in an output that JupyterLab's extension hosts (`lab/host.ts`). */
export function isHosted(element: Element): boolean {
  return element.closest(".db-host") !== null;
}

/** One view's conversation with the kernel. */
export abstract class Channel<T extends Told> {
  protected readonly view = freshId();
  readonly #wire: Wire<T>;
  readonly #follower: Follower;
  readonly #pending = new Map<string, Pending>();
  readonly #isHosted: () => boolean;
  #hasSaidHosted = false;
  #helloTimer: ReturnType<typeof setInterval> | undefined;
  readonly #aliveTimer: ReturnType<typeof setInterval>;
  readonly #receive = (message: T | Ack): void => {
    if (message.type === "ack") this.#settle(message);
    else this.take(message);
  };

  readonly #lost = (): void => {
    this.#follower.setConnected("detached");
    this.greet();
  };

  /** `isHosted` tells whether the page shows what is saved of the view once its model is gone. */
  constructor(wire: Wire<T>, follower: Follower, isHosted: () => boolean = () => false) {
    [this.#wire, this.#follower, this.#isHosted] = [wire, follower, isHosted];
    wire.on("msg:custom", this.#receive);
    wire.on("comm_live_update", this.#lost);
    this.#aliveTimer = setInterval(() => {
      if (follower.connected === "detached") this.greet();
      else if (!this.isGreeting) {
        this.send({ type: "alive", view: this.view, since: follower.last });
        this.#sayHosted();
      }
    }, ALIVE_EVERY);
    this.greet();
  }

  /** Ends the conversation. */
  close(): void {
    this.send({ type: "bye", view: this.view });
    this.#wire.off("msg:custom", this.#receive);
    this.#wire.off("comm_live_update", this.#lost);
    clearInterval(this.#aliveTimer);
    clearInterval(this.#helloTimer);
    for (const { timer } of this.#pending.values()) clearInterval(timer);
  }

  /** Answers a question; resolves when the kernel has taken or refused it. */
  answer(interruptId: string, response: unknown): Promise<Ack> {
    const id = freshId();
    return this.insist({ type: "answer", id, interrupt_id: interruptId, response });
  }

  /** Takes over what the kernel says. */
  protected abstract take(message: T): void;

  protected get isGreeting(): boolean {
    return this.#helloTimer !== undefined;
  }

  /** Sends; a comm whose kernel is gone throws. */
  protected send(message: ToKernel): void {
    try {
      this.#wire.send(message);
    } catch {
      this.#follower.setConnected("detached");
    }
  }

  /** Sends until it is acknowledged. */
  protected insist(message: ToKernel & { id: string }): Promise<Ack> {
    return new Promise((resolve) => {
      const timer = setInterval(() => { this.send(message); }, RESEND_EVERY);
      this.#pending.set(message.id, { timer, resolve });
      this.send(message);
    });
  }

  protected greet(): void {
    if (this.isGreeting) return;
    let hellos = 0;
    const hello = (): void => {
      this.send({ type: "hello", view: this.view, since: this.#follower.last });
      if (++hellos !== HELLOS_BEFORE_DETACHED) return;
      this.#follower.setConnected("detached");
      clearInterval(this.#helloTimer);
      this.#helloTimer = setInterval(hello, HELLO_WHEN_DETACHED);
    };
    this.#helloTimer = setInterval(hello, HELLO_EVERY);
    hello();
  }

  /** Ends the greeting: the kernel has answered. */
  protected greeted(): void {
    clearInterval(this.#helloTimer);
    this.#helloTimer = undefined;
    this.#follower.setConnected("connected");
    this.#sayHosted();
  }

  #sayHosted(): void {
    if (this.#hasSaidHosted || !this.#isHosted()) return;
    this.#hasSaidHosted = true;
    this.send({ type: "hosted", view: this.view });
  }

  #settle(ack: Ack): void {
    const pending = this.#pending.get(ack.id);
    if (pending === undefined) return;
    clearInterval(pending.timer);
    this.#pending.delete(ack.id);
    pending.resolve(ack);
  }
}
