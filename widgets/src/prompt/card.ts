// Card of one question: text, origin, deadline, and the form for the answer.

import { h, setText } from "../shared/dom";
import { button, newId, setAttribute } from "../shared/element";
import { fileDiffs, fileList } from "../shared/filediff";
import { oneLine } from "../shared/text";
import { branchOf } from "../shared/words";
import { ago, countdown } from "../shared/times";
import { truncate, valueText } from "../shared/values";
import { asking, factsOf, forOthers, KINDS, valueView, type Action, type Asking } from "./kinds";
import { asSchema, isRecord, titleOf } from "./schema";
import type { PromptHost, Question } from "./types";

const URGENT_US = 60_000_000;
const MOST_TEXT = 10_000;
const LONG = 400; // from here on a text may have to be scrolled
const UNFIT = "Not sent: correct what is marked.";
const DIGIT = /^[1-9]$/;
const WRITES = "textarea, select, input:not([type=radio], [type=checkbox])";

/** A question on the page. */
export class Card {
  readonly element: HTMLElement;
  readonly head: HTMLButtonElement;
  readonly question: Question;
  readonly #host: PromptHost;
  readonly #answered: (card: Card) => void;
  readonly #all = h("div", { class: "all", role: "group", hidden: true });
  readonly #toAll = button("", () => { this.#offerAll(); }, { class: "to-all", hidden: true });
  #alike: readonly Card[] = [];
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

