// Interface of the view that embeds the prompt; this folder does not depend on anywidget.

import type { Micros, QuestionView as Recorded } from "../protocol";

/** A question, and who asks it. */
export type Question = Recorded & {
  /** Whose question it is, where those of several executions stand side by side: workflow and execution. */
  asker?: readonly [string, string];
  /** The cell that began the execution, where it is told. */
  cell?: string;
};

/** What somebody has begun to write, by field. */
export type Draft = Record<string, unknown>;

/** What became of an answer; `text` says why it was refused. */
export interface AnswerResult {
  accepted: boolean;
  text: string;
}

export interface PromptHost {
  /** Sends an answer, as often as it takes, and tells what became of it. */
  answer: (interruptId: string, response: unknown) => Promise<AnswerResult>;
  /** Why nothing can be sent now, and how to go on; empty if it can. */
  away: (question: Question) => string;
  /** Which execution asks, where all questions are of one. */
  execution?: () => string;
  /** The kernel's clock. */
  now: () => Micros;
  /** Kept outside of the view, so that what was begun survives it. */
  drafts: Map<string, Draft>;
}
