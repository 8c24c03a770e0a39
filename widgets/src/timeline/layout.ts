// Vertical layout of bars: bands and lanes, by the rules of divebook/analysis/timeline.py (test/cases/lanes.json).
//
// Each path has a band: one row for its steps, and below it a lane for each of the calls that ran at the same time. A call
// takes the first lane that is free at its start (greedy interval partitioning), so the number of lanes is the highest
// concurrency. A turn that one agent gives to another agent has a band of its own below the band of the first one. Only
// some of many lanes are shown, those with a failure first.
//
// Spans are placed once, in the order of their beginning, and stay in their lane: the layout grows with the run and never
// moves earlier bars to other lanes.

import { AGENT_TURN } from "../constants";
import type { Spans } from "../shared/spans";
import { branchOf } from "../shared/words";
import { Failures } from "./failures";

export const ROW = 19;
export const BAR = 16;
export const BAND_GAP = 8;
/** Lanes per band that are shown at first. */
export const MOST_LANES = 8;
/** Calls of a band from which it may be aggregated (`aggregate.ts`), and has room for that. */
export const LEAST_DENSE = 1500;
const DENSE_ROWS = 4;
const MAX_LANE = 65_535; // the largest value of a Uint16Array; further concurrent calls share the last lane

/** Rows of one path, or of one turn. */
export interface Band {
  name: string;
  /** Number of turns above this one. */
  depth: number;
  /** Number of lanes, without the row for steps. */
  lanes: number;
  /** Visible lanes from top to bottom, counted from 1. */
  visibleLanes: readonly number[];
  /** Rows below the row for steps: one for each visible lane, and at least a few if the band has thousands of calls. */
  rows: number;
  top: number;
}

/** Band with the state that is needed to place further spans. */
interface BandState extends Band {
  index: number;
  /** Number of spans below the row for steps. */
  calls: number;
  /** Row of each lane by its number; 0 if it is hidden. The row for steps has the number 0. */
  rowOfLane: number[];
  /** Last span of each lane. */
  occupants: number[];
  /** Id of the current step. */
  step: number;
  /** Items of the current step by index. */
  items: Map<number, { id: number; lane: number }>;
  /** Parent band. */
  parent: BandState | undefined;
}

/** Bands and lanes of the loaded spans. */
export class Layout {
  /** Bands in the order of their beginning. */
  bands: Band[] = [];
  height = 0;
  /** Index of the band of each span. */
  band = new Int32Array(0);
  /** Lane of each span; 0 for the row of steps. */
  lane = new Uint16Array(0);
  /** Parent of each span; -1 if there is none. */
  parents = new Int32Array(0);
  /** 1 for each span that contains others, otherwise 0. */
  isParent = new Uint8Array(0);
  readonly failures = new Failures();
  /** True if all lanes are shown. */
  isExpanded = false;
  #states = new Map<string, BandState>();
  /** Bands from top to bottom. */
  #order: BandState[] = [];
  #nextId = 0;
  #generation = -1;
  #arrangedState = "";

  /** Place the new spans; all spans if some arrived out of order. */
  update(spans: Spans, generation: number): void {
    if (generation !== this.#generation) this.#reset(generation);
    if (this.lane.length < spans.total) this.#enlarge(spans.total);
    if (this.#nextId === 0) {
      for (const id of spans.early) this.#place(spans, id);
    }
    for (let id = Math.max(this.#nextId, spans.floor); id < spans.total; id++) this.#place(spans, id);
    this.#nextId = spans.total;
    this.failures.update(spans, generation, this.parents);
    this.#arrange();
  }

  #reset(generation: number): void {
    this.#generation = generation;
    this.#states = new Map();
    this.bands = [];
    this.#order = [];
    this.#nextId = 0;
    this.#arrangedState = "";
    this.isParent.fill(0);
  }

  /** Double the capacity of the columns. */
  #enlarge(total: number): void {
    const size = Math.max(1024, total * 2);
    const band = new Int32Array(size);
    const lane = new Uint16Array(size);
    const parents = new Int32Array(size);
    const isParent = new Uint8Array(size);
    band.set(this.band);
    lane.set(this.lane);
    parents.set(this.parents);
    isParent.set(this.isParent);
    this.band = band;
    this.lane = lane;
    this.parents = parents;
    this.isParent = isParent;
  }

  /** Set the band, the lane and the parent of a span. */
  #place(spans: Spans, id: number): void {
    const band = this.#bandOf(spans, id);
    this.band[id] = band.index;
    const lane = this.#laneIn(band, spans, id);
    this.lane[id] = lane;
    band.lanes = Math.max(band.lanes, lane);
    if (lane > 0) band.calls++;
    const parent = this.parents[id] ?? -1;
    if (parent >= 0) this.isParent[parent] = 1;
  }

