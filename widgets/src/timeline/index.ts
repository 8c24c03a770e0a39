// Timeline view: tools, overview, canvas, streamed text, details, and the list of all calls.

import { h, setText, type View } from "../shared/dom";
import { formatCount } from "../shared/format";
import type { Host, Part } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { TimelineCanvas } from "./canvas";
import { detail } from "./detail";
import { list } from "./list";
import { Overview } from "./overview";
import { Matches, type SearchConditions } from "./query";
import style from "./timeline.css";
import { failureSteps, typeFilters, foldSwitch, followSwitch, laneSwitch, legend, searchBox, stepFilter, zoomButtons } from "./tools";
import { showOutputTail } from "./outputtail";

/** Create the timeline of a model. The parts share one search, one layout and one viewport. */
export function timeline(model: Model, { root, detail: requestDetail }: Pick<Host, "root" | "detail">): View {
  const matches = new Matches();
  const canvas = new TimelineCanvas(root, model, matches);
  const overview = new Overview(model, canvas);
  const calls = list(model, canvas.layout, matches);
  const close = (): void => {
    model.select(null);
    canvas.element.querySelector("canvas")?.focus();
  };
  const panel = detail(model, requestDetail, (id) => canvas.describe(id), close);
  const outputTail = h("div", { class: "db-writing", hidden: true });
  const matchCount = h("span", { class: "db-found", role: "status" });
  const lanes = laneSwitch(canvas);
  const failures = failureSteps(canvas);
  const follow = followSwitch(model, canvas);
  canvas.afterDraw = () => {
    overview.update();
    lanes.update();
    failures.update();
    follow.update();
  };

  function setConditions(changes: Partial<SearchConditions>): void {
    matches.setConditions({ ...matches.conditions, ...changes });
    calls.update();
    setText(matchCount, matches.isAll ? "" : `${formatCount(matches.ids.length)} of ${formatCount(model.spans.total)}`);
    canvas.invalidate();
  }

  const search = searchBox((words) => { setConditions({ words }); });
  const types = typeFilters(model, (hidden) => { setConditions({ hidden }); });
  const step = stepFilter(model, (name) => { setConditions({ step: name }); });
  const tools = h(
    "div",
    { class: "db-tools" },
    search,
    types.element,
    step.element,
    matchCount,
    h("span", { class: "db-grow" }),
    failures.element,
    foldSwitch(canvas),
    follow.element,
    zoomButtons(canvas),
  );
  const belowCanvas = h("div", { class: "db-legend" }, lanes.element, ...legend());
  showOutputTail(outputTail, model);
  const undo = model.on((change) => {
    if (change === "streams" || change === "spans") showOutputTail(outputTail, model);
  });
  const element = h("div", { class: "db-timeline" }, tools, overview.element, canvas.element, belowCanvas, outputTail, panel.element, calls.element);
  const destroy = (): void => {
    [canvas, overview, calls, panel, types, step].forEach((view) => { view.destroy(); });
    undo();
  };
  return { element, destroy };
}

const part: Part = { style, make: timeline };

export default part;
