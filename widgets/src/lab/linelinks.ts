// Navigation from a view to a line of a cell, and the current text of cells for views.

import type { Cell, Panel, Tracker } from "./jupyterlab";
import { guide, type Wanted } from "../shared/place";

/** Listens to the views of all notebooks. */
export function followLineLinks(tracker: Tracker): void {
  guide((target, from) => {
    tracker.forEach((panel) => { if (panel.node.contains(from)) show(panel, target); });
  }, (cell, from) => {
    let text: string | null = null;
    tracker.forEach((panel) => { if (panel.node.contains(from)) text = cellOf(panel, cell)?.model.sharedModel.getSource() ?? null; });
    return text;
  });
}

function cellOf({ content }: Panel, cell: string): Cell | undefined {
  return content.widgets.find(({ model }) => model.id === cell);
}

function show({ content }: Panel, { cell, line }: Wanted): void {
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
