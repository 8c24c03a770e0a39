// Prompt: the questions of executions, open ones as cards, closed ones as lines. A new question never takes the focus.

import "./prompt.css";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import { byAge } from "../shared/order";
import { oneLine } from "../shared/text";
import { Card, kindOf, shortLabel, originText } from "./card";
import { questionOutcomeSign, questionOutcomeText } from "./outcome";
import type { PromptHost, Question } from "./types";

const MAX_OPEN_CARDS = 3; // up to this number, new cards are open from the start
const FILTER_ABOVE = 5; // with more open questions, a filter is shown
const PLACE_TIMEOUT = 1_500; // milliseconds until the list shows a card that no other part of the page has placed

/** View of questions. */
export class Prompt implements View {
  readonly element: HTMLElement;
  readonly #host: PromptHost;
  readonly #cards = new Map<string, Card>();
  readonly #questions = new Map<string, Question>();
  /**
   * Cards that another part of the page may still place, with the timer that shows them in the list instead. A card that
   * a person can see is missing here: it keeps its place, because a click that is under way must not hit something else.
   */
  readonly #movable = new Map<Card, ReturnType<typeof setTimeout> | undefined>();
  readonly #count = h("h2", { class: "count" });
  readonly #filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the open questions", oninput: () => { this.#applyFilter(); } });
  readonly #links = h("div", { class: "row go", role: "group", "aria-label": "Go to" });
  /** Ids of the cards that are placed elsewhere, for comparison with the links that are shown. */
  #placedKey = "";
  readonly #open = h("div", { class: "cards", onkeydown: (event: KeyboardEvent) => { this.#onArrowKey(event); } });
  readonly #closedList = h("ul");
  readonly #closedCount = h("summary");
  readonly #closedPart = h("details", { class: "closed" }, this.#closedCount, this.#closedList);
  readonly #announcement = h("div", { class: "db-hidden", role: "status" });
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(host: PromptHost) {
    this.#host = host;
    this.element = h("section", { class: "divebook divebook-prompt", "aria-label": "Questions", tabindex: -1 });
    this.element.append(h("div", { class: "bar" }, this.#count, this.#links, this.#filter), this.#open, this.#closedPart, this.#announcement);
    this.#filter.addEventListener("keydown", ({ key }) => {
      if (key !== "Escape") return;
      this.#filter.value = "";
      this.#applyFilter();
    });
    this.#timer = setInterval(() => { for (const card of this.#cards.values()) card.tick(); }, 1000);
    this.#refresh();
  }