  /** Return the band of a span, created if it is the first of its path or its delegated turn. */
  #bandOf(spans: Spans, id: number): BandState {
    const turn = delegatedTurn(spans, id);
    const key = turn < 0 ? spans.text(id, "path") : `turn ${turn}`;
    const existing = this.#states.get(key);
    if (existing !== undefined) return existing;
    const parent = turn < 0 ? undefined : this.#bandOf(spans, spans.number(turn, "within"));
    const name = turn < 0 ? branchOf(key) || key : `↳ ${spans.text(turn, "label")}`;
    const depth = parent === undefined ? 0 : parent.depth + 1;
    const band: BandState = {
      index: this.bands.length,
      name,
      depth,
      lanes: 0,
      visibleLanes: [],
      rows: 0,
      calls: 0,
      top: 0,
      rowOfLane: [0],
      occupants: [],
      step: -1,
      items: new Map(),
      parent,
    };
    this.#states.set(key, band);
    this.bands.push(band);
    this.#order.splice(this.#indexBelow(parent), 0, band);
    return band;
  }

  /** Return the index of a new band in `#order`: after all descendants of its parent. */
  #indexBelow(parent: BandState | undefined): number {
    if (parent === undefined) return this.#order.length;
    const from = this.#order.indexOf(parent) + 1;
    const next = this.#order.findIndex(({ depth }, place) => place >= from && depth <= parent.depth);
    return next < 0 ? this.#order.length : next;
  }

  /**
   * Return the lane of a span, and set its parent.
   *
   * Steps have row 0. A call of an item shares the lane of the item, which spans all of its calls. A turn's own bar is in
   * row 0 of the turn's band.
   */
  #laneIn(band: BandState, spans: Spans, id: number): number {
    const kind = spans.text(id, "kind");
    const item = spans.number(id, "iteration");
    this.parents[id] = -1;
    if (kind === "step") {
      band.items.clear();
      band.step = id;
      return 0;
    }
    const itemLane = item < 0 ? undefined : band.items.get(item);
    const turn = spans.number(id, "within");
    if (turn >= 0) this.parents[id] = turn;
    else this.parents[id] = kind === "item" ? band.step : (itemLane?.id ?? band.step);
    if (delegatedTurn(spans, id) === id) return 0;
    const sharedLane = kind === "operation" ? itemLane?.lane : undefined;
    const lane = sharedLane ?? freeLane(band, spans, spans.startOf(id));
    band.occupants[lane - 1] = id;
    if (kind === "item") band.items.set(item, { id, lane });
    return lane;
  }

  /** Choose the visible lanes and stack the bands, if anything that affects them has changed. */
  #arrange(): void {
    const state = `${this.failures.version} ${this.isExpanded} ${this.#order.map(({ lanes, calls }) => (calls >= LEAST_DENSE ? -lanes : lanes)).join()}`;
    if (state === this.#arrangedState) return;
    this.#arrangedState = state;
    const failedLanes = this.#failedLanes();
    let top = BAND_GAP / 2;
    for (const band of failedFirst(this.#order, failedLanes)) {
      chooseLanes(band, failedLanes.get(band.index) ?? [], this.isExpanded);
      band.top = top;
      top += bandHeight(band);
    }
    this.height = top;
  }

  /** Return the lanes with a failure by band, in the order of their first failure. */
  #failedLanes(): Map<number, number[]> {
    const lanesByBand = new Map<number, number[]>();
    for (const id of this.failures.ids) {
      const band = this.band[id] ?? 0;
      const lanes = lanesByBand.get(band) ?? [];
      lanesByBand.set(band, lanes);
      const lane = this.lane[id] ?? 0;
      if (!lanes.includes(lane)) lanes.push(lane);
    }
    return lanesByBand;
  }

  /** Number of hidden lanes. */
  get hidden(): number {
    return this.bands.reduce((sum, { lanes, visibleLanes: shown }) => sum + lanes - shown.length, 0);
  }

  /** True if there are more lanes than are shown at first. */
  get isDeep(): boolean {
    return this.bands.some(({ lanes }) => lanes > MOST_LANES);
  }

  /** Return the top of a span's bar; -1 if its lane is hidden. */
  topOf(id: number): number {
    const band = this.bands[this.band[id] ?? 0] as BandState | undefined;
    const lane = this.lane[id] ?? 0;
    if (band === undefined) return -1;
    if (lane === 0) return band.top;
    const row = band.rowOfLane[lane] ?? 0;
    return row === 0 ? -1 : band.top + row * ROW;
  }

  /** Return the band of a path. */
  bandOfPath(path: string): Band | undefined {
    return this.#states.get(path);
  }

  /** Return the band and lane at a vertical position; null between bands. */
  at(y: number): { band: number; lane: number } | null {
    const index = this.bands.findIndex((one) => y >= one.top && y < one.top + bandHeight(one));
    const band = this.bands[index];
    if (band === undefined) return null;
    const row = Math.floor((y - band.top) / ROW);
    const lane = row === 0 ? 0 : band.visibleLanes[row - 1];
    return lane === undefined ? null : { band: index, lane };
  }
}

