// Viewer in an HTML file with a saved run: JupyterLab's view of saved runs with all its parts, as one script.

import failure from "../failure";
import files from "../files";
import graph from "../graph";
import { checkRecording, checkSaved } from "../lab/decode";
import { recordedRun } from "../lab/view";
import type { Load, Part } from "../shared/lazypart";
import spread from "../spread";
import timeline from "../timeline";
import turn from "../turn";
import variables from "../variables";
import style from "inline:style";
import "./page.css";

/** Return the view of the data in the part "run". */
export type Show = (run: unknown) => HTMLElement;

const PARTS: Record<string, Part> = { failure, files, graph, spread, timeline, turn, variables };

/** Loader of the parts. The style sheet of this script contains the styles of all parts. */
const load: Load = (name) => Promise.resolve({ default: { ...PARTS[name], style: "" } });

/** Copy the browser's theme into the attribute from which the views read the theme of JupyterLab. */
function followTheme(): void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const copyTheme = (): void => { document.body.dataset["jpThemeLight"] = String(!dark.matches); };
  dark.addEventListener("change", copyTheme);
  copyTheme();
}

const show: Show = (run) => {
  const saved = checkSaved(run);
  followTheme();
  const element = document.createElement("style");
  element.textContent = style;
  document.head.append(element);
  return recordedRun(saved, checkRecording((run as { view: unknown }).view), load).element;
};

Object.assign(window, { show });
