// A case of a rule that exists in Python and in TypeScript.

/** Input and result. A difference that is intended has one result for each side, and a reason. */
export interface Case {
  name: string;
  input: unknown;
  expected?: unknown;
  python?: unknown;
  typescript?: unknown;
  reason?: string;
}

/** Return the result that TypeScript must have. */
export function expectedBy(one: Case): unknown {
  return "typescript" in one ? one.typescript : one.expected;
}
