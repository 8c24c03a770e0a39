// Widget that steps through a log, which anywidget renders.

import type { RenderProps } from "@anywidget/types";
import { onThemeChange } from "../shared/theme";
import { contain } from "../shared/keys";
import { picture } from "./picture";
import { Replay } from "./replay";
import { Requests } from "./requests";

function render({ model, el }: RenderProps): () => void {
  const requests = new Requests(model);
  const beside = picture(requests, (sequence) => { replay.go(sequence); });
  const replay: Replay = new Replay(requests, (at) => {
    beside.stand(at);
    requests.moved(at);
  }, beside.element);
  contain(replay.element);
  el.append(replay.element);
  const forget = onThemeChange(replay.element);
  requests.fill(replay).catch((error: unknown) => { replay.tell(String(error)); });
  return () => {
    forget();
    requests.close();
    beside.destroy();
    replay.destroy();
  };
}

export default { render };
