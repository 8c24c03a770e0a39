// State of one execution as sent by the kernel, shared by all views of one page.

import type { Delta, FailureReport, Graph, Header, QuestionView as Question, RangeAnswer, SpanBlock, Streamed, Welcome } from "../protocol";
import { Spans } from "./spans";

export type Change = "spans" | "header" | "failures" | "questions" | "graph" | "streams" | "selection" | "position" | "filter" | "view" | "connection";
/** What is shown of a run in which models were asked. */
export type Shown = "chat" | "timeline";
export type Connected = "connecting" | "connected" | "detached";

const KEPT_OF_STREAM = 50_000;

/** A text that a model is writing. */
export interface Stream {
  text: string;
  /** How many characters there are in all, those included that were missed. */
  length: number;
}

/** Where a replay stands: after which event, when that was, and in which step. */
export interface Position {
  sequence: number;
  /** Microseconds since the origin. */
  time: number;
  step: string;
}

/** The state, and who wants to know when it changes. */
export class Model {
  readonly spans = new Spans();
  header: Header | null = null;
  failures: FailureReport = { total: 0, kept: "", shown: [] };
  graph: Graph = { steps: [], edges: [] };
  readonly questions = new Map<string, Question>();
  /** By span, and by part of what it writes. */
  readonly streams = new Map<number, Map<string, Stream>>();
  /** The span whose details are shown. */
  selected: number | null = null;
  /** Where a replay of it stands, if somebody looks at one. */
  position: Position | null = null;
  /** Only this step's spans, if there is one. */
  step: string | null = null;
  view: Shown = "timeline";
  connected: Connected = "connecting";
  /** Sequence number of the last event that is in here. */
  last = 0;
  originUs = 0;
  /** Set when spans came out of order: what was laid out must be laid out again. */
  generation = 0;
  #toldAt = 0;
  readonly #listeners = new Set<(change: Change) => void>();

  constructor(private readonly clock: () => number = () => performance.now()) {}

