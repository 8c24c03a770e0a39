// Widget with the questions of all executions of a store, rendered by anywidget for `%dive inbox`.

import type { RenderProps } from "@anywidget/types";
import { blockedReason, drafts } from "../prompt/host";
import { Prompt } from "../prompt/prompt";
import { keepCardsInPlace } from "../prompt/steady";
import { isHosted } from "../shared/channel";
import { h, setText } from "../shared/dom";
import { containKeys } from "../shared/keys";
import { onThemeChange } from "../shared/theme";
import { KERNEL_SILENT, kernelStopped } from "../shared/words";
import { InboxState, InboxChannel } from "./inbox";
import "./inbox.css";

const WORDS = {
  connecting: "connecting to the kernel …",
  connected: "",
  silent: KERNEL_SILENT,
  detached: kernelStopped("continue."),
};

/** Render the inbox. The returned function removes it. */
function render({ model: wire, el }: RenderProps): () => void {
  const state = new InboxState();
  const channel = new InboxChannel(wire, state, () => isHosted(el));
  const answer = (id: string, response: unknown): ReturnType<InboxChannel["answer"]> => channel.answer(id, response);
  const prompt = new Prompt({ answer, blockedReason: blockedReason(state), now: () => state.now(), drafts });
  const notice = h("p", { class: "notice", role: "status" });
  const root = h("div", { class: "divebook divebook-inbox" }, notice, prompt.element);
  containKeys(root);
  el.append(root);
  const stopThemeUpdates = onThemeChange(root);
  const stopAnchor = keepCardsInPlace(root);

  function show(): void {
    prompt.update([...state.questions.values()]);
    prompt.showStatus();
    const more = state.hidden > 0 ? `${state.hidden.toLocaleString("en")} more open questions appear after you answer these.` : "";
    const empty = state.questions.size === 0 ? "No open questions" : "";
    setText(notice, WORDS[state.connected] || more || empty);
  }

  state.onChange = show;
  show();
  return () => {
    stopThemeUpdates();
    stopAnchor();
    channel.close();
    prompt.destroy();
    root.remove();
  };
}

export default { render };
