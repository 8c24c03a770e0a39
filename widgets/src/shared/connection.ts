// Connection of a live view to one execution: changes, older spans page by page, and details on request.

import type { Ack, Bundle, BundleName, Command, Conversation, Delta, Detail, Files, RangeAnswer, Sent, Variables, Welcome } from "../protocol";
import { Channel, freshId, type Wire } from "./channel";
import type { Model } from "./model";

const PAGE = 5_000; // older spans per request

type ExecutionMessage = Welcome | Delta | RangeAnswer | Detail | Conversation | Sent | Variables | Files | Bundle;
type Receive<T> = (answer: T) => void;

/** Channel that keeps a model up to date and sends a person's commands to the kernel. */
export class Connection extends Channel<ExecutionMessage> {
  readonly #details = new Map<number, Receive<Detail>>();
  readonly #conversations = new Map<number, Receive<Conversation>>();
  readonly #sent = new Map<number, Receive<Sent>>();
  #variables: Receive<Variables> = () => undefined;
  #files: Receive<Files> = () => undefined;
  readonly #bundles = new Map<BundleName, Receive<string>>();
  /** Id under which this view asks for data. It is renewed with the feed, so that answers of the feed before are recognized. */
  #asker = freshId();
  #model: Model;
  readonly #onOtherFeed: (welcome: Welcome) => void;

  /** `onOtherFeed` is called with a welcome of another feed than that of the model, which needs another model. */
  constructor(wire: Wire<ExecutionMessage>, model: Model, isHosted?: () => boolean, onOtherFeed: (welcome: Welcome) => void = () => undefined) {
    super(wire, model, isHosted);
    this.#model = model;
    this.#onOtherFeed = onOtherFeed;
  }

  /**
   * Keep another model up to date from now on, beginning with the welcome of its feed. Commands that are not acknowledged yet
   * are still sent; requests for data of the feed before are forgotten.
   */
  follow(model: Model, welcome: Welcome): void {
    this.state = this.#model = model;
    this.#asker = freshId();
    for (const requests of [this.#details, this.#conversations, this.#sent]) requests.clear();
    this.#variables = this.#files = () => undefined;
    this.#begin(welcome);
  }

  #begin(welcome: Welcome): void {
    this.#model.welcome(welcome);
    this.endHandshake();
    this.#askForOlder();
    for (const name of this.#bundles.keys()) this.#askForBundle(name);
  }

  /** Request to pause, resume or cancel. The promise resolves when the kernel has executed or rejected the command. */
  control(command: Command): Promise<Ack> {
    return this.sendUntilAcknowledged({ type: "control", id: freshId(), command });
  }

  /** Copy changes into the source folder of a workspace. The promise resolves when they are copied, or cannot be. */
  takeOver(workspace: string, at: number, paths: string[]): Promise<Ack> {
    return this.sendUntilAcknowledged({ type: "take_over", id: freshId(), workspace, at, paths });
  }

  /** Request the events of a span. Only the latest request for a span gets the answer. */
  detail(id: number, receive: Receive<Detail>): void {
    this.#details.set(id, receive);
    this.send({ type: "detail", view: this.#asker, id });
  }

  /** Request the messages of a turn that changed since an event. Only the latest request for a turn gets the answer. */
  conversation(id: number, since: number, receive: Receive<Conversation>): void {
    this.#conversations.set(id, receive);
    this.send({ type: "conversation", view: this.#asker, id, since });
  }

  /** Request the full content of a model request. */
  sent(id: number, receive: Receive<Sent>): void {
    this.#sent.set(id, receive);
    this.send({ type: "sent", view: this.#asker, id });
  }

  /**
   * Request the files that changed between two events. With `at` = 0 the second one is the present, and the kernel answers
   * only if the files differ from a version. Only the latest request gets the answer.
   */
  files(version: number, receive: Receive<Files>, at = 0, since = 0): void {
    this.#files = receive;
    this.send({ type: "files", view: this.#asker, version, at, since });
  }

  /** Request the current variables if they differ from a version. Only the latest request gets the answer. */
  variables(version: number, receive: Receive<Variables>): void {
    this.#variables = receive;
    this.send({ type: "variables", view: this.#asker, version });
  }

  /** Request a bundle of the front end. The request is repeated with each welcome until the bundle arrives. */
  bundle(name: BundleName): Promise<string> {
    return new Promise((resolve) => {
      this.#bundles.set(name, resolve);
      this.#askForBundle(name);
    });
  }

  /**
   * Apply a message to the model, or pass an answer to its callback.
   *
   * A delta goes to all views; if one is missing, the handshake starts again and the welcome contains the gap. All other
   * messages answer one view, which they name. When the view shows another execution, the kernel sends a welcome without a
   * hello.
   */
  protected override receive(message: ExecutionMessage): void {
    const model = this.#model;
    if (message.type === "delta") {
      const isOther = message.feed !== model.feed;
      if (!this.isInHandshake && (isOther || !model.delta(message))) this.startHandshake();
      return;
    }
    const isOfFeed = message.type !== "welcome" && message.type !== "bundle";
    if (message.view !== (isOfFeed ? this.#asker : this.view)) return;
    switch (message.type) {
      case "welcome":
        this.#takeWelcome(message);
        return;
      case "bundle":
        answerRequest(this.#bundles, message.name, message.script);
        return;
      case "history":
        model.history(message);
        this.#askForOlder();
        return;
      case "detail":
        answerRequest(this.#details, message.id, message);
        return;
      case "conversation":
        answerRequest(this.#conversations, message.id, message);
        return;
      case "sent":
        answerRequest(this.#sent, message.id, message);
        return;
      case "files":
        this.#files(message);
        break;
      case "variables":
        this.#variables(message);
    }
  }

  #takeWelcome(message: Welcome): void {
    const { feed } = this.#model;
    if (feed !== "" && message.feed !== feed) {
      if (message.since === 0) this.#onOtherFeed(message);
      return;
    }
    // Every hello gets a welcome, so one with all data that nobody waits for is a duplicate.
    if (this.isInHandshake || message.since > 0) this.#begin(message);
  }

  #askForBundle(name: BundleName): void {
    this.send({ type: "bundle", view: this.view, name });
  }

  #askForOlder(): void {
    const stop = this.#model.spans.floor;
    if (stop > 0) this.send({ type: "range", view: this.#asker, first: Math.max(0, stop - PAGE), stop });
  }
}

/** Pass an answer to the callback that waits for it. */
function answerRequest<Key, T>(waiting: Map<Key, Receive<T>>, key: Key, answer: T): void {
  const receive = waiting.get(key);
  waiting.delete(key); // before the call: the callback may send the same request again
  receive?.(answer);
}
