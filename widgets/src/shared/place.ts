// The way from a view to a line of the notebook: the view asks, and the JupyterLab extension, where there is one, goes, and reads what is in a cell.

/** What a view asks for: a cell by its id, and a line of it. */
export interface Wanted {
  cell: string;
  line: number;
}

/** What a view asks about a cell; who knows the cell fills in its text. */
interface Asked {
  cell: string;
  text: string | null;
}

const [EVENT, READ] = ["divebook:go", "divebook:read"];
const GUIDE = "divebookGuide";

/** Tells whether somebody can go to where this is. */
export function canGo({ cell }: Wanted): boolean {
  return cell !== "" && GUIDE in document.documentElement.dataset;
}

/** Asks for a line to be shown. */
export function goTo(from: HTMLElement, { cell, line }: Wanted): void {
  from.dispatchEvent(new CustomEvent<Wanted>(EVENT, { bubbles: true, detail: { cell, line } }));
}

/** Returns the text of a cell as it is now; null where nobody knows it. */
export function textOf(from: HTMLElement, cell: string): string | null {
  const asked: Asked = { cell, text: null };
  if (cell !== "") from.dispatchEvent(new CustomEvent<Asked>(READ, { bubbles: true, detail: asked }));
  return asked.text;
}

/** Has `go` bring people to lines, and `read` say what is in cells, from now on. */
export function guide(go: (wanted: Wanted, from: Element) => void, read: (cell: string, from: Element) => string | null): void {
  document.documentElement.dataset[GUIDE] = "";
  document.addEventListener(EVENT, (event) => { go((event as CustomEvent<Wanted>).detail, event.target as Element); });
  document.addEventListener(READ, (event) => {
    const { detail } = event as CustomEvent<Asked>;
    detail.text = read(detail.cell, event.target as Element);
  });
}
