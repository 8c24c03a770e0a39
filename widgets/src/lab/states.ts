// States of a recording, rebuilt from the first state and the changes of each event: the same rules as in
// divebook/widgets/recording.py (test/cases/states.json).

import { MODEL_CALLS } from "../constants";
import type { Conversation, ConversationPart, EventBlock, PathView, PendingView, Recording, StateView } from "../protocol";
import type { Replay, ReplayHost } from "../replay/replay";
import type { RequestMessages } from "../replay/requestmessages";
import type { ReplaySource } from "../replay/stepping";

const CHECKPOINT_EVERY = 200; // events between two states that are stored for reuse
const REQUESTS: readonly string[] = MODEL_CALLS;

/** Values by part and name. A part with a single value uses the name "". */
type Cells = Map<string, Map<string, unknown>>;

/** Source of a replay that needs only a recording. */
export class RecordedHost implements ReplaySource {
  readonly #recording: Recording;
  readonly #checkpoints: Cells[];
  readonly #rows: Map<number, number>;

  constructor(recording: Recording) {
    this.#recording = recording;
    this.#checkpoints = [cellsOf(recording.base)];
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

  // eslint-disable-next-line @typescript-eslint/require-await -- other sources ask a kernel
  readonly stateAt = async (sequence: number): Promise<StateView> => stateOf(sequence, this.#cellsAt(this.#row(sequence) + 1));

  // eslint-disable-next-line @typescript-eslint/require-await -- same
  readonly eventAt = async (sequence: number): ReturnType<ReplayHost["eventAt"]> => {
    const row = this.#row(sequence);
    const { events, data } = this.#recording;
    const recorded = events.origin_us + (events.time[row] ?? 0);
    if (row < 0) throw new Error("There is no event at this position.");
    return { sequence, event_type: events.names[events.type[row] ?? 0] ?? "", recorded_us: recorded, data: data[row] ?? {} };
  };

  // eslint-disable-next-line @typescript-eslint/require-await -- same
  readonly messagesAt = async (sequence: number): Promise<RequestMessages> => messagesAt(this.#recording, sequence);

  // eslint-disable-next-line @typescript-eslint/require-await -- same
  async fill(replay: Replay): Promise<void> {
    replay.add(this.events, this.last);
    replay.complete();
  }

  close(): void { /* nothing is open */ }

  #row(sequence: number): number {
    const row = this.#rows.get(sequence);
    if (row === undefined) throw new Error(`Event ${sequence.toLocaleString("en")} is not in this file.`);
    return row;
  }

  /** Return the state after a number of events. The nearest checkpoint is the starting point; checkpoints on the way are stored. */
  #cellsAt(count: number): Cells {
    const place = Math.min(Math.floor(count / CHECKPOINT_EVERY), this.#checkpoints.length - 1);
    let cells = this.#checkpoints[place] ?? new Map<string, Map<string, unknown>>();
    for (let row = place * CHECKPOINT_EVERY; row < count; row += 1) {
      cells = applyChanges(cells, this.#recording.changes[row] ?? []);
      if ((row + 1) % CHECKPOINT_EVERY === 0 && (row + 1) / CHECKPOINT_EVERY === this.#checkpoints.length) this.#checkpoints.push(cells);
    }
    return cells;
  }
}

/** Return the state after some changes. Parts that do not change are shared with the old state. */
function applyChanges(cells: Cells, changes: unknown[][]): Cells {
  if (changes.length === 0) return cells;
  const next = new Map(cells);
  const copiedParts = new Set<string>();
  for (const [part, name, ...value] of changes as [string, string, ...unknown[]][]) {
    if (!copiedParts.has(part)) next.set(part, new Map(next.get(part)));
    copiedParts.add(part);
    if (value.length === 0) next.get(part)?.delete(name);
    else next.get(part)?.set(name, value[0]);
  }
  return next;
}

/** Split a state into cells. */
function cellsOf(state: StateView): Cells {
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
    ["pending", new Map(state.pending.map((pending) => [pending.interrupt_id, pending]))],
  ]);
}

/** Build a state from cells. */
function stateOf(sequence: number, cells: Cells): StateView {
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

/** Return the messages of the newest model request up to an event, with its response if it had arrived (as `said_at` of divebook/widgets/recording.py). */
function messagesAt({ spans, members, conversations }: Recording, sequence: number): RequestMessages {
  let newestRow = -1;
  spans.id.forEach((_, row) => {
    const first = spans.sequence[row] ?? Infinity;
    const best = spans.sequence[newestRow] ?? 0;
    const type = spans.names[spans.type[row] ?? 0] ?? "";
    if (REQUESTS.includes(type) && first <= sequence && first > best) newestRow = row;
  });
  if (newestRow < 0) return { asked: 0, parts: [] };
  const requestedAt = spans.sequence[newestRow] ?? 0;
  const id = spans.id[newestRow] ?? -1;
  const conversation = conversations.find(({ requests }) => requests.some((request) => request.id === id));
  if (conversation === undefined) throw new Error("The messages of this event are not in this file.");
  const responseEvents = (members[newestRow] ?? []).slice(1); // the first event is the request itself
  const isAnswered = responseEvents.some((event) => event <= sequence);
  return { asked: requestedAt, parts: messagesUpTo(conversation, id, isAnswered) };
}

/** Return all messages before a request and with it, and its response if there is one. */
function messagesUpTo({ requests, calls }: Conversation, id: number, isAnswered: boolean): ConversationPart[] {
  const last = requests.findIndex((request) => request.id === id);
  const parts: ConversationPart[] = [];
  requests.slice(0, last + 1).forEach(({ number, instructions, sent, answer }, place) => {
    if (parts.length === 0 && instructions !== "") parts.push({ kind: "system", text: instructions, call: "" });
    parts.push(...sent);
    if (place === last && !isAnswered) return;
    parts.push(...answer.filter(({ kind }) => kind !== "call"));
    for (const { request, tool, arguments: callArguments, result, outcome } of calls) {
      if (request !== number) continue;
      const text = typeof callArguments === "string" ? callArguments : JSON.stringify(callArguments, null, 2);
      parts.push({ kind: "call", text, call: tool });
      if (place < last && outcome !== "") parts.push({ kind: "result", text: result, call: tool });
    }
  });
  return parts;
}
