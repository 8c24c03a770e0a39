// Rules for texts that Python has too: one table of cases for both sides (tests/widgets/test_same_rules.py).

import { expect, test } from "vitest";
import { diffLines } from "../../src/shared/difference";
import { dollars, duration, plural } from "../../src/shared/format";
import { oneLine, terminalText, visible } from "../../src/shared/text";
import { truncate } from "../../src/shared/values";
import { branchOf } from "../../src/shared/words";
import { casesOf, expectedBy } from "./cases";
import cases from "./texts.json";

const RULES: Record<keyof typeof cases, (input: never) => unknown> = {
  duration,
  price: dollars,
  plural: ([count, noun]: [number, string]) => plural(count, noun),
  branch: branchOf,
  visible,
  terminal: terminalText,
  oneLine: ([text, width]: [string, number]) => oneLine(text, width),
  cut: ([text, limit]: [string, number]) => truncate(text, limit),
  patch: (text: string) => diffLines(text).map(({ kind }) => kind),
};

test.each(casesOf(cases))("%s: %s", (rule, _name, one) => {
  expect(RULES[rule](one.input as never)).toEqual(expectedBy(one));
});
