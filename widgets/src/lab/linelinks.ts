// Navigation from a view to a line of a cell, access of views to the current text of cells, running the notebook again up to
// the cell of a view, and new cells below it.

import type { Cell, CellCreation, CellRuns, Panel, Tracker } from "./jupyterlab";
import { provideNavigation, type CellLine } from "../shared/celllinks";

/** Answer the requests of views in all notebooks. */
export function followLineLinks(tracker: Tracker, actions: CellRuns & CellCreation): void {
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
  const rerun = (from: Element): void => {
    tracker.forEach((panel) => {
      if (panel.node.contains(from)) void runTo(panel, from, actions);
    });
  };
  const insert = (code: string, from: Element, isRun: boolean): void => {
    tracker.forEach((panel) => {
      if (panel.node.contains(from)) insertCell(panel, code, from, actions, isRun);
    });
  };
  provideNavigation({ go, read, rerun, insert });
}

/** Insert a cell with this code below the cell that contains an element, and run it or put the cursor into it. */
function insertCell({ content, sessionContext }: Panel, code: string, from: Element, actions: CellCreation, isRun: boolean): void {
  content.activeCellIndex = content.widgets.findIndex(({ node }) => node.contains(from));
  actions.insertBelow(content);
  content.activeCell?.model.sharedModel.setSource(code);
  if (isRun) void actions.run(content, sessionContext);
  else content.mode = "edit";
  void content.scrollToItem(content.activeCellIndex, "smart");
}

/** Run the cells above the one that contains an element, and then this cell. A kernel that is dead is started again. */
async function runTo({ content, sessionContext }: Panel, from: Element, actions: CellRuns): Promise<void> {
  const cell = content.widgets.find(({ node }) => node.contains(from));
  if (cell === undefined) return;
  const activate = (): number => (content.activeCellIndex = content.widgets.indexOf(cell));
  if (sessionContext.session?.kernel?.status === "dead") await sessionContext.restartKernel();
  if (activate() > 0 && !(await actions.runAllAbove(content, sessionContext))) return; // a cell above has failed, and shows why
  // Cells may have been added or removed meanwhile, and the cell itself as well.
  if (content.widgets.includes(cell) && activate() >= 0) await actions.run(content, sessionContext);
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
