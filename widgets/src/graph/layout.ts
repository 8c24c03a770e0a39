// Layout of a workflow: steps in layers from left to right in the order of execution, and the edges between them.
//
// Layered graph drawing (Sugiyama, Tagawa, Toda 1981) in five phases: reverse the edges that close a loop; put each step
// into the layer after its farthest predecessor; split long edges by waypoints, one in each layer between their ends; order
// each layer by the mean position of its neighbours; move all cells towards their neighbours. Example: with the edges
// a -> b, b -> c, a -> c the layers are a | b, waypoint | c, and the edge a -> c passes through the waypoint, not through b.
// The result is deterministic: equal workflows have equal layouts.

import type { Graph, GraphEdge } from "../protocol";

export const WIDTH = 168;
export const HEIGHT = 44;
const GAP_X = 52;
const GAP_Y = 30;
const LETTER = 6.6; // width of a letter of a condition in pixels
export const MOST_CONDITION = 22;
const SWEEPS = 8; // passes over all layers, forward and backward in turn
const WAYPOINT_HEIGHT = 12; // height of a waypoint in pixels

export interface Point {
  x: number;
  y: number;
}

/** Edge with its coordinates. */
export interface PlacedEdge {
  edge: GraphEdge;
  /** Points from the source to the target; empty for an edge from a step to itself. */
  points: Point[];
  /** True if the edge leads to an earlier layer. */
  isBack: boolean;
}

/** Coordinates of a workflow. */
export interface Layout {
  /** Centers by step. */
  steps: Map<string, Point>;
  edges: PlacedEdge[];
  width: number;
  height: number;
}

/** A step, or a waypoint of an edge. */
interface Cell {
  layer: number;
  y: number;
  height: number;
  /** Neighbours in the previous and in the next layer. */
  before: Cell[];
  after: Cell[];
}

/** An edge with its cells from source to target. */
interface EdgeCells {
  edge: GraphEdge;
  cells: Cell[];
  isBack: boolean;
}

/** Lay out a workflow. Edges with an undefined step are left out. */
export function layout({ steps, edges }: Graph): Layout {
  const names = steps.map(({ name }) => name);
  const defined = new Set(names);
  const valid = edges.filter(({ source, target }) => defined.has(source) && defined.has(target));
  const back = backEdges(names, valid);
  const layers = layersOf(names, valid, back);
  const cells = new Map(names.map((name) => [name, cell(layers.get(name) ?? 0, HEIGHT)]));
  const all = [...cells.values()];
  const chains = valid.filter(({ source, target }) => source !== target).map((edge) => linkCells(edge, back.has(edge), cells, all));
  const columns = columnsOf(all);
  orderLayers(columns);
  moveToNeighbours(columns);
  return coordinates(cells, chains, valid, columns, gapsOf(columns.length, chains));
}

function cell(layer: number, height: number): Cell {
  return { layer, y: 0, height, before: [], after: [] };
}

/**
 * Return the edges that close a loop: those to a step on the current path of a depth-first search. The search starts at the
 * first steps and follows edges in the order of the definition. It is iterative, so that long workflows do not overflow
 * the stack.
 */
function backEdges(names: string[], edges: GraphEdge[]): Set<GraphEdge> {
  const closing = new Set<GraphEdge>();
  const state = new Map<string, "open" | "done">();
  const outgoingEdges = outgoing(edges);
  for (const start of names) {
    const stack = state.has(start) ? [] : [{ name: start, next: 0 }];
    if (stack.length > 0) state.set(start, "open");
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const edge = outgoingEdges.get(top.name)?.[top.next++];
      if (edge === undefined) {
        state.set(top.name, "done");
        stack.pop();
      } else if (state.get(edge.target) === "open") closing.add(edge);
      else if (!state.has(edge.target)) {
        state.set(edge.target, "open");
        stack.push({ name: edge.target, next: 0 });
      }
    }
  }
  return closing;
}

/** Return the edges by their source. */
function outgoing(edges: GraphEdge[]): Map<string, GraphEdge[]> {
  const edgesBySource = new Map<string, GraphEdge[]>();
  for (const edge of edges) {
    const siblings = edgesBySource.get(edge.source);
    if (siblings === undefined) edgesBySource.set(edge.source, [edge]);
    else siblings.push(edge);
  }
  return edgesBySource;
}

/**
 * Return the layer of each step: one more than the highest layer of its predecessors (topological order, Kahn 1962). A step
 * without predecessors is put right before its successors, unless it is the first step.
 */
function layersOf(names: string[], edges: GraphEdge[], back: Set<GraphEdge>): Map<string, number> {
  const layers = new Map(names.map((name) => [name, 0]));
  const forward = edges.filter((edge) => !back.has(edge));
  const openPredecessors = new Map<string, number>();
  for (const { target } of forward) openPredecessors.set(target, (openPredecessors.get(target) ?? 0) + 1);
  const outgoingEdges = outgoing(forward);
  const sources = names.filter((name) => !openPredecessors.has(name));
  const ready = [...sources];
  for (let name = ready.shift(); name !== undefined; name = ready.shift()) {
    for (const { target } of outgoingEdges.get(name) ?? []) {
      layers.set(target, Math.max(layers.get(target) ?? 0, (layers.get(name) ?? 0) + 1));
      const remaining = (openPredecessors.get(target) ?? 1) - 1;
      openPredecessors.set(target, remaining);
      if (remaining === 0) ready.push(target);
    }
  }
  for (const name of sources.slice(1)) {
    const targets = (outgoingEdges.get(name) ?? []).map(({ target }) => layers.get(target) ?? 1);
    if (targets.length > 0) layers.set(name, Math.min(...targets) - 1);
  }
  return layers;
}

