// The live view of one execution: what anywidget renders. Every view in it shares one model and one connection.

import type { RenderProps } from "@anywidget/types";
import type { BundleName, QuestionView as Question } from "../protocol";
import { Connection } from "../shared/connection";
import { h, type View } from "../shared/dom";
import { Model } from "../shared/model";
import { type Host, later, moduleOf } from "../shared/later";
import { reveal, timeline } from "../timeline";
import { header } from "../timeline/header";
import { questions } from "./questions";
import { tabs } from "./tabs";
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
  const load = async (name: BundleName): Promise<unknown> => moduleOf(await connection.bundle(name));
  const asked = questions(model, connection);
  const picture = timeline(root, model, connection);
  const host: Host = {
    conversation: (id, since, receive) => { connection.conversation(id, since, receive); },
    sent: (id, receive) => { connection.sent(id, receive); },
    placeCard: (id, place) => { asked.prompt.place(id, place); },
    gatherCards: () => { asked.prompt.gather(); },
    reveal: (id) => { reveal(model, picture, id); },
  };
  const workflow = later(model, () => model.graph.steps.length > 1, () => load("graph"), host);
  const chat = later(model, () => model.view === "chat", () => load("turn"), host);
  const choice = tabs(model, { chat: [chat.element], timeline: [workflow.element, picture.element] });
  const views: View[] = [header(model, connection), asked, choice, chat, workflow, picture];
  const undo = model.on((change) => { if (change === "view" && model.view !== "chat") host.gatherCards(); });
  root.append(...views.map((view) => view.element));
  for (const asked of wire.get("snapshot").pending ?? []) model.questions.set(asked.interrupt_id, asked);
  model.tell("questions");
  return () => {
    connection.close();
    undo();
    views.forEach((view) => { view.destroy(); });
    root.remove();
  };
}

export default { render };
