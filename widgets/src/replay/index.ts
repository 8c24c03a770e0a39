// Replay widget, rendered by anywidget: it steps through the event log of a run.

import type { RenderProps } from "@anywidget/types";
import { onThemeChange } from "../shared/theme";
import { containKeys } from "../shared/keys";
import { runOverview } from "./overview";
import { Replay } from "./replay";
import { Requests } from "./requests";

/** Render the widget. Return a function that removes it. */
function render({ model, el }: RenderProps): () => void {
  const requests = new Requests(model);
  const overview = runOverview(requests, (sequence) => { replay.go(sequence); }, (run) => { replay.showRun(run, true); });
  const replay: Replay = new Replay(requests, (at) => {
    overview.setPosition(at);
    requests.sendPosition(at);
  }, overview.element);
  containKeys(replay.element);
  el.append(replay.element);
  const stopTheme = onThemeChange(replay.element);
  const { name, sequence } = (model.get("explained") ?? {}) as { name?: string; sequence?: number };
  if (name !== undefined && sequence !== undefined) replay.explainFirst(sequence, name);
  requests.fill(replay).catch((error: unknown) => { replay.showError(String(error)); });
  return () => {
    stopTheme();
    requests.close();
    overview.destroy();
    replay.destroy();
  };
}

export default { render };
