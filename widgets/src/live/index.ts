// The live view of one execution: what anywidget renders. Every view in it shares one model and one connection.

import type { RenderProps } from "@anywidget/types";
import type { BundleName, QuestionView as Question } from "../protocol";
import { isHosted } from "../shared/channel";
import { Connection } from "../shared/connection";
import { h, type View } from "../shared/dom";
import { contain } from "../shared/keys";
import { Model } from "../shared/model";
import { type Host, later, moduleOf } from "../shared/later";
import { onThemeChange } from "../shared/theme";
import { header } from "../head/header";
import { rowsOf } from "../head/progress";
import { questions } from "./questions";
import { tabs } from "./tabs";
import "./live.css";

/** The traitlet for views that come up while the kernel is busy. */
interface State {
  snapshot: { status?: string; workflow?: string; pending?: Question[] };
}

function render({ model: wire, el }: RenderProps<State>): () => void {
  const model = new Model();
  const root = h("div", { class: "divebook db-root" });
  contain(root);
  el.append(root);
  const forgetTheme = onThemeChange(root);
  const connection = new Connection(wire, model, () => isHosted(el));
  const load = async (name: BundleName): Promise<unknown> => moduleOf(await connection.bundle(name));
  const asked = questions(model, connection);
  const host: Host = {
    root,
    detail: (id, receive) => { connection.detail(id, receive); },
    conversation: (id, since, receive) => { connection.conversation(id, since, receive); },
    variables: (version, receive) => { connection.variables(version, receive); },
    takeOver: (workspace, at, paths) => connection.takeOver(workspace, at, paths),
    files: (version, receive, at, since) => { connection.files(version, receive, at, since); },
    sent: (id, receive) => { connection.sent(id, receive); },
    placeCard: (id, place) => { asked.prompt.place(id, place); },
    gatherCards: () => { asked.prompt.gather(); },
    control: (command) => connection.control(command),
    replay: undefined, // until that part is here
    wire,
  };
  const picture = later(model, () => model.view === "timeline" && model.spans.total > 0, () => load("timeline"), host);
  const spread = later(model, () => rowsOf(model.header).some((step) => step.spread.length > 0), () => load("spread"), host);
  const failure = later(model, () => model.failures.total > 0, () => load("failure"), host);
  const workflow = later(model, () => model.graph.steps.length > 1, () => load("graph"), host);
  const chat = later(model, () => model.view === "chat", () => load("turn"), host);
  const values = later(model, () => model.spans.total > 0, () => load("variables"), host);
  const files = later(model, () => (model.header?.workspaces ?? 0) > 0, () => load("files"), host);
  const steps = later(model, () => model.isOver, () => load("stepping"), host);
  const choice = tabs(model, { chat: [chat.element], timeline: [workflow.element, picture.element] });
  const views: View[] = [header(root, model, connection, spread), failure, asked, choice, chat, workflow, picture, files, values, steps];
  const undo = model.on((change) => { if (change === "view" && model.view !== "chat") host.gatherCards(); });
  root.append(...views.map((view) => view.element));
  for (const asked of wire.get("snapshot").pending ?? []) model.questions.set(asked.interrupt_id, asked);
  model.tell("questions");
  return () => {
    connection.close();
    undo();
    forgetTheme();
    views.forEach((view) => { view.destroy(); });
    root.remove();
  };
}

export default { render };
