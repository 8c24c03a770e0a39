// Iteration over the notebooks of the page.

import type { Tracker } from "./jupyterlab";

/** Call a function for each notebook, including notebooks that are opened later. */
export function forEachNotebook<P>(tracker: Tracker<P>, visit: (panel: P) => void): void {
  tracker.forEach(visit);
  tracker.widgetAdded.connect((_, panel) => { visit(panel); });
}
