// Where bars lie: a band for each path; in it a row for steps, and below it a lane for each thing that ran at once. The
// turn of an agent that another agent gave work has a band of its own, below the band of the other. Of many lanes only
// some are shown, those with a failure first.

import type { Spans } from "../shared/spans";
import { branchOf } from "../shared/words";
import { Failures } from "./failures";

export const ROW = 19;
export const BAR = 16;
export const BAND_GAP = 8;
/** Lanes of a band that are shown unless all are asked for. */
export const MOST_LANES = 8;
const MOST_PLACES = 65_535; // what a place is kept in holds no more; what ran beside more than these shares the last

/** The rows of one path, or of one turn. */
export interface Band {
  name: string;
  /** How many turns it stands below. */
  depth: number;
  /** How many lanes it has, the row for steps left out. */
  lanes: number;
  /** The lanes that are shown, from top to bottom, counted from 1. */
  shown: readonly number[];
  top: number;
}

interface BandState extends Band {
  index: number;
  /** Where each lane is shown, by its number; 0 where it is hidden. The row for steps has the number 0. */
  places: number[];
  /** The last span of each lane. */
  occupants: number[];
  /** The step that it is in, and by number the items of that with their lanes. */
  step: number;
  items: Map<number, { id: number; lane: number }>;
  /** The band that it stands below. */
  above: BandState | undefined;
}

/** Bands and lanes of the spans so far; grows with them. */
export class Layout {
  /** In the order of their beginning. */
  bands: Band[] = [];
  height = 0;
  /** By span: its band and its lane, 0 for the row of steps. */
  band = new Int32Array(0);
  lane = new Uint16Array(0);
  /** By span: what holds it, -1 if nothing does, and whether it holds anything. */
  within = new Int32Array(0);
  holds = new Uint8Array(0);
  readonly failures = new Failures();
  /** Whether all lanes are shown. */
  isWhole = false;
  #states = new Map<string, BandState>();
  #order: BandState[] = [];
  #placed = 0;
  #generation = -1;
  #arranged = "";

  /** Places the spans that are new; all of them if some came out of order. */
  update(spans: Spans, generation: number): void {
    if (generation !== this.#generation) this.#forget(generation);
    if (this.lane.length < spans.total) this.#enlarge(spans.total);
    if (this.#placed === 0) for (const id of spans.early) this.#place(spans, id);
    for (let id = Math.max(this.#placed, spans.floor); id < spans.total; id++) this.#place(spans, id);
    this.#placed = spans.total;
    this.failures.update(spans, generation, this.within);
    this.#arrange();
  }

  #forget(generation: number): void {
    this.#generation = generation;
    this.#states = new Map();
    this.bands = [];
    this.#order = [];
    this.#placed = 0;
    this.#arranged = "";
    this.holds.fill(0);
  }

  #enlarge(total: number): void {
    const size = Math.max(1024, total * 2);
    const [band, lane, within, holds] = [new Int32Array(size), new Uint16Array(size), new Int32Array(size), new Uint8Array(size)];
    band.set(this.band);
    lane.set(this.lane);
    within.set(this.within);
    holds.set(this.holds);
    [this.band, this.lane, this.within, this.holds] = [band, lane, within, holds];
  }

  #place(spans: Spans, id: number): void {
    const band = this.#bandOf(spans, id);
    this.band[id] = band.index;
    const lane = this.#laneIn(band, spans, id);
    this.lane[id] = lane;
    band.lanes = Math.max(band.lanes, lane);
    const holder = this.within[id] ?? -1;
    if (holder >= 0) this.holds[holder] = 1;
  }

  #bandOf(spans: Spans, id: number): BandState {
    const turn = givenTurn(spans, id);
    const key = turn < 0 ? spans.text(id, "path") : `turn ${turn}`;
    const known = this.#states.get(key);
    if (known !== undefined) return known;
    const above = turn < 0 ? undefined : this.#bandOf(spans, spans.number(turn, "within"));
    const name = turn < 0 ? branchOf(key) || key : `↳ ${spans.text(turn, "label")}`;
    const depth = above === undefined ? 0 : above.depth + 1;
    const band: BandState = { index: this.bands.length, name, depth, lanes: 0, shown: [], top: 0, places: [0], occupants: [], step: -1, items: new Map(), above };
    this.#states.set(key, band);
    this.bands.push(band);
    this.#order.splice(this.#placeBelow(above), 0, band);
    return band;
  }

