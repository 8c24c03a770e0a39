// States of a recording, reconstructed from the first state and the changes of each event.

import type { Conversation, ConversationPart, EventBlock, PathView, PendingView, Recording, StateView } from "../protocol";
import type { Replay, ReplayHost } from "../replay/replay";
import type { RequestMessages } from "../replay/requestmessages";
import type { ReplaySource } from "../replay/stepping";

const KEPT_EVERY = 200;
const MODEL_CALLS = ["agent_response", "cached_response"];

/** Values by part, and by name within it; those that are whole have the name "". */
type Cells = Map<string, Map<string, unknown>>;

/** Answers what a replay asks, from a recording alone. */
export class RecordedHost implements ReplaySource {
  readonly #recording: Recording;
  readonly #kept: Cells[];
  readonly #rows: Map<number, number>;

  constructor(recording: Recording) {
    this.#recording = recording;
    this.#kept = [takenApart(recording.base)];
    const { sequence } = recording.events;
    this.#rows = new Map([[(sequence[0] ?? 1) - 1, -1], ...sequence.map((one, row): [number, number] => [one, row])]);
  }

  get events(): EventBlock {
    return this.#recording.events;
  }

  /** Sequence number of the last event. */
  get last(): number {
    return this.events.sequence.at(-1) ?? 0;
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- others have to ask a kernel
  readonly stateAt = async (sequence: number): Promise<StateView> => view(sequence, this.#cellsAt(this.#row(sequence) + 1));

  // eslint-disable-next-line @typescript-eslint/require-await -- same
  readonly eventAt = async (sequence: number): ReturnType<ReplayHost["eventAt"]> => {
    const row = this.#row(sequence);
    const { events, data } = this.#recording;
    const recorded = events.origin_us + (events.time[row] ?? 0);
    if (row < 0) throw new Error("there is no event here");
    return { sequence, event_type: events.names[events.type[row] ?? 0] ?? "", recorded_us: recorded, data: data[row] ?? {} };
  };

  // eslint-disable-next-line @typescript-eslint/require-await -- same
  readonly messagesAt = async (sequence: number): Promise<RequestMessages> => saidBy(this.#recording, sequence);

  // eslint-disable-next-line @typescript-eslint/require-await -- same
  async fill(replay: Replay): Promise<void> {
    replay.add(this.events);
  }

  close(): void { /* nothing is open */ }

  #row(sequence: number): number {
    const row = this.#rows.get(sequence);
    if (row === undefined) throw new Error(`Event ${sequence.toLocaleString("en")} is not in this file.`);
    return row;
  }

  #cellsAt(count: number): Cells {
    const place = Math.min(Math.floor(count / KEPT_EVERY), this.#kept.length - 1);
    let cells = this.#kept[place] ?? new Map<string, Map<string, unknown>>();
    for (let row = place * KEPT_EVERY; row < count; row += 1) {
      cells = changed(cells, this.#recording.changes[row] ?? []);
      if ((row + 1) % KEPT_EVERY === 0 && (row + 1) / KEPT_EVERY === this.#kept.length) this.#kept.push(cells);
    }
    return cells;
  }
}

/** Returns cells with changes made; parts that do not change are shared. */
function changed(cells: Cells, changes: unknown[][]): Cells {
  if (changes.length === 0) return cells;
  const next = new Map(cells);
  const own = new Set<string>();
  for (const [part, name, ...value] of changes as [string, string, ...unknown[]][]) {
    if (!own.has(part)) next.set(part, new Map(next.get(part)));
    own.add(part);
    if (value.length === 0) next.get(part)?.delete(name);
    else next.get(part)?.set(name, value[0]);
  }
  return next;
}

function takenApart(state: StateView): Cells {
  const table = (values: Record<string, unknown>): Map<string, unknown> => new Map(Object.entries(values));
  const whole = (value: unknown): Map<string, unknown> => new Map([["", value]]);
  return new Map([
    ["status", whole(state.status)],
    ["error", whole(state.error)],
    ["usage", whole(state.usage)],
    ["inputs", table(state.inputs)],
    ["outputs", table(state.outputs)],
    ["variables", table(state.variables)],
    ["paths", new Map(state.paths.map((path) => [path.id, path]))],
    ["pending", new Map(state.pending.map((asked) => [asked.interrupt_id, asked]))],
  ]);
}

function view(sequence: number, cells: Cells): StateView {
  const table = (part: string): Record<string, unknown> => Object.fromEntries(cells.get(part) ?? []);
  const word = (part: string): string => {
    const value = cells.get(part)?.get("");
    return typeof value === "string" ? value : "";
  };
  const list = (part: string): unknown[] => [...(cells.get(part)?.values() ?? [])];
  return {
    sequence,
    status: word("status"),
    inputs: table("inputs"),
    outputs: table("outputs"),
    variables: table("variables"),
    paths: list("paths") as PathView[],
    usage: (cells.get("usage")?.get("") ?? {}) as Record<string, number>,
    pending: list("pending") as PendingView[],
    error: word("error"),
  };
}

/** Returns what the model that was asked last was sent and had answered by then, as `recorded.py` does. */
function saidBy({ spans, members, conversations }: Recording, sequence: number): RequestMessages {
  let found = -1;
  spans.id.forEach((_, row) => {
    const [first, best] = [spans.sequence[row] ?? Infinity, spans.sequence[found] ?? 0];
    if (MODEL_CALLS.includes(spans.names[spans.type[row] ?? 0] ?? "") && first <= sequence && first > best) found = row;
  });
  if (found < 0) return { asked: 0, parts: [] };
  const [asked, id] = [spans.sequence[found] ?? 0, spans.id[found] ?? -1];
  const said = conversations.find(({ requests }) => requests.some((request) => request.id === id));
  if (said === undefined) throw new Error("What was said here is not in this file.");
  return { asked, parts: saidUpTo(said, id, (members[found] ?? []).slice(1).some((number) => number <= sequence)) };
}

/** Returns what had been said with a request: all that came before it, and what was answered to it. */
function saidUpTo({ requests, calls }: Conversation, id: number, isAnswered: boolean): ConversationPart[] {
  const last = requests.findIndex((request) => request.id === id);
  const system = requests[0]?.instructions ?? "";
  const parts: ConversationPart[] = system === "" ? [] : [{ kind: "system", text: system, call: "" }];
  requests.slice(0, last + 1).forEach(({ number, sent, answer }, place) => {
    parts.push(...sent);
    if (place === last && !isAnswered) return;
    parts.push(...answer.filter(({ kind }) => kind !== "call"));
    for (const { request, tool, arguments: given, result, outcome } of calls) {
      if (request !== number) continue;
      parts.push({ kind: "call", text: typeof given === "string" ? given : JSON.stringify(given), call: tool });
      if (place < last && outcome !== "") parts.push({ kind: "result", text: result, call: tool });
    }
  });
  return parts;
}
