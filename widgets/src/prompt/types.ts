// Interface between the prompt and the view that embeds it. This folder does not depend on anywidget.

import type { Micros, QuestionView } from "../protocol";

/** A question, and the execution that asks it. */
export type Question = QuestionView & {
  /** Workflow and execution that ask, in lists with questions of several executions. */
  asker?: readonly [string, string];
  /** The cell that started the execution, if known. */
  cell?: string;
  /** "what-if" or "trial" if the execution only examines another one, which continues without the answer; else empty. */
  trialOf?: string;
};

/** Unsent input of a person, by field. */
export type Draft = Record<string, unknown>;

/** Result of sending an answer; `text` is the reason of a refusal. */
export interface AnswerResult {
  accepted: boolean;
  text: string;
}

export interface PromptHost {
  /** Send an answer, repeatedly until it is acknowledged. Resolve with the result. */
  answer: (interruptId: string, response: unknown) => Promise<AnswerResult>;
  /** Return why no answer can be sent now and how to continue; empty if one can be sent. */
  blockedReason: (question: Question) => string;
  /** Return whether another part of the page shows the card of a new question, which then calls `Prompt.place`. */
  awaitsPlace?: (question: Question) => boolean;
  /** Return the execution that asks, if all questions belong to one. */
  execution?: () => string;
  /** Return the kernel's clock. */
  now: () => Micros;
  /** Drafts, stored outside of the view so that they survive it. */
  drafts: Map<string, Draft>;
}
