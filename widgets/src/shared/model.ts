// State of one execution as sent by the kernel, shared by all views of one page.

import type { Delta, FailureReport, Graph, Header, QuestionView as Question, RangeAnswer, SpanBlock, Streamed, Welcome } from "../protocol";
import { Spans } from "./spans";

export type Change = "spans" | "header" | "failures" | "questions" | "graph" | "streams" | "selection" | "position" | "filter" | "view" | "connection";
/** Tab of a run that called models. */
export type RunTab = "chat" | "timeline";
/** `silent`: the kernel does not answer, since it is busy or not connected. `detached`: it has stopped. */
export type ConnectionStatus = "connecting" | "connected" | "silent" | "detached";

const MOST_STREAM = 50_000; // characters

/** Text that a model is writing. */
export interface Stream {
  text: string;
  /** Number of characters in total, including those that were missed. */
  length: number;
}

/** Position of a replay: the last event, its time and its step. */
export interface Position {
  sequence: number;
  /** Microseconds since the origin. */
  time: number;
  step: string;
}

/**
 * Observable state of one execution, as one feed of the kernel sends it. Numbers of events, ids of spans and versions of
 * answers belong to the feed, so a view that gets another feed starts with another model (`src/live/index.ts`).
 */
export class Model {
  readonly spans = new Spans();
  header: Header | null = null;
  failures: FailureReport = { total: 0, kept: "", shown: [] };
  graph: Graph = { steps: [], edges: [] };
  readonly questions = new Map<string, Question>();
  /** By span id and by part of the output. */
  readonly streams = new Map<number, Map<string, Stream>>();
  /** The span whose details are shown. */
  selected: number | null = null;
  /** Position of the open replay; null if there is none. */
  position: Position | null = null;
  /** Step whose spans are shown; null for all. */
  step: string | null = null;
  view: RunTab = "timeline";
  connected: ConnectionStatus = "connecting";
  /** Sequence number of the last event in this state. */
  last = 0;
  /** Id of the feed; empty before the first welcome. */
  feed = "";
  originUs = 0;
  /** Incremented when spans arrived out of order: layouts that grow with the spans must start again. */
  generation = 0;
  #headerAt = 0;
  readonly #listeners = new Set<(change: Change) => void>();

  constructor(private readonly clock: () => number = () => performance.now()) {}

