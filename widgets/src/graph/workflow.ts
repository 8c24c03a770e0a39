// Workflow graph in the live view. Selecting a step filters the timeline.

import { GraphView } from "./graph";
import { type StepState, StepVisits } from "./stepstate";
import { h, type View } from "../shared/dom";
import type { Change, Model, Position } from "../shared/model";
import type { Spans } from "../shared/spans";

/** Show the workflow of a model with the state of its steps, now or at the position of a replay. */
export function workflow(model: Model): View {
  const graph = new GraphView({ select: (step) => { model.filterStep(step); } });
  const visitReader = new VisitReader(model);
  const element = h("details", { class: "db-workflow", open: true }, h("summary", {}, "Workflow"), graph.element);
  let frame = 0;
  const draw = (): void => {
    frame = 0;
    element.hidden = model.graph.steps.length < 2;
    const { position } = model;
    if (position === null) {
      const states = visitReader.current().states(model.questions.values(), model.isHalted);
      graph.update(model.graph, states, model.header?.progress, model.isOver);
    } else {
      const isAtEnd = model.isOver && position.sequence >= model.last;
      graph.update(model.graph, statesAt(model, position), [], isAtEnd);
    }
    graph.markReplayStep(position?.step ?? null);
  };
  const onChange = (change: Change): void => {
    const isShown = ["spans", "questions", "graph", "header", "connection", "position"].includes(change);
    if (change === "filter") graph.select(model.step);
    else if (frame === 0 && isShown) frame = requestAnimationFrame(draw);
  };
  const stop = model.on(onChange);
  const destroy = (): void => {
    stop();
    cancelAnimationFrame(frame);
    graph.destroy();
    element.remove();
  };
  draw();
  return { element, destroy };
}

/** Return the states of the steps at the position of a replay. */
function statesAt({ spans, questions, originUs }: Model, { sequence, time }: Position): Map<string, StepState> {
  const visits = new StepVisits();
  const stepCode = spans.code("step");
  const kinds = spans.column("kind");
  const sequences = spans.column("sequence");
  for (let id = 0; id < spans.total; id += 1) {
    const began = sequences[id] ?? 0;
    if (kinds[id] !== stepCode || !spans.has(id) || began > sequence) continue;
    const hasEnded = (spans.end[id] ?? -1) >= 0 && spans.endOf(id, 0) <= time;
    const status = hasEnded ? spans.text(id, "status") : "running";
    visits.add({ id, path: spans.text(id, "path"), step: spans.text(id, "step"), status, sequence: began });
  }
  const open = [...questions.values()].filter(({ raised_us: raised, answered_us: answered }) =>
    raised - originUs <= time && (answered === null || answered - originUs > time));
  return visits.states(open.map((question) => ({ ...question, status: "pending" })));
}

/** Incremental reader of the visits in a model's spans: it reads only spans that may have changed. */
class VisitReader {
  readonly #model: Model;
  readonly #running = new Set<number>();
  #visits = new StepVisits();
  #generation = -1;
  #readFrom = 0;
  #readTo = 0;

  constructor(model: Model) {
    this.#model = model;
  }

  /** Return the visits up to date. */
  current(): StepVisits {
    const { spans, generation } = this.#model;
    if (generation !== this.#generation) this.#reset(generation);
    const ids = [...this.#running, ...spans.running, ...spans.early]; // a visit that had ended may run again
    for (let id = this.#readTo; id < spans.total; id += 1) ids.push(id);
    for (let id = spans.floor; id < this.#readFrom; id += 1) ids.push(id);
    this.#readFrom = Math.min(this.#readFrom, spans.floor);
    this.#readTo = spans.total;
    for (const id of ids) this.#read(spans, id);
    return this.#visits;
  }

  #reset(generation: number): void {
    this.#generation = generation;
    this.#visits = new StepVisits();
    this.#running.clear();
    this.#readFrom = this.#readTo = this.#model.spans.floor;
  }

  /** Add the visit of a span, if it is a step. */
  #read(spans: Spans, id: number): void {
    if (!spans.has(id) || spans.text(id, "kind") !== "step") return;
    const path = spans.text(id, "path");
    const step = spans.text(id, "step");
    const status = spans.text(id, "status");
    if (status === "running") this.#running.add(id);
    else this.#running.delete(id);
    this.#visits.add({ id, path, step, status, sequence: spans.column("sequence")[id] ?? 0 });
  }
}
