// Renderer of compared runs in a notebook: the HTML of the output, sanitized by JupyterLab unless trusted, with
// navigation.
// The HTML contains no script, so it looks the same without this extension. The navigation needs no kernel.

import { COMPARISON_MIME } from "../constants";
import type { MimeModel, Panel, PanelClass, RenderMime, Renderer, Tracker } from "./jupyterlab";
import { forEachNotebook } from "./notebooks";
import { h } from "../shared/dom";
import { containKeys } from "../shared/keys";
import { onThemeChange } from "../shared/theme";
import { Differences, isDifference } from "./differences";
import { blockedCalls, type WhatIfData, whatIfOf } from "./blocked";
import "./comparison.css";

const HTML = "text/html";
const RANK = 40; // HTML has 50; JupyterLab prefers lower ranks

/** Register the renderer for comparisons in all notebooks, including notebooks that are opened later. */
export function renderComparisons(tracker: Tracker, base: PanelClass): void {
  const register = ({ content: { rendermime } }: Panel): void => {
    const comparisonRenderer = comparisonClass(base, rendermime);
    rendermime.addFactory({ safe: true, mimeTypes: [COMPARISON_MIME], createRenderer: () => new comparisonRenderer() }, RANK);
  };
  forEachNotebook(tracker, register);
}

/** Return the renderer class; its base class belongs to the page. */
function comparisonClass(base: PanelClass, rendermime: RenderMime): new () => Renderer {
  return class extends base implements Renderer {
    #html: Renderer | null = null;

    async renderModel(model: MimeModel): Promise<void> {
      this.#html?.dispose();
      this.#html = rendermime.createRenderer(HTML);
      this.addWidget(this.#html);
      const data = { [HTML]: model.data[HTML] };
      await this.#html.renderModel({ ...model, data, metadata: model.metadata, trusted: model.trusted, setData: () => undefined });
      addNavigation(this.#html.node, frameCode(model.data[COMPARISON_MIME]));
      const whatIf = whatIfOf(model.data[COMPARISON_MIME]);
      if (whatIf !== null) addForm(this.#html.node, whatIf);
    }
  };
}

/** Add the navigation to the differences inside an element (buttons, map and filters), and return it. Return null if there are no differences. */
export function addNavigation(comparison: HTMLElement, frame = ""): HTMLElement | null {
  const rows = [...comparison.querySelectorAll<HTMLElement>(".divebook-difference, .divebook-same")];
  if (!rows.some(isDifference)) return null;
  const root = comparison.parentElement ?? comparison;
  const bar = h("div", { class: "divebook db-way" });
  bar.append(...new Differences(rows, root, frame).parts);
  onThemeChange(bar);
  root.classList.add("divebook-compared");
  containKeys(root);
  // The summary stays above the bar. Comparisons of an older version have no mark there.
  const first = comparison.querySelector(".divebook-first")?.parentElement ?? null;
  if (first === null) comparison.before(bar);
  else first.before(bar);
  return bar;
}

/** Add the form for the results of blocked calls above the navigation, or above a comparison without differences. */
function addForm(comparison: HTMLElement, whatIf: WhatIfData): void {
  const root = comparison.parentElement ?? comparison;
  const form = h("div", { class: "divebook db-blocked" }, blockedCalls(whatIf));
  onThemeChange(form);
  const bar = root.querySelector(".db-way");
  if (bar === null) comparison.before(form);
  else bar.before(form);
}

/** Return the line of Python that returns all places of the compared runs as a DataFrame. The ids come from a notebook and are checked. */
function frameCode(data: unknown): string {
  const { runs } = (data ?? {}) as { runs?: unknown };
  if (!Array.isArray(runs) || !runs.every((id) => typeof id === "string" && /^\w+$/.test(id))) return "";
  return `divebook.compare(${runs.map((id) => `"${id as string}"`).join(", ")}).frame()`;
}
