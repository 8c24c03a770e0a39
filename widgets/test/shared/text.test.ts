import { expect, test } from "vitest";
import { visible } from "../../src/shared/text";

// All other rules for texts are tested in test/cases. JSON files cannot hold half a character.
test("lone surrogates become visible, pairs stay", () => {
  expect(visible("\ud800x 🦆 \udc00")).toBe("\\ud800x 🦆 \\udc00");
});
