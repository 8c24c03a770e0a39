// Messages of a request: all of them, or the differences from the previous request.

import type { ConversationPart, ConversationRequest, Sent } from "../protocol";
import { h } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { plural } from "../shared/format";
import { oneLine } from "../shared/text";
import { message } from "./parts";

/** Request all messages of a request from the kernel. */
export type RequestSent = (id: number, receive: (answer: Sent) => void) => void;

/** Messages that are equal in two requests, or that differ. */
export interface Difference {
  kind: "same" | "added" | "removed" | "changed";
  parts: ConversationPart[];
}

/**
 * Return the differences between the messages of two requests.
 * The equal beginning and end are cut off. If the rest has the same roles in both requests, its messages are compared
 * in pairs.
 */
export function differences(previous: readonly ConversationPart[], now: readonly ConversationPart[]): Difference[] {
  const [start, end] = commonEnds(previous.map(partKey), now.map(partKey));
  const removed = previous.slice(start, previous.length - end);
  const added = now.slice(start, now.length - end);
  const isReplaced = JSON.stringify(removed.map(roleOf)) === JSON.stringify(added.map(roleOf));
  const middle: Difference[] = isReplaced
    ? removed.map((part, place) => ({ kind: "changed", parts: [part, added[place] ?? part] }))
    : [{ kind: "removed", parts: removed }, { kind: "added", parts: added }];
  const all: Difference[] = [
    { kind: "same", parts: now.slice(0, start) },
    ...middle,
    { kind: "same", parts: now.slice(now.length - end) },
  ];
  return all.filter(({ parts }) => parts.length > 0);
}

function partKey({ kind, text, call }: ConversationPart): string {
  return JSON.stringify([kind, text, call]);
}

function roleOf({ kind, call }: ConversationPart): string[] {
  return [kind, call];
}

/** Return the lengths of the longest common beginning of two lists, and of the common end of the rest. */
function commonEnds(one: readonly string[], other: readonly string[]): [start: number, end: number] {
  const most = Math.min(one.length, other.length);
  let start = 0;
  let end = 0;
  while (start < most && one[start] === other[start]) start++;
  while (end < most - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end++;
  return [start, end];
}

/** Panel below a request with the messages that were sent. */
export class SentPanel {
  readonly element = h("div", { class: "all", hidden: true });
  readonly #body = h("div");
  readonly #whole = button("", () => { this.#load(false); }, { class: "small" });
  readonly #changes = button("", () => { this.#load(true); }, { class: "small" });
  #isDifference = false;
  #request: ConversationRequest | undefined;
  #previous: ConversationRequest | undefined;

  constructor(
    private readonly requestSent: RequestSent,
    private readonly sender: string,
  ) {
    this.element.append(h("div", { class: "row", role: "group", "aria-label": "Messages to show" }, this.#whole, this.#changes), this.#body);
  }

  /** Set the request of the panel and the previous one. */
  setRequests(request: ConversationRequest, previous: ConversationRequest | undefined): void {
    this.#request = request;
    this.#previous = previous;
  }

  /** Show or hide the panel. Return whether it is visible. */
  toggle(): boolean {
    this.element.hidden = !this.element.hidden;
    if (!this.element.hidden) this.#load(this.#isDifference);
    return !this.element.hidden;
  }

  /** Request the messages from the kernel, and those of the previous request for a comparison. */
  #load(isDifference: boolean): void {
    const request = this.#request;
    const previous = this.#previous;
    if (request === undefined) return;
    this.#isDifference = isDifference && previous !== undefined;
    this.#whole.textContent = "All messages";
    this.#changes.textContent = previous === undefined ? "" : `Changes since request ${previous.number}`;
    this.#changes.hidden = previous === undefined;
    setAttribute(this.#whole, "aria-pressed", String(!this.#isDifference));
    setAttribute(this.#changes, "aria-pressed", String(this.#isDifference));
    this.#body.replaceChildren(h("p", { class: "soft" }, "loading …"));
    this.requestSent(request.id, (now) => {
      if (previous === undefined || !this.#isDifference) {
        this.#show(now.error, now.parts.map((part) => message(part, this.sender)));
        return;
      }
      this.requestSent(previous.id, (old) => {
        const messageChanges = differences(old.parts, now.parts).map((item) => difference(item, this.sender));
        this.#show(now.error || old.error, [...settingChanges(previous, request), ...messageChanges]);
      });
    });
  }

  #show(error: string, parts: HTMLElement[]): void {
    this.#body.replaceChildren(...(error === "" ? parts : [h("p", { class: "bad" }, error)]));
  }
}

const SIGNS = { same: "", added: "+", removed: "−", changed: "±" } as const;
const WORDS = { same: "unchanged", added: "new", removed: "no longer sent", changed: "changed" } as const;

/** Return the element of a difference. Equal messages are built only when they are unfolded. */
function difference({ kind, parts }: Difference, sender: string): HTMLElement {
  if (kind === "same") {
    const unfold = h("details", { class: "same" }, h("summary", {}, plural(parts.length, "unchanged message")));
    unfold.addEventListener("toggle", () => { unfold.append(...parts.map((part) => message(part, sender))); }, { once: true });
    return unfold;
  }
  const [previous, now] = parts;
  const isPair = kind === "changed" && previous !== undefined && now !== undefined;
  const body = isPair ? [changedLines(previous, now, sender)] : parts.map((part) => message(part, sender));
  const sign = h("span", { class: "sign", title: WORDS[kind] }, SIGNS[kind]);
  const word = h("span", { class: "db-hidden" }, `${WORDS[kind]}: `); // for screen readers
  return h("div", { class: `diff ${kind}` }, sign, h("div", {}, word, ...body));
}

/** Show the changed lines of a message, and the number of the equal lines around them. */
function changedLines(previous: ConversationPart, now: ConversationPart, sender: string): HTMLElement {
  const old = previous.text.split("\n");
  const fresh = now.text.split("\n");
  const [start, end] = commonEnds(old, fresh);
  const row = (kind: "added" | "removed", text: string): HTMLElement => h("div", { class: `line ${kind}`, dir: "auto" }, `${SIGNS[kind]} ${text}`);
  const same = plural(start + end, "unchanged line");
  return h(
    "div", {},
    message({ ...now, text: start + end > 0 ? `(${same})` : "" }, sender),
    ...old.slice(start, old.length - end).map((text) => row("removed", text)),
    ...fresh.slice(start, fresh.length - end).map((text) => row("added", text)),
  );
}

/** Return the changes of model, tools and output type between two requests. */
function settingChanges(previous: ConversationRequest, now: ConversationRequest): HTMLElement[] {
  const removedTools = previous.tools.filter((tool) => !now.tools.includes(tool));
  const addedTools = now.tools.filter((tool) => !previous.tools.includes(tool));
  const changes = [
    previous.model === now.model ? "" : `model: ${oneLine(previous.model, 60)} → ${oneLine(now.model, 60)}`,
    removedTools.length > 0 ? `− tools: ${removedTools.join(", ")}` : "",
    addedTools.length > 0 ? `+ tools: ${addedTools.join(", ")}` : "",
    previous.output === now.output ? "" : `output type: ${previous.output || "text"} → ${now.output || "text"}`,
  ];
  return changes.filter(Boolean).map((text) => h("p", {}, text));
}
