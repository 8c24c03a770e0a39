// Structural differences between two JSON values, as rows.

/** A part that was added, removed or changed. */
export interface Row {
  /** Keys and indices, joined by dots. */
  path: string;
  kind: "added" | "removed" | "changed";
  before: unknown;
  after: unknown;
}

const IDS = ["id", "interrupt_id"];

type Parts = Map<string, unknown>;

/** Return the differences inside objects and lists. List entries with an id are matched by it, others by their index. */
export function diff(before: unknown, after: unknown, path = ""): Row[] {
  if (Object.is(before, after)) return [];
  const old = parts(before);
  const now = parts(after);
  if (old === null || now === null || Array.isArray(before) !== Array.isArray(after)) {
    return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ path, kind: "changed", before, after }];
  }
  const rows: Row[] = [];
  for (const key of new Set([...old.keys(), ...now.keys()])) {
    const place = path === "" ? key : `${path}.${key}`;
    if (!old.has(key)) rows.push({ path: place, kind: "added", before: undefined, after: now.get(key) });
    else if (!now.has(key)) rows.push({ path: place, kind: "removed", before: old.get(key), after: undefined });
    else rows.push(...diff(old.get(key), now.get(key), place));
  }
  return rows;
}

/** Return the parts of an object or a list by key; null for other values. */
function parts(value: unknown): Parts | null {
  if (Array.isArray(value)) return new Map(value.map((item: unknown, index) => [idOf(item) ?? String(index), item]));
  return isObject(value) ? new Map(Object.entries(value)) : null;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function idOf(item: unknown): string | undefined {
  if (!isObject(item)) return undefined;
  return IDS.map((name) => item[name]).find((id) => typeof id === "string");
}