/** Return the first lane whose last span has ended at a moment. */
function freeLane(band: BandState, spans: Spans, start: number): number {
  for (let lane = 0; lane < MAX_LANE - 1; lane++) {
    const occupant = band.occupants[lane];
    if (occupant === undefined || spans.endOf(occupant, Infinity) <= start) return lane + 1;
  }
  return MAX_LANE;
}

/** Return bands with a failure first, together with their descendants, if there are too many bands to see at once. */
function failedFirst(order: readonly BandState[], failedLanes: ReadonlyMap<number, unknown>): readonly BandState[] {
  if (order.length <= MOST_LANES) return order;
  const rootOf = (band: BandState): BandState => (band.parent === undefined ? band : rootOf(band.parent));
  const roots = new Set(order.filter(({ index }) => failedLanes.has(index)).map(rootOf));
  return [...order.filter((band) => roots.has(rootOf(band))), ...order.filter((band) => !roots.has(rootOf(band)))];
}

/** Choose the visible lanes of a band: lanes with a failure, then the others in order. */
function chooseLanes(band: BandState, failedLanes: readonly number[], isExpanded: boolean): void {
  const first = failedLanes.filter((lane) => lane > 0);
  const others = Array.from({ length: band.lanes }, (_, index) => index + 1).filter((lane) => !first.includes(lane));
  band.visibleLanes = [...first, ...others].slice(0, isExpanded ? band.lanes : MOST_LANES);
  band.rows = Math.max(band.visibleLanes.length, band.calls >= LEAST_DENSE ? DENSE_ROWS : 0);
  band.rowOfLane = Array<number>(band.lanes + 1).fill(0);
  band.visibleLanes.forEach((lane, place) => { band.rowOfLane[lane] = place + 1; });
}

/** Return the delegated turn that a span is or belongs to; -1 if there is none. */
function delegatedTurn(spans: Spans, id: number): number {
  const parent = spans.number(id, "within");
  if (parent < 0) return -1;
  if (spans.text(id, "type") === AGENT_TURN) return id;
  return spans.has(parent) && spans.number(parent, "within") >= 0 ? parent : -1;
}

function bandHeight(band: Band): number {
  return (1 + band.rows) * ROW + BAND_GAP;
}
