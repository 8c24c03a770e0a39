// Bundle of the workflow's graph, which runs of one step do not need.

import type { Part } from "../shared/later";
import style from "./graph.css";
import { workflow } from "./workflow";

const part: Part = { style, make: workflow };

export default part;
