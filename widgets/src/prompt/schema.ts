// JSON schemas for forms: references resolved, alternatives separated.

import { valueText } from "../shared/values";

export type Schema = Record<string, unknown>;

/** Kind of control for a value. */
export type Kind = "const" | "choice" | "boolean" | "number" | "text" | "array" | "checks" | "object" | "union" | "json";

/** Schema with references resolved, its kind of control, and whether it accepts null. */
export interface Node {
  schema: Schema;
  kind: Kind;
  nullable: boolean;
}

const MOST_REFERENCES = 20;
const OLD_DIALECT = /\/draft-0[3467]\//; // in these dialects, keywords beside a reference are no rules
const DESCRIPTIONS = ["title", "description", "default", "examples"];

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function asSchema(value: unknown): Schema {
  return isRecord(value) ? value : {};
}

export function schemas(value: unknown): Schema[] {
  return Array.isArray(value) ? value.filter(isRecord) : [];
}

export function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

export function isBlank(value: unknown): value is null | undefined {
  return value === null || value === undefined;
}

export function numeric(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}

/**
 * Resolve `$ref` and `allOf`. Keywords beside them override the keywords of the target.
 * The title of a target names a class. It is kept only for alternatives (`keepsTitle`); elsewhere the name of the
 * property says more.
 */
export function resolve(schema: Schema, root: Schema, keepsTitle = false): Schema {
  const isOldDialect = OLD_DIALECT.test(text(root["$schema"]));
  let current = schema;
  for (let step = 0; step < MOST_REFERENCES; step += 1) {
    const { $ref: reference, allOf: all, ...others } = current;
    const siblings = typeof reference === "string" && isOldDialect ? pick(others, DESCRIPTIONS) : others;
    if (typeof reference === "string") current = { ...omit(targetOf(root, reference), ...(keepsTitle ? [] : ["title"])), ...siblings };
    else if (all !== undefined) current = schemas(all).reduce((sum, part) => mergeSchemas(sum, resolve(part, root)), siblings);
    else return current;
  }
  return {};
}

function pick(schema: Schema, names: readonly string[]): Schema {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => names.includes(name)));
}

/** Merge two schemas. `own` overrides `part`; their properties and required names are combined. */
function mergeSchemas(own: Schema, part: Schema): Schema {
  const properties = { ...asSchema(part["properties"]), ...asSchema(own["properties"]) };
  const required = [...list(part["required"]), ...list(own["required"])];
  return {
    ...part,
    ...own,
    ...(Object.keys(properties).length > 0 ? { properties } : {}),
    ...(required.length > 0 ? { required } : {}),
  };
}

/** Return the schema that a JSON pointer refers to, or an empty schema. */
function targetOf(root: Schema, reference: string): Schema {
  let target: unknown = root;
  for (const part of reference.split("/").slice(1)) {
    const key = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
    target = isRecord(target) && Object.hasOwn(target, key) ? target[key] : undefined;
  }
  return asSchema(target);
}

export function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Return the alternatives of a schema with references resolved, without null. */
export function variants(schema: Schema, root: Schema): Schema[] {
  const { anyOf, oneOf, ...rest } = schema;
  const alternatives = [...schemas(anyOf), ...schemas(oneOf)].map((part) => resolve(part, root, true));
  const types = list(schema["type"]).map((type) => ({ ...rest, type }));
  return flatten([...alternatives, ...types], root).filter((part) => part["type"] !== "null" && part["const"] !== null);
}

/** Replace each alternative that only lists further alternatives by these. */
function flatten(parts: Schema[], root: Schema): Schema[] {
  const isPlainUnion = (part: Schema): boolean => part["anyOf"] !== undefined && part["properties"] === undefined;
  return parts.flatMap((part) => {
    if (!isPlainUnion(part)) return [part];
    return flatten(schemas(part["anyOf"]).map((alternative) => resolve(alternative, root)), root);
  });
}

/**
 * Return the node of a schema: the schema with references resolved, and its kind of control.
 * A union with one alternative besides null becomes that alternative; a union of constants becomes a choice.
 */
export function nodeOf(schema: Schema, root: Schema): Node {
  const whole = resolve(schema, root);
  if (!hasAlternatives(whole)) {
    const options = list(whole["enum"]);
    return { schema: whole, kind: kindOf(whole, root), nullable: options.includes(null) || whole["type"] === "null" };
  }
  const nullable = allowsNull(whole, root);
  const parts = variants(whole, root);
  const rest = omit(whole, "anyOf", "oneOf", "type");
  const single = parts.length === 1 ? parts[0] : undefined;
  if (single !== undefined) return { ...nodeOf({ ...omit(single, "title"), ...rest }, root), nullable };
  const constants = parts.map((part) => part["const"]);
  if (parts.length > 0 && constants.every((value) => value !== undefined)) {
    const titles = parts.map((part, index) => text(part["title"]) || valueText(constants[index], 200));
    return { schema: { ...rest, enum: constants, enumTitles: titles }, kind: "choice", nullable };
  }
  return { schema: whole, kind: parts.length === 0 ? "json" : "union", nullable };
}

function hasAlternatives(schema: Schema): boolean {
  return schema["anyOf"] !== undefined || schema["oneOf"] !== undefined || Array.isArray(schema["type"]);
}

function allowsNull(schema: Schema, root: Schema): boolean {
  const parts = [...schemas(schema["anyOf"]), ...schemas(schema["oneOf"])].map((part) => resolve(part, root));
  const isNull = (part: Schema): boolean => part["type"] === "null" || (hasAlternatives(part) && allowsNull(part, root));
  return list(schema["type"]).includes("null") || parts.some(isNull);
}

/** Return the kind of control for a schema without alternatives. */
function kindOf(schema: Schema, root: Schema): Kind {
  if ("const" in schema) return "const";
  if (schema["enum"] !== undefined) return "choice";
  switch (schema["type"]) {
    case "boolean":
      return "boolean";
    case "integer":
    case "number":
      return "number";
    case "string":
      return "text";
    case "null":
      return "const";
    case "array": {
      const items = nodeOf(asSchema(schema["items"]), root);
      return schema["uniqueItems"] === true && items.kind === "choice" ? "checks" : "array";
    }
    default:
      return Object.keys(asSchema(schema["properties"])).length > 0 ? "object" : "json";
  }
}

/** Return a schema without some keywords. */
function omit(schema: Schema, ...names: string[]): Schema {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => !names.includes(name)));
}

/** Return the title of a schema, or else the name of its property in readable form. */
export function titleOf(schema: Schema, name: string): string {
  const words = name.replaceAll(/[_-]+/g, " ").trim();
  return text(schema["title"]) || (words.charAt(0).toUpperCase() + words.slice(1));
}
