// Messages of a request: all of them, or the differences from the previous request.

import type { ConversationPart, ConversationRequest, Sent } from "../protocol";
import { h } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { plural } from "../shared/format";
import { oneLine } from "../shared/text";
import { message } from "./parts";

export type Ask = (id: number, receive: (answer: Sent) => void) => void;

/** A part of one request, or a line of a part, that the other does not have. */
export interface Difference {
  kind: "same" | "added" | "removed" | "changed";
  parts: ConversationPart[];
}

/** Returns what differs between the messages of two requests: what stands between their common beginning and end. */
export function differences(before: readonly ConversationPart[], now: readonly ConversationPart[]): Difference[] {
  const [start, end] = ends(before.map(asText), now.map(asText));
  const [old, fresh] = [before.slice(start, before.length - end), now.slice(start, now.length - end)];
  const isReplaced = JSON.stringify(old.map(speaker)) === JSON.stringify(fresh.map(speaker));
  const middle: Difference[] = isReplaced
    ? old.map((part, place) => ({ kind: "changed", parts: [part, fresh[place] ?? part] }))
    : [{ kind: "removed", parts: old }, { kind: "added", parts: fresh }];
  const all: Difference[] = [{ kind: "same", parts: now.slice(0, start) }, ...middle, { kind: "same", parts: now.slice(now.length - end) }];
  return all.filter(({ parts }) => parts.length > 0);
}

function asText({ kind, text, call }: ConversationPart): string {
  return JSON.stringify([kind, text, call]);
}

function speaker({ kind, call }: ConversationPart): string[] {
  return [kind, call];
}

/** Returns how many entries two lists have in common at their beginning, and then at their end. */
function ends(one: readonly string[], other: readonly string[]): [start: number, end: number] {
  const most = Math.min(one.length, other.length);
  let [start, end] = [0, 0];
  while (start < most && one[start] === other[start]) start++;
  while (end < most - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end++;
  return [start, end];
}

/** The panel below a request that shows what was sent with it. */
export class SentPanel {
  readonly element = h("div", { class: "all", hidden: true });
  readonly #body = h("div");
  readonly #whole = button("", () => { this.#choose(false); }, { class: "small" });
  readonly #changes = button("", () => { this.#choose(true); }, { class: "small" });
  #isDifference = false;
  #request: ConversationRequest | undefined;
  #before: ConversationRequest | undefined;

  constructor(
    private readonly ask: Ask,
    private readonly asker: string,
  ) {
    this.element.append(h("div", { class: "row", role: "group", "aria-label": "What to show of it" }, this.#whole, this.#changes), this.#body);
  }

  /** Says which request it is about, and which one came before it. */
  of(request: ConversationRequest, before: ConversationRequest | undefined): void {
    [this.#request, this.#before] = [request, before];
  }

  /** Shows or hides it; returns whether it is shown. */
  toggle(): boolean {
    this.element.hidden = !this.element.hidden;
    if (!this.element.hidden) this.#choose(this.#isDifference);
    return !this.element.hidden;
  }

  #choose(isDifference: boolean): void {
    const [request, before] = [this.#request, this.#before];
    if (request === undefined) return;
    this.#isDifference = isDifference && before !== undefined;
    this.#whole.textContent = "All messages";
    this.#changes.textContent = before === undefined ? "" : `Changes since request ${before.number}`;
    this.#changes.hidden = before === undefined;
    setAttribute(this.#whole, "aria-pressed", String(!this.#isDifference));
    setAttribute(this.#changes, "aria-pressed", String(this.#isDifference));
    this.#body.replaceChildren(h("p", { class: "soft" }, "loading …"));
    this.ask(request.id, (now) => {
      if (before === undefined || !this.#isDifference) this.#show(now.error, now.parts.map((part) => message(part, this.asker)));
      else this.ask(before.id, (old) => { this.#show(now.error || old.error, [...madeWith(before, request), ...differences(old.parts, now.parts).map((one) => difference(one, this.asker))]); });
    });
  }

  #show(error: string, parts: HTMLElement[]): void {
    this.#body.replaceChildren(...(error === "" ? parts : [h("p", { class: "bad" }, error)]));
  }
}

const SIGNS = { same: "", added: "+", removed: "−", changed: "±" } as const;
const WORDS = { same: "as before", added: "new", removed: "no longer sent", changed: "changed" } as const;

function difference({ kind, parts }: Difference, asker: string): HTMLElement {
  if (kind === "same") {
    const unfold = h("details", { class: "same" }, h("summary", {}, `${plural(parts.length, "message")} as before`));
    unfold.addEventListener("toggle", () => { unfold.append(...parts.map((part) => message(part, asker))); }, { once: true });
    return unfold;
  }
  const [before, now] = parts;
  const body = kind === "changed" && before !== undefined && now !== undefined ? [lines(before, now, asker)] : parts.map((part) => message(part, asker));
  return h("div", { class: `diff ${kind}` }, h("span", { class: "sign", title: WORDS[kind] }, SIGNS[kind]), h("div", {}, h("span", { class: "db-hidden" }, `${WORDS[kind]}: `), ...body));
}

/** Shows a message of which only some lines are others. */
function lines(before: ConversationPart, now: ConversationPart, asker: string): HTMLElement {
  const [old, fresh] = [before.text.split("\n"), now.text.split("\n")];
  const [start, end] = ends(old, fresh);
  const row = (kind: "added" | "removed", text: string): HTMLElement => h("div", { class: `line ${kind}`, dir: "auto" }, `${SIGNS[kind]} ${text}`);
  const same = plural(start + end, "line");
  return h(
    "div", {},
    message({ ...now, text: start + end > 0 ? `(${same} as before)` : "" }, asker),
    ...old.slice(start, old.length - end).map((text) => row("removed", text)),
    ...fresh.slice(start, fresh.length - end).map((text) => row("added", text)),
  );
}

/** What the model was told besides messages, where it is not as it was. */
function madeWith(before: ConversationRequest, now: ConversationRequest): HTMLElement[] {
  const gone = before.tools.filter((tool) => !now.tools.includes(tool));
  const come = now.tools.filter((tool) => !before.tools.includes(tool));
  const told = [
    before.model === now.model ? "" : `model: ${oneLine(before.model, 60)} → ${oneLine(now.model, 60)}`,
    gone.length > 0 ? `− tools: ${gone.join(", ")}` : "",
    come.length > 0 ? `+ tools: ${come.join(", ")}` : "",
    before.output === now.output ? "" : `answers with: ${before.output || "text"} → ${now.output || "text"}`,
  ];
  return told.filter(Boolean).map((text) => h("p", {}, text));
}
