// The timeline: tools, overview, picture, streamed text, details, and the list of all calls.

import { h, setText, type View } from "../shared/dom";
import type { Host, Part } from "../shared/later";
import type { Model } from "../shared/model";
import { TimelineCanvas } from "./canvas";
import { detail } from "./detail";
import { list } from "./list";
import { Overview } from "./overview";
import { Matches, type Wanted } from "./query";
import style from "./timeline.css";
import { failureSteps, filters, foldSwitch, followSwitch, laneSwitch, legend, searchBox, stepFilter, zoomers } from "./tools";
import { write } from "./writing";

/** Makes the timeline of a model. */
export function timeline(model: Model, { root, detail: ask }: Pick<Host, "root" | "detail">): View {
  const matches = new Matches();
  const canvas = new TimelineCanvas(root, model, matches);
  const overview = new Overview(model, canvas);
  const calls = list(model, canvas.layout, matches);
  const close = (): void => {
    model.select(null);
    canvas.element.querySelector("canvas")?.focus();
  };
  const panel = detail(model, ask, (id) => canvas.describe(id), close);
  const writing = h("div", { class: "db-writing", hidden: true });
  const found = h("span", { class: "db-found", role: "status" });
  const [lanes, failures, following] = [laneSwitch(canvas), failureSteps(canvas), followSwitch(model, canvas)];
  canvas.afterDraw = () => {
    overview.update();
    lanes.update();
    failures.update();
    following.update();
  };

  function want(changes: Partial<Wanted>): void {
    matches.want({ ...matches.wanted, ...changes });
    calls.update();
    setText(found, matches.isAll ? "" : `${matches.ids.length.toLocaleString("en")} of ${model.spans.total.toLocaleString("en")}`);
    canvas.invalidate();
  }

  const search = searchBox((words) => { want({ words }); });
  const types = filters(model, (hidden) => { want({ hidden }); });
  const step = stepFilter(model, (name) => { want({ step: name }); });
  const tools = h("div", { class: "db-tools" }, search, types.element, step.element, found, h("span", { class: "db-grow" }), failures.element, foldSwitch(canvas), following.element, zoomers(canvas));
  const under = h("div", { class: "db-legend" }, lanes.element, ...legend());
  write(writing, model);
  const undo = model.on((change) => { if (change === "streams" || change === "spans") write(writing, model); });
  const element = h("div", { class: "db-timeline" }, tools, overview.element, canvas.element, under, writing, panel.element, calls.element);
  const destroy = (): void => {
    [canvas, overview, calls, panel, types, step].forEach((view) => { view.destroy(); });
    undo();
  };
  return { element, destroy };
}

const part: Part = { style, make: timeline };

export default part;
