// Card of one question: text, origin, deadline, and the form for the answer.

import { h, setText } from "../shared/dom";
import { button, newId, setAttribute } from "../shared/element";
import { fileDiffs, fileList } from "../shared/filediff";
import { oneLine } from "../shared/text";
import { branchOf } from "../shared/words";
import { ago, countdown } from "../shared/times";
import { shown, valueText } from "../shared/values";
import { answerForm, factsOf, sharedResponse, KINDS, valueView, type Action, type AnswerForm } from "./kinds";
import { asSchema, isRecord, titleOf } from "./schema";
import type { PromptHost, Question } from "./types";

const URGENT_US = 60_000_000;
const MAX_TEXT_LENGTH = 10_000;
const SCROLL_LENGTH = 400; // from here on a text may have to be scrolled
const INVALID_NOTICE = "Not sent: correct what is marked.";
const DIGIT = /^[1-9]$/;
const TEXT_FIELDS = "textarea, select, input:not([type=radio], [type=checkbox])";

/** A question on the page. */
export class Card {
  readonly element: HTMLElement;
  readonly head: HTMLButtonElement;
  readonly question: Question;
  readonly #host: PromptHost;
  readonly #onAnswered: (card: Card) => void;
  readonly #bulkPanel = h("div", { class: "all", role: "group", hidden: true });
  readonly #bulkButton = button("", () => { this.#showBulkPanel(); }, { class: "to-all", hidden: true });
  #similarCards: readonly Card[] = [];
  readonly #body = h("div", { class: "body" });
  readonly #clock = h("span", { class: "clock" });
  readonly #summary = h("span", { class: "summary" });
  readonly #status = h("div", { class: "status", role: "status" });
  readonly #buttons: [HTMLButtonElement, Action][] = [];
  #form: AnswerForm | undefined;
  #state: "open" | "sending" | "sent" | "late" = "open";
  #notice: [string, boolean] = ["", false];

