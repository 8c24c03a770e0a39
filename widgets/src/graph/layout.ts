// Layout of a workflow: steps in layers from left to right in the order of execution, and the edges between them.
//
// The classic method (Sugiyama, Tagawa, Toda 1981): turn edges that close a loop around, put each step into the layer
// after its farthest predecessor, let long edges pass through places in the layers between, order each layer by the
// middle of its neighbours, then move all towards their neighbours. Equal input gives an equal picture.

import type { Graph, GraphEdge } from "../protocol";

export const WIDTH = 152;
export const HEIGHT = 40;
const GAP_X = 52;
const GAP_Y = 30;
const LETTER = 6; // width of a letter of a condition
export const MOST_CONDITION = 22;
const SWEEPS = 8;
const PLACE = 12; // height of a place that only an edge passes through

export interface Point {
  x: number;
  y: number;
}

export interface PlacedEdge {
  edge: GraphEdge;
  /** From the source's side to the target's; a loop on one step has none. */
  points: Point[];
  /** Whether it leads back to an earlier layer. */
  isBack: boolean;
}

export interface Layout {
  /** Centres, by step. */
  steps: Map<string, Point>;
  edges: PlacedEdge[];
  width: number;
  height: number;
}

/** A step, or a place in a layer that an edge passes through. */
interface Cell {
  layer: number;
  y: number;
  height: number;
  before: Cell[];
  after: Cell[];
}

interface Way {
  edge: GraphEdge;
  cells: Cell[];
  isBack: boolean;
}

/** Lays out a workflow; steps that edges name and that are not defined are left out. */
export function layout({ steps, edges }: Graph): Layout {
  const names = steps.map(({ name }) => name);
  const known = new Set(names);
  const real = edges.filter(({ source, target }) => known.has(source) && known.has(target));
  const back = backEdges(names, real);
  const layers = layersOf(names, real, back);
  const cells = new Map(names.map((name) => [name, cell(layers.get(name) ?? 0, HEIGHT)]));
  const all = [...cells.values()];
  const ways = real.filter(({ source, target }) => source !== target).map((edge) => way(edge, back.has(edge), cells, all));
  const columns = columnsOf(all);
  order(columns);
  place(columns);
  return drawn(cells, ways, real, columns, gapsOf(columns.length, ways));
}

function cell(layer: number, height: number): Cell {
  return { layer, y: 0, height, before: [], after: [] };
}

/** Finds the edges that close a loop, going from the first steps on in the order in which they are written. */
function backEdges(names: string[], edges: GraphEdge[]): Set<GraphEdge> {
  const found = new Set<GraphEdge>();
  const state = new Map<string, "open" | "done">();
  const out = outgoing(edges);
  for (const start of names) {
    const stack = state.has(start) ? [] : [{ name: start, next: 0 }];
    if (stack.length > 0) state.set(start, "open");
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const edge = out.get(top.name)?.[top.next++];
      if (edge === undefined) {
        state.set(top.name, "done");
        stack.pop();
      } else if (state.get(edge.target) === "open") found.add(edge);
      else if (!state.has(edge.target)) {
        state.set(edge.target, "open");
        stack.push({ name: edge.target, next: 0 });
      }
    }
  }
  return found;
}

function outgoing(edges: GraphEdge[]): Map<string, GraphEdge[]> {
  const out = new Map<string, GraphEdge[]>();
  for (const edge of edges) {
    const known = out.get(edge.source);
    if (known === undefined) out.set(edge.source, [edge]);
    else known.push(edge);
  }
  return out;
}

/** Returns each step's layer: one more than the farthest of its predecessors. */
function layersOf(names: string[], edges: GraphEdge[], back: Set<GraphEdge>): Map<string, number> {
  const layers = new Map(names.map((name) => [name, 0]));
  const forward = edges.filter((edge) => !back.has(edge));
  const missing = new Map<string, number>();
  for (const { target } of forward) missing.set(target, (missing.get(target) ?? 0) + 1);
  const out = outgoing(forward);
  const sources = names.filter((name) => !missing.has(name));
  const ready = [...sources];
  for (let name = ready.shift(); name !== undefined; name = ready.shift()) {
    for (const { target } of out.get(name) ?? []) {
      layers.set(target, Math.max(layers.get(target) ?? 0, (layers.get(name) ?? 0) + 1));
      const left = (missing.get(target) ?? 1) - 1;
      missing.set(target, left);
      if (left === 0) ready.push(target);
    }
  }
  for (const name of sources.slice(1)) { // what nothing leads to stands right before what it leads to
    const targets = (out.get(name) ?? []).map(({ target }) => layers.get(target) ?? 1);
    if (targets.length > 0) layers.set(name, Math.min(...targets) - 1);
  }
  return layers;
}

