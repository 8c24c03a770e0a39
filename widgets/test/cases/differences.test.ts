// Differences of two values, which Python has too: one table of cases for both sides (tests/widgets/test_same_rules.py).

import { expect, test } from "vitest";
import { diff } from "../../src/replay/diff";
import { casesOf, expectedBy } from "./cases";
import cases from "./differences.json";

test.each(casesOf(cases))("%s: %s", (_rule, _name, one) => {
  const [before, after] = one.input as [unknown, unknown];
  expect(diff(before, after).map(({ path, kind }) => [path, kind])).toEqual(expectedBy(one));
});
