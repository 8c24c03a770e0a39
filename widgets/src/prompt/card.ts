// Card of one question: text, origin, deadline, and the form for the answer.

import { h, setText } from "../shared/dom";
import { button, newId, setAttribute } from "../shared/element";
import { fileDiffs, fileList } from "../shared/filediff";
import { oneLine } from "../shared/text";
import { branchOf } from "../shared/words";
import { ago, countdown } from "../shared/times";
import { truncate, valueText } from "../shared/values";
import { answerForm, factsOf, sharedResponse, KINDS, valueView, type Action, type AnswerForm } from "./kinds";
import { asSchema, isRecord, titleOf } from "./schema";
import type { PromptHost, Question } from "./types";

const URGENT_US = 60_000_000;
const MAX_TEXT_LENGTH = 10_000;
const SCROLL_LENGTH = 400; // longer texts may need a scroll bar, so they get a tab stop
const INVALID_NOTICE = "Not sent. Correct the marked fields.";
const DIGIT = /^[1-9]$/;
const TEXT_FIELDS = "textarea, select, input:not([type=radio], [type=checkbox])";

/** Card of one question, with the form for its answer. */
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
    const { sign } = KINDS[question.kind];
    const word = kindOf(question);
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

  /** Open or close the body of the card. The form is built when the card is first opened. */
  toggle(isOpen = !this.isOpen): void {
    if (isOpen) this.#fill();
    this.#body.hidden = !isOpen;
    setAttribute(this.head, "aria-expanded", String(isOpen));
    this.element.classList.toggle("open", isOpen);
  }

  /** Set the open cards that accept the same answer as this one, including this card. */
  setSimilarCards(similarCards: readonly Card[]): void {
    this.#similarCards = similarCards;
    this.#bulkButton.hidden = similarCards.length < 2;
    setText(this.#bulkButton, `Answer all ${similarCards.length} similar questions …`);
    if (similarCards.length < 2) this.#bulkPanel.hidden = true;
  }

  /** Answer the question with a response that was entered in another card. */
  answerWith(response: unknown, label: string): void {
    if (this.#state === "open" && this.#blockedReason() === "") this.#post(response, label);
  }

  /** Update the countdown. After the deadline, close the form. */
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
    const deadline = fallback === "" ? `${countdown(remaining)} left` : `default answer in ${countdown(remaining)}: ${oneLine(fallback, 40)}`;
    setText(this.#clock, remaining > 0 ? deadline : "time is up");
    this.#clock.classList.toggle("urgent", remaining < URGENT_US);
    if (remaining > 0 || this.#state !== "open") return;
    if (this.#body.contains(document.activeElement)) this.head.focus();
    this.#setState("late", "The time for an answer has ended.");
  }

  /** Return whether the question contains the filter's text. */
  matches(words: string): boolean {
    const { question, message, step, path, kind } = this.question;
    return `${question} ${message} ${step} ${branchOf(path)} ${KINDS[kind].word}`.toLowerCase().includes(words.toLowerCase());
  }

  /** Show the notice of the form, or the reason why no answer can be sent now. */
  showStatus(): void {
    const [words, isWrong] = this.#notice;
    const reason = this.#blockedReason();
    setText(this.#status, truncate(reason || words, 2000));
    this.#status.classList.toggle("wrong", isWrong || reason !== "");
    this.#refresh();
  }

  /** Return why no answer can be sent now, or an empty string. A question that is answered needs no reason. */
  #blockedReason(): string {
    return this.#state === "open" || this.#state === "sending" ? this.#host.blockedReason(this.question) : "";
  }

  /** Build the form and the facts of the question, once. */
  #fill(): void {
    if (this.#form !== undefined) return;
    const { question } = this;
    const newForm = answerForm(question, this.#host.drafts.get(question.interrupt_id) ?? {});
    this.#form = newForm;
    for (const action of newForm.actions) this.#buttons.push([this.#button(action), action]);
    const hint = newForm.actions.some(({ isDefault }) => isDefault) && h("span", { class: "hint" }, "Press Ctrl+Enter to send");
    const buttons = this.#buttons.map(([element]) => element);
    const actions = h("div", { class: "row actions" }, ...buttons, this.#bulkButton, hint);
    const foot = h("div", { class: "send" }, this.#bulkPanel, actions, this.#status);
    const form = h("form", { novalidate: true }, ...newForm.parts, foot);
    form.addEventListener("submit", (event) => { event.preventDefault(); });
    for (const name of ["input", "change"]) form.addEventListener(name, () => { this.#onEdit(); });
    const context = contextOf(question);
    const message = question.message === "" ? [] : [paragraph("message", question.message)];
    this.#body.append(h("div", { class: "ask" }, ...askerOf(question), ...trialNote(question), paragraph("question", question.question), ...message), context ?? "", form);
    this.#body.classList.toggle("beside", context !== null);
    this.showStatus();
  }

  #button(action: Action): HTMLButtonElement {
    const sign = h("span", { "aria-hidden": "true" }, `${action.sign} `);
    const element = button("", () => { this.#send(action); });
    element.append(sign, action.label);
    return element;
  }

  /** Store the draft, and remove the notice about invalid fields once all fields are valid. */
  #onEdit(): void {
    if (this.#form !== undefined) this.#host.drafts.set(this.question.interrupt_id, this.#form.draft());
    const [words, isWrong] = this.#notice;
    if (isWrong && words === INVALID_NOTICE && this.#body.querySelector("[aria-invalid]") === null) this.#showNotice("", false);
    else this.#refresh();
  }

  /** Update which buttons are visible, enabled and primary, and which fields are disabled. */
  #refresh(): void {
    const canSend = this.#state === "open" && this.#blockedReason() === "";
    for (const [element, { isHidden }] of this.#buttons) {
      element.hidden = isHidden?.() ?? false;
      setAttribute(element, "aria-disabled", canSend ? null : "true"); // `disabled` would take the focus away
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
      event.preventDefault(); // Enter in a field must not approve anything
      const action = this.#form?.actions.find(({ isDefault }) => isDefault);
      if (action !== undefined) this.#send(action);
    } else if (DIGIT.test(event.key) && target instanceof HTMLElement && !target.matches(TEXT_FIELDS)) {
      this.#choose(Number(event.key) - 1);
    }
  }

  /** Choose the option with this number. If there are no options, move the focus to the button with this number. Nothing is sent. */
  #choose(place: number): void {
    const options = [...this.#body.querySelectorAll<HTMLInputElement>("input[type=radio]")];
    const buttons = this.#buttons.filter(([element]) => !element.hidden).map(([element]) => element);
    if (options.length > 0) options[place]?.click();
    (options.length > 0 ? options : buttons)[place]?.focus();
  }

  /** Show the questions that would get the same answer, with a button for each answer. */
  #showBulkPanel(): void {
    const count = this.#similarCards.length;
    const questionItems = this.#similarCards.map(({ question }) => h("li", {}, shortLabel(question)));
    const visible = this.#buttons.filter(([element]) => !element.hidden);
    const buttons = visible.map(([, action]) => button(`${action.label} ${count}`, () => { this.#sendAll(action); }));
    const hide = (): void => {
      this.#bulkPanel.hidden = true;
      this.#bulkButton.focus();
    };
    const back = button("Back", hide, { class: "quiet" });
    this.#bulkPanel.replaceChildren(h("p", {}, `Give the same answer to these ${count} questions:`), h("ul", {}, ...questionItems), h("div", { class: "row" }, ...buttons, back));
    this.#bulkPanel.hidden = false;
    buttons[0]?.focus();
  }

  #sendAll(action: Action): void {
    const response = this.#responseOf(action);
    if (response === undefined) return;
    const others = sharedResponse(this.question, response);
    const otherCards = this.#similarCards.filter((card) => card !== this);
    this.#bulkPanel.hidden = true;
    this.answerWith(response, action.label);
    for (const card of otherCards) card.answerWith(others, action.label);
  }

  /** Return the response of an action. If the form is invalid or no answer can be sent, return undefined; the card shows the reason. */
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

  /** Send a response. If the kernel refuses it, the form stays open and shows the reason. */
  #post(response: unknown, label: string): void {
    this.#setState("sending", "Sending…");
    void this.#host.answer(this.question.interrupt_id, response).then(({ accepted, text }) => {
      if (!accepted) {
        this.#setState("open", text || "The answer was refused.", true);
        return;
      }
      this.#host.drafts.delete(this.question.interrupt_id);
      this.#onAnswered(this); // moves the focus to another card before the fields are disabled
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
    this.showStatus();
  }
}

/** Return a paragraph. A long one gets a tab stop, so that the keyboard can scroll it. */
function paragraph(name: string, text: string): HTMLElement {
  return h("p", { class: name, tabindex: text.length > SCROLL_LENGTH ? 0 : null }, truncate(text, MAX_TEXT_LENGTH));
}

/** Return the recorded facts of a question (or the call that it is about), or null if there are none. */
function contextOf(question: Question): HTMLElement | null {
  const facts = factsOf(question);
  if (facts.length === 0) return null;
  const rows = facts.flatMap(([name, value]) => {
    const term = h("dt", {}, oneLine(titleOf({}, name), 60));
    const files = fileDiffs(value);
    if (files !== undefined) return [term, h("dd", {}, fileList(files))];
    const shownValue = flagsText(value) ?? value;
    const isShort = typeof shownValue !== "object" && valueText(shownValue, 200).length < 200;
    return [term, h("dd", {}, isShort ? valueText(shownValue, 200) : valueView(shownValue))];
  });
  const title = question.kind === "outcome_unknown" ? "The call" : "Details";
  return h("div", { class: "seen" }, h("div", { class: "title" }, title), h("dl", { class: "facts" }, ...rows));
}

/** Return an object of booleans, such as the hints of a tool, as text: `destructive, not read only`. Return undefined for other values. */
function flagsText(value: unknown): string | undefined {
  const marks = isRecord(value) ? Object.entries(value) : [];
  if (marks.length === 0 || marks.some(([, isSet]) => typeof isSet !== "boolean")) return undefined;
  return marks.map(([name, isSet]) => `${isSet === true ? "" : "not "}${oneLine(name.replaceAll("_", " "), 40)}`).join(", ");
}

/** Return a line with the workflow and branch that ask, if questions of several executions are listed. */
function askerOf({ asker, path }: Question): HTMLElement[] {
  if (asker === undefined) return [];
  const element = paragraph("asker", [asker[0], branchOf(path)].filter((part) => part !== "").join(" · "));
  element.title = oneLine(asker[1], 80);
  return [element];
}

/** Return the line that says that the question of a what-if or trial is not one of a real run. */
function trialNote({ trialOf = "" }: Question): HTMLElement[] {
  return trialOf === "" ? [] : [paragraph("trial", `This question comes from a ${trialOf}, not from a real run. Your answer affects only the ${trialOf}.`)];
}

/** Return the kind of a question in words. */
export function kindOf({ kind, trialOf = "" }: Question): string {
  const { word } = KINDS[kind];
  return trialOf === "" ? word : `${word} in a ${trialOf}`;
}

/** Return the workflow, branch and step that ask the question. */
export function originText({ asker, path, step }: Question): string {
  return [asker?.[0] ?? "", branchOf(path), step].filter((part) => part !== "").map((part) => oneLine(part, 60)).join(" › ");
}

/** Return a short text for a button that leads to a question: the question, its first parameter and the agent. */
export function shortLabel({ question, data }: Question): string {
  const { agent, parameters } = data;
  const parts = Object.entries(asSchema(parameters)).map(([name, value]) => oneLine(`${name}=${valueText(value, 40)}`, 30));
  const agentText = typeof agent === "string" ? `(${oneLine(agent, 30)})` : "";
  return [oneLine(question, 40), parts[0], agentText].filter(Boolean).join(" ");
}
