// Safe display of text from models, users and logs: hidden control characters become visible.
// The same rules as divebook/text/format.py (test/cases/texts.json).

const UNSAFE = new RegExp(
  "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb]" +
    "|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]",
  "g",
);

/** Return the text with control characters and direction marks spelled out. Line breaks and tabs stay. */
export function visible(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(UNSAFE, escapeOf);
}

function escapeOf(character: string): string {
  if (character === "\r") return "\\r";
  const code = character.charCodeAt(0);
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

// eslint-disable-next-line no-control-regex
const CONTROL = /\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;

/** Return the output of a command as a terminal shows it: without colours, and of an overwritten line only the last text. */
export function terminalText(text: string): string {
  const lines = text.replace(CONTROL, "").replaceAll("\r\n", "\n").split("\n");
  return lines.map((line) => line.replace(/\r+$/, "").replace(/^.*\r/s, "")).join("\n").replace(/\n+$/, "");
}

/** White space as Python's `str.split` sees it: with four control characters, and without the byte order mark. */
// eslint-disable-next-line no-control-regex
const SPACE = /(?:[^\S\ufeff]|[\x1c-\x1f\x85])+/g;

/** Return the text on one line, at most `width` characters of it. */
export function oneLine(text: string, width: number): string {
  const head = text.slice(0, width + 400); // long texts are not scanned to their end
  const flat = head.replace(SPACE, " ").replace(/^ | $/g, "");
  const isComplete = flat.length <= width && head.length === text.length;
  return visible(isComplete ? flat : `${beginning(flat, width - 1)}…`);
}

/** Return at most `length` UTF-16 units of a text. A character that the limit would halve is left out. */
export function beginning(text: string, length: number): string {
  const isHalved = /[\ud800-\udbff]/.test(text.charAt(length - 1)) && /[\udc00-\udfff]/.test(text.charAt(length));
  return text.slice(0, isHalved ? length - 1 : length);
}
