// Badge of an event: the letter and colour of its kind, as in the timeline.

import { TYPE_COLOURS } from "../constants";
import { h } from "../shared/dom";

const LETTERS: Record<string, [string, string]> = { model: ["M", "model call"], turn: ["", "agent turn"], tool: ["T", "tool call"], action: ["A", "action"], script: ["S", "script"] };
const KINDS: Partial<Record<string, string>> = TYPE_COLOURS;

/** Create the badge of an operation type or of an item (`item`). Without a kind it is an empty place. */
export function kindBadge(kind: string): HTMLElement {
  const key = KINDS[kind] ?? (kind === "item" ? "item" : "");
  if (key === "") return h("span", { class: "badge none" });
  const [letter, name] = LETTERS[key] ?? ["·", "item"];
  return h("span", { class: "badge", role: "img", "aria-label": name, title: name, style: `--kind: var(--db-${key}); --kind-text: var(--db-${key}-text)` }, letter);
}

/** Return the words for an operation type, such as "script" or "time accessed". */
export function kindName(kind: string): string {
  return LETTERS[KINDS[kind] ?? ""]?.[1] ?? kind.replaceAll("_", " ");
}
