// The execution's questions within the live view.

import { blockedReason, drafts } from "../prompt/host";
import { Prompt } from "../prompt/prompt";
import type { Connection } from "../shared/connection";
import type { View } from "../shared/dom";
import type { Model } from "../shared/model";


/** Shows the questions of a model and sends what is answered. */
export function questions(model: Model, connection: Connection): View & { prompt: Prompt } {
  const answer = (id: string, response: unknown): ReturnType<Connection["answer"]> => connection.answer(id, response);
  const prompt = new Prompt({ answer, blockedReason: blockedReason(model), now: () => model.originUs + model.now(), drafts, execution: () => model.header?.execution_id ?? "" });
  const update = (): void => { prompt.update([...model.questions.values()].filter(({ status }) => status !== "pending" || !model.isOver)); }; // what has ended asks again once it is resumed
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