  /** Call `listener` after each change. Return a function that removes the listener. */
  on(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Call all listeners. */
  notify(change: Change): void {
    for (const listener of this.#listeners) listener(change);
  }

  select(id: number | null): void {
    if (id === this.selected) return;
    this.selected = id;
    this.notify("selection");
  }

  /** Set the position of the replay; null for the present. */
  setPosition(position: Position | null): void {
    this.position = position;
    this.notify("position");
  }

  /** Show a span in the timeline. */
  reveal(id: number): void {
    this.show("timeline");
    this.select(id);
  }

  show(view: RunTab): void {
    if (view === this.view) return;
    this.view = view;
    this.notify("view");
  }

  /** Show only the spans of a step; null for all. */
  filterStep(step: string | null): void {
    this.step = step;
    this.notify("filter");
  }

  setConnected(connected: ConnectionStatus): void {
    if (connected === this.connected) return;
    this.connected = connected;
    this.notify("connection");
  }

  /** True if the run has ended. */
  get isOver(): boolean {
    return (this.header?.ended_us ?? null) !== null;
  }

  /** True if the run has not ended but makes no progress: it is paused, or its kernel is gone. */
  get isHalted(): boolean {
    if (this.header === null || this.isOver) return false;
    return this.connected === "detached" || this.header.doing === "paused" || this.header.doing === "stopped";
  }

  /**
   * Return the moment at which the bars of running spans end, in microseconds since the origin: the present, or the
   * last moment at which anything ran.
   */
  now(): number {
    const header = this.header;
    if (!header?.live || this.isOver || this.connected === "detached") return Math.max(this.spans.latest, (header?.since_us ?? 0) - this.originUs);
    return this.#kernelClock(header);
  }

  /** Return the kernel's clock in microseconds since the origin. It also advances while a controllable run is halted. */
  clockNow(): number {
    const header = this.header;
    const isControllable = header !== null && !this.isOver && header.commands.length > 0 && this.connected !== "detached";
    return isControllable ? this.#kernelClock(header) : this.now();
  }

  /** Return the kernel's clock since the origin, at least the end of the latest span. */
  #kernelClock(header: Header): number {
    return Math.max(this.spans.latest, this.#wallClock(header) - this.originUs);
  }

  /**
   * Return the kernel's clock in microseconds since 1970, extrapolated with the browser's clock from the last header. It always
   * advances: a question becomes older, and its time runs out, whatever the run does meanwhile.
   */
  wallClock(): number {
    return this.header === null ? Date.now() * 1000 : this.#wallClock(this.header);
  }

  #wallClock(header: Header): number {
    return header.now_us + (this.clock() - this.#headerAt) * 1000;
  }

  /** Apply a welcome: the whole state, or the changes since an earlier connection. */
  welcome(message: Welcome): void {
    const isComplete = message.since === 0;
    this.feed = message.feed;
    if (isComplete) {
      this.spans.clear();
      this.streams.clear();
      this.questions.clear();
      this.generation++;
    }
    this.originUs = message.origin_us;
    this.#addSpans(message.spans, message.total, isComplete ? floorOf(message.spans, message.total) : this.spans.floor);
    this.last = message.last;
    this.graph = message.graph;
    this.#applyRest(message);
    this.#notifyAll(["spans", "header", ...partialChanges(message), ...(isComplete ? ["questions" as const] : []), "graph"]);
  }

  /** Apply a delta. Return false if an earlier delta is missing. */
  delta(message: Delta): boolean {
    if (message.after > this.last) return false;
    const isNewer = message.last >= this.last;
    if (isNewer) {
      this.originUs = message.origin_us;
      this.#addSpans(message.spans, message.total, this.spans.floor);
      this.last = message.last;
    }
    this.#applyRest(message);
    this.#notifyAll([...(isNewer ? ["spans" as const] : []), "header", ...partialChanges(message)]);
    return true;
  }

  /** Add a page of older spans. */
  history(message: RangeAnswer): void {
    if (message.stop < this.spans.floor) return; // answer to a view with more spans: there would be a gap
    this.#addSpans(withoutLoaded(message.spans, this.spans), this.spans.total, Math.min(this.spans.floor, message.first));
    this.notify("spans");
  }

  #addSpans(block: SpanBlock, total: number, floor: number): void {
    if (this.spans.add(block, total, floor)) this.generation++;
    for (const id of this.streams.keys()) {
      if (!this.spans.running.has(id)) this.streams.delete(id);
    }
  }

  /** Apply the parts that welcome and delta share, except spans. */
  #applyRest({ header, failures, questions, streamed }: Welcome | Delta): void {
    this.header = header;
    this.#headerAt = this.clock();
    if (failures !== null) this.failures = failures;
    for (const question of questions) this.questions.set(question.interrupt_id, question);
    for (const piece of streamed) this.#addStreamPiece(piece);
  }

  /**
   * Notify the listeners of all changes of a message. The whole message is applied first: after a part of it, cards would
   * disappear and return (vitest model).
   */
  #notifyAll(changes: readonly Change[]): void {
    for (const change of new Set(changes)) this.notify(change);
  }

  /** Append a piece of a text. Pieces may overlap or be missing: `at` is the position of a piece, "…" marks a gap. */
  #addStreamPiece(piece: Streamed): void {
    const parts = this.streams.get(piece.id) ?? new Map<string, Stream>();
    this.streams.set(piece.id, parts);
    const previous = piece.at > 0 ? parts.get(piece.part) : undefined; // at 0 a call starts its text, perhaps a second time
    const stream = previous ?? { text: "", length: 0 };
    const overlap = stream.length - piece.at;
    if (overlap >= piece.text.length) return;
    stream.text = (stream.text + (overlap < 0 ? "…" + piece.text : piece.text.slice(overlap))).slice(-MOST_STREAM);
    stream.length = piece.at + piece.text.length;
    parts.set(piece.part, stream);
  }
}

/** Return the changes in a message besides spans and header. */
function partialChanges({ failures, questions, streamed }: Welcome | Delta): Change[] {
  const isChanged = { failures: failures !== null, questions: questions.length > 0, streams: streamed.length > 0 };
  return (Object.keys(isChanged) as (keyof typeof isChanged)[]).filter((change) => isChanged[change]);
}

/** Return the id from which a welcome contains all spans. Those before it are a sample. */
function floorOf(block: SpanBlock, total: number): number {
  let floor = total;
  for (let row = block.id.length - 1; row >= 0 && block.id[row] === floor - 1; row--) floor--;
  return floor;
}

/** Return the spans that are not loaded yet. Loaded ones may be newer. */
function withoutLoaded(block: SpanBlock, spans: Spans): SpanBlock {
  const rows = block.id.map((_, row) => row).filter((row) => !spans.has(block.id[row] ?? -1));
  const selected = { ...block };
  for (const name of Object.keys(block) as (keyof SpanBlock)[]) {
    if (name !== "names") selected[name] = rows.map((row) => block[name][row] ?? 0);
  }
  return selected;
}
