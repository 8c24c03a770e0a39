// Where bars lie: a lane for each path; in it a row for steps, and below it rows for what ran side by side. The turn of an
// agent that another agent gave work has a lane of its own, below the lane of the other.

import type { Spans } from "../shared/spans";

export const STEP_HEIGHT = 22;
export const ROW_HEIGHT = 15;
export const LANE_GAP = 10;
/** Rows below the steps; what ran beside more than these shares the last. */
export const MAX_ROWS = 8;

/** The rows of one path, or of one turn. */
export interface Lane {
  path: string;
  /** How many turns it stands below. */
  depth: number;
  /** How many rows it has, the one for steps included. */
  rows: number;
  top: number;
}

interface LaneState extends Lane {
  index: number;
  /** The last span of each row below the steps. */
  occupants: number[];
  /** Rows of the items of the present visit, by number of the item. */
  items: Map<number, number>;
}

/** Lanes and rows of the spans so far; grows with them. */
export class Layout {
  lanes: Lane[] = [];
  /** The same from top to bottom. */
  #order: LaneState[] = [];
  height = 0;
  /** By span: its lane and its row. */
  lane = new Int32Array(0);
  row = new Uint8Array(0);
  #states = new Map<string, LaneState>();
  #placed = 0;
  #generation = -1;

  /** Places the spans that are new; all of them if some came out of order. */
  update(spans: Spans, generation: number): void {
    if (generation !== this.#generation) {
      this.#generation = generation;
      this.#states = new Map();
      this.lanes = [];
      this.#order = [];
      this.#placed = 0;
    }
    if (this.row.length < spans.total) this.#enlarge(spans.total);
    if (this.#placed === 0) for (const id of spans.early) this.#place(spans, id);
    for (let id = Math.max(this.#placed, spans.floor); id < spans.total; id++) this.#place(spans, id);
    this.#placed = spans.total;
    this.#stack();
  }

  #enlarge(total: number): void {
    const size = Math.max(1024, total * 2);
    const [lane, row] = [new Int32Array(size), new Uint8Array(size)];
    lane.set(this.lane);
    row.set(this.row);
    [this.lane, this.row] = [lane, row];
  }

  #place(spans: Spans, id: number): void {
    const lane = this.#laneOf(spans, id);
    this.lane[id] = lane.index;
    this.row[id] = this.#rowIn(lane, spans, id);
    lane.rows = Math.max(lane.rows, this.row[id] + 1);
  }

  #laneOf(spans: Spans, id: number): LaneState {
    const turn = givenTurn(spans, id);
    const name = turn < 0 ? spans.text(id, "path") : `turn ${turn}`;
    const known = this.#states.get(name);
    if (known !== undefined) return known;
    const above = turn < 0 ? undefined : this.#laneOf(spans, spans.number(turn, "within"));
    const path = turn < 0 ? name : `↳ ${spans.text(turn, "label")}`;
    const lane: LaneState = { index: this.lanes.length, path, depth: above === undefined ? 0 : above.depth + 1, rows: 1, top: 0, occupants: [], items: new Map() };
    this.#states.set(name, lane);
    this.lanes.push(lane);
    this.#order.splice(this.#placeBelow(above), 0, lane);
    return lane;
  }

  /** Returns where a lane goes: behind all that stands below the one above it. */
  #placeBelow(above: LaneState | undefined): number {
    if (above === undefined) return this.#order.length;
    const from = this.#order.indexOf(above) + 1;
    const next = this.#order.findIndex(({ depth }, place) => place >= from && depth <= above.depth);
    return next < 0 ? this.#order.length : next;
  }

  #rowIn(lane: LaneState, spans: Spans, id: number): number {
    const kind = spans.text(id, "kind");
    const item = spans.number(id, "iteration");
    if (kind === "step") {
      lane.items.clear();
      return 0;
    }
    if (givenTurn(spans, id) === id) return 0;
    const shared = kind === "operation" && item >= 0 ? lane.items.get(item) : undefined;
    const row = shared ?? this.#freeRow(lane, spans, spans.startOf(id));
    lane.occupants[row - 1] = id;
    if (kind === "item") lane.items.set(item, row);
    return row;
  }

  #freeRow(lane: LaneState, spans: Spans, start: number): number {
    for (let row = 0; row < MAX_ROWS; row++) {
      const occupant = lane.occupants[row];
      if (occupant === undefined || spans.endOf(occupant, Infinity) <= start) return row + 1;
    }
    return MAX_ROWS;
  }

  #stack(): void {
    let top = LANE_GAP / 2;
    for (const lane of this.#order) {
      lane.top = top;
      top += laneHeight(lane);
    }
    this.height = top;
  }

  /** Returns the upper edge of a span's bar. */
  topOf(id: number): number {
    const top = this.lanes[this.lane[id] ?? 0]?.top ?? 0;
    const row = this.row[id] ?? 0;
    return row === 0 ? top : top + STEP_HEIGHT + (row - 1) * ROW_HEIGHT;
  }

  /** Returns the height of a span's bar. */
  heightOf(id: number): number {
    return ((this.row[id] ?? 0) === 0 ? STEP_HEIGHT : ROW_HEIGHT) - 3;
  }

  /** Returns lane and row at a height, or null between lanes. */
  at(y: number): { lane: number; row: number } | null {
    const lane = this.lanes.findIndex((candidate) => y >= candidate.top && y < candidate.top + laneHeight(candidate));
    const found = this.lanes[lane];
    if (found === undefined) return null;
    const below = y - found.top - STEP_HEIGHT;
    const row = below < 0 ? 0 : 1 + Math.floor(below / ROW_HEIGHT);
    return row < found.rows ? { lane, row } : null;
  }
}

/** Returns the turn, given by another, that a span is or belongs to; -1 if it belongs to none. */
function givenTurn(spans: Spans, id: number): number {
  const holder = spans.number(id, "within");
  if (holder < 0) return -1;
  if (spans.text(id, "type") === "agent_turn") return id;
  return spans.has(holder) && spans.number(holder, "within") >= 0 ? holder : -1;
}

function laneHeight(lane: Lane): number {
  return STEP_HEIGHT + (lane.rows - 1) * ROW_HEIGHT + LANE_GAP;
}
