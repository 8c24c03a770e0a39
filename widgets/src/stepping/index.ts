// Bundle with the replay of an ended run below its live view.

import { replaySection } from "../replay/stepping";
import { Requests } from "../replay/requests";
import style from "../replay/steps.css";
import { h, type View } from "../shared/dom";
import type { Host, Part } from "../shared/lazypart";
import type { Model } from "../shared/model";

/** Show the replay while the run is over. Set `host.replay`, which moves the replay to an event. */
function replayPart(model: Model, host: Host): View {
  const { wire } = host;
  if (wire === undefined) throw new Error("there is no kernel to ask");
  const element = h("div");
  const create = (): ReturnType<typeof replaySection> => replaySection(() => new Requests(wire), (at) => { model.setPosition(at); }, () => model.header);
  let replay = create();
  let executionId = model.header?.execution_id;

  function show(): void {
    const id = model.header?.execution_id;
    if (id !== executionId) { // the view shows another run now
      replay.destroy();
      replay = create();
      element.replaceChildren(replay.element);
    }
    executionId = id;
    element.hidden = !model.isOver;
  }

  const undo = model.on((change) => {
    if (change === "header") show();
    if (change === "selection" && model.selected !== null) replay.follow(model.spans.number(model.selected, "sequence"));
  });
  element.append(replay.element);
  host.replay = (sequence) => { replay.go(sequence); };
  model.notify("header"); // other views add their links to the replay
  const destroy = (): void => {
    undo();
    host.replay = undefined;
    replay.destroy();
  };
  return { element, destroy };
}

const part: Part = { style, make: replayPart };

export default part;
