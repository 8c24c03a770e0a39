// The live view of one execution: what anywidget renders.

import type { RenderProps } from "@anywidget/types";
import "./live.css";

function render({ el }: RenderProps): void {
  el.classList.add("divebook-live");
}

export default { render };
