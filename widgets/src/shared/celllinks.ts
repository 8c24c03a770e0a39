// Links from a view to notebook cells. The view dispatches a DOM event; the JupyterLab extension, if present, shows the line,
// fills in the text of the cell, inserts a cell, or runs the notebook up to the cell of the view.

/** A line of a notebook cell. */
export interface CellLine {
  cell: string;
  line: number;
}

/** Request for the text of a cell. The listener fills in the text. */
interface CellTextRequest {
  cell: string;
  text: string | null;
}

const GO_EVENT = "divebook:go";
const READ_EVENT = "divebook:read";
const RERUN_EVENT = "divebook:rerun";
const INSERT_EVENT = "divebook:insert";
const PROVIDER = "divebookGuide";
const NOTEBOOK = ".jp-Notebook";

/** Return true if a link to this line would work. */
export function canGo({ cell }: CellLine): boolean {
  return cell !== "" && PROVIDER in document.documentElement.dataset;
}

/** Show a line of a cell. */
export function goTo(from: HTMLElement, { cell, line }: CellLine): void {
  from.dispatchEvent(new CustomEvent<CellLine>(GO_EVENT, { bubbles: true, detail: { cell, line } }));
}

/** Return the current text of a cell; null if it is not available. */
export function textOf(from: HTMLElement, cell: string): string | null {
  const request: CellTextRequest = { cell, text: null };
  if (cell !== "") from.dispatchEvent(new CustomEvent<CellTextRequest>(READ_EVENT, { bubbles: true, detail: request }));
  return request.text;
}

/** Request for a new cell. */
interface CellRequest {
  code: string;
  /** True if the cell is also run. */
  isRun: boolean;
}

/** Insert a cell with this code below the cell of a view, and run it if asked to. */
export function insertBelow(from: HTMLElement, code: string, isRun = false): void {
  from.dispatchEvent(new CustomEvent<CellRequest>(INSERT_EVENT, { bubbles: true, detail: { code, isRun } }));
}

/**
 * Return true if a view is in a cell of a notebook that can be run up to it and get new cells. A view may also be in a tab of
 * its own.
 */
export function isInNotebook(from: Element): boolean {
  return PROVIDER in document.documentElement.dataset && from.closest(NOTEBOOK) !== null;
}

/** Run the cells above the cell of a view, and this cell, in the kernel that the notebook has now. */
export function rerun(from: HTMLElement): void {
  from.dispatchEvent(new CustomEvent(RERUN_EVENT, { bubbles: true }));
}

/** Handlers of the extension. */
export interface CellHandlers {
  /** Show a line of a cell. */
  go: (line: CellLine, from: Element) => void;
  /** Return the text of a cell; null if the notebook does not have it. */
  read: (cell: string, from: Element) => string | null;
  /** Run the notebook up to the cell that contains an element. */
  rerun: (from: Element) => void;
  /** Insert a cell with this code below the cell that contains an element, and run it if asked to. */
  insert: (code: string, from: Element, isRun: boolean) => void;
}

/** Register the handlers of the extension. */
export function provideNavigation({ go, read, rerun: run, insert }: CellHandlers): void {
  document.documentElement.dataset[PROVIDER] = "";
  document.addEventListener(GO_EVENT, (event) => { go((event as CustomEvent<CellLine>).detail, event.target as Element); });
  document.addEventListener(RERUN_EVENT, (event) => { run(event.target as Element); });
  document.addEventListener(INSERT_EVENT, (event) => {
    const { code, isRun } = (event as CustomEvent<CellRequest>).detail;
    insert(code, event.target as Element, isRun);
  });
  document.addEventListener(READ_EVENT, (event) => {
    const { detail } = event as CustomEvent<CellTextRequest>;
    detail.text = read(detail.cell, event.target as Element);
  });
}
