// The live view of one execution: what anywidget renders. Every view in it shares one model and one connection.

import type { RenderProps } from "@anywidget/types";
import type { QuestionView as Question } from "../protocol";
import { Connection } from "../shared/connection";
import { h, type View } from "../shared/dom";
import { Model } from "../shared/model";
import { later, moduleOf } from "../shared/later";
import { timeline } from "../timeline";
import { header } from "../timeline/header";
import { questions } from "./questions";
import "./live.css";

/** The traitlet for views that come up while the kernel is busy. */
interface State {
  snapshot: { status?: string; workflow?: string; pending?: Question[] };
}

function render({ model: wire, el }: RenderProps<State>): () => void {
  const model = new Model();
  const root = h("div", { class: "divebook db-root", "data-lm-suppress-shortcuts": "true" });
  el.append(root);
  const connection = new Connection(wire, model);
  const load = async (): Promise<unknown> => moduleOf(await connection.bundle("graph"));
  const workflow = later(model, () => model.graph.steps.length > 1, load);
  const views: View[] = [header(model, connection), questions(model, connection), workflow, timeline(root, model, connection)];
  root.append(...views.map((view) => view.element));
  for (const asked of wire.get("snapshot").pending ?? []) model.questions.set(asked.interrupt_id, asked);
  model.tell("questions");
  return () => {
    connection.close();
    views.forEach((view) => { view.destroy(); });
    root.remove();
  };
}

export default { render };
