// Decoder of a run in a saved notebook: unpacks it up to a size limit, and refuses it with a readable message unless
// each part is valid.

import { EVENT_NUMBERS, EVENT_TEXTS, RUN_FORMAT, MAX_FIRST, MAX_UNPACKED, RENAMED_STATUSES, RENAMED_TYPES, SPAN_NUMBERS, SPAN_TEXTS } from "../constants";
import type { EventBlock, Recording, PackedRun, SpanBlock } from "../protocol";
import { checkPackedRun, checkPathView, checkPendingView, checkRecording as checkFields } from "../checks";
import { unpackText } from "../shared/unpack";
import { valueText } from "../shared/values";
import { anything, isObject, number, tableOf, text } from "./check";

const SPAN_COLUMNS = [...SPAN_TEXTS, ...SPAN_NUMBERS];
const EVENT_COLUMNS = [...EVENT_TEXTS, ...EVENT_NUMBERS];
/** Parts of a state that changes can set: the check of the part, or of one of its entries. */
const PARTS = {
  status: text, error: text, usage: tableOf(number(0)), paths: checkPathView, pending: checkPendingView, inputs: anything, outputs: anything, variables: anything,
};

/** Parts that every state has, and that have no names. */
const WHOLE = ["status", "error", "usage"];

/** Check one change of the state: part and name, and the new value unless it was deleted. */
function checkChange([part, name, ...rest]: readonly unknown[], where: string): void {
  const isNamed = typeof part === "string" && typeof name === "string";
  if (!isNamed || rest.length > 1 || !Object.hasOwn(PARTS, part)) throw new Error(`${where} is not a valid change`);
  if (WHOLE.includes(part) && (name !== "" || rest.length === 0)) throw new Error(`${where} is not a valid change of ${part}`);
  if (rest.length === 1) PARTS[part as keyof typeof PARTS](rest[0], where);
}

/** Return the data of a saved run after checking it; throw an error with a readable message. */
export function checkSaved(data: unknown): PackedRun {
  const isNewer = isObject(data) && typeof data["format"] === "number" && data["format"] > RUN_FORMAT;
  if (isNewer) throw new Error("it was saved by a newer version of divebook; update divebook");
  checkPackedRun(data, "run");
  const packedRun = data as PackedRun;
  return { ...packedRun, status: presentStatus(packedRun.status) };
}

/** Return the recording of a saved run; reject with a readable message. */
export async function decode(packedRun: PackedRun): Promise<Recording> {
  if (packedRun.recording === "") throw new Error("it was too large to be saved");
  return checkRecording(JSON.parse(await unpackText(packedRun.recording, MAX_UNPACKED)));
}

/** Check unpacked data and return it as a recording; throw an error with a readable message. */
export function checkRecording(unchecked: unknown): Recording {
  const data = upgraded(unchecked);
  checkFields(data, "run");
  const recording = data as Recording;
  recording.changes.forEach((changes, row) => { changes.forEach((change, place) => { checkChange(change, `run.changes[${row}][${place}]`); }); });
  checkSizes(recording);
  return { ...recording, header: { ...recording.header, dashboards: [] } }; // links to clusters are removed
}

/**
 * Convert a recording of an older version as `_upgraded` of divebook/widgets/recording.py does, except for the defaults, which the
 * checks add.
 */
function upgraded(data: unknown): unknown {
  if (!isObject(data)) return data;
  const { spans, questions, events } = data;
  const ids = isObject(spans) && Array.isArray(spans["id"]) ? spans["id"] : [];
  const zeros = (): number[] => ids.map(() => 0);
  const spanDefaults = { within: ids.map(() => -1), item: zeros(), given: zeros(), came: zeros() };
  return {
    ...data,
    ...upgradedEvents(events),
    ...renamedStatuses(data),
    questions: Array.isArray(questions) ? questions.map(upgradedQuestion) : questions,
    spans: isObject(spans) ? { ...spanDefaults, ...spans } : spans,
  };
}

function presentStatus(status: string): string {
  return Object.hasOwn(RENAMED_STATUSES, status) ? RENAMED_STATUSES[status as keyof typeof RENAMED_STATUSES] : status;
}

/**
 * Replace the former name of a status at the end of a run, in the header and in the states. Only final statuses were
 * renamed, so that the header tells whether a state has a former name.
 */
function renamedStatuses({ header, base, changes }: Record<string, unknown>): object {
  const former = isObject(header) ? header["status"] : undefined;
  if (typeof former !== "string" || presentStatus(former) === former) return {};
  const status = presentStatus(former);
  const renamed = (part: unknown): unknown => isObject(part) && part["status"] === former ? { ...part, status } : part;
  const renamedChange = (change: unknown): unknown => {
    const isFormer = Array.isArray(change) && change.length === 3 && change[0] === "status" && change[2] === former;
    return isFormer ? ["status", change[1], status] : change;
  };
  const renamedRow = (row: unknown): unknown => Array.isArray(row) ? row.map(renamedChange) : row;
  return { header: renamed(header), base: renamed(base), changes: Array.isArray(changes) ? changes.map(renamedRow) : changes };
}

/**
 * Return the columns of events in which renamed types have their present names. A step may have the former name as well,
 * so the present name is added to the list of names.
 */
function renamedTypes(events: Record<string, unknown> & { type: unknown[] }): typeof events {
  const names: unknown = events["names"];
  if (!Array.isArray(names)) return events;
  let { type } = events;
  const allNames = [...(names as unknown[])];
  for (const [former, present] of Object.entries(RENAMED_TYPES)) {
    const place = names.indexOf(former);
    if (place === -1) continue;
    type = type.map((number) => number === place ? allNames.length : number);
    allNames.push(present);
  }
  return { ...events, names: allNames, type };
}

/** Rename the status of an answered question, and add its outcome in words. */
function upgradedQuestion(question: unknown): unknown {
  if (!isObject(question)) return question;
  const status = question["status"] === "completed" ? "resolved" : question["status"];
  return { became: valueText(question["response"], 400), ...question, status };
}

/** Add the columns that the events of older recordings lack. Those without sequence numbers contain the newest events without gaps. */
function upgradedEvents(older: unknown): object {
  if (!isObject(older) || !Array.isArray(older["type"])) return {};
  const zeros = (): number[] => (older["type"] as unknown[]).map(() => 0);
  const events = renamedTypes({ kind: zeros(), item: zeros(), ...older, type: older["type"] });
  if ("sequence" in older) return { events };
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
  const areSpansEqual = SPAN_COLUMNS.every((name) => spans[name].length === rows);
  const areEventsEqual = EVENT_COLUMNS.every((name) => events[name].length === eventCount);
  const areListsEqual = members.length === rows && data.length === eventCount && changes.length === eventCount;
  if (!areSpansEqual || !areEventsEqual || !areListsEqual) throw new Error("its columns have different lengths");
  const areInTable = (block: SpanBlock | EventBlock, column: number[]): boolean => column.every((place) => place >= 0 && place < block.names.length);
  const areEventsAscending = events.sequence.every((sequence, row) => sequence > (events.sequence[row - 1] ?? 0) && sequence <= MAX_FIRST);
  const areSpanNamesValid = SPAN_TEXTS.every((name) => areInTable(spans, spans[name]));
  const areEventNamesValid = EVENT_TEXTS.every((name) => areInTable(events, events[name]));
  const areSpansAscending = spans.id.every((id, row) => id >= 0 && id < (spans.id[row + 1] ?? total));
  if (!areEventsAscending || !areSpanNamesValid || !areEventNamesValid || !areSpansAscending) {
    throw new Error("its parts are inconsistent");
  }
}
