// The workflow's graph as a bundle of its own: runs of one step need none.

import type { Part } from "../shared/later";
import style from "./graph.css";
import { workflow } from "./workflow";

const part: Part = { style, make: workflow };

export default part;
