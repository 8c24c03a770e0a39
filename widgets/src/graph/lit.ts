// What state each step is in, as the spans and questions of an execution tell it.

import type { Question, SpanBlock } from "../protocol";

/** How a step stands; `caught` has failed, and the path went on elsewhere. */
export type Lit = "pending" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "caught";

export interface StepState {
  status: Lit;
  /** How often it has begun, on all paths together. */
  visits: number;
}

export const NOT_YET: StepState = { status: "pending", visits: 0 };
const WORST_FIRST: Lit[] = ["running", "waiting", "failed", "cancelled", "caught", "completed"];
const STATUSES = new Set<string>(WORST_FIRST);

interface Visit {
  sequence: number;
  status: Lit;
}

/** Follows the spans of an execution; blocks come in any order, and more than once. */
export class Tally {
  readonly #visits = new Map<string, Set<number>>();
  readonly #latest = new Map<string, Map<string, Visit>>();

  /** Takes over what a block says of steps. */
  take(block: SpanBlock): void {
    const named = (column: number[], row: number): string => block.names[column[row] ?? 0] ?? "";
    block.id.forEach((id, row) => {
      if (named(block.kind, row) !== "step") return;
      const [step, path, status] = [named(block.step, row), named(block.path, row), named(block.status, row)];
      entry(this.#visits, step, () => new Set<number>()).add(id);
      const sequence = block.sequence[row] ?? 0;
      const byPath = entry(this.#latest, step, () => new Map<string, Visit>());
      if ((byPath.get(path)?.sequence ?? 0) <= sequence) byPath.set(path, { sequence, status: STATUSES.has(status) ? (status as Lit) : "running" });
    });
  }

  /** Forgets everything. */
  clear(): void {
    this.#visits.clear();
    this.#latest.clear();
  }

  /** Returns the state of every step that has begun: what runs counts more than what is over, a failure more than a success. */
  states(questions: Iterable<Question> = []): Map<string, StepState> {
    const asked = new Set([...questions].filter(({ status }) => status === "pending").map(({ step, path }) => JSON.stringify([step, path])));
    const states = new Map<string, StepState>();
    for (const [step, byPath] of this.#latest) {
      const found = [...byPath].map(([path, { status }]) => (status === "running" && asked.has(JSON.stringify([step, path])) ? "waiting" : status));
      states.set(step, { status: WORST_FIRST.find((one) => found.includes(one)) ?? "running", visits: this.#visits.get(step)?.size ?? 0 });
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
