// Decoder of a run in a saved notebook: unpacks it up to a size limit, and refuses it with a readable message unless
// each part is valid.

import { EVENT_NUMBERS, EVENT_TEXTS, RUN_FORMAT, MAX_FIRST, MAX_UNPACKED, SPAN_NUMBERS, SPAN_TEXTS } from "../constants";
import type { EventBlock, Recording, PackedRun, SpanBlock } from "../protocol";
import { unpackText } from "../shared/unpack";
import { valueText } from "../shared/values";
import { anything, objectOf, isObject, listOf, number, orNull, tableOf, text, boolean } from "./check";

const MAX_SPANS = 5_000_000; // limits the memory that is reserved

const count = number(0);
const counts = listOf(count);
const amount = number(0, 1e15, false);
const cost = orNull(amount);
const spanColumns = [...SPAN_TEXTS, ...SPAN_NUMBERS];
const eventColumns = [...EVENT_TEXTS, ...EVENT_NUMBERS];

const SAVED = objectOf({
  format: number(1), execution_id: text, workflow: text, status: text, store: text, next: text, total: count,
  first: count, texts: count, recording: text,
});

const GAUGE = objectOf({ name: text, spent: amount, limit: amount, unit: text });
const SPENDER = objectOf({ agent: text, requests: count, tokens: count, cost });
const STRETCH = objectOf({ doing: text, begin_us: count, end_us: orNull(count) });
const PART = objectOf({ name: text, count });
const SPREAD = objectOf({
  name: text, kind: text, parts: listOf(PART), others: PART, empty: count, least: text, greatest: text, words: text,
});
const PROGRESS = objectOf({
  step: text, done: count, total: count, failed: count, running: boolean, left_us: orNull(count), at_us: count,
  spread: listOf(SPREAD),
});
const DEFAULT_TIMES = { doing: "stopped", since_us: null, worked_us: 0, waited_us: 0, paused_us: 0, stretches: [], progress: [] };
const HEADER = objectOf({
  execution_id: text, workflow: text, status: text, live: boolean, error: text, started_us: orNull(count), ended_us: orNull(count), now_us: count,
  model_calls: count, input_tokens: count, output_tokens: count, cost, tool_calls: count, spenders: listOf(SPENDER), gauges: listOf(GAUGE),
  doing: text, since_us: orNull(count), worked_us: number(), waited_us: count, paused_us: count, stretches: listOf(STRETCH), progress: listOf(PROGRESS),
  durability: text, commands: listOf(text), failed: count, workspaces: count,
});
const ARGUMENT = objectOf({ name: text, text });
const LINE = objectOf({ number: count, text });
const FAILURE = objectOf({
  id: number(-1), sequence: count, failed_us: count, error_type: text, message: text, means: text, step: text, path: text, item: text, attempt: count, called: text,
  arguments: listOf(ARGUMENT), place: text, cell: text, line: count, source: listOf(LINE), traceback: text, handled: text, same: count,
});
const FAILURES = objectOf({ total: count, kept: text, shown: listOf(FAILURE) });
const QUESTION = objectOf({
  interrupt_id: text, kind: text, question: text, message: text, path: text, step: text, status: text,
  response: anything, answered_by: orNull(text), raised_us: count, answered_us: orNull(count), became: text,
  fallback: text, alike: text,
});
const GRAPH = objectOf({
  steps: listOf(objectOf({ name: text, type: text, each: boolean })),
  edges: listOf(objectOf({ source: text, target: text, kind: text, condition: text })),
});
const numbers = listOf(number());
const SPANS = objectOf({ names: listOf(text), ...Object.fromEntries(spanColumns.map((name) => [name, numbers])) });
const EVENTS = objectOf({ first: number(1, MAX_FIRST), origin_us: count, names: listOf(text), ...Object.fromEntries(eventColumns.map((name) => [name, numbers])) });
const VARIABLE = objectOf({ name: text, source: text, type: text, size: text, text, columns: listOf(text), rows: listOf(listOf(text)), total: count });
const FILE = objectOf({ path: text, kind: text, was: text, added: orNull(count), removed: orNull(count), diff: orNull(text) });
const WORKSPACE = objectOf({
  name: text, kind: text, folder: text, total: count, added: count, removed: count, files: listOf(FILE),
  left_out: listOf(objectOf({ path: text, reason: text })), points: listOf(objectOf({ sequence: count, told: text })),
});
const MESSAGES = listOf(objectOf({ kind: text, text, call: text }));
const REQUEST = objectOf({
  id: count, number: count, model: text, finish: text, is_cached: boolean, input_tokens: count, cached_tokens: count, output_tokens: count,
  cost, instructions: text, tools: listOf(text), output: text, sent: MESSAGES, answer: MESSAGES,
});
const CALL = objectOf({
  id: number(-1), call: text, request: count, tool: text, server: text, arguments: anything, result: text,
  lines: count, outcome: text, turn: number(-1), questions: listOf(text),
});
const CONVERSATION = objectOf({ id: count, last: count, agent: text, thread: text, requests: listOf(REQUEST), calls: listOf(CALL), error: text });
const PATH = objectOf({ id: text, status: text, phase: text, step: text, visits: count, variables: orNull(tableOf(anything)), error: text });
const PENDING = objectOf({ interrupt_id: text, kind: text, question: text, path: text, step: text });
const table = tableOf(anything);
const STATE = objectOf({
  sequence: count, status: text, inputs: table, outputs: table, variables: table, paths: listOf(PATH),
  usage: tableOf(count), pending: listOf(PENDING), error: text,
});
const PARTS = { status: text, error: text, usage: tableOf(count), paths: PATH, pending: PENDING, inputs: anything, outputs: anything, variables: anything };
const RECORDING = objectOf({
  header: HEADER, failures: FAILURES, questions: listOf(QUESTION), graph: GRAPH, total: number(0, MAX_SPANS), spans: SPANS, sample: text,
  members: listOf(counts), conversations: listOf(CONVERSATION), variables: listOf(VARIABLE), workspaces: listOf(WORKSPACE),
  events: EVENTS, data: listOf(table), base: STATE, changes: listOf(listOf(change)),
});

