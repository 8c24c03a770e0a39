// Timeline and graph above a replay without a live view: they show its position, and lead to events.

import type { Welcome } from "../protocol";
import { h, type View } from "../shared/dom";
import { type Host, later, type Load } from "../shared/later";
import { Model, type Position } from "../shared/model";

/** Who knows what there is to be shown, and has the parts that show it. */
export interface PictureHost {
  welcome: () => Promise<Welcome>;
  load: Load;
}

/** Makes both; `go` is called with an event that somebody has chosen. */
export function picture({ welcome, load }: PictureHost, go: (sequence: number) => void): View & { stand: (at: Position) => void } {
  const model = new Model();
  const root = h("div", { class: "divebook db-root db-beside" });
  const refused = { type: "ack", id: "", accepted: false, text: "a replay runs nothing" } as const;
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
    control: () => Promise.resolve(refused),
    replay: go,
  };
  const timeline = later(model, () => model.spans.total > 0, () => load("timeline"), host);
  const graph = later(model, () => model.spans.total > 0 && model.graph.steps.length > 1, () => load("graph"), host);
  const sample = h("p", { class: "hint", hidden: true });
  root.append(timeline.element, sample, graph.element);
  model.on((change) => {
    if (change === "selection" && model.selected !== null) go(model.spans.number(model.selected, "sequence"));
  });
  welcome().then((message) => {
    const [count, total] = [message.spans.id.length, message.total];
    sample.hidden = count >= total || count === 0;
    const told = `${count.toLocaleString("en")} of ${total.toLocaleString("en")} steps and calls are shown, spread over the run: all are in `;
    sample.replaceChildren(told, h("code", {}, "run.operations"), ".");
    model.welcome(message);
  }, () => { root.hidden = true; }); // the replay says that the kernel is gone
  const destroy = (): void => {
    timeline.destroy();
    graph.destroy();
    root.remove();
  };
  return { element: root, stand: (at) => { model.stand(at); }, destroy };
}
