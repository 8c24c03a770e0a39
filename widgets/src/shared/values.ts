// Text forms of values.

import { plural } from "./format";
import { beginning, visible } from "./text";

/** Return at most `limit` characters of a text, with control characters spelled out and the number of missing characters. */
export function truncate(text: string, limit: number): string {
  const missing = text.length - limit;
  if (missing <= 0) return visible(text);
  return `${visible(beginning(text, limit))}… (${plural(missing, "more character")})`;
}

/** Return a string unchanged if it cannot be confused with another value; otherwise return JSON. */
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

/** Return a string unchanged and any other value as JSON, at most `limit` characters. */
export function valueText(value: unknown, limit: number, indent = 0): string {
  if (value === undefined) return "";
  return truncate(typeof value === "string" ? value : JSON.stringify(value, null, indent), limit);
}
