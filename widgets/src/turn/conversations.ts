// Conversations of agents' turns as sent by the kernel, requested again while they are visible and grow.

import type { Conversation, ConversationCall, ConversationRequest, QuestionView as Question } from "../protocol";
import type { Connection } from "../shared/connection";
import type { Model } from "../shared/model";

const MIN_INTERVAL = 250; // milliseconds, at least
const INTERVAL_FACTOR = 5; // how much longer than an answer takes it is waited before the next
const ANSWER_TIMEOUT = 3_000; // a question of which nothing came is asked again

/** What was said in one turn. */
export interface TurnConversation {
  agent: string;
  thread: string;
  requests: ConversationRequest[];
  calls: ConversationCall[];
  error: string;
  /** Whether anything has come yet. */
  isLoaded: boolean;
}

interface PolledTurn extends TurnConversation {
  last: number;
  requestedAt: number;
  /** From when on it may be asked for again. */
  nextRequestAt: number;
  timer: ReturnType<typeof setTimeout> | undefined;
  listeners: Set<() => void>;
}

/** The conversations of one execution. */
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

  /** Calls `changed` whenever more of a turn is known, until what is returned is called. */
  follow(id: number, onChange: () => void): () => void {
    const turn = this.#turn(id);
    turn.listeners.add(onChange);
    this.#schedule(id);
    return () => turn.listeners.delete(onChange);
  }

  /** Returns what is known of a turn. */
  of(id: number): TurnConversation {
    return this.#turn(id);
  }

  /** Returns the questions about some calls, and about those of the agents that were given work by them. */
  questionsOf(calls: readonly ConversationCall[]): Question[] {
    return calls.flatMap((call) => [...questionsOf(this.model, call), ...(call.turn < 0 ? [] : this.questionsOf(this.of(call.turn).calls))]);
  }

  #turn(id: number): PolledTurn {
    let turn = this.#turns.get(id);
    if (turn === undefined) {
      turn = { agent: "", thread: "", requests: [], calls: [], error: "", isLoaded: false, last: 0, requestedAt: -Infinity, nextRequestAt: -Infinity, timer: undefined, listeners: new Set() };
      this.#turns.set(id, turn);
    }
    return turn;
  }

  /** Asks now or soon, if somebody looks and there may be more. */
  #schedule(id: number): void {
    const turn = this.#turn(id);
    if (turn.timer !== undefined || turn.listeners.size === 0 || turn.last >= this.model.last) return;
    const now = performance.now();
    const isPending = now - turn.requestedAt < ANSWER_TIMEOUT;
    turn.timer = setTimeout(() => {
      turn.timer = undefined;
      this.#request(id, turn);
    }, isPending ? ANSWER_TIMEOUT : Math.max(0, turn.nextRequestAt - now));
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

/** Returns the questions about a call. */
export function questionsOf({ questions }: Model, call: ConversationCall): Question[] {
  return call.questions.map((id) => questions.get(id)).filter((question) => question !== undefined);
}

/** Returns the latest question about a call. */
export function questionOf(model: Model, call: ConversationCall): Question | undefined {
  return questionsOf(model, call).at(-1);
}

function merge(turn: PolledTurn, answer: Conversation): void {
  [turn.agent, turn.thread, turn.error, turn.isLoaded] = [answer.agent, answer.thread, answer.error, true];
  turn.last = Math.max(turn.last, answer.last);
  turn.requests = mergeByKey(turn.requests, answer.requests, ({ number }) => String(number));
  turn.calls = mergeByKey(turn.calls, answer.calls, ({ request, call }) => `${request} ${call}`);
  turn.requests.sort((entry, other) => entry.number - other.number);
}

/** Replaces what is known already and appends what is new. */
function mergeByKey<T>(current: readonly T[], updates: readonly T[], keyOf: (entry: T) => string): T[] {
  const all = new Map(current.map((entry) => [keyOf(entry), entry]));
  for (const entry of updates) all.set(keyOf(entry), entry);
  return [...all.values()];
}