  /** Calls `listener` after each change until what is returned is called. */
  on(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tell(change: Change): void {
    for (const listener of this.#listeners) listener(change);
  }

  select(id: number | null): void {
    if (id === this.selected) return;
    this.selected = id;
    this.tell("selection");
  }

  /** Has the views show where a replay stands; null for the present. */
  stand(position: Position | null): void {
    this.position = position;
    this.tell("position");
  }

  /** Shows a span in the timeline. */
  reveal(id: number): void {
    this.show("timeline");
    this.select(id);
  }

  show(view: Shown): void {
    if (view === this.view) return;
    this.view = view;
    this.tell("view");
  }

  filterStep(step: string | null): void {
    this.step = step;
    this.tell("filter");
  }

  setConnected(connected: Connected): void {
    if (connected === this.connected) return;
    this.connected = connected;
    this.tell("connection");
  }

  get isOver(): boolean {
    return (this.header?.ended_us ?? null) !== null;
  }

  /** Whether nothing goes on although it has not ended: somebody paused it, or its kernel is gone. */
  get rests(): boolean {
    if (this.header === null || this.isOver) return false;
    return this.connected === "detached" || this.header.doing === "paused" || this.header.doing === "stopped";
  }

  /** Returns where bars that have no end are drawn to, in microseconds since the origin: now, or when nothing ran any more. */
  now(): number {
    const header = this.header;
    if (!header?.live || this.isOver || this.connected === "detached") return Math.max(this.spans.latest, (header?.since_us ?? 0) - this.originUs);
    return this.#present(header);
  }

  /** Returns the kernel's clock, in microseconds since the origin, also while a run rests that can be asked for something. */
  clockNow(): number {
    const header = this.header;
    const goesOn = header !== null && !this.isOver && header.commands.length > 0 && this.connected !== "detached";
    return goesOn ? this.#present(header) : this.now();
  }

  #present(header: Header): number {
    return Math.max(this.spans.latest, header.now_us - this.originUs + (this.clock() - this.#toldAt) * 1000);
  }

  welcome(message: Welcome): void {
    const fresh = message.since === 0;
    if (fresh) {
      this.spans.clear();
      this.streams.clear();
      this.questions.clear();
      this.generation++;
    }
    this.originUs = message.origin_us;
    this.#takeSpans(message.spans, message.total, fresh ? floorOf(message.spans, message.total) : this.spans.floor);
    this.last = message.last;
    this.graph = message.graph;
    this.#takeRest(message);
    this.#tellAll(["spans", "header", ...news(message), ...(fresh ? ["questions" as const] : []), "graph"]);
  }

  /** Takes over a delta; returns false if something before it is missing. */
  delta(message: Delta): boolean {
    if (message.after > this.last) return false;
    const isNewer = message.last >= this.last;
    if (isNewer) {
      this.originUs = message.origin_us;
      this.#takeSpans(message.spans, message.total, this.spans.floor);
      this.last = message.last;
    }
    this.#takeRest(message);
    this.#tellAll([...(isNewer ? ["spans" as const] : []), "header", ...news(message)]);
    return true;
  }

  history(message: RangeAnswer): void {
    if (message.stop < this.spans.floor) return; // for somebody who had more
    this.#takeSpans(onlyUnknown(message.spans, this.spans), this.spans.total, Math.min(this.spans.floor, message.first));
    this.tell("spans");
  }

  #takeSpans(block: SpanBlock, total: number, floor: number): void {
    if (this.spans.take(block, total, floor)) this.generation++;
    for (const id of this.streams.keys()) {
      if (!this.spans.running.has(id)) this.streams.delete(id);
    }
  }

  #takeRest({ header, failures, questions, streamed }: Welcome | Delta): void {
    this.header = header;
    this.#toldAt = this.clock();
    if (failures !== null) this.failures = failures;
    for (const asked of questions) this.questions.set(asked.interrupt_id, asked);
    for (const piece of streamed) this.#stream(piece);
  }

  /** Nobody hears of one part of a message before all of it is here: cards would go and come again (vitest model). */
  #tellAll(changes: readonly Change[]): void {
    for (const change of new Set(changes)) this.tell(change);
  }

  #stream(piece: Streamed): void {
    const parts = this.streams.get(piece.id) ?? new Map<string, Stream>();
    this.streams.set(piece.id, parts);
    const known = piece.at > 0 && parts.get(piece.part); // at 0 a call begins its text, perhaps anew
    const stream = known || { text: "", length: 0 };
    const overlap = stream.length - piece.at;
    if (overlap >= piece.text.length) return;
    stream.text = (stream.text + (overlap < 0 ? "…" + piece.text : piece.text.slice(overlap))).slice(-KEPT_OF_STREAM);
    stream.length = piece.at + piece.text.length;
    parts.set(piece.part, stream);
  }
}

/** Returns what a message has brought beside spans and header. */
function news({ failures, questions, streamed }: Welcome | Delta): Change[] {
  const brought = { failures: failures !== null, questions: questions.length > 0, streams: streamed.length > 0 };
  return (Object.keys(brought) as (keyof typeof brought)[]).filter((change) => brought[change]);
}

/** Returns the id from which on a welcome has all spans. */
function floorOf(block: SpanBlock, total: number): number {
  let floor = total;
  for (let row = block.id.length - 1; row >= 0 && block.id[row] === floor - 1; row--) floor--;
  return floor;
}

/** Leaves out spans that are here already, and perhaps newer. */
function onlyUnknown(block: SpanBlock, spans: Spans): SpanBlock {
  const rows = block.id.map((_, row) => row).filter((row) => !spans.has(block.id[row] ?? -1));
  const picked = { ...block };
  for (const name of Object.keys(block) as (keyof SpanBlock)[]) {
    if (name !== "names") picked[name] = rows.map((row) => block[name][row] ?? 0);
  }
  return picked;
}
