import { expect, test } from "vitest";
import { oneLine, visible } from "../../src/shared/text";

test("control characters and direction marks become visible", () => {
  expect(visible("a\x1b[31mb\u202ec\x07")).toBe("a\\x1b[31mb\\u202ec\\x07");
});

test("lone surrogates become visible, pairs stay", () => {
  expect(visible("\ud800x 🦆 \udc00")).toBe("\\ud800x 🦆 \\udc00");
});

test("line ends and tabs stay", () => {
  expect(visible("a\r\n\tb")).toBe("a\n\tb");
});

test("a text of several lines is cut to one", () => {
  expect(oneLine("first line\nsecond", 14)).toBe("first line se…");
  expect(oneLine("  short\n", 14)).toBe("short");
});
