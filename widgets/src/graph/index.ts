// Bundle of the workflow graph. Runs with one step do not load it.

import type { Part } from "../shared/lazypart";
import style from "./graph.css";
import { workflow } from "./workflow";

const part: Part = { style, make: workflow };

export default part;
