// Current output of models and commands: the ends of the texts.

import { h, setText } from "../shared/dom";
import type { Model } from "../shared/model";
import { printed } from "../shared/text";

const WRITERS = 3;
const WRITTEN = 240; // characters of each text

/** Shows the ends of the texts that are being written. */
export function write(element: HTMLElement, model: Model): void {
  const writers = [...model.streams].map(([id, parts]) => [id, [...parts].at(-1)] as const).slice(-WRITERS);
  element.hidden = writers.length === 0;
  while (element.children.length > writers.length) element.lastElementChild?.remove();
  writers.forEach(([id, latest], place) => {
    const [part, stream] = latest ?? [];
    let line = element.children[place];
    if (line === undefined) {
      line = h("div", { class: "db-writer" }, h("span", { class: "db-by" }), h("span", { class: "db-tail", dir: "auto" }));
      element.append(line);
    }
    const [by, tail] = [line.children[0], line.children[1]];
    if (by !== undefined) setText(by, `${part === "output" ? "$" : "M"} ${model.spans.nameOf(id)}`);
    const text = part === "output" ? printed(stream?.text ?? "") : stream?.text ?? "";
    if (tail !== undefined) setText(tail, `${text.length > WRITTEN ? "…" : ""}${text.slice(-WRITTEN)}`);
  });
}
