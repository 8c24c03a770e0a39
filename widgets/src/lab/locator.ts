// Position of a question on the page, and navigation to it.

import type { App, Cell, Panel, Tracker } from "./jupyterlab";
import type { OpenQuestion } from "./openquestions";

const INBOX = "divebook:inbox";
const SCROLL_FRAMES = 60; // frames within which a cell that was scrolled out of sight is put back into the page
const DRAW_FRAMES = 600; // frames within which a view is drawn

/** A notebook, and the place of the cell in it that holds a question; -1 if none does. */
interface Place {
  panel: Panel;
  cell: number;
}

/** Returns the card of a question, rather that of its run than one of an inbox. */
export function cardOf(page: ParentNode, id: string): HTMLElement | null {
  const cards = [...page.querySelectorAll<HTMLElement>(`[data-question="${CSS.escape(id)}"]`)];
  return cards.find((card) => card.closest(".divebook-inbox") === null) ?? cards[0] ?? null;
}

/** Finds the way to questions in the notebooks of this page. */
export class QuestionLocator {
  constructor(private readonly app: App, private readonly tracker: Tracker) {}

  /** Returns where a question is at home: the cell that began its run, or that shows it. */
  locate({ question, kernels }: OpenQuestion): Place | undefined {
    const places: Place[] = [];
    this.tracker.forEach((panel) => {
      const { kernel } = panel.sessionContext.session ?? { kernel: null };
      if (panel.isDisposed || kernel === null || !kernels.some(({ id }) => id === kernel.id)) return;
      const { widgets } = panel.content;
      const startCell = widgets.findIndex(({ model }) => model.id === question.cell);
      places.push({ panel, cell: startCell >= 0 ? startCell : widgets.findIndex(({ node }) => cardOf(node, question.interrupt_id) !== null) });
    });
    return places.find(({ cell }) => cell >= 0) ?? places[0];
  }

  /** Returns the cell of a question. */
  cellOf(openQuestion: OpenQuestion): Cell | undefined {
    const place = this.locate(openQuestion);
    return place?.panel.content.widgets[place.cell];
  }

  /** Brings a person to the card of a question; where no notebook of this page shows it, to that in the inbox beside them. */
  async navigate(openQuestion: OpenQuestion): Promise<void> {
    const { interrupt_id: id } = openQuestion.question;
    let card = await this.#cardAt(openQuestion, SCROLL_FRAMES, () => true);
    if (card === null && this.app.commands.hasCommand(INBOX)) {
      await this.app.commands.execute(INBOX);
      card = await cardIn(document.body, id, DRAW_FRAMES, () => true);
    }
    if (card !== null) show(card);
  }

  /** Brings a reader there as soon as the card is drawn, as long as they want to. */
  async scrollTo(openQuestion: OpenQuestion, isStillWanted: () => boolean): Promise<void> {
    const card = await this.#cardAt(openQuestion, DRAW_FRAMES, isStillWanted);
    if (card !== null) show(card);
  }

  /** Goes to the cell of a question; returns the card there. */
  async #cardAt(openQuestion: OpenQuestion, maxFrames: number, isStillWanted: () => boolean): Promise<HTMLElement | null> {
    const place = this.locate(openQuestion);
    if (place === undefined) return null;
    const { panel, cell } = place;
    if (cell >= 0) panel.content.activeCellIndex = cell; // a notebook that is activated focuses it, a moment later
    this.app.shell.activateById(panel.id);
    await nextFrames();
    if (cell >= 0) await panel.content.scrollToItem(cell, "smart");
    return cardIn(panel.node, openQuestion.question.interrupt_id, maxFrames, isStillWanted);
  }
}

/** Returns the card of a question once it is in the page: notebooks take cells out that are far from what is seen. */
async function cardIn(page: ParentNode, id: string, maxFrames: number, isStillWanted: () => boolean): Promise<HTMLElement | null> {
  for (let frames = 0; frames < maxFrames && isStillWanted(); frames += 2) {
    const card = cardOf(page, id);
    if (card !== null) return card;
    await nextFrames();
  }
  return null;
}

function nextFrames(): Promise<unknown> {
  return new Promise((resolve) => { requestAnimationFrame(() => requestAnimationFrame(resolve)); });
}

function show(card: HTMLElement): void {
  const head = card.querySelector<HTMLElement>(".head");
  if (head?.getAttribute("aria-expanded") === "false") head.click();
  card.scrollIntoView({ block: "center" });
  head?.focus({ preventScroll: true });
}
