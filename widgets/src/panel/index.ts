// Run browser of the side panel: a part of the JupyterLab extension that is loaded when the panel is first shown.

import { Browser } from "../runs/browser";
import style from "inline:style";

export default { style, Browser };
