// Bundle of the chat of a run: choice of the turn, list of its requests, and switches for the visible parts.

import { copyButton } from "../shared/copy";
import { h, setText, type View } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { plural } from "../shared/format";
import type { Host, Part } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { rootsOf } from "../shared/spans";
import { oneLine } from "../shared/text";
import { SIGNS } from "../timeline/kinds";
import { Chat } from "./chat";
import { YOU } from "./parts";
import { RequestList } from "./requestlist";
import { Conversations } from "./conversations";
import { questionsOfStep, turnTimes } from "./times";
import style from "./turn.css";

const MAX_TURNS = 200; // the newest ones, in the choice

/** View of a run's conversations, one at a time. */
function conversationView(model: Model, host: Host): View {
  const conversations = new Conversations(model, host);
  const about = h("span", { class: "soft", hidden: true });
  const choice = h("select", { "aria-label": "Turn", onchange: () => { show(Number(choice.value)); } });
  const times = h("span", { class: "soft", title: "How long calls ran, and how long the run waited for an answer" });
  const count = h("span", { class: "soft" });
  const frame = h("div", { class: "frame row", hidden: true });
  const asFrame: HTMLButtonElement = button("As a DataFrame", () => { showFrame(); }, { class: "small quiet", "aria-expanded": "false" });
  const switches = [toggle("tool calls", "no-calls"), toggle("thinking", "no-thinking")];
  const bar = h("div", { class: "bar row" }, choice, about, ...switches, times, h("div", { class: "row end" }, count, asFrame));
  const requestList = new RequestList(model, conversations, (number) => { chat?.show(number); });
  const wrap = h("div", { class: "wrap" }, requestList.element);
  const element = h("section", { class: "divebook-turn", "aria-label": "Conversation" }, bar, frame, wrap);
  let chat: Chat | null = null;
  let optionsKey = "";

  function toggle(label: string, hiddenClass: string): HTMLElement {
    const box = h("input", { type: "checkbox", checked: true, onchange: () => { element.classList.toggle(hiddenClass, !box.checked); } });
    return h("label", {}, box, ` ${label}`);
  }

  /** Show the Python line that returns these messages as a frame, with a button to copy it. */
  function showFrame(): void {
    frame.hidden = !frame.hidden;
    setAttribute(asFrame, "aria-expanded", String(!frame.hidden));
    const agents = model.header?.spenders.length ?? 0;
    const line = frameLine(model.header?.execution_id ?? "", agents > 1 && chat !== null ? conversations.of(chat.id).agent : "");
    frame.replaceChildren(h("code", {}, line), copyButton(() => line, { class: "small", "aria-label": "Copy the code" }));
  }

  function show(id: number): void {
    if (chat?.id === id) return;
    chat?.destroy();
    chat = new Chat(id, model, conversations, host, YOU, (conversation) => {
      requestList.update(conversation);
      setText(times, turnTimes(model, id, questionsOfStep(model, id)).replace(/^(?=\d)/, "requests and calls "));
      const requestMessages = conversation.requests.reduce((sum, { sent, answer }) => sum + sent.length + Math.min(1, answer.length), 0);
      const results = conversation.calls.filter(({ outcome }) => outcome !== "").length;
      const isPartial = (conversation.requests[0]?.number ?? 1) > 1;
      const countText = `${plural(requestMessages + results, "message")}${isPartial ? " shown" : ""}`;
      setText(count, conversation.isLoaded ? countText : "");
      setText(about, conversation.thread === "" ? "" : `thread ${oneLine(conversation.thread, 60)}`);
      about.hidden = conversation.thread === "";
    });
    wrap.append(chat.element);
    choice.value = String(id);
  }

  /** Update the choice of the turn. Show the selected or newest turn first. */
  function updateChoice(): void {
    const roots = rootsOf(model.spans).slice(-MAX_TURNS);
    const texts = roots.map((id) => `${SIGNS[model.spans.text(id, "status")] ?? ""} ${model.spans.nameOf(id)} › ${model.spans.text(id, "label")}`);
    if (JSON.stringify([roots, texts]) !== optionsKey) {
      optionsKey = JSON.stringify([roots, texts]);
      choice.replaceChildren(...roots.map((id, place) => h("option", { value: id }, oneLine(texts[place] ?? "", 80))));
      choice.hidden = roots.length < 2;
      if (chat !== null) choice.value = String(chat.id);
    }
    const first = roots.at(-1);
    if (chat === null && first !== undefined) show(selectedRoot(roots) ?? first);
  }

  /** Return the turn that is selected, or that contains the selected request or call. */
  function selectedRoot(roots: readonly number[]): number | undefined {
    const { selected, spans } = model;
    const parent = selected === null ? -1 : spans.number(selected, "within");
    return roots.find((id) => id === selected || id === parent);
  }

  const undo = model.on((change) => {
    if (change === "spans") updateChoice();
    if (change === "selection") {
      const root = selectedRoot(rootsOf(model.spans));
      if (root !== undefined) show(root);
    }
  });
  const destroy = (): void => {
    undo();
    chat?.destroy();
    conversations.destroy();
    element.remove();
  };
  updateChoice();
  return { element, destroy };
}

/** Return the Python line for the messages of a run, or of one of its agents. */
export function frameLine(execution: string, agent: string): string {
  const filter = agent === "" ? "" : `.loc[lambda said: said.agent == ${JSON.stringify(agent)}]`;
  return `import divebook; divebook.show(${JSON.stringify(execution)}).messages${filter}`;
}

const part: Part = { style, make: conversationView };

export default part;
