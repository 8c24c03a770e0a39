// Navigation from a view to a line of a cell, and access of views to the current text of cells.

import type { Cell, Panel, Tracker } from "./jupyterlab";
import { provideNavigation, type CellLine } from "../shared/celllinks";

/** Answer the requests of views in all notebooks. */
export function followLineLinks(tracker: Tracker): void {
  const go = (target: CellLine, from: Element): void => {
    tracker.forEach((panel) => {
      if (panel.node.contains(from)) show(panel, target);
    });
  };
  const read = (cell: string, from: Element): string | null => {
    let text: string | null = null;
    tracker.forEach((panel) => {
      if (panel.node.contains(from)) text = cellOf(panel, cell)?.model.sharedModel.getSource() ?? null;
    });
    return text;
  };
  provideNavigation(go, read);
}

function cellOf({ content }: Panel, cell: string): Cell | undefined {
  return content.widgets.find(({ model }) => model.id === cell);
}

/** Scroll to a line of a cell and place the cursor there. A cell out of sight gets its editor only after scrolling. */
function show({ content }: Panel, { cell, line }: CellLine): void {
  const index = content.widgets.findIndex(({ model }) => model.id === cell);
  const cellWidget = content.widgets[index];
  if (cellWidget === undefined) return;
  content.activeCellIndex = index;
  void content.scrollToItem(index, "smart");
  content.mode = "edit";
  void cellWidget.ready.then(() => {
    const place = { line: Math.min(line, cellWidget.editor?.lineCount ?? 1) - 1, column: 0 };
    cellWidget.editor?.setCursorPosition(place);
    cellWidget.editor?.revealPosition(place);
    cellWidget.editor?.focus();
  });
}
