// Decoder of a run in a saved notebook: unpacked up to a size limit, and refused with a sentence unless each part is valid.

import type { EventBlock, Recording, PackedRun, SpanBlock } from "../protocol";
import { unpackText } from "../shared/unpack";
import { valueText } from "../shared/values";
import { anything, having, isObject, listOf, number, orNull, tableOf, text, truth } from "./check";

export const MIME = "application/vnd.divebook.run+json";
const FORMAT = 2;
const MOST_UNPACKED = 32_000_000;
const MOST_SPANS = 5_000_000; // memory is set aside for as many
const MOST_EVENTS = 5_000_000;

const count = number(0);
const counts = listOf(count);
const spanColumns = ["id", "kind", "path", "step", "type", "label", "item", "given", "came", "status", "note", "start", "end", "iteration", "visit", "attempts", "tokens", "sequence", "within"] as const;
const eventColumns = ["sequence", "time", "type", "path", "step", "text"] as const;

const SAVED = having({ format: number(1), execution_id: text, workflow: text, status: text, store: text, next: text, total: count, first: count, texts: count, recording: text });

const GAUGE = having({ name: text, spent: number(0, 1e15, false), limit: number(0, 1e15, false), unit: text });
const SPENDER = having({ agent: text, requests: count, tokens: count, cost: orNull(number(0, 1e15, false)) });
const STRETCH = having({ doing: text, begin_us: count, end_us: orNull(count) });
const PART = having({ name: text, count });
const SPREAD = having({ name: text, kind: text, parts: listOf(PART), others: PART, empty: count, least: text, greatest: text, words: text });
const PROGRESS = having({ step: text, done: count, total: count, failed: count, running: truth, left_us: orNull(count), at_us: count, spread: listOf(SPREAD) });
const UNTIMED = { doing: "stopped", since_us: null, worked_us: 0, waited_us: 0, paused_us: 0, stretches: [], progress: [] };
const HEADER = having({
  execution_id: text, workflow: text, status: text, live: truth, error: text, started_us: orNull(count), ended_us: orNull(count), now_us: count,
  model_calls: count, input_tokens: count, output_tokens: count, cost: orNull(number(0, 1e15, false)), tool_calls: count, spenders: listOf(SPENDER), gauges: listOf(GAUGE),
  doing: text, since_us: orNull(count), worked_us: number(), waited_us: count, paused_us: count, stretches: listOf(STRETCH), progress: listOf(PROGRESS),
  durability: text, commands: listOf(text), failed: count, workspaces: count,
});
const ARGUMENT = having({ name: text, text });
const LINE = having({ number: count, text });
const FAILURE = having({
  id: number(-1), sequence: count, failed_us: count, error_type: text, message: text, means: text, step: text, path: text, item: text, attempt: count, called: text,
  arguments: listOf(ARGUMENT), place: text, cell: text, line: count, source: listOf(LINE), traceback: text, handled: text, same: count,
});
const FAILURES = having({ total: count, kept: text, shown: listOf(FAILURE) });
const QUESTION = having({ interrupt_id: text, kind: text, question: text, message: text, path: text, step: text, status: text, response: anything, answered_by: orNull(text), raised_us: count, answered_us: orNull(count), became: text, fallback: text });
const GRAPH = having({
  steps: listOf(having({ name: text, type: text, each: truth })),
  edges: listOf(having({ source: text, target: text, kind: text, condition: text })),
});
const numbers = listOf(number());
const SPANS = having({ names: listOf(text), ...Object.fromEntries(spanColumns.map((name) => [name, numbers])) });
const EVENTS = having({ first: number(1, MOST_EVENTS), origin_us: count, names: listOf(text), ...Object.fromEntries(eventColumns.map((name) => [name, numbers])) });
const VARIABLE = having({ name: text, source: text, type: text, size: text, text, columns: listOf(text), rows: listOf(listOf(text)), total: count });
const FILE = having({ path: text, kind: text, was: text, added: orNull(count), removed: orNull(count), diff: orNull(text) });
const WORKSPACE = having({ name: text, kind: text, folder: text, total: count, added: count, removed: count, files: listOf(FILE), left_out: listOf(having({ path: text, reason: text })), points: listOf(having({ sequence: count, told: text })) });
const SAID = listOf(having({ kind: text, text, call: text }));
const REQUEST = having({
  id: count, number: count, model: text, finish: text, is_cached: truth, input_tokens: count, cached_tokens: count, output_tokens: count,
  cost: orNull(number(0, 1e15, false)), instructions: text, tools: listOf(text), output: text, sent: SAID, answer: SAID,
});
const CALL = having({ id: number(-1), call: text, request: count, tool: text, server: text, arguments: anything, result: text, lines: count, outcome: text, turn: number(-1), questions: listOf(text) });
const CONVERSATION = having({ id: count, last: count, agent: text, thread: text, requests: listOf(REQUEST), calls: listOf(CALL), error: text });
const PATH = having({ id: text, status: text, phase: text, step: text, visits: count, variables: orNull(tableOf(anything)), error: text });
const PENDING = having({ interrupt_id: text, kind: text, question: text, path: text, step: text });
const table = tableOf(anything);
const STATE = having({ sequence: count, status: text, inputs: table, outputs: table, variables: table, paths: listOf(PATH), usage: tableOf(count), pending: listOf(PENDING), error: text });
const PARTS = { status: text, error: text, usage: tableOf(count), paths: PATH, pending: PENDING, inputs: anything, outputs: anything, variables: anything };
const RECORDING = having({
  header: HEADER, failures: FAILURES, questions: listOf(QUESTION), graph: GRAPH, total: number(0, MOST_SPANS), spans: SPANS, sample: text, members: listOf(counts), conversations: listOf(CONVERSATION), variables: listOf(VARIABLE), workspaces: listOf(WORKSPACE),
  events: EVENTS, data: listOf(table), base: STATE, changes: listOf(listOf(change)),
});

