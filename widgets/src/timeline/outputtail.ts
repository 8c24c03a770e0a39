// Live output of models and commands: the last characters of each text.

import { h, setText } from "../shared/dom";
import type { Model } from "../shared/model";
import { terminalText } from "../shared/text";

const MOST_TEXTS = 3; // texts at a time
const TAIL_LENGTH = 240; // characters of each text

/** Show the last characters of the latest texts. */
export function showOutputTail(element: HTMLElement, model: Model): void {
  const streams = [...model.streams].map(([id, parts]) => [id, [...parts].at(-1)] as const).slice(-MOST_TEXTS);
  element.hidden = streams.length === 0;
  while (element.children.length > streams.length) element.lastElementChild?.remove();
  streams.forEach(([id, latest], index) => {
    const [part, stream] = latest ?? [];
    let line = element.children[index];
    if (line === undefined) {
      line = h("div", { class: "db-writer" }, h("span", { class: "db-by" }), h("span", { class: "db-tail", dir: "auto" }));
      element.append(line);
    }
    const writer = line.children[0];
    const tail = line.children[1];
    if (writer !== undefined) setText(writer, `${part === "output" ? "$" : "M"} ${model.spans.nameOf(id)}`);
    const text = part === "output" ? terminalText(stream?.text ?? "") : stream?.text ?? "";
    if (tail !== undefined) setText(tail, `${text.length > TAIL_LENGTH ? "…" : ""}${text.slice(-TAIL_LENGTH)}`);
  });
}
