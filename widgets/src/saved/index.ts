// View of a saved run: a part of the JupyterLab extension that is loaded when a notebook first shows one.

import { savedRun } from "../lab/view";
import style from "inline:style";

export default { style, savedRun };
