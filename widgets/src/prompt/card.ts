// A card that asks one question: what, where, until when, and the form that answers it.

import { h, setText } from "../shared/dom";
import { button, newId, setAttribute } from "../shared/element";
import { two } from "../shared/format";
import { oneLine } from "../shared/text";
import { shown, valueText } from "../shared/values";
import { asking, factsOf, KINDS, valueView, type Action, type Asking } from "./kinds";
import { isRecord, titleOf } from "./schema";
import type { PromptHost, Question } from "./types";

const URGENT_US = 60_000_000;
const MOST_TEXT = 10_000;
const LONG = 400; // from here on a text may have to be scrolled

/** A question on the page. */
export class Card {
  readonly element: HTMLElement;
  readonly head: HTMLButtonElement;
  readonly question: Question;
  readonly #host: PromptHost;
  readonly #answered: (card: Card) => void;
  readonly #body = h("div", { class: "body" });
  readonly #clock = h("span", { class: "clock" });
  readonly #summary = h("span", { class: "summary" });
  readonly #status = h("div", { class: "status", role: "status" });
  readonly #buttons: [HTMLButtonElement, Action][] = [];
  #asking: Asking | undefined;
  #state: "open" | "sending" | "sent" | "late" = "open";
  #said: [string, boolean] = ["", false];

