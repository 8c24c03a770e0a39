// The execution's questions within the live view.

import { Prompt } from "../prompt/prompt";
import type { Draft } from "../prompt/types";
import type { Connection } from "../shared/connection";
import type { View } from "../shared/dom";
import type { Model } from "../shared/model";

const drafts = new Map<string, Draft>(); // of all views of this page, and of those that come after them

/** Shows the questions of a model and sends what is answered. */
export function questions(model: Model, connection: Connection): View {
  const answer = (id: string, response: unknown): ReturnType<Connection["answer"]> => connection.answer(id, response);
  const prompt = new Prompt({ answer, now: () => model.originUs + model.now(), drafts });
  const update = (): void => { prompt.update([...model.questions.values()]); };
  const stop = model.on((change) => { if (change === "questions") update(); });
  const destroy = (): void => {
    stop();
    prompt.destroy();
  };
  update();
  return { element: prompt.element, destroy };
}
