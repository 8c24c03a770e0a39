// Questions of one execution in the live view.

import { blockedReason, drafts } from "../prompt/host";
import { Prompt } from "../prompt/prompt";
import type { Question } from "../prompt/types";
import type { Connection } from "../shared/connection";
import type { View } from "../shared/dom";
import type { Model } from "../shared/model";

/** Return whether a question is about a call of an agent, so that the chat shows its card beside the call. */
function isAboutCall({ data }: Question): boolean {
  const call = data["parameters"];
  return typeof data["agent"] === "string" || (typeof call === "object" && call !== null && "tool" in call);
}

/** Show the questions of a model and send the answers. */
export function questions(model: Model, connection: Connection): View & { prompt: Prompt } {
  const answer = (id: string, response: unknown): ReturnType<Connection["answer"]> => connection.answer(id, response);
  const prompt = new Prompt({
    answer,
    blockedReason: blockedReason(model),
    now: () => model.wallClock(),
    drafts,
    awaitsPlace: (question) => (model.view === "chat" || model.header === null) && isAboutCall(question),
    execution: () => model.header?.execution_id ?? "",
  });
  /** Show the questions, without the pending ones of an ended run: a resumed run raises them again. */
  const update = (): void => {
    const isVisible = ({ status }: { status: string }): boolean => status !== "pending" || !model.isOver;
    const badge = model.header?.badge ?? "";
    const trialOf = badge === "fork" ? "" : badge; // a fork is a run like any other
    prompt.update([...model.questions.values()].filter(isVisible).map((question) => ({ ...question, trialOf })));
  };
  const stop = model.on((change) => {
    if (change === "questions" || change === "header") update();
    else if (change === "connection") prompt.showStatus();
  });
  const destroy = (): void => {
    stop();
    prompt.destroy();
  };
  update();
  return { element: prompt.element, destroy, prompt };
}
