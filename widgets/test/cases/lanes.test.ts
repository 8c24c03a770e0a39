// Lanes of a timeline, which Python draws too: one table of cases for both sides (tests/widgets/test_same_rules.py).

import { expect, test } from "vitest";
import { Spans } from "../../src/shared/spans";
import { Layout } from "../../src/timeline/layout";
import { block, type Row } from "../blocks";
import { casesOf, expectedBy } from "./cases";
import cases from "./lanes.json";

/** Return the lanes of some spans from top to bottom: the name of each, and the id and row of each of its bars. */
function lanesOf(given: Omit<Row, "id">[]): unknown {
  const spans = new Spans();
  spans.add(block(given.map((row, id) => ({ kind: "operation", step: "s", ...row, id }))), given.length, 0);
  const layout = new Layout();
  layout.update(spans, 0);
  const bands = layout.bands.map(({ name, top }, index) => ({ name, top, index })).sort((one, other) => one.top - other.top);
  const ids = given.map((_, id) => id);
  return bands.map(({ name, index }) => [name, ids.filter((id) => layout.band[id] === index).map((id) => [id, layout.lane[id]])]);
}

test.each(casesOf(cases))("%s: %s", (_rule, _name, one) => {
  expect(lanesOf(one.input as Omit<Row, "id">[])).toEqual(expectedBy(one));
});