function change(value: unknown, where: string): void {
  const [part, name, ...rest] = Array.isArray(value) ? (value as unknown[]) : [];
  if (typeof part !== "string" || typeof name !== "string" || rest.length > 1 || !Object.hasOwn(PARTS, part)) throw new Error(`${where} is not a change`);
  if (rest.length === 1) PARTS[part as keyof typeof PARTS](rest[0], where);
}

/** Returns what a notebook says about a run; throws a sentence. */
export function checkSaved(data: unknown): PackedRun {
  if (isObject(data) && typeof data["format"] === "number" && data["format"] > FORMAT) throw new Error("it was saved by a newer divebook; update this one");
  SAVED(data, "run");
  return data as PackedRun;
}

/** Returns the recording of a saved run; rejects with a sentence. */
export async function decode(saved: PackedRun): Promise<Recording> {
  if (saved.recording === "") throw new Error("it was too large to be saved");
  return checkRecording(JSON.parse(await unpackText(saved.recording, MOST_UNPACKED)));
}

/** Returns unpacked data as the recording that it is; throws a sentence. */
export function checkRecording(unchecked: unknown): Recording {
  const data = inPresentWords(unchecked);
  RECORDING(data, "run");
  const recording = data as Recording;
  checkSizes(recording);
  return recording;
}

/** Adds what older recordings did not hold: what agents' tools do, when questions were settled, which events were kept. Links to clusters none holds. */
function inPresentWords(data: unknown): unknown {
  if (!isObject(data)) return data;
  const { header, spans, questions, events } = data;
  const ids = isObject(spans) && Array.isArray(spans["id"]) ? spans["id"] : [];
  return {
    conversations: [],
    variables: [],
    sample: "",
    ...data,
    workspaces: each(data["workspaces"] ?? [], { left_out: [], points: [] }),
    failures: explained(data["failures"]),
    ...numbered(events),
    questions: Array.isArray(questions) ? questions.map((asked: unknown) => (isObject(asked) ? { answered_us: null, became: valueText(asked["response"], 400), fallback: "", ...asked } : asked)) : questions,
    header: isObject(header) ? { tool_calls: 0, spenders: [], failed: 0, ways: [], workspaces: 0, ...UNTIMED, ...header, progress: each(header["progress"] ?? [], { spread: [] }), dashboards: [] } : header,
    spans: isObject(spans) ? { within: ids.map(() => -1), item: ids.map(() => 0), given: ids.map(() => 0), came: ids.map(() => 0), ...spans } : spans,
  };
}

/** Adds to each object of a list what it does not say. */
function each(list: unknown, more: object): unknown {
  return Array.isArray(list) ? list.map((one: unknown) => (isObject(one) ? { ...more, ...one } : one)) : list;
}

/** Older recordings held no failures, or did not say what these mean. */
function explained(failures: unknown): unknown {
  if (!isObject(failures)) return failures ?? { total: 0, kept: "", shown: [] };
  return { ...failures, shown: each(failures["shown"], { means: "" }) };
}

/** Older recordings held the newest events, without gaps. */
function numbered(events: unknown): object {
  if (!isObject(events) || "sequence" in events || !Array.isArray(events["type"])) return {};
  const [first, count] = [Number(events["first"]), events["type"].length];
  const sample = first > 1 ? { sample: `The last ${count.toLocaleString("en")} of ${(first - 1 + count).toLocaleString("en")} events` } : {};
  return { ...sample, events: { ...events, sequence: Array.from({ length: count }, (_, row) => first + row) } };
}

function checkSizes({ spans, events, members, data, changes, total }: Recording): void {
  const [rows, behind] = [spans.id.length, events.type.length];
  const equal = spanColumns.every((name) => spans[name].length === rows) && eventColumns.every((name) => events[name].length === behind);
  if (!equal || members.length !== rows || data.length !== behind || changes.length !== behind) throw new Error("its columns are not of the same length");
  const places = ["kind", "path", "step", "type", "label", "item", "given", "came", "status", "note"] as const;
  const named = (block: SpanBlock | EventBlock, column: number[]): boolean => column.every((place) => place >= 0 && place < block.names.length);
  const numbers = events.sequence.every((one, row) => one > (events.sequence[row - 1] ?? 0) && one <= MOST_EVENTS);
  const sound = numbers && places.every((name) => named(spans, spans[name])) && eventColumns.slice(2).every((name) => named(events, events[name]));
  const inOrder = spans.id.every((id, row) => id >= 0 && id < (spans.id[row + 1] ?? total));
  if (!sound || !inOrder) throw new Error("its parts contradict each other");
}
