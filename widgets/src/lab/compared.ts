// Compared runs in a notebook: the page's own HTML of them, as far as it is trusted, with navigation.
//
// The HTML holds no script, so that it is the same where there is no extension; what is here needs no kernel.

import type { MimeModel, Panel, PanelClass, RenderMime, Renderer, Tracker } from "./jupyterlab";
import { h } from "../shared/dom";
import { containKeys } from "../shared/keys";
import { onThemeChange } from "../shared/theme";
import { Differences } from "./differences";
import "./compared.css";

export const COMPARED = "application/vnd.divebook.compared+json";
const HTML = "text/html";
const RANK = 40; // HTML has 50: JupyterLab prefers what is lower

/** Has comparisons in all notebooks lead from difference to difference, those included that are opened later. */
export function leadThrough(tracker: Tracker, base: PanelClass): void {
  const take = ({ content: { rendermime } }: Panel): void => {
    const make = comparedClass(base, rendermime);
    rendermime.addFactory({ safe: true, mimeTypes: [COMPARED], createRenderer: () => new make() }, RANK);
  };
  tracker.forEach(take);
  tracker.widgetAdded.connect((_, panel) => { take(panel); });
}

function comparedClass(base: PanelClass, rendermime: RenderMime): new () => Renderer {
  return class extends base implements Renderer {
    #html: Renderer | null = null;

    async renderModel(model: MimeModel): Promise<void> {
      this.#html?.dispose();
      this.#html = rendermime.createRenderer(HTML);
      this.addWidget(this.#html);
      await this.#html.renderModel({ ...model, data: { [HTML]: model.data[HTML] }, metadata: model.metadata, trusted: model.trusted, setData: () => undefined });
      const bar = lead(this.#html.node);
      if (bar !== null) this.node.prepend(bar);
    }
  };
}

/** Makes the way through the differences below an element, their map, and what chooses among them; null where there are none. */
export function lead(shown: HTMLElement): HTMLElement | null {
  const rows = [...shown.querySelectorAll<HTMLElement>(".divebook-difference, .divebook-same")];
  if (!rows.some((row) => row.matches(".divebook-difference"))) return null;
  const root = shown.parentElement ?? shown;
  const bar = h("div", { class: "divebook db-way" });
  bar.append(...new Differences(rows, root).parts);
  onThemeChange(bar);
  root.classList.add("divebook-compared");
  containKeys(root);
  return bar;
}
