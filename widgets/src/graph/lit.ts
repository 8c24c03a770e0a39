// State of each step, from the visits and questions of an execution.

import type { QuestionView as Question } from "../protocol";
import { isRollback } from "../shared/words";

/**
 * How a step stands; `caught` has failed, and the path went on elsewhere; `untaken` never began, and the run is over;
 * `stopped` has begun, and nothing drives the run.
 */
export type Lit = "pending" | "untaken" | "running" | "stopped" | "waiting" | "completed" | "failed" | "cancelled" | "caught";

export interface StepState {
  status: Lit;
  /** How often it has begun, on all paths together. */
  visits: number;
}

export const NOT_YET: StepState = { status: "pending", visits: 0 };
export const NOT_TAKEN: StepState = { status: "untaken", visits: 0 };
const WORST_FIRST: Lit[] = ["running", "stopped", "waiting", "failed", "cancelled", "caught", "completed"];

/** A visit of a path to a step. */
export interface Visit {
  /** Names the visit for good. */
  id: number;
  path: string;
  step: string;
  status: string;
  sequence: number;
}

/** Keeps count of the visits of an execution; they come in any order, and more than once. */
export class Tally {
  readonly #visits = new Map<string, Set<number>>();
  readonly #latest = new Map<string, Map<string, Visit>>();
  readonly #reached = new Map<string, number>();

  /** Takes over a visit, new or changed; what undoes a step is none of it. */
  put(visit: Visit): void {
    if (isRollback(visit.path)) return;
    entry(this.#visits, visit.step, () => new Set<number>()).add(visit.id);
    const byPath = entry(this.#latest, visit.step, () => new Map<string, Visit>());
    if ((byPath.get(visit.path)?.sequence ?? 0) <= visit.sequence) byPath.set(visit.path, visit);
    this.#reached.set(visit.path, Math.max(this.#reached.get(visit.path) ?? 0, visit.sequence));
  }

  /** Returns the state of every step that has begun: what runs (unless all `rests`) counts more than what is over, a failure more than a success. */
  states(questions: Iterable<Question> = [], rests = false): Map<string, StepState> {
    const asked = new Set([...questions].filter(({ status }) => status === "pending").map(({ step, path }) => JSON.stringify([step, path])));
    const states = new Map<string, StepState>();
    for (const [step, byPath] of this.#latest) {
      const found = new Set([...byPath].map(([path, { status, sequence }]) => {
        if (status === "running" && asked.has(JSON.stringify([step, path]))) return "waiting";
        if (status === "running" && rests) return "stopped";
        return status === "failed" && sequence < (this.#reached.get(path) ?? 0) ? "caught" : status; // its path has gone on
      }));
      states.set(step, { status: WORST_FIRST.find((one) => found.has(one)) ?? "running", visits: this.#visits.get(step)?.size ?? 0 });
    }
    return states;
  }
}

function entry<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}
