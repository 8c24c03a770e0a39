// Timeline and graph above a replay outside of a live view. They show its position. Selecting a bar goes to its event, and
// selecting a step goes to the next visit of the step.

import type { Header, Welcome } from "../protocol";
import { h, type View } from "../shared/dom";
import { formatCount } from "../shared/format";
import { type Host, lazyPart, type Load } from "../shared/lazypart";
import { Model, type Position } from "../shared/model";

/** Source of the data and of the bundles that show it. */
export interface OverviewHost {
  welcome: () => Promise<Welcome>;
  load: Load;
}

/**
 * Create the timeline and the graph. `go` is called with the first event of a selected bar or step, `onRun` with the run as
 * soon as it is loaded.
 */
export function runOverview({ welcome, load }: OverviewHost, go: (sequence: number) => void, onRun: (run: Header) => void): View & { setPosition: (at: Position) => void } {
  const model = new Model();
  const root = h("div", { class: "divebook db-root db-beside" });
  const rejection = { type: "ack", id: "", accepted: false, text: "A replay is read-only." } as const;
  const host: Host = {
    root,
    detail: (id, receive) => { receive({ type: "detail", view: "", id, events: [], error: "" }); },
    conversation: () => undefined,
    variables: () => undefined,
    takeOver: undefined,
    files: () => undefined,
    sent: undefined,
    placeCard: () => undefined,
    gatherCards: () => undefined,
    control: () => Promise.resolve(rejection),
    replay: go,
  };
  const timeline = lazyPart(model, () => model.spans.total > 0, () => load("timeline"), host);
  const graph = lazyPart(model, () => model.spans.total > 0 && model.graph.steps.length > 1, () => load("graph"), host);
  const sample = h("p", { class: "hint", hidden: true });
  root.append(timeline.element, sample, graph.element);
  model.on((change) => {
    if (change === "selection" && model.selected !== null) go(model.spans.number(model.selected, "sequence"));
    if (change !== "filter" || model.step === null) return;
    const sequence = nextVisit(model, model.step);
    model.filterStep(null); // here a step is a place to go to, and no filter
    if (sequence !== undefined) go(sequence);
  });
  welcome().then((message) => {
    const count = message.spans.id.length;
    const { total } = message;
    sample.hidden = count >= total || count === 0;
    const text = `The timeline shows a sample: ${formatCount(count)} of ${formatCount(total)} steps and calls. For all of them, see `;
    sample.replaceChildren(text, h("code", {}, "run.operations"), ".");
    model.welcome(message);
    onRun(message.header);
  }, () => { root.hidden = true; }); // the replay itself shows that the kernel is gone
  const destroy = (): void => {
    timeline.destroy();
    graph.destroy();
    root.remove();
  };
  return { element: root, setPosition: (at) => { model.setPosition(at); }, destroy };
}

/** Return the first event of the next visit to a step after the position; without a later visit, that of the first one. */
function nextVisit({ spans, position }: Model, step: string): number | undefined {
  const visits: number[] = [];
  for (let id = 0; id < spans.total; id += 1) {
    if (spans.has(id) && spans.text(id, "kind") === "step" && spans.text(id, "step") === step) visits.push(spans.number(id, "sequence"));
  }
  visits.sort((one, other) => one - other);
  return visits.find((sequence) => sequence > (position?.sequence ?? 0)) ?? visits[0];
}
