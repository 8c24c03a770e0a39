// Widget with the runs of a store, rendered by anywidget for `%dive runs`.

import type { RenderProps } from "@anywidget/types";
import { Browser } from "./browser";

/** Render the run browser. The returned function removes it. */
function render({ model: wire, el }: RenderProps): () => void {
  const browser = new Browser(wire);
  el.append(browser.element);
  return () => { browser.destroy(); };
}

export default { render };
