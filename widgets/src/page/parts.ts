// The parts of a file that holds a run: each a script of base64 with its checksum beside it. `divebook/store/embedded.py`
// says what is in them, and reads them in Python.

const KIND = "application/vnd.divebook.part";
const MARK = "\x7f";
const LITERAL = "'";
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? 0xedb88320 ^ (rest >>> 1) : rest >>> 1;
  return rest;
});

/** What a file has: its sound parts by name, and a sentence about each other one that it should have. */
export interface Found {
  sound: Map<string, string>;
  faults: Map<string, string>;
}

/** Returns CRC-32 of a text of ASCII as eight digits. */
export function checksum(text: string): string {
  let rest = 0xffffffff;
  for (let place = 0; place < text.length; place += 1) rest = (TABLE[(rest ^ text.charCodeAt(place)) & 255] ?? 0) ^ (rest >>> 8);
  return ((rest ^ 0xffffffff) >>> 0).toString(16).padStart(8, "0");
}

/** Looks for the parts that a page names, and checks them. */
export function partsOf(page: ParentNode, names: readonly string[]): Found {
  const found: Found = { sound: new Map(), faults: new Map() };
  const scripts = new Map([...page.querySelectorAll(`script[type="${KIND}"]`)].map((script) => [script.getAttribute("data-name"), script]));
  for (const name of names) {
    const script = scripts.get(name);
    const [text, wanted] = [script?.textContent ?? "", script?.getAttribute("data-crc32") ?? "none"];
    const is = checksum(text);
    if (script === undefined) found.faults.set(name, `The part "${name}" is missing.`);
    else if (is !== wanted || /[^A-Za-z0-9+/=]/.test(text)) found.faults.set(name, `The part "${name}" is damaged: its checksum is ${is}, and ${wanted} is written beside it.`);
    else found.sound.set(name, text);
  }
  return found;
}

/** Returns the texts of a list in which those of several lines are lists of their pieces. */
export function wholeTexts(listed: readonly (string | string[])[]): string[] {
  const piece = (short: string): string => {
    const text = placed(short, listed);
    if (typeof text !== "string") throw new Error("one of its texts is made of itself");
    return text;
  };
  return listed.map((text) => (typeof text === "string" ? text : text.map(piece).join("")));
}

/** Returns JSON in which long texts are numbers of a list as it was before. */
export function withTexts(json: string, texts: readonly string[]): unknown {
  return JSON.parse(json, (_, value: unknown) => (typeof value === "string" ? placed(value, texts) : value));
}

function placed<T>(value: string, texts: readonly T[]): T | string {
  if (!value.startsWith(MARK)) return value;
  if (value[1] === LITERAL) return value.slice(2);
  const text = texts[Number(value.slice(1))];
  if (text === undefined) throw new Error("one of its texts is missing");
  return text;
}
