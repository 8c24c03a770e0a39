// Message channel between a view and the kernel: handshake, keep-alive, and commands that are resent until acknowledged.

import type { Ack, InboxToBrowser, OfferToBrowser, RunsToBrowser, ToBrowser, ToKernel } from "../protocol";
import type { ConnectionStatus } from "./model";

// All in milliseconds, except the count.
const HELLO_EVERY = 500;
const HELLO_WHEN_SILENT = 5_000;
const HELLOS_BEFORE_SILENT = 20;
const RESEND_EVERY = 1_000;
const UNANSWERED_BEFORE_SILENT = 2; // heartbeats; the kernel acknowledges each
const ALIVE_EVERY = 10_000; // the kernel forgets views after much more: divebook/widgets/publisher.py

/** Events of anywidget's model: a message, or a change of the comm, which means that the kernel that owned it is gone. */
type WireEvent = "msg:custom" | "comm_live_update";
/** Messages from the kernel, except acknowledgements. */
export type KernelMessage = Exclude<ToBrowser | InboxToBrowser | OfferToBrowser | RunsToBrowser, Ack>;

/** The part of anywidget's model that a channel uses; tests pass their own. */
export interface Wire<T extends KernelMessage> {
  send: (message: ToKernel) => void;
  on: (name: WireEvent, receive: (message: T | Ack) => void) => void;
  off: (name: WireEvent, receive: (message: T | Ack) => void) => void;
}

/** State that a channel keeps up to date. */
export interface ChannelState {
  /** Sequence number of the last event or change in the state. */
  readonly last: number;
  /** Feed of which the state is made; empty before the first welcome, and for a state that is always sent as a whole. */
  readonly feed: string;
  readonly connected: ConnectionStatus;
  setConnected: (connected: ConnectionStatus) => void;
}

interface Pending {
  timer: ReturnType<typeof setInterval>;
  resolve: (ack: Ack) => void;
}

/** Return an id that no other view or command has. `crypto.randomUUID` is missing on pages without https. */
export function freshId(): string {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
}

/** Return true if an element is in an output that JupyterLab's extension hosts (`lab/host.ts`). */
export function isHosted(element: Element): boolean {
  return element.closest(".db-host") !== null;
}

/**
 * Connection of one view to the kernel.
 *
 * The kernel may be busy, restarted or gone, and either side may lose messages. A view therefore sends "hello" until the
 * kernel sends "welcome", "alive" afterwards, and every command again until it is acknowledged. Commands carry an id, so
 * that the kernel executes a repeated one only once.
 */
export abstract class Channel<T extends KernelMessage> {
  protected readonly view = freshId();
  readonly #wire: Wire<T>;
  /** State that the messages keep up to date. */
  protected state: ChannelState;
  readonly #pending = new Map<string, Pending>();
  readonly #isHosted: () => boolean;
  #hasSentHosted = false;
  #helloTimer: ReturnType<typeof setInterval> | undefined;
  readonly #aliveTimer: ReturnType<typeof setInterval>;
  /** Heartbeats since the last message from the kernel. */
  #unanswered = 0;
  readonly #onMessage = (message: T | Ack): void => {
    this.#unanswered = 0;
    if (this.state.connected === "silent" && !this.isInHandshake) this.state.setConnected("connected");
    if (message.type === "ack") this.#resolve(message);
    else this.receive(message);
  };

  readonly #onCommGone = (): void => {
    this.state.setConnected("detached");
    this.startHandshake();
  };

  /** `isHosted` returns true if the page shows the saved output of the view once its model is gone. */
  constructor(wire: Wire<T>, state: ChannelState, isHosted: () => boolean = () => false) {
    this.#wire = wire;
    this.state = state;
    this.#isHosted = isHosted;
    wire.on("msg:custom", this.#onMessage);
    wire.on("comm_live_update", this.#onCommGone);
    this.#aliveTimer = setInterval(() => {
      if (this.state.connected === "detached") this.startHandshake();
      else if (!this.isInHandshake) {
        if (this.#unanswered >= UNANSWERED_BEFORE_SILENT && this.state.connected === "connected") this.state.setConnected("silent");
        this.#unanswered++;
        this.send({ type: "alive", view: this.view, feed: this.state.feed, since: this.state.last });
        this.#sendHosted();
      }
    }, ALIVE_EVERY);
    this.startHandshake();
  }

  /** Close the channel. Pending commands stay unresolved. */
  close(): void {
    this.send({ type: "bye", view: this.view });
    this.#wire.off("msg:custom", this.#onMessage);
    this.#wire.off("comm_live_update", this.#onCommGone);
    clearInterval(this.#aliveTimer);
    clearInterval(this.#helloTimer);
    for (const { timer } of this.#pending.values()) clearInterval(timer);
  }

  /** Answer a question. The promise resolves when the kernel has accepted or rejected the answer. */
  answer(interruptId: string, response: unknown): Promise<Ack> {
    const id = freshId();
    return this.sendUntilAcknowledged({ type: "answer", id, interrupt_id: interruptId, response });
  }

  /** Handle a message from the kernel. */
  protected abstract receive(message: T): void;

  protected get isInHandshake(): boolean {
    return this.#helloTimer !== undefined;
  }

  /** Send a message once. A comm whose kernel is gone throws; the view then counts as detached. */
  protected send(message: ToKernel): void {
    try {
      this.#wire.send(message);
    } catch {
      this.state.setConnected("detached");
    }
  }

  /** Send a message repeatedly until it is acknowledged. */
  protected sendUntilAcknowledged(message: ToKernel & { id: string }): Promise<Ack> {
    return new Promise((resolve) => {
      const timer = setInterval(() => { this.send(message); }, RESEND_EVERY);
      this.#pending.set(message.id, { timer, resolve });
      this.send(message);
    });
  }

  /**
   * Start the handshake: say hello until the kernel answers, less often once it counts as silent. Only a comm that is gone, or
   * that cannot send, shows that the kernel has stopped: a busy kernel does not answer either.
   */
  protected startHandshake(): void {
    if (this.isInHandshake) return;
    let hellos = 0;
    const hello = (): void => {
      this.send({ type: "hello", view: this.view, feed: this.state.feed, since: this.state.last });
      if (++hellos !== HELLOS_BEFORE_SILENT) return;
      if (this.state.connected !== "detached") this.state.setConnected("silent");
      clearInterval(this.#helloTimer);
      this.#helloTimer = setInterval(hello, HELLO_WHEN_SILENT);
    };
    this.#helloTimer = setInterval(hello, HELLO_EVERY);
    hello();
  }

  /** End the handshake: the kernel has answered. */
  protected endHandshake(): void {
    clearInterval(this.#helloTimer);
    this.#helloTimer = undefined;
    this.#unanswered = 0;
    this.state.setConnected("connected");
    this.#sendHosted();
  }

  #sendHosted(): void {
    if (this.#hasSentHosted || !this.#isHosted()) return;
    this.#hasSentHosted = true;
    this.send({ type: "hosted", view: this.view });
  }

  #resolve(ack: Ack): void {
    const pending = this.#pending.get(ack.id);
    if (pending === undefined) return;
    clearInterval(pending.timer);
    this.#pending.delete(ack.id);
    pending.resolve(ack);
  }
}
