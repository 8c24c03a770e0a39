// Rules for questions that Python has too: one table of cases for both sides (tests/widgets/test_same_rules.py).

import { expect, test } from "vitest";
import type { InterruptKind } from "../../src/protocol";
import { answerForm, sharedResponse } from "../../src/prompt/kinds";
import { exactly } from "../../src/prompt/rule";
import { byAge } from "../../src/shared/order";
import { question } from "../prompt/questions";
import { casesOf, expectedBy } from "./cases";
import cases from "./questions.json";

/** Return the bound that the button of a question about a used budget sends if a person only clicks it. */
function raised(data: Record<string, unknown>): unknown {
  const [raise] = answerForm(question({ kind: "resource_exhausted", data }), {}).actions;
  return (raise?.response() as { data: { to: unknown } }).data.to;
}

const RULES: Record<keyof typeof cases, (input: never) => unknown> = {
  order: (questions: [number, string][]) => questions.map(([raised_us, interrupt_id]) => question({ raised_us, interrupt_id })).sort(byAge).map(({ interrupt_id: id }) => id),
  shared: ([kind, response]: [InterruptKind, unknown]) => sharedResponse(question({ kind }), response),
  raised,
  exactly,
};

test.each(casesOf(cases))("%s: %s", (rule, _name, one) => {
  expect(RULES[rule](one.input as never)).toEqual(expectedBy(one));
});