  /** Show these questions, open and closed ones. Cards of questions that are missing from the list are removed. */
  update(questions: readonly Question[]): void {
    const ids = new Set(questions.map(({ interrupt_id: id }) => id));
    for (const [id, card] of this.#cards) if (!ids.has(id)) this.#drop(id, card);
    const isFirst = this.#questions.size === 0;
    const newQuestions: Question[] = [];
    for (const question of [...questions].sort(byAge)) {
      const previous = this.#questions.get(question.interrupt_id);
      this.#questions.set(question.interrupt_id, question);
      if (question.status !== "pending") {
        if (previous?.status !== question.status) this.#close(question);
      } else if (!this.#cards.has(question.interrupt_id)) {
        this.#add(question);
        newQuestions.push(question);
      }
    }
    if (newQuestions.length > 0) this.#announce(newQuestions, isFirst);
    this.#groupSimilar();
    this.#applyFilter();
    this.#refresh();
  }

  /** Update all cards after the connection to the kernel has changed. */
  showStatus(): void {
    for (const card of this.#cards.values()) card.showStatus();
  }

  /**
   * Show the card of a question at another place on the page and open it. A card that the list shows stays there until
   * `gather`, and so does a card that a person is editing: moving an element takes the focus away.
   */
  place(interruptId: string, place: HTMLElement): void {
    const card = this.#cards.get(interruptId);
    if (card === undefined || !this.#movable.has(card) || place.contains(card.element)) return;
    if (card.element.contains(document.activeElement)) return;
    this.#settle(card);
    place.append(card.element);
    card.toggle(true);
    this.#refresh();
  }

  /** Move all cards back into the list, because a person has left the part of the page that showed them. */
  gather(): void {
    for (const card of this.#cards.values()) {
      this.#settle(card);
      this.#movable.set(card, undefined);
    }
    this.#open.append(...[...this.#cards.values()].map(({ element }) => element));
    this.#refresh();
  }

  /** Let a card stay where it is. */
  #settle(card: Card): void {
    clearTimeout(this.#movable.get(card));
    this.#movable.delete(card);
  }

  get #placedCards(): Card[] {
    return [...this.#cards.values()].filter(({ element }) => element.parentElement !== null && element.parentElement !== this.#open);
  }

  /** Show a link to each card that is placed elsewhere. The links are replaced only if the cards change, so that a link keeps the focus. */
  #showLinks(): void {
    const placedCards = this.#placedCards;
    const key = JSON.stringify(placedCards.map(({ question }) => question.interrupt_id));
    if (key === this.#placedKey) return;
    this.#placedKey = key;
    const links = placedCards.slice(0, MAX_OPEN_CARDS).map((card) => {
      const go = (): void => {
        card.element.scrollIntoView({ block: "center" });
        card.head.focus();
      };
      return button(placedCards.length === 1 ? "Go to question" : shortLabel(card.question), go, { class: "small" });
    });
    this.#links.replaceChildren(...links, placedCards.length > MAX_OPEN_CARDS ? `and ${plural(placedCards.length - MAX_OPEN_CARDS, "more question")}` : "");
  }

  destroy(): void {
    clearInterval(this.#timer);
    for (const card of this.#movable.keys()) this.#settle(card);
    this.element.remove();
  }

  #add(question: Question): void {
    const card = new Card(question, this.#host, () => { this.#advance(card); });
    this.#cards.set(question.interrupt_id, card);
    const show = (): void => {
      this.#settle(card);
      this.#open.append(card.element);
      this.#refresh();
    };
    if (this.#host.awaitsPlace?.(question) === true) this.#movable.set(card, setTimeout(show, PLACE_TIMEOUT));
    else this.#open.append(card.element);
  }

  /** Open new cards as long as there are few, and announce them to screen readers. */
  #announce(newQuestions: Question[], isFirst: boolean): void {
    const cards = [...this.#cards.values()];
    if (cards.length <= MAX_OPEN_CARDS) for (const { interrupt_id: id } of newQuestions) this.#cards.get(id)?.toggle(true);
    else if (isFirst || !cards.some((card) => card.isOpen)) cards[0]?.toggle(true);
    const first = newQuestions[0];
    const text = newQuestions.length === 1 && first !== undefined ? `New question: ${oneLine(first.question, 160)}` : `${newQuestions.length} new questions`;
    setText(this.#announcement, text);
  }

  /** Replace the card of a closed question by a line. */
  #close(question: Question): void {
    const card = this.#cards.get(question.interrupt_id);
    if (card !== undefined) this.#drop(question.interrupt_id, card);
    this.#host.drafts.delete(question.interrupt_id);
    this.#closedList.prepend(closedLine(question));
  }

  #drop(id: string, card: Card): void {
    this.#advance(card);
    this.#settle(card);
    this.#cards.delete(id);
    card.element.remove();
  }

  /** Move the focus from a finished card to the next one. A focus elsewhere is left alone. */
  #advance(card: Card): void {
    if (!card.element.contains(document.activeElement)) return;
    const cards = this.#visible();
    const next = cards[cards.indexOf(card) + 1] ?? cards.find((other) => other !== card);
    next?.toggle(true);
    (next?.head ?? this.element).focus();
  }

  /** Give each card the list of cards that accept the same answer. A kernel with an older divebook sends no keys. */
  #groupSimilar(): void {
    const groups = new Map<string, Card[]>();
    for (const card of this.#cards.values()) {
      const { alike } = card.question;
      if (alike) groups.set(alike, [...(groups.get(alike) ?? []), card]);
    }
    for (const group of groups.values()) for (const card of group) card.setSimilarCards(group);
  }

  #visible(): Card[] {
    return [...this.#cards.values()].filter(({ element }) => !element.hidden);
  }

  /** Show only the cards that match the filter. The card with the focus stays visible. */
  #applyFilter(): void {
    const words = this.#filter.value.trim();
    for (const card of this.#cards.values()) card.element.hidden = !card.matches(words) && !card.element.contains(document.activeElement);
    this.#refresh();
  }

  #refresh(): void {
    const openCount = this.#cards.size;
    const visibleCount = this.#visible().length;
    const closedCount = this.#closedList.childElementCount;
    const openText = openCount === 0 ? "No open questions" : plural(openCount, "open question");
    setText(this.#count, visibleCount < openCount ? `${visibleCount} of ${openText}` : openText);
    this.#showLinks();
    this.#filter.hidden = openCount <= FILTER_ABOVE && this.#filter.value === "";
    setText(this.#closedCount, plural(closedCount, "closed question"));
    this.#closedPart.hidden = closedCount === 0;
    if (openCount === 0) this.#closedPart.open = true;
    this.element.hidden = openCount === 0 && closedCount === 0;
  }

  /** Move the focus between questions with the arrow keys, Home and End. */
  #onArrowKey(event: KeyboardEvent): void {
    const heads = this.#visible().map(({ head }) => head);
    const index = heads.findIndex((head) => head === event.target);
    const next = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: heads.length - 1 }[event.key];
    if (index < 0 || next === undefined) return;
    event.preventDefault();
    heads[next]?.focus();
  }
}

/** Return the line of a closed question. */
function closedLine(question: Question): HTMLElement {
  const { asker } = question;
  const workflow = asker === undefined ? "" : `${asker[0]}: `;
  const text = oneLine(`${workflow}${question.question}`, 200);
  const origin = originText(question);
  return h(
    "li",
    {},
    h("span", { class: "sign", "aria-hidden": "true" }, questionOutcomeSign(question)),
    h("span", { class: "kind" }, kindOf(question)),
    h("span", { class: "what", title: origin }, text),
    h("span", { class: "answer" }, questionOutcomeText(question)),
  );
}
