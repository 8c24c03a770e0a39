// How what was sent with a request is compared with what was sent before.

import { expect, test } from "vitest";
import type { ConversationPart } from "../../src/protocol";
import { differences } from "../../src/turn/sentmessages";
import { spoken } from "./spoken";

const [A, B, C, D] = ["a", "b", "c", "d"].map((name) => spoken("user", name)) as [ConversationPart, ConversationPart, ConversationPart, ConversationPart];

test.each<[string, ConversationPart[], ConversationPart[], [string, number][]]>([
  ["grows", [A], [A, B], [["same", 1], ["added", 1]]],
  ["is shortened at its beginning", [A, B, C], [C], [["removed", 2], ["same", 1]]],
  ["is the same", [A, B], [A, B], [["same", 2]]],
  ["repeats itself", [A, A], [A, A, A], [["same", 2], ["added", 1]]],
  ["has another text in one place", [A, B, C], [A, D, C], [["same", 1], ["changed", 2], ["same", 1]]],
  ["is another", [A, B], [spoken("system", "s"), C, D], [["removed", 2], ["added", 3]]],
  ["begins", [], [A], [["added", 1]]],
])("a conversation that %s", (_name, before, now, told) => {
  expect(differences(before, now).map(({ kind, parts }) => [kind, parts.length])).toEqual(told);
});