  constructor(question: Question, host: PromptHost, onAnswered: (card: Card) => void) {
    this.question = question;
    this.#host = host;
    this.#onAnswered = onAnswered;
    const { word, sign } = KINDS[question.kind];
    const badge = h("span", { class: "sign", "aria-hidden": "true" }, sign);
    const bodyId = newId();
    this.#body.id = bodyId;
    this.head = button("", () => { this.toggle(); }, { class: "head", "aria-expanded": "false", "aria-controls": bodyId });
    setText(this.#summary, oneLine(question.question, 160));
    this.head.append(badge, h("span", { class: "kind" }, word), this.#summary, h("span", { class: "where" }, originText(question)), this.#clock);
    this.element = h("article", { class: `card ${question.kind}`, "aria-label": oneLine(`${word}: ${question.question}`, 160) }, this.head, this.#body);
    this.#body.hidden = true;
    this.element.addEventListener("keydown", (event) => { this.#onKey(event); });
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
  setSimilarCards(similarCards: readonly Card[]): void {
    this.#similarCards = similarCards;
    this.#bulkButton.hidden = similarCards.length < 2;
    setText(this.#bulkButton, `Answer the same for all ${similarCards.length} of this kind …`);
    if (similarCards.length < 2) this.#bulkPanel.hidden = true;
  }

  /** Answers with what was said to another card. */
  answerWith(response: unknown, label: string): void {
    if (this.#state === "open" && this.#blockedReason() === "") this.#post(response, label);
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
    const remaining = expires - this.#host.now();
    const { fallback } = this.question;
    const deadline = fallback === "" ? `${countdown(remaining)} left` : `default in ${countdown(remaining)}: ${oneLine(fallback, 40)}`;
    setText(this.#clock, remaining > 0 ? deadline : "time is up");
    this.#clock.classList.toggle("urgent", remaining < URGENT_US);
    if (remaining > 0 || this.#state !== "open") return;
    if (this.#body.contains(document.activeElement)) this.head.focus();
    this.#setState("late", "The time for an answer is up.");
  }

  /** Tells whether a text of the filter is found in the question. */
  matches(words: string): boolean {
    const { question, message, step, path, kind } = this.question;
    return `${question} ${message} ${step} ${branchOf(path)} ${KINDS[kind].word}`.toLowerCase().includes(words.toLowerCase());
  }

  /** Shows whether answers can be sent now. */
  reach(): void {
    const [words, isWrong] = this.#notice;
    const reason = this.#blockedReason();
    setText(this.#status, shown(reason || words, 2000));
    this.#status.classList.toggle("wrong", isWrong || reason !== "");
    this.#refresh();
  }

  #blockedReason(): string {
    return this.#state === "open" || this.#state === "sending" ? this.#host.away(this.question) : "";
  }

  #fill(): void {
    if (this.#form !== undefined) return;
    const { question } = this;
    const newForm = answerForm(question, this.#host.drafts.get(question.interrupt_id) ?? {});
    this.#form = newForm;
    for (const action of newForm.actions) this.#buttons.push([this.#button(action), action]);
    const hint = newForm.actions.some(({ isDefault }) => isDefault) && h("span", { class: "hint" }, "Ctrl+Enter sends");
    const form = h("form", { novalidate: true }, ...newForm.parts, h("div", { class: "row actions" }, ...this.#buttons.map(([element]) => element), this.#bulkButton, hint), this.#bulkPanel, this.#status);
    form.addEventListener("submit", (event) => { event.preventDefault(); });
    for (const name of ["input", "change"]) form.addEventListener(name, () => { this.#onEdit(); });
    const context = contextOf(question);
    const message = question.message === "" ? [] : [paragraph("message", question.message)];
    this.#body.append(h("div", { class: "ask" }, ...askerOf(question), paragraph("question", question.question), ...message), context ?? "", form);
    this.#body.classList.toggle("beside", context !== null);
    this.reach();
  }

  #button(action: Action): HTMLButtonElement {
    const sign = h("span", { "aria-hidden": "true" }, `${action.sign} `);
    const element = button("", () => { this.#send(action); });
    element.append(sign, action.label);
    return element;
  }

  #onEdit(): void {
    if (this.#form !== undefined) this.#host.drafts.set(this.question.interrupt_id, this.#form.draft());
    const [words, isWrong] = this.#notice;
    if (isWrong && words === INVALID_NOTICE && this.#body.querySelector("[aria-invalid]") === null) this.#showNotice("", false);
    else this.#refresh();
  }

  #refresh(): void {
    const canSend = this.#state === "open" && this.#blockedReason() === "";
    for (const [element, { isHidden }] of this.#buttons) {
      element.hidden = isHidden?.() ?? false;
      setAttribute(element, "aria-disabled", canSend ? null : "true"); // what is disabled loses the focus
    }
    const first = this.#buttons.find(([element]) => !element.hidden)?.[0];
    for (const [element] of this.#buttons) element.classList.toggle("primary", element === first && this.#form?.isNeutral !== true);
    setAttribute(this.#bulkButton, "aria-disabled", canSend ? null : "true");
    const isOver = this.#state === "sent" || this.#state === "late";
    for (const field of this.#body.querySelectorAll("input, textarea, select, button.small")) setAttribute(field, "disabled", isOver);
  }

  #onKey(event: KeyboardEvent): void {
    const { target } = event;
    if (event.key === "Escape" && target !== this.head) {
      if (this.#form?.escape?.() !== true) this.head.focus();
    } else if (event.key === "Enter" && target instanceof HTMLElement && target.tagName !== "BUTTON") {
      if (target instanceof HTMLTextAreaElement && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault(); // nothing is approved by Enter in a field
      const action = this.#form?.actions.find(({ isDefault }) => isDefault);
      if (action !== undefined) this.#send(action);
    } else if (DIGIT.test(event.key) && target instanceof HTMLElement && !target.matches(TEXT_FIELDS)) {
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
  #showBulkPanel(): void {
    const count = this.#similarCards.length;
    const questionItems = this.#similarCards.map(({ question }) => h("li", {}, shortLabel(question)));
    const buttons = this.#buttons.filter(([element]) => !element.hidden).map(([, action]) => button(`${action.label} ${count}`, () => { this.#sendAll(action); }));
    const back = button("Back", () => { this.#bulkPanel.hidden = true; this.#bulkButton.focus(); }, { class: "quiet" });
    this.#bulkPanel.replaceChildren(h("p", {}, `The same answer for these ${count}:`), h("ul", {}, ...questionItems), h("div", { class: "row" }, ...buttons, back));
    this.#bulkPanel.hidden = false;
    buttons[0]?.focus();
  }

  #sendAll(action: Action): void {
    const response = this.#responseOf(action);
    if (response === undefined) return;
    const [others, own] = [sharedResponse(this.question, response), this.#similarCards.filter((card) => card !== this)];
    this.#bulkPanel.hidden = true;
    this.answerWith(response, action.label);
    for (const card of own) card.answerWith(others, action.label);
  }

  /** Returns what is to be sent; undefined if nothing can be, which is said by then. */
  #responseOf(action: Action): unknown {
    if (this.#state !== "open" || this.#blockedReason() !== "") return undefined;
    const response = action.response();
    if (response === undefined) this.#showNotice(INVALID_NOTICE, true);
    return response;
  }

  #send(action: Action): void {
    const response = this.#responseOf(action);
    if (response !== undefined) this.#post(response, action.label);
  }

  #post(response: unknown, label: string): void {
    this.#setState("sending", "Sending…");
    void this.#host.answer(this.question.interrupt_id, response).then(({ accepted, text }) => {
      if (!accepted) {
        this.#setState("open", text || "The answer was refused.", true);
        return;
      }
      this.#host.drafts.delete(this.question.interrupt_id);
      this.#onAnswered(this); // takes the focus away before anything is disabled
      this.#setState("sent", text || `Sent: ${label.toLowerCase()}`);
    });
  }

  #setState(state: "open" | "sending" | "sent" | "late", words: string, isWrong = false): void {
    this.#state = state;
    setAttribute(this.element, "aria-busy", state === "sending" ? "true" : null);
    this.#showNotice(words, isWrong);
  }

  #showNotice(words: string, isWrong: boolean): void {
    this.#notice = [words, isWrong];
    this.reach();
  }
}

function paragraph(name: string, text: string): HTMLElement {
  return h("p", { class: name, tabindex: text.length > SCROLL_LENGTH ? 0 : null }, shown(text, MAX_TEXT_LENGTH));
}

/** Shows what the run has seen, beside the question. */
function contextOf(question: Question): HTMLElement | null {
  const facts = factsOf(question);
  if (facts.length === 0) return null;
  const rows = facts.flatMap(([name, value]) => {
    const shownValue = flagsText(value) ?? value;
    const isShort = typeof shownValue !== "object" && valueText(shownValue, 200).length < 200;
    const files = fileDiffs(value);
    if (files !== undefined) return [h("dt", {}, oneLine(titleOf({}, name), 60)), h("dd", {}, fileList(files))];
    return [h("dt", {}, oneLine(titleOf({}, name), 60)), h("dd", {}, isShort ? valueText(shownValue, 200) : valueView(shownValue))];
  });
  const title = question.kind === "outcome_unknown" ? "The call" : "What the run has seen";
  return h("div", { class: "seen" }, h("div", { class: "title" }, title), h("dl", { class: "facts" }, ...rows));
}

/** Returns marks such as the hints of a tool in words: `destructive, not read only`. */
function flagsText(value: unknown): string | undefined {
  const marks = isRecord(value) ? Object.entries(value) : [];
  if (marks.length === 0 || marks.some(([, isSet]) => typeof isSet !== "boolean")) return undefined;
  return marks.map(([name, isSet]) => `${isSet === true ? "" : "not "}${oneLine(name.replaceAll("_", " "), 40)}`).join(", ");
}

/** Says whose question it is, if there are others'. */
function askerOf({ asker, path }: Question): HTMLElement[] {
  if (asker === undefined) return [];
  const element = paragraph("asker", [asker[0], branchOf(path)].filter((part) => part !== "").join(" · "));
  element.title = oneLine(asker[1], 80);
  return [element];
}

/** Returns where a question was asked. */
export function originText({ asker, path, step }: Question): string {
  return [asker?.[0] ?? "", branchOf(path), step].filter((part) => part !== "").map((part) => oneLine(part, 60)).join(" › ");
}

/** Names a question on a button: what it asks, about what, and for whom. */
export function shortLabel({ question, data }: Question): string {
  const { agent, parameters } = data;
  const [about] = Object.entries(asSchema(parameters)).map(([name, value]) => oneLine(`${name}=${valueText(value, 40)}`, 30));
  return [oneLine(question, 40), about, typeof agent === "string" ? `(${oneLine(agent, 30)})` : ""].filter(Boolean).join(" ");
}
