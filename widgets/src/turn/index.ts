// Bundle of the chat of a run: choice of the turn, the list of requests beside it, and the visible parts.

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
import { Rail } from "./rail";
import { Talks } from "./talk";
import { questionsOfStep, turnTimes } from "./times";
import style from "./turn.css";

const MOST_TURNS = 200; // to choose from, the newest

/** Shows the conversations of a run, one at a time. */
function turns(model: Model, host: Host): View {
  const talks = new Talks(model, host);
  const about = h("span", { class: "soft", hidden: true });
  const choice = h("select", { "aria-label": "Turn", onchange: () => { show(Number(choice.value)); } });
  const times = h("span", { class: "soft", title: "How long calls ran, and how long nothing could go on before somebody answered" });
  const count = h("span", { class: "soft" });
  const frame = h("div", { class: "frame row", hidden: true });
  const asFrame: HTMLButtonElement = button("As a frame", () => { showFrame(); }, { class: "small quiet", "aria-expanded": "false" });
  const bar = h("div", { class: "bar row" }, choice, about, toggle("tool calls", "no-calls"), toggle("thinking", "no-thinking"), times, h("div", { class: "row end" }, count, asFrame));
  const rail = new Rail(model, talks, (number) => { chat?.show(number); });
  const wrap = h("div", { class: "wrap" }, rail.element);
  const element = h("section", { class: "divebook-turn", "aria-label": "Conversation" }, bar, frame, wrap);
  let chat: Chat | null = null;
  let listed = "";

  function toggle(label: string, without: string): HTMLElement {
    const box = h("input", { type: "checkbox", checked: true, onchange: () => { element.classList.toggle(without, !box.checked); } });
    return h("label", {}, box, ` ${label}`);
  }

  /** Shows the line that gives these messages as a frame, to be copied. */
  function showFrame(): void {
    frame.hidden = !frame.hidden;
    setAttribute(asFrame, "aria-expanded", String(!frame.hidden));
    const agents = model.header?.spenders.length ?? 0;
    const line = frameLine(model.header?.execution_id ?? "", agents > 1 && chat !== null ? talks.of(chat.id).agent : "");
    frame.replaceChildren(h("code", {}, line), copyButton(() => line, { class: "small", "aria-label": "Copy the line" }));
  }

  function show(id: number): void {
    if (chat?.id === id) return;
    chat?.destroy();
    chat = new Chat(id, model, talks, host, YOU, (talk) => {
      rail.update(talk);
      setText(times, turnTimes(model, id, questionsOfStep(model, id)).replace(/^(?=\d)/, "requests and calls "));
      const messages = talk.requests.reduce((sum, { sent, answer }) => sum + sent.length + Math.min(1, answer.length), 0) + talk.calls.filter(({ outcome }) => outcome !== "").length;
      setText(count, talk.isKnown ? `${plural(messages, "message")}${(talk.requests[0]?.number ?? 1) > 1 ? " here" : ""}` : "");
      setText(about, talk.thread === "" ? "" : `thread ${oneLine(talk.thread, 60)}`);
      about.hidden = talk.thread === "";
    });
    wrap.append(chat.element);
    choice.value = String(id);
  }

  function look(): void {
    const roots = rootsOf(model.spans).slice(-MOST_TURNS);
    const texts = roots.map((id) => `${SIGNS[model.spans.text(id, "status")] ?? ""} ${model.spans.nameOf(id)} › ${model.spans.text(id, "label")}`);
    if (JSON.stringify([roots, texts]) !== listed) {
      listed = JSON.stringify([roots, texts]);
      choice.replaceChildren(...roots.map((id, place) => h("option", { value: id }, oneLine(texts[place] ?? "", 80))));
      choice.hidden = roots.length < 2;
      if (chat !== null) choice.value = String(chat.id);
    }
    const first = roots.at(-1);
    if (chat === null && first !== undefined) show(wanted(roots) ?? first);
  }

  function wanted(roots: readonly number[]): number | undefined {
    const { selected, spans } = model;
    const around = selected === null ? -1 : spans.number(selected, "within");
    return roots.find((id) => id === selected || id === around);
  }

  const undo = model.on((change) => {
    if (change === "spans") look();
    if (change === "selection") {
      const chosen = wanted(rootsOf(model.spans));
      if (chosen !== undefined) show(chosen);
    }
  });
  const destroy = (): void => {
    undo();
    chat?.destroy();
    talks.destroy();
    element.remove();
  };
  look();
  return { element, destroy };
}

/** Returns what to type for the messages of a run, or of one of its agents. */
export function frameLine(execution: string, agent: string): string {
  const whose = agent === "" ? "" : `.loc[lambda said: said.agent == ${JSON.stringify(agent)}]`;
  return `import divebook; divebook.show(${JSON.stringify(execution)}).messages${whose}`;
}

const part: Part = { style, make: turns };

export default part;
