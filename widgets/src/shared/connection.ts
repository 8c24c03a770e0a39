// Messages about one execution: changes, older spans page by page, and the events of a span.

import type { Ack, Bundle, BundleName, Command, Conversation, Delta, Detail, Files, RangeAnswer, Sent, Variables, Welcome } from "../protocol";
import { Channel, freshId, type Wire } from "./channel";
import type { Model } from "./model";

const PAGE = 5_000;

type Told = Welcome | Delta | RangeAnswer | Detail | Conversation | Sent | Variables | Files | Bundle;
type Receive<T> = (answer: T) => void;

/** Keeps a model up to date, and brings a person's wishes to the kernel. */
export class Connection extends Channel<Told> {
  readonly #details = new Map<number, Receive<Detail>>();
  readonly #conversations = new Map<number, Receive<Conversation>>();
  readonly #sent = new Map<number, Receive<Sent>>();
  #variables: Receive<Variables> = () => undefined;
  #files: Receive<Files> = () => undefined;
  readonly #bundles = new Map<BundleName, Receive<string>>();
  readonly #model: Model;

  constructor(wire: Wire<Told>, model: Model, isHosted?: () => boolean) {
    super(wire, model, isHosted);
    this.#model = model;
  }

  /** Asks to pause, resume or cancel; resolves when the kernel has done or refused it. */
  control(command: Command): Promise<Ack> {
    return this.insist({ type: "control", id: freshId(), command });
  }

  /** Has changes taken over into the folder that a workspace is a copy of; resolves when they are, or cannot be. */
  takeOver(workspace: string, at: number, paths: string[]): Promise<Ack> {
    return this.insist({ type: "take_over", id: freshId(), workspace, at, paths });
  }

  /** Asks for the events of a span; the latest request for it gets the answer. */
  detail(id: number, receive: Receive<Detail>): void {
    this.#details.set(id, receive);
    this.send({ type: "detail", view: this.view, id });
  }

  /** Asks what was said in a turn, as far as it has changed since an event; the latest request gets the answer. */
  conversation(id: number, since: number, receive: Receive<Conversation>): void {
    this.#conversations.set(id, receive);
    this.send({ type: "conversation", view: this.view, id, since });
  }

  /** Asks for all that was sent with a request. */
  sent(id: number, receive: Receive<Sent>): void {
    this.#sent.set(id, receive);
    this.send({ type: "sent", view: this.view, id });
  }

  /** Asks for the files changed from one event to another, or by now if they are others than in a version; the latest request gets the answer. */
  files(version: number, receive: Receive<Files>, at = 0, since = 0): void {
    this.#files = receive;
    this.send({ type: "files", view: this.view, version, at, since });
  }

  /** Asks for the variables as they are now, if they are others than in a version; the latest request gets the answer. */
  variables(version: number, receive: Receive<Variables>): void {
    this.#variables = receive;
    this.send({ type: "variables", view: this.view, version });
  }

  /** Asks for a part of the front end, again with each welcome until it is here. */
  bundle(name: BundleName): Promise<string> {
    return new Promise((resolve) => {
      this.#bundles.set(name, resolve);
      this.#askForBundle(name);
    });
  }

  protected override take(message: Told): void {
    const model = this.#model;
    if (message.type === "delta") {
      if (!this.isGreeting && !model.delta(message)) this.greet();
      return;
    }
    if (message.view !== this.view) return;
    switch (message.type) {
      case "welcome":
        if (!this.isGreeting && message.since === 0) return; // one for each hello that was said
        model.welcome(message);
        this.greeted();
        this.#askForOlder();
        for (const name of this.#bundles.keys()) this.#askForBundle(name);
        return;
      case "history":
        model.history(message);
        this.#askForOlder();
        return;
      case "detail":
        settle(this.#details, message.id, message);
        return;
      case "conversation":
        settle(this.#conversations, message.id, message);
        return;
      case "sent":
        settle(this.#sent, message.id, message);
        return;
      case "files":
        this.#files(message);
        break;
      case "variables":
        this.#variables(message);
        return;
      case "bundle":
        settle(this.#bundles, message.name, message.script);
    }
  }

  #askForBundle(name: BundleName): void {
    this.send({ type: "bundle", view: this.view, name });
  }

  #askForOlder(): void {
    const stop = this.#model.spans.floor;
    if (stop > 0) this.send({ type: "range", view: this.view, first: Math.max(0, stop - PAGE), stop });
  }
}

/** Hands an answer to whoever waits for it. */
function settle<Key, T>(waiting: Map<Key, Receive<T>>, key: Key, answer: T): void {
  const receive = waiting.get(key);
  waiting.delete(key); // it may ask again
  receive?.(answer);
}