  constructor(question: Question, host: PromptHost, answered: (card: Card) => void) {
    this.question = question;
    this.#host = host;
    this.#answered = answered;
    const { word, sign } = KINDS[question.kind];
    const badge = h("span", { class: "sign", "aria-hidden": "true" }, sign);
    const bodyId = newId();
    this.#body.id = bodyId;
    this.head = button("", () => { this.toggle(); }, { class: "head", "aria-expanded": "false", "aria-controls": bodyId });
    setText(this.#summary, oneLine(question.question, 160));
    this.head.append(badge, h("span", { class: "kind" }, word), this.#summary, h("span", { class: "where" }, whereOf(question)), this.#clock);
    this.element = h("article", { class: `card ${question.kind}`, "aria-label": oneLine(`${word}: ${question.question}`, 160) }, this.head, this.#body);
    this.#body.hidden = true;
    this.element.addEventListener("keydown", (event) => { this.#keys(event); });
    this.tick();
  }

  get isOpen(): boolean {
    return !this.#body.hidden;
  }

  /** Shows or hides what the card holds. */
  toggle(isOpen = !this.isOpen): void {
    if (isOpen) this.#fill();
    this.#body.hidden = !isOpen;
    setAttribute(this.head, "aria-expanded", String(isOpen));
    this.element.classList.toggle("open", isOpen);
  }

  /** Brings the countdown up to date. */
  tick(): void {
    const { expires_us: expires, raised_us: raised } = this.question;
    if (expires === null) {
      setText(this.#clock, ago(this.#host.now() - raised));
      return;
    }
    const left = expires - this.#host.now();
    setText(this.#clock, left > 0 ? `${countdown(left)} left` : "time is up");
    this.#clock.classList.toggle("urgent", left < URGENT_US);
    if (left > 0 || this.#state !== "open") return;
    if (this.#body.contains(document.activeElement)) this.head.focus();
    this.#become("late", "The time for an answer is up.");
  }

  /** Tells whether a text of the filter is found in the question. */
  matches(words: string): boolean {
    const { question, message, step, path, kind } = this.question;
    return `${question} ${message} ${step} ${path} ${KINDS[kind].word}`.toLowerCase().includes(words.toLowerCase());
  }

  /** Shows whether answers can be sent now. */
  reach(): void {
    const [words, isWrong] = this.#said;
    const away = this.#away();
    setText(this.#status, shown(away || words, 2000));
    this.#status.classList.toggle("wrong", isWrong || away !== "");
    this.#refresh();
  }

  #away(): string {
    return this.#state === "open" || this.#state === "sending" ? this.#host.away(this.question) : "";
  }

  #fill(): void {
    if (this.#asking !== undefined) return;
    const { question } = this;
    const made = asking(question, this.#host.drafts.get(question.interrupt_id) ?? {});
    this.#asking = made;
    for (const action of made.actions) this.#buttons.push([this.#button(action), action]);
    const hint = made.actions.some(({ isDefault }) => isDefault) && h("span", { class: "hint" }, "Ctrl+Enter sends");
    const form = h("form", { novalidate: true }, ...made.parts, h("div", { class: "row actions" }, ...this.#buttons.map(([element]) => element), hint), this.#status);
    form.addEventListener("submit", (event) => { event.preventDefault(); });
    for (const name of ["input", "change"]) form.addEventListener(name, () => { this.#edited(); });
    this.#body.append(...askerOf(question), paragraph("question", question.question), ...told(question), form);
    this.reach();
  }

  #button(action: Action): HTMLButtonElement {
    const sign = h("span", { "aria-hidden": "true" }, `${action.sign} `);
    const element = button("", () => { this.#send(action); });
    element.append(sign, action.label);
    return element;
  }

  #edited(): void {
    if (this.#asking !== undefined) this.#host.drafts.set(this.question.interrupt_id, this.#asking.draft());
    this.#refresh();
  }

  #refresh(): void {
    const canSend = this.#state === "open" && this.#away() === "";
    for (const [element, { isHidden }] of this.#buttons) {
      element.hidden = isHidden?.() ?? false;
      setAttribute(element, "aria-disabled", canSend ? null : "true"); // what is disabled loses the focus
    }
    const first = this.#buttons.find(([element]) => !element.hidden)?.[0];
    for (const [element] of this.#buttons) element.classList.toggle("primary", element === first);
    const isOver = this.#state === "sent" || this.#state === "late";
    for (const field of this.#body.querySelectorAll("input, textarea, select, button.small")) setAttribute(field, "disabled", isOver);
  }

  #keys(event: KeyboardEvent): void {
    const { target } = event;
    if (event.key === "Escape" && target !== this.head) {
      if (this.#asking?.escape?.() !== true) this.head.focus();
    } else if (event.key === "Enter" && target instanceof HTMLElement && target.tagName !== "BUTTON") {
      if (target instanceof HTMLTextAreaElement && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault(); // nothing is approved by Enter in a field
      const action = this.#asking?.actions.find(({ isDefault }) => isDefault);
      if (action !== undefined) this.#send(action);
    }
  }

  #send(action: Action): void {
    if (this.#state !== "open" || this.#away() !== "") return;
    const response = action.response();
    if (response === undefined) {
      this.#say("Not sent: correct what is marked.", true);
      return;
    }
    this.#become("sending", "Sending…");
    void this.#host.answer(this.question.interrupt_id, response).then(({ accepted, text }) => {
      if (!accepted) {
        this.#become("open", text || "The answer was refused.", true);
        return;
      }
      this.#host.drafts.delete(this.question.interrupt_id);
      this.#answered(this); // takes the focus away before anything is disabled
      this.#become("sent", text || `Sent: ${action.label.toLowerCase()}`);
    });
  }

  #become(state: "open" | "sending" | "sent" | "late", words: string, isWrong = false): void {
    this.#state = state;
    setAttribute(this.element, "aria-busy", state === "sending" ? "true" : null);
    this.#say(words, isWrong);
  }

  #say(words: string, isWrong: boolean): void {
    this.#said = [words, isWrong];
    this.reach();
  }
}

function paragraph(name: string, text: string): HTMLElement {
  return h("p", { class: name, tabindex: text.length > LONG ? 0 : null }, shown(text, MOST_TEXT));
}

function told(question: Question): HTMLElement[] {
  const parts = question.message === "" ? [] : [paragraph("message", question.message)];
  const facts = factsOf(question);
  if (facts.length === 0) return parts;
  const rows = facts.flatMap(([name, value]) => {
    const told = flags(value) ?? value;
    const isShort = typeof told !== "object" && valueText(told, 200).length < 200;
    return [h("dt", {}, oneLine(titleOf({}, name), 60)), h("dd", {}, isShort ? valueText(told, 200) : valueView(told))];
  });
  return [...parts, h("dl", {}, ...rows)];
}

/** Returns marks such as the hints of a tool in words: `destructive, not read only`. */
function flags(value: unknown): string | undefined {
  const marks = isRecord(value) ? Object.entries(value) : [];
  if (marks.length === 0 || marks.some(([, is]) => typeof is !== "boolean")) return undefined;
  return marks.map(([name, is]) => `${is === true ? "" : "not "}${oneLine(name.replaceAll("_", " "), 40)}`).join(", ");
}

/** Says whose question it is, if there are others'. */
function askerOf({ asker, path }: Question): HTMLElement[] {
  return asker === undefined ? [] : [paragraph("asker", `${asker.join(" · ")} · ${path}`)];
}

/** Returns where a question was asked. */
export function whereOf({ asker, path, step }: Question): string {
  return [asker?.[0] ?? path, step].filter((part) => part !== "").map((part) => oneLine(part, 60)).join(" › ");
}

/** Returns how long ago something was asked: in whole minutes, so that nothing moves while somebody reads. */
function ago(us: number): string {
  const minutes = Math.floor(us / 60_000_000);
  if (minutes < 1) return "";
  const hours = Math.floor(minutes / 60);
  const told = hours < 1 ? `${minutes} min` : hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
  return `asked ${told} ago`;
}

/** Returns a time that is left, as people say it. */
export function countdown(us: number): string {
  const seconds = Math.ceil(us / 1_000_000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)}:${two(seconds % 60)}`;
  const hours = Math.floor(seconds / 3600);
  return hours < 48 ? `${hours} h ${two(Math.floor((seconds % 3600) / 60))} min` : `${Math.floor(hours / 24)} days`;
}
