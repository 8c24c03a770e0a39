// Parts of a page, which Python writes and reads too: one table of cases for both sides (tests/widgets/test_same_rules.py).

import { expect, test } from "vitest";
import { checksum, joinTexts, withTexts } from "../../src/page/parts";
import { casesOf, expectedBy } from "./cases";
import cases from "./parts.json";

function resolved({ table, value }: { table: (string | string[])[]; value: unknown }): unknown {
  try {
    return withTexts(JSON.stringify(value), joinTexts(table));
  } catch {
    return "refused";
  }
}

const RULES: Record<keyof typeof cases, (input: never) => unknown> = { checksum, texts: resolved };

test.each(casesOf(cases))("%s: %s", (rule, _name, one) => {
  expect(RULES[rule](one.input as never)).toEqual(expectedBy(one));
});
