// Runs beside each other in a notebook: the page's own HTML of them, as far as it trusts that, with a way from one difference to the next.
//
// The HTML holds no script, so that it is the same where there is no extension; what is here needs no kernel.

import type { MimeModel, Panel, PanelClass, RenderMime, Renderer, Tracker } from "./jupyterlab";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { contain } from "../shared/keys";
import { onThemeChange } from "../shared/theme";
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

/** Makes the way through the differences below an element; null where there is none. */
export function lead(shown: HTMLElement): HTMLElement | null {
  const rows = [...shown.querySelectorAll<HTMLElement>(".divebook-difference")];
  if (rows.length === 0) return null;
  let at = -1;
  const told = h("span", { role: "status" }, `${rows.length.toLocaleString("en")} here`);
  const go = (by: 1 | -1): void => {
    rows[at]?.classList.remove("db-at");
    at = at < 0 ? (by > 0 ? 0 : rows.length - 1) : (at + by + rows.length) % rows.length;
    const row = rows[at];
    setText(told, `${at + 1} of ${rows.length}`);
    if (row === undefined) return;
    row.classList.add("db-at");
    row.tabIndex = -1;
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  };
  const way = (name: string, key: string, by: 1 | -1): HTMLElement => button(name, () => { go(by); }, { class: "small", "aria-keyshortcuts": key, title: `${name} (${key})` });
  const bar = h("div", { class: "divebook db-way" }, way("Difference before", "P", -1), way("Next difference", "N", 1), told);
  onThemeChange(bar);
  shown.parentElement?.classList.add("divebook-compared");
  contain(shown.parentElement ?? shown);
  return bar;
}