/** Check one change of the state: part and name, and the new value unless it was deleted. */
function change(value: unknown, where: string): void {
  const [part, name, ...rest] = Array.isArray(value) ? (value as unknown[]) : [];
  const isNamed = typeof part === "string" && typeof name === "string";
  if (!isNamed || rest.length > 1 || !Object.hasOwn(PARTS, part)) throw new Error(`${where} is not a change`);
  if (rest.length === 1) PARTS[part as keyof typeof PARTS](rest[0], where);
}

/** Return the data of a saved run after checking it; throw an error with a readable message. */
export function checkSaved(data: unknown): PackedRun {
  const isNewer = isObject(data) && typeof data["format"] === "number" && data["format"] > RUN_FORMAT;
  if (isNewer) throw new Error("it was saved by a newer divebook; update this one");
  SAVED(data, "run");
  return data as PackedRun;
}

/** Return the recording of a saved run; reject with a readable message. */
export async function decode(packedRun: PackedRun): Promise<Recording> {
  if (packedRun.recording === "") throw new Error("it was too large to be saved");
  return checkRecording(JSON.parse(await unpackText(packedRun.recording, MAX_UNPACKED)));
}

/** Check unpacked data and return it as a recording; throw an error with a readable message. */
export function checkRecording(unchecked: unknown): Recording {
  const data = upgraded(unchecked);
  RECORDING(data, "run");
  const recording = data as Recording;
  checkSizes(recording);
  return recording;
}

/**
 * Add defaults for everything that older recordings do not contain: calls of agents' tools, times of answers, the
 * choice of recorded events.
 * Links to clusters are always removed.
 */
