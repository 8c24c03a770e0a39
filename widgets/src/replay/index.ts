// Stepping through a log as a widget of its own: what anywidget renders.

import type { RenderProps } from "@anywidget/types";
import type { DetailEvent, ReplayToBrowser, ReplayToKernel, StateView } from "../protocol";
import { freshId } from "../shared/channel";
import { Replay } from "./replay";
import { onThemeChange } from "../shared/theme";

const PAGE = 10_000;
const AGAIN_MS = 2000;
const PATIENCE_MS = 20_000;

interface Waiting {
  resolve: (message: ReplayToBrowser) => void;
  stop: () => void;
}

/** Requests to the kernel, sent again until they are answered: the first ones may be lost. */
class Requests {
  readonly #send: (message: ReplayToKernel) => void;
  readonly #waiting = new Map<string, Waiting>();
  readonly #view = freshId();

  constructor(send: (message: ReplayToKernel) => void) {
    this.#send = send;
  }

  readonly receive = (message: ReplayToBrowser): void => {
    if (message.view !== this.#view) return;
    const key = message.type === "events" ? `events ${message.events.first - 1}` : `${message.type} ${message.sequence}`;
    const waiting = this.#waiting.get(key);
    this.#waiting.delete(key);
    waiting?.stop();
    waiting?.resolve(message);
  };

  async state(sequence: number): Promise<StateView> {
    const answer = await this.#ask(`state ${sequence}`, { type: "state", view: this.#view, sequence });
    if (answer.type === "state" && answer.state !== null) return answer.state;
    throw new Error("error" in answer ? answer.error : "");
  }

  async event(sequence: number): Promise<DetailEvent> {
    const answer = await this.#ask(`event ${sequence}`, { type: "event", view: this.#view, sequence });
    if (answer.type === "event" && answer.event !== null) return answer.event;
    throw new Error("error" in answer ? answer.error : "");
  }

  /** Asks for all events, page by page. */
  async all(replay: Replay): Promise<void> {
    for (let [after, total] = [0, 1]; after < total; after += PAGE) {
      const answer = await this.#ask(`events ${after}`, { type: "events", view: this.#view, after, stop: after + PAGE });
      if (answer.type !== "events") return;
      replay.take(answer.events);
      total = answer.total;
    }
  }

  close(): void {
    for (const { stop } of this.#waiting.values()) stop();
    this.#waiting.clear();
  }

  #ask(key: string, message: ReplayToKernel): Promise<ReplayToBrowser> {
    return new Promise((resolve, reject) => {
      this.#waiting.get(key)?.stop();
      const again = setInterval(() => { this.#send(message); }, AGAIN_MS);
      const stop = (): void => {
        clearInterval(again);
        clearTimeout(end);
      };
      const end = setTimeout(() => {
        stop();
        this.#waiting.delete(key);
        reject(new Error("The kernel does not answer. Restart it and run the cell again."));
      }, PATIENCE_MS);
      this.#waiting.set(key, { resolve, stop });
      this.#send(message);
    });
  }
}

function render({ model, el }: RenderProps): () => void {
  const requests = new Requests((message) => { model.send(message); });
  const replay = new Replay({ stateAt: (sequence) => requests.state(sequence), eventAt: (sequence) => requests.event(sequence) });
  model.on("msg:custom", requests.receive);
  el.append(replay.element);
  const forget = onThemeChange(replay.element);
  requests.all(replay).catch((error: unknown) => { replay.tell(String(error)); });
  return () => {
    forget();
    model.off("msg:custom", requests.receive);
    requests.close();
    replay.destroy();
  };
}

export default { render };
