// The conversation with the kernel: hello until welcomed, older spans page by page, intents until acknowledged.

import type { Ack, Command, Detail, ToBrowser, ToKernel } from "../protocol";
import type { Model } from "./model";

const HELLO_EVERY = 500;
const HELLO_WHEN_DETACHED = 5_000;
const HELLOS_BEFORE_DETACHED = 20;
const RESEND_EVERY = 1_000;
const PAGE = 5_000;

/** A message; or the kernel that knew this widget is gone. */
type Signal = "msg:custom" | "comm_live_update";

/** The part of anywidget's model that is used; a test brings its own. */
export interface Wire {
  send: (message: ToKernel) => void;
  on: (name: Signal, receive: (message: ToBrowser) => void) => void;
  off: (name: Signal, receive: (message: ToBrowser) => void) => void;
}

interface Pending {
  message: ToKernel;
  timer: ReturnType<typeof setInterval>;
  resolve: (ack: Ack) => void;
}

/** Returns an id that no other view or wish has; `crypto.randomUUID` is missing on pages without https. */
export function freshId(): string {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
}

type AnswerDetail = (detail: Detail) => void;

/** Keeps a model up to date, and brings a person's wishes to the kernel. */
export class Connection {
  readonly #view = freshId();
  readonly #pending = new Map<string, Pending>();
  readonly #details = new Map<number, AnswerDetail>();
  #helloTimer: ReturnType<typeof setInterval> | undefined;
  #hellos = 0;
  readonly #receive = (message: ToBrowser): void => {
    this.#take(message);
  };

  readonly #lost = (): void => {
    this.model.setConnected("detached");
    this.#greet();
  };

  constructor(
    private readonly wire: Wire,
    private readonly model: Model,
  ) {
    wire.on("msg:custom", this.#receive);
    wire.on("comm_live_update", this.#lost);
    this.#greet();
  }

  /** Ends the conversation. */
  close(): void {
    this.#send({ type: "bye", view: this.#view });
    this.wire.off("msg:custom", this.#receive);
    this.wire.off("comm_live_update", this.#lost);
    clearInterval(this.#helloTimer);
    for (const { timer } of this.#pending.values()) clearInterval(timer);
  }

  /** Answers a question; resolves when the kernel has taken or refused it. */
  answer(interruptId: string, response: unknown): Promise<Ack> {
    const id = freshId();
    return this.#insist(id, { type: "answer", id, interrupt_id: interruptId, response });
  }

  /** Asks to pause, resume or cancel; resolves when the kernel has done or refused it. */
  control(command: Command): Promise<Ack> {
    const id = freshId();
    return this.#insist(id, { type: "control", id, command });
  }

  /** Asks for the events of a span; the latest request for it gets the answer. */
  detail(id: number, receive: AnswerDetail): void {
    this.#details.set(id, receive);
    this.#send({ type: "detail", view: this.#view, id });
  }

  /** Sends; a comm whose kernel is gone throws. */
  #send(message: ToKernel): void {
    try {
      this.wire.send(message);
    } catch {
      this.model.setConnected("detached");
    }
  }

  #insist(id: string, message: ToKernel): Promise<Ack> {
    return new Promise((resolve) => {
      const timer = setInterval(() => { this.#send(message); }, RESEND_EVERY);
      this.#pending.set(id, { message, timer, resolve });
      this.#send(message);
    });
  }

  #greet(): void {
    if (this.#helloTimer !== undefined) return;
    this.#hellos = 0;
    const hello = (): void => {
      this.#send({ type: "hello", view: this.#view, since: this.model.last });
      if (++this.#hellos !== HELLOS_BEFORE_DETACHED) return;
      this.model.setConnected("detached");
      clearInterval(this.#helloTimer);
      this.#helloTimer = setInterval(hello, HELLO_WHEN_DETACHED);
    };
    this.#helloTimer = setInterval(hello, HELLO_EVERY);
    hello();
  }

  #take(message: ToBrowser): void {
    switch (message.type) {
      case "welcome":
        if (message.view !== this.#view || this.#helloTimer === undefined) return;
        clearInterval(this.#helloTimer);
        this.#helloTimer = undefined;
        this.model.welcome(message);
        this.model.setConnected("connected");
        this.#askForOlder();
        return;
      case "delta":
        if (this.#helloTimer === undefined && !this.model.delta(message)) this.#greet();
        return;
      case "history":
        if (message.view !== this.#view) return;
        this.model.history(message);
        this.#askForOlder();
        return;
      case "detail":
        if (message.view !== this.#view) return;
        this.#details.get(message.id)?.(message);
        this.#details.delete(message.id);
        return;
      case "ack":
        this.#settle(message);
    }
  }

  #askForOlder(): void {
    const stop = this.model.spans.floor;
    if (stop > 0) this.#send({ type: "range", view: this.#view, first: Math.max(0, stop - PAGE), stop });
  }

  #settle(ack: Ack): void {
    const pending = this.#pending.get(ack.id);
    if (pending === undefined) return;
    clearInterval(pending.timer);
    this.#pending.delete(ack.id);
    pending.resolve(ack);
  }
}
