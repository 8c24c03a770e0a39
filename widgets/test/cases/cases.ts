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

/** Return the cases of all rules in a table, each with its rule and its name. */
export function casesOf<R extends string>(table: Record<R, readonly Case[]>): [rule: R, name: string, one: Case][] {
  return (Object.entries(table) as [R, readonly Case[]][]).flatMap(([rule, cases]) => cases.map((one): [R, string, Case] => [rule, one.name, one]));
}

/** Return the result that TypeScript must have. */
export function expectedBy(one: Case): unknown {
  return "typescript" in one ? one.typescript : one.expected;
}
