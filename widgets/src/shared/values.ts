// Values as people read them.

import { visible } from "./text";

/** Returns a text with visible signs only, at most `limit` characters and a count of what is missing. */
export function shown(text: string, limit: number): string {
  const missing = text.length - limit;
  if (missing <= 0) return visible(text);
  return `${visible(text.slice(0, limit))}… (${missing.toLocaleString("en")} more characters)`;
}

/** Returns a text as it is if nobody can take it for another value; else, and of any other value, the JSON. */
export function plainText(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  return value.includes("\n") || (value.trim() === value && !isJson(value)) ? value : JSON.stringify(value);
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return text === "";
  }
}

/** Returns a text as it is, anything else as JSON. */
export function valueText(value: unknown, limit: number, indent = 0): string {
  if (value === undefined) return "";
  return shown(typeof value === "string" ? value : JSON.stringify(value, null, indent), limit);
}
