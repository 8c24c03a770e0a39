// Causes of a value as a graph: the value at the right, and left of each value the values that it was made from.
//
// The lines of the chain have a depth; a line belongs to the last line before it with the next smaller depth. A line that
// refers to a value above it ("again") becomes an edge to the node of that value, so that each value occurs once. Columns
// are the longest distances from the explained value. Within a column, a node stands beside the middle of its causes.

import type { WhyLine } from "../protocol";
import { h } from "../shared/dom";
import { button } from "../shared/element";
import { formatCount } from "../shared/format";
import { svg } from "../shared/svg";

const [WIDTH, HEIGHT] = [208, 66];
const [GAP_X, GAP_Y] = [44, 12];
const MARGIN = 6;

/** Value or call in the graph. */
export interface Node {
  line: WhyLine;
  /** Causes of the value. */
  causes: Node[];
  /** Longest distance from the explained value. */
  column: number;
  y: number;
}

/** Return the nodes of a chain, the explained value first. */
export function nodesOf(lines: readonly WhyLine[]): Node[] {
  const nodes: Node[] = [];
  const path: Node[] = [];
  for (const line of lines) {
    const known = line.kind === "again" ? nodes.find((node) => isSame(node.line, line)) : undefined;
    const node = known ?? { line, causes: [], column: 0, y: 0 };
    if (known === undefined) nodes.push(node);
    const parent = path[line.depth - 1];
    if (parent !== undefined && parent !== node && !parent.causes.includes(node)) parent.causes.push(node);
    path.length = line.depth;
    path.push(node);
  }
  place(nodes);
  return nodes;
}

/** Return true if a line refers to the value of an earlier line: "price: see above". */
function isSame({ sequence, name }: WhyLine, later: WhyLine): boolean {
  return sequence === later.sequence && name !== "" && (later.name === name || later.text.startsWith(`${name}:`));
}

/** Set the column and the row of each node. */
function place(nodes: readonly Node[]): void {
  // Nodes are in the order of the chain, but one that occurs again may have to move behind later nodes.
  for (let round = 0, moved = true; moved && round < nodes.length; round++) {
    moved = false;
    for (const { causes, column } of nodes) {
      for (const cause of causes) {
        if (cause.column > column) continue;
        cause.column = column + 1;
        moved = true;
      }
    }
  }
  const seen = new Set<Node>();
  let bottom = 0;
  const visit = (node: Node): void => {
    if (seen.has(node)) return;
    seen.add(node);
    const own = node.causes.filter((cause) => !seen.has(cause));
    own.forEach(visit);
    if (own.length === 0) {
      node.y = bottom;
      bottom += HEIGHT + GAP_Y;
    } else node.y = own.reduce((sum, cause) => sum + cause.y, 0) / own.length;
  };
  nodes.forEach(visit);
  const columns = new Map<number, Node[]>();
  for (const node of nodes) columns.set(node.column, [...(columns.get(node.column) ?? []), node]);
  for (const column of columns.values()) {
    let free = 0;
    for (const node of column.sort((one, other) => one.y - other.y)) {
      node.y = Math.max(node.y, free);
      free = node.y + HEIGHT + GAP_Y;
    }
  }
}

/** Return the graph as an element. `badgeOf` returns the sign of a line, and `go` goes to an event. */
export function causeGraph(lines: readonly WhyLine[], badgeOf: (line: WhyLine) => HTMLElement, go: (sequence: number) => void): HTMLElement {
  const nodes = nodesOf(lines);
  const last = Math.max(0, ...nodes.map(({ column }) => column));
  const width = (last + 1) * WIDTH + last * GAP_X + 2 * MARGIN;
  const height = Math.max(0, ...nodes.map(({ y }) => y)) + HEIGHT + 2 * MARGIN;
  const leftOf = ({ column }: Node): number => MARGIN + (last - column) * (WIDTH + GAP_X);
  const topOf = ({ y }: Node): number => MARGIN + y;
  const edges = nodes.flatMap((node) => node.causes.map((cause) => {
    const [x1, y1, x2, y2] = [leftOf(cause) + WIDTH, topOf(cause) + HEIGHT / 2, leftOf(node), topOf(node) + HEIGHT / 2];
    const middle = (x1 + x2) / 2;
    const line = svg("path", { d: `M ${x1} ${y1} C ${middle} ${y1} ${middle} ${y2} ${x2 - 6} ${y2}`, class: "edge" });
    return svg("g", {}, line, svg("path", { d: `M ${x2 - 7} ${y2 - 4} L ${x2} ${y2} L ${x2 - 7} ${y2 + 4} Z`, class: "tip" }));
  }));
  const picture = svg("svg", { width, height, "aria-hidden": "true" }, ...edges);
  const boxes = nodes.map((node) => {
    const box = boxOf(node.line, badgeOf(node.line), go);
    box.style.left = `${leftOf(node)}px`;
    box.style.top = `${topOf(node)}px`;
    return box;
  });
  const canvas = h("div", { class: "canvas" }, picture, ...boxes);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const element = h("div", { class: "causegraph", role: "group", tabindex: 0, "aria-label": "Causes as a graph" }, canvas);
  // The explained value is at the right edge; a wide graph begins there.
  requestAnimationFrame(() => { element.scrollLeft = element.scrollWidth; });
  return element;
}

/** Return the box of a value. It goes to its event, if it has one. */
function boxOf({ sequence, name, value, text, kind }: WhyLine, badge: HTMLElement, go: (sequence: number) => void): HTMLElement {
  const title = name === "" ? text : `${name} = ${value}\n${text}`;
  const first = h("span", { class: "subject" }, badge, name === "" ? h("span", { class: "words" }, text) : h("strong", {}, name));
  const second = name === "" ? false : h("code", { dir: "auto" }, value);
  const third = h("span", { class: "hint" }, name === "" ? `event ${formatCount(sequence)}` : text);
  const parts = [first, ...(second === false ? [] : [second]), third];
  if (sequence === 0) return h("div", { class: "node", title, "data-kind": kind }, ...parts);
  const element = button("", () => { go(sequence); }, { class: "node", title: `${title}\nGo to event ${formatCount(sequence)}`, "data-kind": kind });
  element.append(...parts);
  return element;
}