function upgraded(data: unknown): unknown {
  if (!isObject(data)) return data;
  const { header, spans, questions, events } = data;
  const ids = isObject(spans) && Array.isArray(spans["id"]) ? spans["id"] : [];
  const zeros = (): number[] => ids.map(() => 0);
  const spanDefaults = { within: ids.map(() => -1), item: zeros(), given: zeros(), came: zeros() };
  const headerDefaults = { tool_calls: 0, spenders: [], failed: 0, ways: [], workspaces: 0, ...DEFAULT_TIMES };
  return {
    conversations: [],
    variables: [],
    sample: "",
    ...data,
    workspaces: withDefaults(data["workspaces"] ?? [], { left_out: [], points: [] }),
    failures: upgradedFailures(data["failures"]),
    ...upgradedEvents(events),
    questions: Array.isArray(questions) ? questions.map(upgradedQuestion) : questions,
    header: isObject(header)
      ? { ...headerDefaults, ...header, progress: withDefaults(header["progress"] ?? [], { spread: [] }), dashboards: [] }
      : header,
    spans: isObject(spans) ? { ...spanDefaults, ...spans } : spans,
  };
}

/** Add when a question was settled, its outcome in words and its fallback. */
function upgradedQuestion(question: unknown): unknown {
  if (!isObject(question)) return question;
  return { answered_us: null, became: valueText(question["response"], 400), fallback: "", alike: "", ...question };
}

/** Add default properties to each object of a list. */
function withDefaults(list: unknown, more: object): unknown {
  return Array.isArray(list) ? list.map((item: unknown) => (isObject(item) ? { ...more, ...item } : item)) : list;
}

/** Add the failures, or the hints for them, that older recordings do not contain. */
function upgradedFailures(failures: unknown): unknown {
  if (!isObject(failures)) return failures ?? { total: 0, kept: "", shown: [] };
  return { ...failures, shown: withDefaults(failures["shown"], { means: "" }) };
}

/** Add sequence numbers to the events of older recordings. Those contain the newest events without gaps. */
function upgradedEvents(events: unknown): object {
  if (!isObject(events) || "sequence" in events || !Array.isArray(events["type"])) return {};
  const first = Number(events["first"]);
  const count = events["type"].length;
  const sample = first > 1 ? { sample: `The last ${count.toLocaleString("en")} of ${(first - 1 + count).toLocaleString("en")} events` } : {};
  return { ...sample, events: { ...events, sequence: Array.from({ length: count }, (_, row) => first + row) } };
}

/**
 * Check that the columns of a recording fit together: equal lengths, indexes inside the tables of names, ascending ids
 * and sequence numbers.
 */
function checkSizes({ spans, events, members, data, changes, total }: Recording): void {
  const rows = spans.id.length;
  const eventCount = events.type.length;
  const areSpansEqual = spanColumns.every((name) => spans[name].length === rows);
  const areEventsEqual = eventColumns.every((name) => events[name].length === eventCount);
  const areListsEqual = members.length === rows && data.length === eventCount && changes.length === eventCount;
  if (!areSpansEqual || !areEventsEqual || !areListsEqual) throw new Error("its columns are not of the same length");
  const areInTable = (block: SpanBlock | EventBlock, column: number[]): boolean => column.every((place) => place >= 0 && place < block.names.length);
  const areEventsAscending = events.sequence.every((sequence, row) => sequence > (events.sequence[row - 1] ?? 0) && sequence <= MAX_FIRST);
  const areSpanNamesValid = SPAN_TEXTS.every((name) => areInTable(spans, spans[name]));
  const areEventNamesValid = EVENT_TEXTS.every((name) => areInTable(events, events[name]));
  const areSpansAscending = spans.id.every((id, row) => id >= 0 && id < (spans.id[row + 1] ?? total));
  if (!areEventsAscending || !areSpanNamesValid || !areEventNamesValid || !areSpansAscending) {
    throw new Error("its parts contradict each other");
  }
}
