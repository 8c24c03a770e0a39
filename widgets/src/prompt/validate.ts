// Validation of a value against a JSON schema, with messages for people. The kernel validates again
// (divebook/definitions/json_schemas.py), so a rule that is not supported here, such as a pattern that only Python understands, is
// accepted. What the kernel accepts is never refused: test/cases/schemas.json.

import { plural } from "../shared/format";
import { asSchema, isRecord, list, numeric, resolve, schemas, text, titleOf, type Schema } from "./schema";

/** A problem and its place in the value. */
export interface Problem {
  path: (string | number)[];
  message: string;
}

/** Input of a JSON field that is not JSON. It fits no schema. */
export class InvalidJson {
  constructor(
    readonly text: string,
    readonly reason: string,
  ) {}
}

/** Parse JSON. Return undefined for blank input and `InvalidJson` for a syntax error. */
export function parseJson(source: string): unknown {
  try {
    return source.trim() === "" ? undefined : (JSON.parse(source) as unknown);
  } catch (error) {
    return new InvalidJson(source, error instanceof Error ? error.message.slice(0, 200) : "");
  }
}

const MAX_PATTERN_LENGTH = 10_000; // characters; for longer strings the kernel checks the pattern
const DAY = /^\d{4}-\d\d-\d\d$/;
const FORMATS: Record<string, [(value: string) => boolean, string]> = {
  date: [(value) => DAY.test(value) && isDate(value), "must be a date such as 2026-11-30"],
  "date-time": [(value) => isDate(value), "must be a date and a time"],
  time: [(value) => /^\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?$/i.test(value), "must be a time such as 14:30"],
  email: [(value) => value.includes("@"), "must be an e-mail address"],
  uri: [(value) => /^[a-z][a-z0-9+.-]*:[!#$%&'()*+,\-./0-9:;=?@A-Z[\]_a-z~]*$/i.test(value), "must be an address such as https://example.org"],
};

function isDate(value: string): boolean {
  return !Number.isNaN(Date.parse(value));
}

/**
 * Return the problems of a value; undefined stands for an empty value.
 * For a union, the problems with the nearest alternative are returned.
 */
export function problemsOf(value: unknown, schema: Schema, root: Schema = schema): Problem[] {
  const resolved = resolve(schema, root);
  if (value === undefined) return [problem("needs an answer")];
  if (value instanceof InvalidJson) return [problem(`is not valid JSON: ${value.reason}`)];
  const listed = [...list(resolved["anyOf"]), ...list(resolved["oneOf"])];
  const alternatives = schemas(listed);
  if (alternatives.length > 0 && !listed.includes(true)) {
    const all = alternatives.map((alternative) => problemsOf(value, alternative, root));
    const bestMatch = all.reduce((best, other) => (distance(other) < distance(best) ? other : best));
    if (bestMatch.length > 0) return bestMatch;
  }
  if ("const" in resolved && !isEqual(resolved["const"], value)) return [problem(`must be ${JSON.stringify(resolved["const"])}`)];
  const options = list(resolved["enum"]);
  if (options.length > 0 && !options.some((option) => isEqual(option, value))) return [problem("must be one of the choices")];
  const wrongType = typeProblem(value, resolved["type"]);
  if (wrongType !== null) return [problem(wrongType)];
  return valueProblems(value, resolved, root);
}

/** Return a distance between a value and a schema. A value of a wrong type is farther away than a wrong part. */
function distance(problems: Problem[]): number {
  if (problems.some(({ path }) => path.length === 0)) return 1000;
  return problems.length;
}

function valueProblems(value: unknown, schema: Schema, root: Schema): Problem[] {
  if (typeof value === "number") return [...numberProblems(value, schema)].map(problem);
  if (typeof value === "string") return [...textProblems(value, schema)].map(problem);
  if (Array.isArray(value)) return arrayProblems(value, schema, root);
  return isRecord(value) ? objectProblems(value, schema, root) : [];
}

function problem(message: string): Problem {
  return { path: [], message };
}

/** Add a property or index to the paths of problems. */
function prefixed(key: string | number, problems: Problem[]): Problem[] {
  return problems.map(({ path, message }) => ({ path: [key, ...path], message }));
}

/** Compare two JSON values. The order of properties does not matter. */
export function isEqual(one: unknown, other: unknown): boolean {
  if (Array.isArray(one) && Array.isArray(other)) return one.length === other.length && one.every((item, index) => isEqual(item, other[index]));
  if (!isRecord(one) || !isRecord(other)) return one === other;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => Object.hasOwn(other, name) && isEqual(one[name], other[name]));
}

const TYPES: Record<string, [(value: unknown) => boolean, string]> = {
  string: [(value) => typeof value === "string", "must be text"],
  number: [(value) => Number.isFinite(value), "must be a number"],
  integer: [(value) => Number.isInteger(value), "must be an integer"],
  boolean: [(value) => typeof value === "boolean", "must be yes or no"],
  array: [(value) => Array.isArray(value), "must be a list"],
  object: [isRecord, "must be a JSON object"],
  null: [(value) => value === null, "must be empty"],
};

/** Return the problem if a value has none of the types, else null. */
function typeProblem(value: unknown, type: unknown): string | null {
  const checks = (Array.isArray(type) ? type : [type]).map((name) => TYPES[text(name)]).filter((check) => check !== undefined);
  if (checks.length === 0 || checks.some(([fits]) => fits(value))) return null;
  return checks[0]?.[1] ?? null;
}

function* numberProblems(value: number, schema: Schema): Generator<string> {
  const least = numeric(schema["minimum"]);
  const most = numeric(schema["maximum"]);
  const above = numeric(schema["exclusiveMinimum"]);
  const below = numeric(schema["exclusiveMaximum"]);
  const step = numeric(schema["multipleOf"]);
  if (least !== undefined && value < least) yield `must be at least ${least}`;
  if (most !== undefined && value > most) yield `must be at most ${most}`;
  if (above !== undefined && value <= above) yield `must be more than ${above}`;
  if (below !== undefined && value >= below) yield `must be less than ${below}`;
  if (step !== undefined && !isMultiple(value, step)) yield `must be a multiple of ${step}`;
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) yield "is too large to be sent without rounding";
}

