// State of each step, computed from the visits and questions of an execution.

import type { QuestionView as Question } from "../protocol";
import { isRollback } from "../shared/words";

/**
 * Status of a step. `caught`: it failed, and the path continued at another step. `untaken`: it never began, and the run is
 * over. `stopped`: it began, and no process drives the run.
 */
export type StepStatus = "pending" | "untaken" | "running" | "stopped" | "waiting" | "completed" | "failed" | "cancelled" | "caught";

/** Status of a step, and its number of visits. */
export interface StepState {
  status: StepStatus;
  /** Number of visits on all paths. */
  visits: number;
}

export const NOT_YET: StepState = { status: "pending", visits: 0 };
export const NOT_TAKEN: StepState = { status: "untaken", visits: 0 };
const WORST_FIRST: StepStatus[] = ["running", "stopped", "waiting", "failed", "cancelled", "caught", "completed"];

/** One visit of a path to a step. */
export interface Visit {
  /** Stable id of the visit. */
  id: number;
  path: string;
  step: string;
  status: string;
  sequence: number;
}

/** Visits of an execution. They are added in any order, and again when they change. */
export class StepVisits {
  /** Ids of the visits by step. */
  readonly #visits = new Map<string, Set<number>>();
  /** Latest visit by step and path. */
  readonly #latest = new Map<string, Map<string, Visit>>();
  /** Sequence number of the latest visit to any step, by path. */
  readonly #latestSequence = new Map<string, number>();

  /** Add or update a visit. Rollbacks do not count as visits. */
  add(visit: Visit): void {
    if (isRollback(visit.path)) return;
    getOrCreate(this.#visits, visit.step, () => new Set<number>()).add(visit.id);
    const byPath = getOrCreate(this.#latest, visit.step, () => new Map<string, Visit>());
    if ((byPath.get(visit.path)?.sequence ?? 0) <= visit.sequence) byPath.set(visit.path, visit);
    this.#latestSequence.set(visit.path, Math.max(this.#latestSequence.get(visit.path) ?? 0, visit.sequence));
  }

  /**
   * Return the state of every step that has begun.
   *
   * Paths may be in different states at the same step: a running path takes precedence over a finished one, and a failure
   * over a success. If the run is halted (`isHalted`), running steps count as stopped.
   */
  states(questions: Iterable<Question> = [], isHalted = false): Map<string, StepState> {
    const pending = [...questions].filter(({ status }) => status === "pending");
    const waiting = new Set(pending.map(({ step, path }) => JSON.stringify([step, path])));
    const states = new Map<string, StepState>();
    for (const [step, byPath] of this.#latest) {
      const statuses = new Set([...byPath].map(([path, { status, sequence }]) => {
        if (status === "running" && waiting.has(JSON.stringify([step, path]))) return "waiting";
        if (status === "running" && isHalted) return "stopped";
        const hasContinued = sequence < (this.#latestSequence.get(path) ?? 0);
        return status === "failed" && hasContinued ? "caught" : status;
      }));
      const status = WORST_FIRST.find((one) => statuses.has(one)) ?? "running";
      states.set(step, { status, visits: this.#visits.get(step)?.size ?? 0 });
    }
    return states;
  }
}

/** Return the value of a key, created if it is missing. */
function getOrCreate<K, V>(map: Map<K, V>, key: K, create: () => V): V {
  const existing = map.get(key);
  if (existing !== undefined) return existing;
  const value = create();
  map.set(key, value);
  return value;
}