  /** Returns where a band goes: behind all that stands below the one above it. */
  #placeBelow(above: BandState | undefined): number {
    if (above === undefined) return this.#order.length;
    const from = this.#order.indexOf(above) + 1;
    const next = this.#order.findIndex(({ depth }, place) => place >= from && depth <= above.depth);
    return next < 0 ? this.#order.length : next;
  }

  #laneIn(band: BandState, spans: Spans, id: number): number {
    const kind = spans.text(id, "kind");
    const item = spans.number(id, "iteration");
    this.within[id] = -1;
    if (kind === "step") {
      band.items.clear();
      band.step = id;
      return 0;
    }
    const around = item < 0 ? undefined : band.items.get(item);
    this.within[id] = spans.number(id, "within") >= 0 ? spans.number(id, "within") : kind === "item" ? band.step : (around?.id ?? band.step);
    if (givenTurn(spans, id) === id) return 0;
    const shared = kind === "operation" ? around?.lane : undefined;
    const lane = shared ?? freeLane(band, spans, spans.startOf(id));
    band.occupants[lane - 1] = id;
    if (kind === "item") band.items.set(item, { id, lane });
    return lane;
  }

  /** Chooses the lanes that are shown, and stacks the bands. */
  #arrange(): void {
    const state = `${this.failures.version} ${this.isWhole} ${this.#order.map(({ lanes }) => lanes).join()}`;
    if (state === this.#arranged) return;
    this.#arranged = state;
    const failed = this.#failedLanes();
    let top = BAND_GAP / 2;
    for (const band of failedFirst(this.#order, failed)) {
      choose(band, failed.get(band.index) ?? [], this.isWhole);
      band.top = top;
      top += bandHeight(band);
    }
    this.height = top;
  }

  /** By band the lanes with a failure, the first failure first. */
  #failedLanes(): Map<number, number[]> {
    const found = new Map<number, number[]>();
    for (const id of this.failures.ids) {
      const band = this.band[id] ?? 0;
      const lanes = found.get(band) ?? [];
      found.set(band, lanes);
      const lane = this.lane[id] ?? 0;
      if (!lanes.includes(lane)) lanes.push(lane);
    }
    return found;
  }

  /** How many lanes are not shown. */
  get hidden(): number {
    return this.bands.reduce((sum, { lanes, shown }) => sum + lanes - shown.length, 0);
  }

  /** Whether there are more lanes than are shown at first. */
  get isDeep(): boolean {
    return this.bands.some(({ lanes }) => lanes > MOST_LANES);
  }

  /** Returns the upper edge of a span's bar; -1 if its lane is hidden. */
  topOf(id: number): number {
    const band = this.bands[this.band[id] ?? 0] as BandState | undefined;
    const lane = this.lane[id] ?? 0;
    const place = lane === 0 ? 0 : (band?.places[lane] ?? 0);
    return band === undefined || (lane > 0 && place === 0) ? -1 : band.top + place * ROW;
  }

  /** Returns the band of a path. */
  bandAt(path: string): Band | undefined {
    return this.#states.get(path);
  }

  /** Returns band and lane at a height, or null between bands. */
  at(y: number): { band: number; lane: number } | null {
    const band = this.bands.findIndex((one) => y >= one.top && y < one.top + bandHeight(one));
    const found = this.bands[band];
    if (found === undefined) return null;
    const place = Math.floor((y - found.top) / ROW);
    const lane = place === 0 ? 0 : found.shown[place - 1];
    return lane === undefined ? null : { band, lane };
  }
}

function freeLane(band: BandState, spans: Spans, start: number): number {
  for (let lane = 0; lane < MOST_PLACES - 1; lane++) {
    const occupant = band.occupants[lane];
    if (occupant === undefined || spans.endOf(occupant, Infinity) <= start) return lane + 1;
  }
  return MOST_PLACES;
}

/** Where there are more bands than are seen at once, those with a failure come first, with what stands below them. */
function failedFirst(order: readonly BandState[], failed: ReadonlyMap<number, unknown>): readonly BandState[] {
  if (order.length <= MOST_LANES) return order;
  const rootOf = (band: BandState): BandState => (band.above === undefined ? band : rootOf(band.above));
  const roots = new Set(order.filter(({ index }) => failed.has(index)).map(rootOf));
  return [...order.filter((band) => roots.has(rootOf(band))), ...order.filter((band) => !roots.has(rootOf(band)))];
}

function choose(band: BandState, failed: readonly number[], isWhole: boolean): void {
  const first = failed.filter((lane) => lane > 0);
  const others = Array.from({ length: band.lanes }, (_, index) => index + 1).filter((lane) => !first.includes(lane));
  band.shown = [...first, ...others].slice(0, isWhole ? band.lanes : MOST_LANES);
  band.places = Array<number>(band.lanes + 1).fill(0);
  band.shown.forEach((lane, place) => { band.places[lane] = place + 1; });
}

/** Returns the turn, given by another, that a span is or belongs to; -1 if it belongs to none. */
function givenTurn(spans: Spans, id: number): number {
  const holder = spans.number(id, "within");
  if (holder < 0) return -1;
  if (spans.text(id, "type") === "agent_turn") return id;
  return spans.has(holder) && spans.number(holder, "within") >= 0 ? holder : -1;
}

function bandHeight(band: Band): number {
  return (1 + band.shown.length) * ROW + BAND_GAP;
}