/** Makes the places that an edge passes through and joins them up. */
function way(edge: GraphEdge, isBack: boolean, cells: Map<string, Cell>, all: Cell[]): Way {
  const ends = [cells.get(edge.source), cells.get(edge.target)].filter((found) => found !== undefined);
  const [first, last] = isBack ? ends.reverse() : ends;
  if (first === undefined || last === undefined) return { edge, cells: [], isBack };
  const chain = [first];
  for (let layer = first.layer + 1; layer < last.layer; layer += 1) {
    const passed = cell(layer, PLACE);
    all.push(passed);
    chain.push(passed);
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

/** Orders each layer by the middle of the neighbours in the layer before it, then in the one after it, several times. */
function order(columns: Cell[][]): void {
  const number = (column: Cell[]): void => { column.forEach((one, index) => { one.y = index; }); };
  columns.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    for (const column of isForward ? columns : [...columns].reverse()) {
      const wanted = new Map(column.map((one) => [one, middle(isForward ? one.before : one.after, one.y)]));
      column.sort((one, other) => (wanted.get(one) ?? 0) - (wanted.get(other) ?? 0));
      number(column);
    }
  }
}

function middle(neighbours: Cell[], otherwise: number): number {
  if (neighbours.length === 0) return otherwise;
  return neighbours.reduce((sum, { y }) => sum + y, 0) / neighbours.length;
}

/** Moves each layer towards its neighbours; the order stays, and nothing overlaps. */
function place(columns: Cell[][]): void {
  for (const column of columns) spread(column, column.map(() => 0));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    for (const column of isForward ? columns : [...columns].reverse()) {
      spread(column, column.map((one) => middle(sweep > SWEEPS - 3 ? [...one.before, ...one.after] : isForward ? one.before : one.after, one.y)));
    }
  }
}

interface Block {
  members: number;
  sum: number;
}

/** Gives each cell the place nearest to the one wanted that keeps the distances: cells in conflict move as a block. */
function spread(column: Cell[], wanted: number[]): void {
  let offset = 0;
  const offsets = column.map((one, index) => {
    const above = column[index - 1];
    if (above !== undefined) offset += (above.height + one.height) / 2 + GAP_Y;
    return offset;
  });
  const blocks: Block[] = [];
  wanted.forEach((y, index) => {
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

/** Returns the text beside an edge. */
export function wordsOf({ kind, condition }: GraphEdge): string {
  return kind === "next" ? condition : `on failure${condition === "" ? "" : `: ${condition}`}`;
}

/** Returns the room after each layer: enough for the conditions that stand there. */
function gapsOf(count: number, ways: Way[]): number[] {
  const gaps = Array<number>(count).fill(GAP_X);
  for (const { edge, cells, isBack } of ways) {
    const layer = cells[0]?.layer;
    if (layer === undefined || isBack) continue;
    gaps[layer] = Math.max(gaps[layer] ?? GAP_X, Math.min(MOST_CONDITION, wordsOf(edge).length) * LETTER + 24);
  }
  return gaps;
}

function drawn(cells: Map<string, Cell>, ways: Way[], edges: GraphEdge[], columns: Cell[][], gaps: number[]): Layout {
  const all = columns.flat();
  const top = Math.min(0, ...all.map(({ y, height }) => y - height / 2));
  const bottom = Math.max(0, ...all.map(({ y, height }) => y + height / 2));
  const starts = gaps.map((_, layer) => gaps.slice(0, layer).reduce((sum, gap) => sum + gap + WIDTH, 0));
  const point = ({ layer, y }: Cell): Point => ({ x: (starts[layer] ?? 0) + WIDTH / 2, y: y - top });
  const steps = new Map([...cells].map(([name, one]) => [name, point(one)]));
  const placed = ways.map(({ edge, cells: chain, isBack }) => ({ edge, isBack, points: chain.map(point) }));
  const loops = edges.filter(({ source, target }) => source === target).map((edge) => ({ edge, isBack: true, points: [] }));
  return {
    steps,
    edges: [...placed, ...loops],
    width: (starts.at(-1) ?? 0) + WIDTH,
    height: bottom - top,
  };
}
