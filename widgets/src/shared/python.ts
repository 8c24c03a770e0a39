// Python expressions of JSON values, for lines of code that a person can run.

/** Return a JSON value as a Python literal. */
export function python(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}: ${python(part)}`).join(", ")}}`;
  return JSON.stringify(value); // a string or number of JSON is one of Python
}
