// Conversations of agents' turns as sent by the kernel, requested again while they are visible and grow.

import type { Conversation, ConversationCall, ConversationRequest, QuestionView as Question } from "../protocol";
import type { Connection } from "../shared/connection";
import type { Model } from "../shared/model";

const ASK_EVERY = 250; // milliseconds, at least
const SHARE = 5; // how much longer than an answer takes it is waited before the next
const GIVE_UP = 3_000; // a question of which nothing came is asked again

/** What was said in one turn. */
export interface Talk {
  agent: string;
  thread: string;
  requests: ConversationRequest[];
  calls: ConversationCall[];
  error: string;
  /** Whether anything has come yet. */
  isKnown: boolean;
}

interface Followed extends Talk {
  last: number;
  askedAt: number;
  /** From when on it may be asked for again. */
  freeAt: number;
  timer: ReturnType<typeof setTimeout> | undefined;
  listeners: Set<() => void>;
}

/** The conversations of one execution. */
export class Talks {
  readonly #known = new Map<number, Followed>();
  readonly #undo: () => void;

  constructor(
    private readonly model: Model,
    private readonly connection: Pick<Connection, "conversation">,
  ) {
    this.#undo = model.on((change) => {
      if (change === "header" || change === "connection") for (const id of this.#known.keys()) this.#look(id);
    });
  }

  destroy(): void {
    this.#undo();
    for (const { timer } of this.#known.values()) clearTimeout(timer);
  }

  /** Calls `changed` whenever more of a turn is known, until what is returned is called. */
  follow(id: number, changed: () => void): () => void {
    const talk = this.#talk(id);
    talk.listeners.add(changed);
    this.#look(id);
    return () => talk.listeners.delete(changed);
  }

  /** Returns what is known of a turn. */
  of(id: number): Talk {
    return this.#talk(id);
  }

  /** Returns the questions about some calls, and about those of the agents that were given work by them. */
  questionsOf(calls: readonly ConversationCall[]): Question[] {
    return calls.flatMap((call) => [...questionsOf(this.model, call), ...(call.turn < 0 ? [] : this.questionsOf(this.of(call.turn).calls))]);
  }

  #talk(id: number): Followed {
    let talk = this.#known.get(id);
    if (talk === undefined) {
      talk = { agent: "", thread: "", requests: [], calls: [], error: "", isKnown: false, last: 0, askedAt: -Infinity, freeAt: -Infinity, timer: undefined, listeners: new Set() };
      this.#known.set(id, talk);
    }
    return talk;
  }

  /** Asks now or soon, if somebody looks and there may be more. */
  #look(id: number): void {
    const talk = this.#talk(id);
    if (talk.timer !== undefined || talk.listeners.size === 0 || talk.last >= this.model.last) return;
    const now = performance.now();
    const isAsked = now - talk.askedAt < GIVE_UP;
    talk.timer = setTimeout(() => {
      talk.timer = undefined;
      this.#ask(id, talk);
    }, isAsked ? GIVE_UP : Math.max(0, talk.freeAt - now));
  }

  #ask(id: number, talk: Followed): void {
    talk.askedAt = performance.now();
    this.connection.conversation(id, talk.last, (answer) => {
      clearTimeout(talk.timer);
      talk.timer = undefined;
      const now = performance.now();
      talk.freeAt = now + Math.max(ASK_EVERY, SHARE * (now - talk.askedAt));
      talk.askedAt = -Infinity;
      take(talk, answer);
      talk.listeners.forEach((tell) => { tell(); });
      this.#look(id);
    });
  }
}

/** Returns the questions about a call. */
export function questionsOf({ questions }: Model, call: ConversationCall): Question[] {
  return call.questions.map((id) => questions.get(id)).filter((found) => found !== undefined);
}

/** Returns the latest question about a call. */
export function questionOf(model: Model, call: ConversationCall): Question | undefined {
  return questionsOf(model, call).at(-1);
}

function take(talk: Followed, answer: Conversation): void {
  [talk.agent, talk.thread, talk.error, talk.isKnown] = [answer.agent, answer.thread, answer.error, true];
  talk.last = Math.max(talk.last, answer.last);
  talk.requests = merged(talk.requests, answer.requests, ({ number }) => String(number));
  talk.calls = merged(talk.calls, answer.calls, ({ request, call }) => `${request} ${call}`);
  talk.requests.sort((one, other) => one.number - other.number);
}

/** Replaces what is known already and appends what is new. */
function merged<T>(known: readonly T[], told: readonly T[], name: (one: T) => string): T[] {
  const all = new Map(known.map((one) => [name(one), one]));
  for (const one of told) all.set(name(one), one);
  return [...all.values()];
}
