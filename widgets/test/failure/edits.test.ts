// Lines around a failure against the cell as it is now.

import { expect, test } from "vitest";
import { editsSince } from "../../src/failure/edits";

const RAN = ["@step", "def parse(row):", '    return row["b"]', "", "@step"].map((text, place) => ({ number: place + 4, text }));
const above = ["a = 1", "b = 2", "c = 3"];
const shown = (...lines: string[]): string[] | null => editsSince(RAN, lines.join("\n"))?.map(({ kind, number, text }) => `${number} ${{ same: " ", removed: "-", added: "+" }[kind]}${text}`) ?? null;
const texts = RAN.map(({ text }) => text);

test("lines that stand where they stood, or further down, were not edited", () => {
  expect(shown(...above, ...texts)).toBeNull();
  expect(shown("d = 4", ...above, ...texts, "more")).toBeNull();
});

test("a line that is another one is shown as it was and as it is", () => {
  expect(shown(...above, "@step", "def parse(row):", '    return row["a"]', "", "@step")).toEqual(
    ["4  @step", "5  def parse(row):", '6 -    return row["b"]', '6 +    return row["a"]', "7  ", "8  @step"],
  );
});

test("lines may have come, and gone", () => {
  expect(shown(...above, "@step", "def parse(row):", "    row = clean(row)", '    return row["b"]', "", "@step")).toEqual(
    ["4  @step", "5  def parse(row):", "6 +    row = clean(row)", '7      return row["b"]', "8  ", "9  @step"],
  );
  expect(shown(...above, "@step", "def parse(row):", "", "@step")).toEqual(["4  @step", "5  def parse(row):", '6 -    return row["b"]', "6  ", "7  @step"]);
});

test("of a cell that holds none of them all are gone", () => {
  expect(shown("x")?.every((line) => line.includes(" -"))).toBe(true);
});

test("a secret that the log left out is no edit, and a long line is compared as far as it was kept", () => {
  const ran = [{ number: 1, text: 'key = "[redacted]"' }, { number: 2, text: "x".repeat(200) }];
  expect(editsSince(ran, `key = "sk-1"\n${"x".repeat(400)}`)).toBeNull();
});
