// Safe display of text from models, users and logs: hidden control characters become visible.
// The same rules as divebook/text/format.py.

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
  const code = character.charCodeAt(0);
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

// eslint-disable-next-line no-control-regex
const CONTROL = /\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;

/** Return the output of a command as a terminal shows it: without colours, and of an overwritten line only the last text.
 * The same rules as divebook/text/format.py. */
export function terminalText(text: string): string {
  const lines = text.replace(CONTROL, "").replaceAll("\r\n", "\n").split("\n");
  return lines.map((line) => line.replace(/\r+$/, "").replace(/^.*\r/s, "")).join("\n").replace(/\n+$/, "");
}

/** Return the text on one line, at most `width` characters of it. */
export function oneLine(text: string, width: number): string {
  const head = text.slice(0, width + 400); // long texts are not scanned to their end
  const flat = head.replace(/\s+/g, " ").trim();
  const isComplete = flat.length <= width && head.length === text.length;
  return visible(isComplete ? flat : `${flat.slice(0, width - 1)}…`);
}
