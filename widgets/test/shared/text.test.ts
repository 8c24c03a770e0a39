import { expect, test } from "vitest";
import { oneLine, terminalText, visible } from "../../src/shared/text";

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

// The same as tests/text/test_printed.py.
test.each([
  ["a\nb\n", "a\nb"],
  ["\x1b[31mred\x1b[0m \x1b]0;title\x07x\r\n", "red x"],
  [" 10%\r 50%\r100%\ndone\n", "100%\ndone"],
  ["10%\r 50%\r", " 50%"],
  ["\n\n", ""],
])("what a command has printed stands as in a terminal: %j", (text, told) => {
  expect(terminalText(text)).toBe(told);
});
