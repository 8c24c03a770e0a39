// The replay of a run that has ended as a bundle of its own, beside its live view.

import { stepping } from "../replay/stepping";
import { Requests } from "../replay/requests";
import style from "../replay/steps.css";
import { h, type View } from "../shared/dom";
import type { Host, Part } from "../shared/later";
import type { Model } from "../shared/model";

/** Shows the replay while the run is over; `host.replay` goes to an event of it. */
function replayed(model: Model, host: Host): View {
  const { wire } = host;
  if (wire === undefined) throw new Error("there is no kernel to ask");
  const element = h("div");
  const make = (): ReturnType<typeof stepping> => stepping(() => new Requests(wire), (at) => { model.stand(at); });
  let pane = make();
  let shown = model.header?.execution_id;

  function show(): void {
    const name = model.header?.execution_id;
    if (name !== shown) { // the view shows another run by now
      pane.destroy();
      pane = make();
      element.replaceChildren(pane.element);
    }
    shown = name;
    element.hidden = !model.isOver;
  }

  const undo = model.on((change) => { if (change === "header") show(); });
  element.append(pane.element);
  host.replay = (sequence) => { pane.go(sequence); };
  model.tell("header"); // others offer to go there from now on
  const destroy = (): void => {
    undo();
    host.replay = undefined;
    pane.destroy();
  };
  return { element, destroy };
}

const part: Part = { style, make: replayed };

export default part;
