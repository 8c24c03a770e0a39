// Timeline and graph above a replay outside of a live view. They show its position, and selecting a bar goes to its event.

import type { Welcome } from "../protocol";
import { h, type View } from "../shared/dom";
import { formatCount } from "../shared/format";
import { type Host, lazyPart, type Load } from "../shared/lazypart";
import { Model, type Position } from "../shared/model";

/** Source of the data and of the bundles that show it. */
export interface OverviewHost {
  welcome: () => Promise<Welcome>;
  load: Load;
}

/** Create the timeline and the graph. `go` is called with the first event of a selected bar. */
export function runOverview({ welcome, load }: OverviewHost, go: (sequence: number) => void): View & { setPosition: (at: Position) => void } {
  const model = new Model();
  const root = h("div", { class: "divebook db-root db-beside" });
  const rejection = { type: "ack", id: "", accepted: false, text: "a replay runs nothing" } as const;
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
  });
  welcome().then((message) => {
    const count = message.spans.id.length;
    const { total } = message;
    sample.hidden = count >= total || count === 0;
    const text = `${formatCount(count)} of ${formatCount(total)} steps and calls are shown, spread over the run: all are in `;
    sample.replaceChildren(text, h("code", {}, "run.operations"), ".");
    model.welcome(message);
  }, () => { root.hidden = true; }); // the replay itself shows that the kernel is gone
  const destroy = (): void => {
    timeline.destroy();
    graph.destroy();
    root.remove();
  };
  return { element: root, setPosition: (at) => { model.setPosition(at); }, destroy };
}
