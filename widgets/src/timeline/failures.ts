// Index of the failed spans of a run, updated incrementally: successful spans are read only once.

import type { Spans } from "../shared/spans";

/** Failed spans that are loaded. */
export class Failures {
  /** Ids of spans that failed by themselves and not because of a span inside them, in order of beginning. */
  ids: readonly number[] = [];
  /** Number of changes of `ids`. */
  version = 0;
  readonly #failed = new Set<number>();
  readonly #running = new Set<number>();
  #nextId = 0;
  #generation = -1;
  #spansVersion = -1;

  /** Read the spans that are new, running, or were running or failed before. `parents` holds the parent of each span. */
  update(spans: Spans, generation: number, parents: Int32Array): void {
    if (spans.version === this.#spansVersion && generation === this.#generation) return;
    this.#spansVersion = spans.version;
    if (generation !== this.#generation) {
      this.#generation = generation;
      this.#nextId = 0;
      this.#failed.clear();
      this.#running.clear();
      this.#readAll(spans, spans.early);
    }
    this.#readAll(spans, [...this.#running, ...this.#failed, ...spans.running]);
    for (let id = Math.max(this.#nextId, spans.floor); id < spans.total; id++) this.#read(spans, id);
    this.#nextId = spans.total;
    this.#updateIds(parents);
  }

  #readAll(spans: Spans, ids: readonly number[]): void {
    for (const id of ids) this.#read(spans, id);
  }

  /** Update the sets of running and failed spans for one span. */
  #read(spans: Spans, id: number): void {
    if (!spans.has(id)) return;
    if (spans.running.has(id)) this.#running.add(id);
    else this.#running.delete(id);
    if (spans.text(id, "status") === "failed") this.#failed.add(id);
    else this.#failed.delete(id);
  }

  /** Set `ids` to the failed spans without a failed child. */
  #updateIds(parents: Int32Array): void {
    const parentIds = new Set([...this.#failed].map((id) => parents[id] ?? -1));
    const ids = [...this.#failed].filter((id) => !parentIds.has(id)).sort((one, other) => one - other);
    if (ids.length === this.ids.length && ids.every((id, place) => id === this.ids[place])) return;
    this.ids = ids;
    this.version++;
  }
}
