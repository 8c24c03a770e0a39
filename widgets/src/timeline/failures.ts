// Failed spans; checked again only when spans change, so that many successful ones cost nothing.

import type { Spans } from "../shared/spans";

/** The failures of a run, as far as it is here. */
export class Failures {
  /** What failed of itself and not because of what it holds, in order of beginning. */
  ids: readonly number[] = [];
  /** Counts changes of the ids. */
  version = 0;
  readonly #failed = new Set<number>();
  readonly #open = new Set<number>();
  #looked = 0;
  #generation = -1;
  #seen = -1;

  /** Looks at what is new, at what ran, and at what had failed; `within` names what holds each span. */
  update(spans: Spans, generation: number, within: Int32Array): void {
    if (spans.version === this.#seen && generation === this.#generation) return;
    this.#seen = spans.version;
    if (generation !== this.#generation) {
      this.#generation = generation;
      this.#looked = 0;
      this.#failed.clear();
      this.#open.clear();
      this.#take(spans, spans.early);
    }
    this.#take(spans, [...this.#open, ...this.#failed, ...spans.running]);
    for (let id = Math.max(this.#looked, spans.floor); id < spans.total; id++) this.#look(spans, id);
    this.#looked = spans.total;
    this.#tell(within);
  }

  #take(spans: Spans, ids: readonly number[]): void {
    for (const id of ids) this.#look(spans, id);
  }

  #look(spans: Spans, id: number): void {
    if (!spans.has(id)) return;
    if (spans.running.has(id)) this.#open.add(id);
    else this.#open.delete(id);
    if (spans.text(id, "status") === "failed") this.#failed.add(id);
    else this.#failed.delete(id);
  }

  #tell(within: Int32Array): void {
    const holders = new Set([...this.#failed].map((id) => within[id] ?? -1));
    const ids = [...this.#failed].filter((id) => !holders.has(id)).sort((one, other) => one - other);
    if (ids.length === this.ids.length && ids.every((id, place) => id === this.ids[place])) return;
    this.ids = ids;
    this.version++;
  }
}
