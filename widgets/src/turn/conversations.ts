// Conversations of agents' turns, requested from the kernel again while they are visible and grow.

import type { Conversation, ConversationCall, ConversationRequest, QuestionView as Question } from "../protocol";
import type { Connection } from "../shared/connection";
import type { Model } from "../shared/model";

const MIN_INTERVAL = 250; // milliseconds
const INTERVAL_FACTOR = 5; // the next request waits this many times as long as the last one took
const ANSWER_TIMEOUT = 3_000; // milliseconds after which an unanswered request is sent again

/** Messages of one turn. */
export interface TurnConversation {
  agent: string;
  thread: string;
  requests: ConversationRequest[];
  calls: ConversationCall[];
  error: string;
  /** True once the kernel has answered. */
  isLoaded: boolean;
}

/** Conversation with the state of its requests to the kernel. */
interface PolledTurn extends TurnConversation {
  last: number;
  requestedAt: number;
  /** Earliest time of the next request. */
  nextRequestAt: number;
  timer: ReturnType<typeof setTimeout> | undefined;
  listeners: Set<() => void>;
}

/** Conversations of one execution. */
export class Conversations {
  readonly #turns = new Map<number, PolledTurn>();
  readonly #undo: () => void;

  constructor(
    private readonly model: Model,
    private readonly connection: Pick<Connection, "conversation">,
  ) {
    this.#undo = model.on((change) => {
      if (change === "header" || change === "connection") for (const id of this.#turns.keys()) this.#schedule(id);
    });
  }

  destroy(): void {
    this.#undo();
    for (const { timer } of this.#turns.values()) clearTimeout(timer);
  }

  /** Call `onChange` after each update of a turn, until the returned function is called. */
  follow(id: number, onChange: () => void): () => void {
    const turn = this.#turn(id);
    turn.listeners.add(onChange);
    this.#schedule(id);
    return () => turn.listeners.delete(onChange);
  }

  /** Return the conversation of a turn, as far as it is loaded. */
  of(id: number): TurnConversation {
    return this.#turn(id);
  }

  /** Return the questions about some calls, including those of delegated turns. */
  questionsOf(calls: readonly ConversationCall[]): Question[] {
    return calls.flatMap((call) => {
      const delegated = call.turn < 0 ? [] : this.questionsOf(this.of(call.turn).calls);
      return [...questionsOf(this.model, call), ...delegated];
    });
  }

  #turn(id: number): PolledTurn {
    let turn = this.#turns.get(id);
    if (turn === undefined) {
      turn = {
        agent: "",
        thread: "",
        requests: [],
        calls: [],
        error: "",
        isLoaded: false,
        last: 0,
        requestedAt: -Infinity,
        nextRequestAt: -Infinity,
        timer: undefined,
        listeners: new Set(),
      };
      this.#turns.set(id, turn);
    }
    return turn;
  }

  /**
   * Schedule a request, if a view follows the turn and the log has grown since the last answer.
   * While a request is pending, the timer repeats it in case the answer is lost.
   */
  #schedule(id: number): void {
    const turn = this.#turn(id);
    if (turn.timer !== undefined || turn.listeners.size === 0 || turn.last >= this.model.last) return;
    const now = performance.now();
    const isPending = now - turn.requestedAt < ANSWER_TIMEOUT;
    const delay = isPending ? ANSWER_TIMEOUT : Math.max(0, turn.nextRequestAt - now);
    turn.timer = setTimeout(() => {
      turn.timer = undefined;
      this.#request(id, turn);
    }, delay);
  }

  #request(id: number, turn: PolledTurn): void {
    turn.requestedAt = performance.now();
    this.connection.conversation(id, turn.last, (answer) => {
      clearTimeout(turn.timer);
      turn.timer = undefined;
      const now = performance.now();
      turn.nextRequestAt = now + Math.max(MIN_INTERVAL, INTERVAL_FACTOR * (now - turn.requestedAt));
      turn.requestedAt = -Infinity;
      merge(turn, answer);
      turn.listeners.forEach((listener) => { listener(); });
      this.#schedule(id);
    });
  }
}

/** Return the questions about a call. */
export function questionsOf({ questions }: Model, call: ConversationCall): Question[] {
  return call.questions.map((id) => questions.get(id)).filter((question) => question !== undefined);
}

/** Return the newest question about a call. */
export function questionOf(model: Model, call: ConversationCall): Question | undefined {
  return questionsOf(model, call).at(-1);
}

/** Merge an answer of the kernel into a turn. An answer contains only the requests and calls that are new or have changed. */
function merge(turn: PolledTurn, answer: Conversation): void {
  turn.agent = answer.agent;
  turn.thread = answer.thread;
  turn.error = answer.error;
  turn.isLoaded = true;
  turn.last = Math.max(turn.last, answer.last);
  turn.requests = mergeByKey(turn.requests, answer.requests, ({ number }) => String(number));
  turn.calls = mergeByKey(turn.calls, answer.calls, ({ request, call }) => `${request} ${call}`);
  turn.requests.sort((entry, other) => entry.number - other.number);
}

/** Replace entries with equal keys and append the new ones. */
function mergeByKey<T>(current: readonly T[], updates: readonly T[], keyOf: (entry: T) => string): T[] {
  const all = new Map(current.map((entry) => [keyOf(entry), entry]));
  for (const entry of updates) all.set(keyOf(entry), entry);
  return [...all.values()];
}
