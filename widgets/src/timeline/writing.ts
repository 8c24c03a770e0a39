// What models are writing at the moment: the ends of the texts.

import { h, setText } from "../shared/dom";
import type { Model } from "../shared/model";

const WRITERS = 3;
const WRITTEN = 240; // characters of each text

/** Shows the ends of the texts that models are writing. */
export function write(element: HTMLElement, model: Model): void {
  const writers = [...model.streams].map(([id, parts]) => [id, [...parts.values()].at(-1)] as const).slice(-WRITERS);
  element.hidden = writers.length === 0;
  while (element.children.length > writers.length) element.lastElementChild?.remove();
  writers.forEach(([id, stream], place) => {
    let line = element.children[place];
    if (line === undefined) {
      line = h("div", { class: "db-writer" }, h("span", { class: "db-by" }), h("span", { class: "db-tail", dir: "auto" }));
      element.append(line);
    }
    const [by, tail] = [line.children[0], line.children[1]];
    if (by !== undefined) setText(by, `M ${model.spans.nameOf(id)}`);
    if (tail !== undefined) setText(tail, stream === undefined ? "" : `${stream.length > WRITTEN ? "…" : ""}${stream.text.slice(-WRITTEN)}`);
  });
}
