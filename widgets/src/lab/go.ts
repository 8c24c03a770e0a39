// Navigation from a view to a line of a cell, and the current text of cells for views.

import type { Cell, Panel, Tracker } from "./jupyterlab";
import { provideNavigation, type CellLine } from "../shared/celllinks";

/** Listens to the views of all notebooks. */
export function goToLines(tracker: Tracker): void {
  provideNavigation((wanted, from) => {
    tracker.forEach((panel) => { if (panel.node.contains(from)) show(panel, wanted); });
  }, (cell, from) => {
    let text: string | null = null;
    tracker.forEach((panel) => { if (panel.node.contains(from)) text = cellOf(panel, cell)?.model.sharedModel.getSource() ?? null; });
    return text;
  });
}

function cellOf({ content }: Panel, cell: string): Cell | undefined {
  return content.widgets.find(({ model }) => model.id === cell);
}

function show({ content }: Panel, { cell, line }: CellLine): void {
  const index = content.widgets.findIndex(({ model }) => model.id === cell);
  const found = content.widgets[index];
  if (found === undefined) return;
  content.activeCellIndex = index;
  void content.scrollToItem(index, "smart");
  content.mode = "edit";
  void found.ready.then(() => {
    const place = { line: Math.min(line, found.editor?.lineCount ?? 1) - 1, column: 0 };
    found.editor?.setCursorPosition(place);
    found.editor?.revealPosition(place);
    found.editor?.focus();
  });
}
