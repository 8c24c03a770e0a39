// Locations of questions on the page, and navigation to them.

import type { App, Cell, Panel, Tracker } from "./jupyterlab";
import type { OpenQuestion } from "./openquestions";

const INBOX = "divebook:inbox";
const SCROLL_FRAMES = 60; // frames until a cell that was out of sight is attached to the page again
const DRAW_FRAMES = 600; // frames until a view is drawn

/** A notebook and the index of the cell that contains a question; -1 if no cell does. */
interface Place {
  panel: Panel;
  cell: number;
}

/** Return the card of a question, preferably the one in the view of its run, else one in an inbox. */
export function cardOf(page: ParentNode, id: string): HTMLElement | null {
  const cards = [...page.querySelectorAll<HTMLElement>(`[data-question="${CSS.escape(id)}"]`)];
  return cards.find((card) => card.closest(".divebook-inbox") === null) ?? cards[0] ?? null;
}

/** Locations of questions in the notebooks of this page. */
export class QuestionLocator {
  readonly #app: App;
  readonly #tracker: Tracker;

  constructor(app: App, tracker: Tracker) {
    this.#app = app;
    this.#tracker = tracker;
  }

  /** Return the location of a question: the cell that started its run, else a cell that shows its card. */
  locate({ question, kernels }: OpenQuestion): Place | undefined {
    const places: Place[] = [];
    this.#tracker.forEach((panel) => {
      const { kernel } = panel.sessionContext.session ?? { kernel: null };
      if (panel.isDisposed || kernel === null || !kernels.some(({ id }) => id === kernel.id)) return;
      const { widgets } = panel.content;
      const startCell = widgets.findIndex(({ model }) => model.id === question.cell);
      const shownCell = widgets.findIndex(({ node }) => cardOf(node, question.interrupt_id) !== null);
      places.push({ panel, cell: startCell >= 0 ? startCell : shownCell });
    });
    return places.find(({ cell }) => cell >= 0) ?? places[0];
  }

  /** Return the cell that a question belongs to. */
  cellOf(openQuestion: OpenQuestion): Cell | undefined {
    const place = this.locate(openQuestion);
    return place?.panel.content.widgets[place.cell];
  }

  /** Scroll to the card of a question and focus it. If no notebook of this page shows the card, open the inbox and use the card there. */
  async navigate(openQuestion: OpenQuestion): Promise<void> {
    const { interrupt_id: id } = openQuestion.question;
    let card = await this.#cardAt(openQuestion, SCROLL_FRAMES, () => true);
    if (card === null && this.#app.commands.hasCommand(INBOX)) {
      await this.#app.commands.execute(INBOX);
      card = await cardIn(document.body, id, DRAW_FRAMES, () => true);
    }
    if (card !== null) show(card);
  }

  /** Scroll to the card of a question as soon as it is drawn, unless the person has become active meanwhile. */
  async scrollTo(openQuestion: OpenQuestion, isStillWanted: () => boolean): Promise<void> {
    const card = await this.#cardAt(openQuestion, DRAW_FRAMES, isStillWanted);
    if (card !== null) show(card);
  }

  /** Scroll to the cell of a question, and return the card inside it. */
  async #cardAt(openQuestion: OpenQuestion, maxFrames: number, isStillWanted: () => boolean): Promise<HTMLElement | null> {
    const place = this.locate(openQuestion);
    if (place === undefined) return null;
    const { panel, cell } = place;
    if (cell >= 0) panel.content.activeCellIndex = cell; // activating a notebook focuses its active cell a moment later
    this.#app.shell.activateById(panel.id);
    await nextFrames();
    if (cell >= 0) await panel.content.scrollToItem(cell, "smart");
    return cardIn(panel.node, openQuestion.question.interrupt_id, maxFrames, isStillWanted);
  }
}

/** Return the card of a question once it is attached to the page. Notebooks detach cells that are far out of sight. */
async function cardIn(page: ParentNode, id: string, maxFrames: number, isStillWanted: () => boolean): Promise<HTMLElement | null> {
  for (let frames = 0; frames < maxFrames && isStillWanted(); frames += 2) {
    const card = cardOf(page, id);
    if (card !== null) return card;
    await nextFrames();
  }
  return null;
}

/** Wait two frames: the first draws the changes, the second runs after that. */
function nextFrames(): Promise<unknown> {
  return new Promise((resolve) => { requestAnimationFrame(() => requestAnimationFrame(resolve)); });
}

/** Open a card, scroll to it and focus it. */
function show(card: HTMLElement): void {
  const head = card.querySelector<HTMLElement>(".head");
  if (head?.getAttribute("aria-expanded") === "false") head.click();
  card.scrollIntoView({ block: "center" });
  head?.focus({ preventScroll: true });
}
