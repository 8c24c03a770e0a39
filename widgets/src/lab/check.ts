// Validation of untrusted plain data. A check throws an error with a readable message if a value has the wrong type or
// size.

/** Throw unless a value is valid; `where` names its place in the message. */
export type Check = (value: unknown, where: string) => void;

const MAX_TEXT_LENGTH = 40_000_000;
const MAX_NUMBER = Number.MAX_SAFE_INTEGER;

/** Throw the error of a failed check. */
function refuse(where: string, expected: string): never {
  throw new Error(`${where} is not ${expected}`);
}

/** Return whether a value is an object with string keys. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export const anything: Check = () => undefined;

export const text: Check = (value, where) => {
  if (typeof value !== "string" || value.length > MAX_TEXT_LENGTH) refuse(where, "a string");
};

export const boolean: Check = (value, where) => {
  if (typeof value !== "boolean") refuse(where, "a boolean");
};

/** A number within limits. By default it must be an integer. */
export function number(least = -MAX_NUMBER, most = MAX_NUMBER, whole = true): Check {
  return (value, where) => {
    const fits = typeof value === "number" && value >= least && value <= most && (!whole || Number.isInteger(value));
    if (!fits) refuse(where, "a number in the allowed range");
  };
}

/** One of some words. */
export function oneOf(...words: readonly string[]): Check {
  return (value, where) => {
    if (typeof value !== "string" || !words.includes(value)) refuse(where, "one of the allowed values");
  };
}

/** A list whose entries all pass one check. */
export function listOf(check: Check): Check {
  return (value, where) => {
    if (!Array.isArray(value)) refuse(where, "a list");
    for (const [place, part] of value.entries()) check(part, `${where}[${place}]`);
  };
}

/** A value that passes a check, or null. */
export function orNull(check: Check): Check {
  return (value, where) => { if (value !== null) check(value, where); };
}

/** An object with any keys, whose values all pass one check. */
export function tableOf(check: Check): Check {
  return (value, where) => {
    if (!isObject(value)) refuse(where, "an object");
    for (const [name, part] of Object.entries(value)) check(part, `${where}.${name.slice(0, 40)}`);
  };
}

/**
 * An object with at least these properties. Inherited properties do not count. A property that is missing gets its default,
 * if there is one: older recordings do not contain it.
 */
export function objectOf(parts: Record<string, Check>, defaults: Record<string, unknown> = {}): Check {
  return (value, where) => {
    if (!isObject(value)) refuse(where, "an object");
    for (const [name, check] of Object.entries(parts)) {
      if (!Object.hasOwn(value, name) && Object.hasOwn(defaults, name)) value[name] = structuredClone(defaults[name]);
      const part = Object.hasOwn(value, name) ? value[name] : undefined;
      check(part, `${where}.${name}`);
    }
  };
}