/** Return whether a number is a multiple of a step, as far as binary numbers can tell: 0.3 is a multiple of 0.1. */
function isMultiple(value: number, step: number): boolean {
  const quotient = value / step;
  return Math.abs(quotient - Math.round(quotient)) <= Math.max(1e-9, Math.abs(quotient) * 4 * Number.EPSILON);
}

function* textProblems(value: string, schema: Schema): Generator<string> {
  const length = Array.from(value).length; // code points, as Python counts
  const least = numeric(schema["minLength"]);
  const most = numeric(schema["maxLength"]);
  if (least !== undefined && length < least) yield `must have at least ${plural(least, "character")}`;
  if (most !== undefined && length > most) yield `must have at most ${plural(most, "character")}, not ${length}`;
  if (!matches(value, text(schema["pattern"]))) yield `must match the pattern ${text(schema["pattern"])}`;
  const format = FORMATS[text(schema["format"])];
  if (format !== undefined && !format[0](value)) yield format[1];
}

/** Return whether a string matches a pattern. Where Python may decide otherwise, the answer is yes: the kernel decides. */
function matches(value: string, pattern: string): boolean {
  // In Python, classes such as \w contain letters and digits of all languages, and $ also matches before a last line end.
  const isOpen = value.endsWith("\n") || (/\\[a-z]/i.test(pattern) && /[^ -~]/.test(value));
  try {
    return pattern === "" || isOpen || value.length > MAX_PATTERN_LENGTH || new RegExp(pattern, "u").test(value);
  } catch {
    return true; // not a valid pattern in JavaScript, but maybe one in Python: the kernel decides
  }
}

function entries(count: number): string {
  return count === 1 ? "1 entry" : `${count} entries`;
}

function arrayProblems(value: unknown[], schema: Schema, root: Schema): Problem[] {
  const problems: Problem[] = [];
  const least = numeric(schema["minItems"]);
  const most = numeric(schema["maxItems"]);
  if (least !== undefined && value.length < least) problems.push(problem(`needs at least ${entries(least)}`));
  if (most !== undefined && value.length > most) problems.push(problem(`takes at most ${entries(most)}`));
  if (schema["uniqueItems"] === true && new Set(value.map((item) => JSON.stringify(item))).size < value.length) {
    problems.push(problem("must not contain the same entry twice"));
  }
  const prefixSchemas = schemas(schema["prefixItems"]);
  const items = asSchema(schema["items"]);
  return [...problems, ...value.flatMap((item, index) => prefixed(index, problemsOf(item, prefixSchemas[index] ?? items, root)))];
}

function objectProblems(value: Record<string, unknown>, schema: Schema, root: Schema): Problem[] {
  const properties = asSchema(schema["properties"]);
  const patterns = Object.keys(asSchema(schema["patternProperties"])); // the kernel checks such properties
  const required = list(schema["required"]).map(String);
  const missing = required.filter((name) => value[name] === undefined).map((name) => ({ path: [name], message: "needs an answer" }));
  const wrong = Object.entries(value).flatMap(([name, item]) => {
    if (item === undefined) return [];
    if (Object.hasOwn(properties, name)) return prefixed(name, problemsOf(item, asSchema(properties[name]), root));
    if (patterns.some((pattern) => matches(name, pattern))) return [];
    const other = schema["additionalProperties"];
    if (other === false) return [problem(`must not contain ${titleOf({}, name)}`)];
    return isRecord(other) ? prefixed(name, problemsOf(item, other, root)) : [];
  });
  return [...missing, ...wrong];
}
