// Values for JSON schemas, which the kernel checks too: one table of cases for both sides (tests/widgets/test_same_rules.py).

import { expect, test } from "vitest";
import type { Schema } from "../../src/prompt/schema";
import { problemsOf } from "../../src/prompt/validate";
import { casesOf, expectedBy } from "./cases";
import cases from "./schemas.json";

test.each(casesOf(cases))("%s: %s", (_rule, _name, one) => {
  const [schema, value] = one.input as [Schema, unknown];
  expect(problemsOf(value, schema).length === 0).toBe(expectedBy(one));
});
