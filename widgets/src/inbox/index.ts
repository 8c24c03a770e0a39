// Widget with the questions of all executions of a store, which anywidget renders for `%dive inbox`.

import type { RenderProps } from "@anywidget/types";
import { away, drafts } from "../prompt/host";
import { Prompt } from "../prompt/prompt";
import { isHosted } from "../shared/channel";
import { h, setText } from "../shared/dom";
import { containKeys } from "../shared/keys";
import { onThemeChange } from "../shared/theme";
import { kernelStopped } from "../shared/words";
import { Asking, InboxChannel } from "./inbox";
import "./inbox.css";

const WORDS = {
  connecting: "connecting to the kernel …",
  connected: "",
  detached: kernelStopped("go on."),
};

function render({ model: wire, el }: RenderProps): () => void {
  const asking = new Asking();
  const channel = new InboxChannel(wire, asking, () => isHosted(el));
  const answer = (id: string, response: unknown): ReturnType<InboxChannel["answer"]> => channel.answer(id, response);
  const prompt = new Prompt({ answer, away: away(asking), now: () => asking.now(), drafts });
  const notice = h("p", { class: "notice", role: "status" });
  const root = h("div", { class: "divebook divebook-inbox" }, notice, prompt.element);
  containKeys(root);
  el.append(root);
  const forget = onThemeChange(root);

  function show(): void {
    prompt.update([...asking.questions.values()]);
    prompt.reach();
    const more = asking.hidden > 0 ? `${asking.hidden.toLocaleString("en")} more open questions: answer these first` : "";
    const empty = asking.questions.size === 0 ? "No open question" : "";
    setText(notice, WORDS[asking.connected] || more || empty);
  }

  asking.changed = show;
  show();
  return () => {
    forget();
    channel.close();
    prompt.destroy();
    root.remove();
  };
}

export default { render };
