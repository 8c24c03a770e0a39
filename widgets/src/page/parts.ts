// Parts of an HTML file with a saved run: scripts of base64 with checksums. `divebook/stores/embedded.py` documents their
// content and reads them in Python.

import { PART_MIME } from "../constants";

const REFERENCE_MARK = "\x7f"; // starts a reference to the table of texts
const LITERAL_MARK = "'"; // after a mark: the rest is a literal text that starts with a mark
/** Lookup table of CRC-32 (reflected polynomial 0xedb88320). */
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 1 ? 0xedb88320 ^ (crc >>> 1) : crc >>> 1;
  return crc;
});

/** Valid parts by name, and error messages by the name of each missing or damaged part. */
export interface PageParts {
  valid: Map<string, string>;
  faults: Map<string, string>;
}

/** Return the CRC-32 of an ASCII text as eight hexadecimal digits. */
export function checksum(text: string): string {
  let crc = 0xffffffff;
  for (let place = 0; place < text.length; place += 1) crc = (TABLE[(crc ^ text.charCodeAt(place)) & 255] ?? 0) ^ (crc >>> 8);
  return ((crc ^ 0xffffffff) >>> 0).toString(16).padStart(8, "0");
}

/** Read and verify the parts of a page with these names. */
export function partsOf(page: ParentNode, names: readonly string[]): PageParts {
  const parts: PageParts = { valid: new Map(), faults: new Map() };
  const scripts = new Map([...page.querySelectorAll(`script[type="${PART_MIME}"]`)].map((script) => [script.getAttribute("data-name"), script]));
  for (const name of names) {
    const script = scripts.get(name);
    const text = script?.textContent ?? "";
    const expected = script?.getAttribute("data-crc32") ?? "none";
    const actual = checksum(text);
    const isDamaged = actual !== expected || /[^A-Za-z0-9+/=]/.test(text);
    if (script === undefined) parts.faults.set(name, `The part "${name}" is missing.`);
    else if (isDamaged) parts.faults.set(name, `The part "${name}" is damaged: its checksum is ${actual}, but the file states ${expected}.`);
    else parts.valid.set(name, text);
  }
  return parts;
}

/** Return the table of texts. An entry of several lines is stored as a list of pieces, which may refer to other entries. */
export function joinTexts(table: readonly (string | string[])[]): string[] {
  const piece = (reference: string): string => {
    const text = resolveText(reference, table);
    if (typeof text !== "string") throw new Error("one of its texts refers to itself");
    return text;
  };
  return table.map((text) => (typeof text === "string" ? text : text.map(piece).join("")));
}

/** Parse JSON in which long texts are replaced by references to a table. */
export function withTexts(json: string, texts: readonly string[]): unknown {
  return JSON.parse(json, (_, value: unknown) => (typeof value === "string" ? resolveText(value, texts) : value));
}

/** Resolve a reference to the table; return other texts unchanged. */
function resolveText<T>(value: string, texts: readonly T[]): T | string {
  if (!value.startsWith(REFERENCE_MARK)) return value;
  if (value[1] === LITERAL_MARK) return value.slice(2);
  const number = value.slice(1);
  const text = /^\d+$/.test(number) ? texts[Number(number)] : undefined; // `Number` also reads "" and "1e0"
  if (text === undefined) throw new Error("one of its texts is missing");
  return text;
}
