// Display of recorded values: short values as text, frames and lists of records as tables, long values folded.

import { h, longText } from "../shared/dom";
import { formatCount, plural } from "../shared/format";
import { oneLine } from "../shared/text";
import { valueText } from "../shared/values";

const FRAME = "$frame"; // key of a frame in a state (divebook/widgets/stepping.py)
const SHORT = 80; // characters of a value that is not folded
const MOST_ROWS = 20;
const MOST_COLUMNS = 12;
const MOST_TEXT = 20_000; // characters
const CUT = /\s?… \(([\d,]+) more characters?\)$/u; // end of a text of which a page contains only the beginning
type Values = Record<string, unknown>;

/** Type, size and first rows of a frame. */
export interface Frame {
  type: string;
  size: string;
  columns: string[];
  rows: string[][];
}

/** Return the frame that a value represents; undefined for other values. */
export function frameOf(value: unknown): Frame | undefined {
  return isMapping(value) ? (value[FRAME] as Frame | undefined) : undefined;
}

/** Return a short text for a value: the value itself, or its type and size. */
export function summaryOf(value: unknown): string {
  const frame = frameOf(value);
  if (frame !== undefined) return `${frame.type} ${frame.size.replaceAll(" x ", " × ")}`;
  const text = inlineText(value);
  if (text.length <= SHORT && !text.includes("\n")) return text;
  if (typeof value === "string") return `${oneLine(value, SHORT)} (${lengthOf(value)})`;
  if (Array.isArray(value)) return recordsOf(value) === null ? `list, ${formatCount(value.length)}: ${oneLine(text, 40)}` : `list, ${plural(value.length, "record")}`;
  return isMapping(value) ? `mapping, ${formatCount(Object.keys(value).length)}: ${oneLine(Object.keys(value).join(", "), 40)}` : oneLine(text, SHORT);
}

/** Return the number of characters of a text. If only its beginning is there, the number is that of the whole text. */
function lengthOf(text: string): string {
  const cut = CUT.exec(text);
  if (cut === null) return plural(text.length, "character");
  return `first part of ${plural(cut.index + Number(cut[1]?.replaceAll(",", "")), "character")}`;
}

/** Create the element of a value: its text, or a summary that unfolds. */
export function valueElement(value: unknown): HTMLElement {
  const summary = summaryOf(value);
  if (value === undefined) return h("span");
  const frame = frameOf(value);
  const isWhole = frame === undefined ? summary === inlineText(value) : frame.columns.length === 0;
  if (isWhole) return h("code", { dir: "auto" }, summary);
  const details = h("details", { class: "value" }, h("summary", {}, h("code", { dir: "auto" }, summary)));
  details.addEventListener("toggle", () => {
    if (details.childElementCount === 1) details.append(unfolded(value));
  });
  return details;
}

/** Create the content of an unfolded value. */
function unfolded(value: unknown): HTMLElement {
  const frame = frameOf(value);
  if (frame !== undefined) return grid(frame.columns, frame.rows.map((row) => row.map((text) => h("span", { dir: "auto" }, text))), "First rows");
  if (typeof value === "string") return longText(value);
  const records = Array.isArray(value) ? recordsOf(value) : null;
  if (records !== null) {
    const columns = [...new Set(records.flatMap((record) => Object.keys(record)))].slice(0, MOST_COLUMNS);
    const rows = records.slice(0, MOST_ROWS).map((record) => columns.map((column) => valueElement(record[column])));
    return withRest(grid(columns, rows, "Records"), records.length);
  }
  if (!Array.isArray(value) && !isMapping(value)) return longText(valueText(value, MOST_TEXT, 2));
  const entries = Array.isArray(value) ? value.map((part: unknown, place): [string, unknown] => [String(place), part]) : Object.entries(value);
  const rows = entries.slice(0, 5 * MOST_ROWS).map(([name, part]) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, oneLine(name, 200)), h("td", {}, valueElement(part))));
  return withRest(h("table", { class: "parts" }, h("tbody", {}, ...rows)), entries.length, 5 * MOST_ROWS);
}

function grid(columns: string[], rows: HTMLElement[][], label: string): HTMLElement {
  const head = h("tr", {}, ...columns.map((column) => h("th", { scope: "col", dir: "auto" }, oneLine(column, 60))));
  const body = rows.map((cells) => h("tr", {}, ...cells.map((cell) => h("td", {}, cell))));
  const table = h("table", { class: "parts" }, h("thead", {}, head), h("tbody", {}, ...body));
  return h("div", { class: "scroll db-list", tabindex: 0, role: "region", "aria-label": label }, table);
}

function withRest(element: HTMLElement, count: number, most = MOST_ROWS): HTMLElement {
  return count <= most ? element : h("div", {}, element, h("p", { class: "hint" }, `and ${formatCount(count - most)} more`));
}

/** Return a value in one line of text: strings unchanged, lists and mappings without the quotes of JSON. */
function inlineText(value: unknown): string {
  if (typeof value === "string") return value === "" ? '""' : valueText(value, MOST_TEXT);
  if (value === undefined) return "";
  const frame = frameOf(value);
  if (frame !== undefined) return summaryOf(value);
  if (Array.isArray(value)) return `[${value.slice(0, SHORT).map(inlineText).join(", ")}]`;
  if (isMapping(value)) return `{${Object.entries(value).slice(0, SHORT).map(([name, part]) => `${name}: ${inlineText(part)}`).join(", ")}}`;
  return valueText(value, SHORT * 2);
}

/** Return the entries of a list if all are mappings; null otherwise. */
function recordsOf(list: unknown[]): Values[] | null {
  return list.length > 0 && list.every((entry) => isMapping(entry) && frameOf(entry) === undefined) ? (list as Values[]) : null;
}

function isMapping(value: unknown): value is Values {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