  /** Takes note of the open cards that one answer would do for, this one among them. */
  standBeside(alike: readonly Card[]): void {
    this.#alike = alike;
    this.#toAll.hidden = alike.length < 2;
    setText(this.#toAll, `Answer the same for all ${alike.length} of this kind …`);
    if (alike.length < 2) this.#all.hidden = true;
  }

  /** Answers with what was said to another card. */
  take(response: unknown, label: string): void {
    if (this.#state === "open" && this.#away() === "") this.#post(response, label);
  }

  /** Brings the countdown up to date. */
  tick(): void {
    const { interrupt_id: id } = this.question;
    this.element.dataset["question"] = id.includes("@") ? id : `${id}@${this.#host.execution?.() ?? ""}`;
    const { expires_us: expires, raised_us: raised } = this.question;
    if (expires === null) {
      setText(this.#clock, `asked ${ago(this.#host.now() - raised)}`);
      return;
    }
    const left = expires - this.#host.now();
    const { fallback } = this.question;
    const told = fallback === "" ? `${countdown(left)} left` : `default in ${countdown(left)}: ${oneLine(fallback, 40)}`;
    setText(this.#clock, left > 0 ? told : "time is up");
    this.#clock.classList.toggle("urgent", left < URGENT_US);
    if (left > 0 || this.#state !== "open") return;
    if (this.#body.contains(document.activeElement)) this.head.focus();
    this.#become("late", "The time for an answer is up.");
  }

  /** Tells whether a text of the filter is found in the question. */
  matches(words: string): boolean {
    const { question, message, step, path, kind } = this.question;
    return `${question} ${message} ${step} ${branchOf(path)} ${KINDS[kind].word}`.toLowerCase().includes(words.toLowerCase());
  }

  /** Shows whether answers can be sent now. */
  reach(): void {
    const [words, isWrong] = this.#said;
    const away = this.#away();
    setText(this.#status, truncate(away || words, 2000));
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
    const form = h("form", { novalidate: true }, ...made.parts, h("div", { class: "row actions" }, ...this.#buttons.map(([element]) => element), this.#toAll, hint), this.#all, this.#status);
    form.addEventListener("submit", (event) => { event.preventDefault(); });
    for (const name of ["input", "change"]) form.addEventListener(name, () => { this.#edited(); });
    const seen = seenOf(question);
    const message = question.message === "" ? [] : [paragraph("message", question.message)];
    this.#body.append(h("div", { class: "ask" }, ...askerOf(question), paragraph("question", question.question), ...message), seen ?? "", form);
    this.#body.classList.toggle("beside", seen !== null);
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
    const [words, isWrong] = this.#said;
    if (isWrong && words === UNFIT && this.#body.querySelector("[aria-invalid]") === null) this.#say("", false);
    else this.#refresh();
  }

  #refresh(): void {
    const canSend = this.#state === "open" && this.#away() === "";
    for (const [element, { isHidden }] of this.#buttons) {
      element.hidden = isHidden?.() ?? false;
      setAttribute(element, "aria-disabled", canSend ? null : "true"); // what is disabled loses the focus
    }
    const first = this.#buttons.find(([element]) => !element.hidden)?.[0];
    for (const [element] of this.#buttons) element.classList.toggle("primary", element === first && this.#asking?.isEven !== true);
    setAttribute(this.#toAll, "aria-disabled", canSend ? null : "true");
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
    } else if (DIGIT.test(event.key) && target instanceof HTMLElement && !target.matches(WRITES)) {
      this.#choose(Number(event.key) - 1);
    }
  }

  /** Chooses the option of that place, or where there are none goes to the button; nothing is sent. */
  #choose(place: number): void {
    const options = [...this.#body.querySelectorAll<HTMLInputElement>("input[type=radio]")];
    const buttons = this.#buttons.filter(([element]) => !element.hidden).map(([element]) => element);
    if (options.length > 0) options[place]?.click();
    (options.length > 0 ? options : buttons)[place]?.focus();
  }

  /** Shows which questions would get the same answer, and the answers that they may get. */
  #offerAll(): void {
    const count = this.#alike.length;
    const others = this.#alike.map(({ question }) => h("li", {}, wayTo(question)));
    const ways = this.#buttons.filter(([element]) => !element.hidden).map(([, action]) => button(`${action.label} ${count}`, () => { this.#sendAll(action); }));
    const back = button("Back", () => { this.#all.hidden = true; this.#toAll.focus(); }, { class: "quiet" });
    this.#all.replaceChildren(h("p", {}, `The same answer for these ${count}:`), h("ul", {}, ...others), h("div", { class: "row" }, ...ways, back));
    this.#all.hidden = false;
    ways[0]?.focus();
  }

  #sendAll(action: Action): void {
    const response = this.#responseOf(action);
    if (response === undefined) return;
    const [others, own] = [forOthers(this.question, response), this.#alike.filter((card) => card !== this)];
    this.#all.hidden = true;
    this.take(response, action.label);
    for (const card of own) card.take(others, action.label);
  }

  /** Returns what is to be sent; undefined if nothing can be, which is said by then. */
  #responseOf(action: Action): unknown {
    if (this.#state !== "open" || this.#away() !== "") return undefined;
    const response = action.response();
    if (response === undefined) this.#say(UNFIT, true);
    return response;
  }

  #send(action: Action): void {
    const response = this.#responseOf(action);
    if (response !== undefined) this.#post(response, action.label);
  }

  #post(response: unknown, label: string): void {
    this.#become("sending", "Sending…");
    void this.#host.answer(this.question.interrupt_id, response).then(({ accepted, text }) => {
      if (!accepted) {
        this.#become("open", text || "The answer was refused.", true);
        return;
      }
      this.#host.drafts.delete(this.question.interrupt_id);
      this.#answered(this); // takes the focus away before anything is disabled
      this.#become("sent", text || `Sent: ${label.toLowerCase()}`);
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
  return h("p", { class: name, tabindex: text.length > LONG ? 0 : null }, truncate(text, MOST_TEXT));
}

/** Shows what the run has seen, beside the question. */
function seenOf(question: Question): HTMLElement | null {
  const facts = factsOf(question);
  if (facts.length === 0) return null;
  const rows = facts.flatMap(([name, value]) => {
    const told = flags(value) ?? value;
    const isShort = typeof told !== "object" && valueText(told, 200).length < 200;
    const files = fileDiffs(value);
    if (files !== undefined) return [h("dt", {}, oneLine(titleOf({}, name), 60)), h("dd", {}, fileList(files))];
    return [h("dt", {}, oneLine(titleOf({}, name), 60)), h("dd", {}, isShort ? valueText(told, 200) : valueView(told))];
  });
  const title = question.kind === "outcome_unknown" ? "The call" : "What the run has seen";
  return h("div", { class: "seen" }, h("div", { class: "title" }, title), h("dl", { class: "facts" }, ...rows));
}

/** Returns marks such as the hints of a tool in words: `destructive, not read only`. */
function flags(value: unknown): string | undefined {
  const marks = isRecord(value) ? Object.entries(value) : [];
  if (marks.length === 0 || marks.some(([, is]) => typeof is !== "boolean")) return undefined;
  return marks.map(([name, is]) => `${is === true ? "" : "not "}${oneLine(name.replaceAll("_", " "), 40)}`).join(", ");
}

/** Says whose question it is, if there are others'. */
function askerOf({ asker, path }: Question): HTMLElement[] {
  if (asker === undefined) return [];
  const told = paragraph("asker", [asker[0], branchOf(path)].filter((part) => part !== "").join(" · "));
  told.title = oneLine(asker[1], 80);
  return [told];
}

/** Returns where a question was asked. */
export function whereOf({ asker, path, step }: Question): string {
  return [asker?.[0] ?? "", branchOf(path), step].filter((part) => part !== "").map((part) => oneLine(part, 60)).join(" › ");
}

/** Names a question on a button: what it asks, about what, and for whom. */
export function wayTo({ question, data }: Question): string {
  const { agent, parameters } = data;
  const [about] = Object.entries(asSchema(parameters)).map(([name, value]) => oneLine(`${name}=${valueText(value, 40)}`, 30));
  return [oneLine(question, 40), about, typeof agent === "string" ? `(${oneLine(agent, 30)})` : ""].filter(Boolean).join(" ");
}
