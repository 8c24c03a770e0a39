// The execution's workflow in the live view; choosing a step filters the timeline.

import { GraphView } from "./graph";
import { type StepState, Tally } from "./lit";
import { h, type View } from "../shared/dom";
import type { Change, Model, Position } from "../shared/model";
import type { Spans } from "../shared/spans";

/** Shows the workflow of a model with the state of its steps. */
export function workflow(model: Model): View {
  const graph = new GraphView({ select: (step) => { model.filterStep(step); } });
  const visits = new Visits(model);
  const element = h("details", { class: "db-workflow", open: true }, h("summary", {}, "Workflow"), graph.element);
  let frame = 0;
  const draw = (): void => {
    frame = 0;
    element.hidden = model.graph.steps.length < 2;
    const { position } = model;
    if (position === null) graph.update(model.graph, visits.tally().states(model.questions.values(), model.rests), model.header?.progress, model.isOver);
    else graph.update(model.graph, stoodAt(model, position), [], model.isOver && position.sequence >= model.last);
    graph.mark(position?.step ?? null);
  };
  const changed = (change: Change): void => {
    if (change === "filter") graph.select(model.step);
    else if (frame === 0 && ["spans", "questions", "graph", "header", "connection", "position"].includes(change)) frame = requestAnimationFrame(draw);
  };
  const stop = model.on(changed);
  const destroy = (): void => {
    stop();
    cancelAnimationFrame(frame);
    graph.destroy();
    element.remove();
  };
  draw();
  return { element, destroy };
}

/** Returns how the steps stood where a replay stands. */
function stoodAt({ spans, questions, originUs }: Model, { sequence, time }: Position): Map<string, StepState> {
  const [tally, kind] = [new Tally(), spans.code("step")];
  const [kinds, firsts] = [spans.column("kind"), spans.column("sequence")];
  for (let id = 0; id < spans.total; id += 1) {
    if (kinds[id] !== kind || !spans.has(id) || (firsts[id] ?? 0) > sequence) continue;
    const hasEnded = (spans.end[id] ?? -1) >= 0 && spans.endOf(id, 0) <= time;
    tally.put({ id, path: spans.text(id, "path"), step: spans.text(id, "step"), status: hasEnded ? spans.text(id, "status") : "running", sequence: firsts[id] ?? 0 });
  }
  const asked = [...questions.values()].filter(({ raised_us: raised, answered_us: answered }) => raised - originUs <= time && (answered === null || answered - originUs > time));
  return tally.states(asked.map((one) => ({ ...one, status: "pending" })));
}

/** Follows the visits among a model's spans, looking only at those that may have changed. */
class Visits {
  readonly #model: Model;
  readonly #open = new Set<number>();
  #tally = new Tally();
  #generation = -1;
  #first = 0;
  #stop = 0;

  constructor(model: Model) {
    this.#model = model;
  }

  tally(): Tally {
    const { spans, generation } = this.#model;
    if (generation !== this.#generation) this.#forget(generation);
    const known = [...this.#open, ...spans.running, ...spans.early]; // what had ended may run again
    for (let id = this.#stop; id < spans.total; id += 1) known.push(id);
    for (let id = spans.floor; id < this.#first; id += 1) known.push(id);
    [this.#first, this.#stop] = [Math.min(this.#first, spans.floor), spans.total];
    for (const id of known) this.#look(spans, id);
    return this.#tally;
  }

  #forget(generation: number): void {
    this.#generation = generation;
    this.#tally = new Tally();
    this.#open.clear();
    this.#first = this.#stop = this.#model.spans.floor;
  }

  #look(spans: Spans, id: number): void {
    if (!spans.has(id) || spans.text(id, "kind") !== "step") return;
    const [path, step, status] = [spans.text(id, "path"), spans.text(id, "step"), spans.text(id, "status")];
    if (status === "running") this.#open.add(id);
    else this.#open.delete(id);
    this.#tally.put({ id, path, step, status, sequence: spans.column("sequence")[id] ?? 0 });
  }
}
