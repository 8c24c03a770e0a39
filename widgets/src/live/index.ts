// Live view of one execution, rendered by anywidget. All parts share one model and one connection.

import type { RenderProps } from "@anywidget/types";
import type { BundleName, QuestionView as Question, Welcome } from "../protocol";
import { isHosted } from "../shared/channel";
import { Connection } from "../shared/connection";
import { h, type View } from "../shared/dom";
import { containKeys } from "../shared/keys";
import { Model } from "../shared/model";
import { type Host, lazyPart, moduleOf } from "../shared/lazypart";
import { onThemeChange } from "../shared/theme";
import { keepCardsInPlace } from "../prompt/steady";
import { header } from "../head/header";
import { rowsOf } from "../head/progress";
import { questions } from "./questions";
import { tabs } from "./tabs";
import "./live.css";

/** Attribute of the widget with a first state, which a view shows if it opens while the kernel is busy. */
interface State {
  snapshot: { status?: string; workflow?: string; pending?: Question[] };
}

/** Render the view. Return a function that removes it. */
function render({ model: wire, el }: RenderProps<State>): () => void {
  const root = h("div", { class: "divebook db-root" });
  containKeys(root);
  el.append(root);
  const stopTheme = onThemeChange(root);
  const stopAnchor = keepCardsInPlace(root);
  const modules = new Map<BundleName, unknown>();
  const first = new Model();
  const connection = new Connection(wire, first, () => isHosted(el), (welcome) => {
    close();
    close = show(new Model(), [], welcome);
  });
  let close = show(first, wire.get("snapshot").pending ?? [], null);

  /**
   * Show the data of one feed of the kernel. If the kernel shows another execution in this view, or the same one after it has
   * read its log anew, all parts start again: nothing that belongs to the data before can stay.
   */
  function show(model: Model, pending: readonly Question[], welcome: Welcome | null): () => void {
    const load = async (name: BundleName): Promise<unknown> => {
      if (!modules.has(name)) modules.set(name, await moduleOf(await connection.bundle(name)));
      return modules.get(name);
    };
    const questionList = questions(model, connection);
    const host: Host = {
      root,
      detail: (id, receive) => { connection.detail(id, receive); },
      conversation: (id, since, receive) => { connection.conversation(id, since, receive); },
      variables: (version, receive) => { connection.variables(version, receive); },
      takeOver: (workspace, at, paths) => connection.takeOver(workspace, at, paths),
      files: (version, receive, at, since) => { connection.files(version, receive, at, since); },
      sent: (id, receive) => { connection.sent(id, receive); },
      placeCard: (id, place) => { questionList.prompt.place(id, place); },
      gatherCards: () => { questionList.prompt.gather(); },
      control: (command) => connection.control(command),
      replay: undefined, // set by the part "stepping"
      wire,
    };
    const timeline = lazyPart(model, () => model.view === "timeline" && model.spans.total > 0, () => load("timeline"), host);
    const spread = lazyPart(model, () => rowsOf(model.header).some((step) => step.spread.length > 0), () => load("spread"), host);
    const failure = lazyPart(model, () => model.failures.total > 0, () => load("failure"), host);
    const workflow = lazyPart(model, () => model.graph.steps.length > 1, () => load("graph"), host);
    const chat = lazyPart(model, () => model.view === "chat", () => load("turn"), host);
    const values = lazyPart(model, () => model.spans.total > 0, () => load("variables"), host);
    const files = lazyPart(model, () => (model.header?.workspaces ?? 0) > 0, () => load("files"), host);
    const steps = lazyPart(model, () => model.isOver, () => load("stepping"), host);
    const tabBar = tabs(model, { chat: [chat.element], timeline: [workflow.element, timeline.element] });
    const views: View[] = [header(root, model, connection, spread), failure, questionList, tabBar, chat, workflow, timeline, files, values, steps];
    const undo = model.on((change) => {
      if (change === "view" && model.view !== "chat") host.gatherCards();
    });
    if (welcome !== null) connection.follow(model, welcome);
    root.replaceChildren(...views.map((view) => view.element));
    for (const question of pending) model.questions.set(question.interrupt_id, question);
    model.notify("questions");
    return () => {
      undo();
      views.forEach((view) => { view.destroy(); });
    };
  }

  return () => {
    connection.close();
    close();
    stopTheme();
    stopAnchor();
    root.remove();
  };
}

export default { render };
