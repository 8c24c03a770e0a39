// Validation of untrusted plain data: a check throws a sentence if a value has the wrong type or size.

/** Throws unless a value is as it must be. */
export type Check = (value: unknown, where: string) => void;

const MAX_TEXT_LENGTH = 40_000_000;
const MAX_NUMBER = Number.MAX_SAFE_INTEGER;

function refuse(where: string, expected: string): never {
  throw new Error(`${where} is not ${expected}`);
}

/** Tells whether a value is an object with names. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export const anything: Check = () => undefined;

export const text: Check = (value, where) => {
  if (typeof value !== "string" || value.length > MAX_TEXT_LENGTH) refuse(where, "a text");
};

export const boolean: Check = (value, where) => {
  if (typeof value !== "boolean") refuse(where, "true or false");
};

/** A number within limits; whole ones only unless it says otherwise. */
export function number(least = -MAX_NUMBER, most = MAX_NUMBER, whole = true): Check {
  return (value, where) => {
    const fits = typeof value === "number" && value >= least && value <= most && (!whole || Number.isInteger(value));
    if (!fits) refuse(where, "a number within its limits");
  };
}

export function listOf(check: Check): Check {
  return (value, where) => {
    if (!Array.isArray(value)) refuse(where, "a list");
    for (const [place, part] of value.entries()) check(part, `${where}[${place}]`);
  };
}

export function orNull(check: Check): Check {
  return (value, where) => { if (value !== null) check(value, where); };
}

/** An object whose parts all pass one check. */
export function tableOf(check: Check): Check {
  return (value, where) => {
    if (!isObject(value)) refuse(where, "an object");
    for (const [name, part] of Object.entries(value)) check(part, `${where}.${name.slice(0, 40)}`);
  };
}

/** An object with these parts at least. */
export function objectOf(parts: Record<string, Check>): Check {
  return (value, where) => {
    if (!isObject(value)) refuse(where, "an object");
    for (const [name, check] of Object.entries(parts)) check(Object.hasOwn(value, name) ? value[name] : undefined, `${where}.${name}`);
  };
}