/** Create the waypoints of an edge and link its cells as neighbours. A back edge is linked from its target to its source. */
function linkCells(edge: GraphEdge, isBack: boolean, cells: Map<string, Cell>, all: Cell[]): EdgeCells {
  const ends = [cells.get(edge.source), cells.get(edge.target)].filter((end) => end !== undefined);
  const [first, last] = isBack ? ends.reverse() : ends;
  if (first === undefined || last === undefined) return { edge, cells: [], isBack };
  const chain = [first];
  for (let layer = first.layer + 1; layer < last.layer; layer += 1) {
    const waypoint = cell(layer, WAYPOINT_HEIGHT);
    all.push(waypoint);
    chain.push(waypoint);
  }
  chain.push(last);
  chain.slice(1).forEach((next, index) => {
    const previous = chain[index];
    if (previous === undefined) return;
    previous.after.push(next);
    next.before.push(previous);
  });
  return { edge, cells: isBack ? chain.reverse() : chain, isBack };
}

function columnsOf(all: Cell[]): Cell[][] {
  const columns: Cell[][] = [];
  for (const one of all) (columns[one.layer] ??= []).push(one);
  return columns;
}

/** Order each layer by the mean position of the neighbours in the previous layer, then in the next layer, several times. */
function orderLayers(columns: Cell[][]): void {
  const number = (column: Cell[]): void => {
    column.forEach((one, index) => { one.y = index; });
  };
  columns.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    for (const column of isForward ? columns : [...columns].reverse()) {
      const targets = new Map(column.map((one) => [one, middle(isForward ? one.before : one.after, one.y)]));
      column.sort((one, other) => (targets.get(one) ?? 0) - (targets.get(other) ?? 0));
      number(column);
    }
  }
}

/** Return the mean position of cells; `fallback` if there are none. */
function middle(neighbours: Cell[], fallback: number): number {
  if (neighbours.length === 0) return fallback;
  return neighbours.reduce((sum, { y }) => sum + y, 0) / neighbours.length;
}

/** Move each layer towards its neighbours, without changing the order. The last two sweeps balance both sides. */
function moveToNeighbours(columns: Cell[][]): void {
  for (const column of columns) spread(column, column.map(() => 0));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    for (const column of isForward ? columns : [...columns].reverse()) {
      const neighboursOf = (one: Cell): Cell[] => {
        if (sweep > SWEEPS - 3) return [...one.before, ...one.after];
        return isForward ? one.before : one.after;
      };
      spread(column, column.map((one) => middle(neighboursOf(one), one.y)));
    }
  }
}

/** Cells that move together: their number, and the sum of their targets. */
interface Block {
  members: number;
  sum: number;
}

/**
 * Put each cell as near as possible to its target, with at least the minimum distance between cells.
 *
 * Subtracting the minimum distances turns this into a least squares fit of ascending numbers (isotonic regression, pool
 * adjacent violators): a block that would start before the previous block is merged with it, at the mean of both.
 */
function spread(column: Cell[], targets: number[]): void {
  let offset = 0;
  const offsets = column.map((one, index) => {
    const above = column[index - 1];
    if (above !== undefined) offset += (above.height + one.height) / 2 + GAP_Y;
    return offset;
  });
  const blocks: Block[] = [];
  targets.forEach((y, index) => {
    let block = { members: 1, sum: y - (offsets[index] ?? 0) };
    for (let above = blocks.at(-1); above !== undefined && above.sum / above.members > block.sum / block.members; above = blocks.at(-1)) {
      block = { members: block.members + above.members, sum: block.sum + above.sum };
      blocks.pop();
    }
    blocks.push(block);
  });
  const starts = blocks.flatMap(({ members, sum }) => Array<number>(members).fill(sum / members));
  column.forEach((one, index) => { one.y = (starts[index] ?? 0) + (offsets[index] ?? 0); });
}

/** Return the text of an edge: its condition. */
export function conditionText({ kind, condition }: GraphEdge): string {
  return kind === "next" ? condition : `on failure${condition === "" ? "" : `: ${condition}`}`;
}

/** Return the width of the gap after each layer, wide enough for the conditions in it. */
function gapsOf(count: number, chains: EdgeCells[]): number[] {
  const gaps = Array<number>(count).fill(GAP_X);
  for (const { edge, cells, isBack } of chains) {
    const layer = cells[0]?.layer;
    if (layer === undefined || isBack) continue;
    gaps[layer] = Math.max(gaps[layer] ?? GAP_X, Math.min(MOST_CONDITION, conditionText(edge).length) * LETTER + 24);
  }
  return gaps;
}

/** Return the final coordinates: layers become columns, and the topmost cell starts at 0. */
function coordinates(cells: Map<string, Cell>, chains: EdgeCells[], edges: GraphEdge[], columns: Cell[][], gaps: number[]): Layout {
  const all = columns.flat();
  const top = Math.min(0, ...all.map(({ y, height }) => y - height / 2));
  const bottom = Math.max(0, ...all.map(({ y, height }) => y + height / 2));
  const starts = gaps.map((_, layer) => gaps.slice(0, layer).reduce((sum, gap) => sum + gap + WIDTH, 0));
  const point = ({ layer, y }: Cell): Point => ({ x: (starts[layer] ?? 0) + WIDTH / 2, y: y - top });
  const steps = new Map([...cells].map(([name, one]) => [name, point(one)]));
  const placedEdges = chains.map(({ edge, cells: chain, isBack }) => ({ edge, isBack, points: chain.map(point) }));
  const loops = edges.filter(({ source, target }) => source === target).map((edge) => ({ edge, isBack: true, points: [] }));
  return {
    steps,
    edges: [...placedEdges, ...loops],
    width: (starts.at(-1) ?? 0) + WIDTH,
    height: bottom - top,
  };
}
