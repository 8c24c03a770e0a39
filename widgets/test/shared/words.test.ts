// What the log names is shown in the words of people, and times on their own clock with its zone.

import { expect, test } from "vitest";
import { ago, countdown, exactMoment, moment } from "../../src/shared/times";
import { eventName } from "../../src/shared/words";

const MOMENT = Date.UTC(2026, 10, 19, 16, 20, 3, 45) * 1000;

test("types of events are words of people", () => {
  const types = ["execution_started", "operation_completed", "iteration_failed", "interrupt_raised", "path_branched", "state_mutated", "step_caught"];
  expect(types.map(eventName)).toEqual(["run started", "call completed", "item failed", "question asked", "branches started", "variables changed", "step caught"]);
});

test("moments have a zone, and a day unless it is today", () => {
  expect(moment(MOMENT, new Date(MOMENT / 1000))).toMatch(/^\d\d:\d\d \S+$/);
  expect(exactMoment(MOMENT, new Date(MOMENT / 1000))).toMatch(/^\d\d:\d\d:03\.045 \S+$/);
  expect(exactMoment(MOMENT, new Date("2027-05-01"))).toMatch(/Nov 2026, \d\d:\d\d:03\.045 \S+$/);
});

test("what is left and what is past are counted in units of people", () => {
  expect([400_000, 90e6, 7_300e6, 50 * 3600e6].map(countdown)).toEqual(["1 s", "1 min 30 s", "2 h 01 min", "2 days"]);
  expect([5e6, 90e6, 7_300e6, 50 * 3600e6].map(ago)).toEqual(["just now", "1 min ago", "2 h ago", "2 days ago"]);
});
