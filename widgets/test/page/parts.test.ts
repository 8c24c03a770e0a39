// The parts of a file that holds a run: found, checked, and put together again, or said to be damaged or missing.

import { beforeEach, expect, test } from "vitest";
import { checksum, partsOf, joinTexts, withTexts } from "../../src/page/parts";
import { h } from "../../src/shared/dom";

const KIND = "application/vnd.divebook.part";
const TEXT = "aGVsbG8gd29ybGQ=";

function part(name: string, text: string, sum = checksum(text)): HTMLElement {
  return h("script", { type: KIND, "data-name": name, "data-crc32": sum }, text);
}

beforeEach(() => { document.body.replaceChildren(part("run", TEXT), part("texts", "QUJD")); });

test("a checksum is CRC-32, as Python's zlib has it", () => {
  expect([checksum(""), checksum("123456789"), checksum(TEXT)]).toEqual(["00000000", "cbf43926", "297b2937"]);
});

test("sound parts are found by name", () => {
  const { valid: sound, faults } = partsOf(document, ["run", "texts"]);
  expect([...sound]).toEqual([["run", TEXT], ["texts", "QUJD"]]);
  expect(faults.size).toBe(0);
});

test("each changed character, and each changed digit of a checksum, is found", () => {
  for (let place = 0; place < TEXT.length; place += 1) {
    const flipped = TEXT.slice(0, place) + String.fromCharCode(TEXT.charCodeAt(place) ^ 1) + TEXT.slice(place + 1);
    document.body.replaceChildren(part("run", flipped, checksum(TEXT)));
    expect(partsOf(document, ["run"]).faults.get("run")).toBe(`The part "run" is damaged: its checksum is ${checksum(flipped)}, but the file states ${checksum(TEXT)}.`);
  }
  document.body.replaceChildren(part("run", TEXT, checksum(TEXT).replace(/.$/u, "x")));
  expect(partsOf(document, ["run"]).valid.size).toBe(0);
});

test("what is no base64 is damaged although its checksum is right", () => {
  document.body.replaceChildren(part("run", "<script>"));
  expect(partsOf(document, ["run"]).faults.get("run")).toContain("is damaged");
});

test("a part that is missing is said, and one of another kind is none", () => {
  document.body.append(h("script", { type: "text/plain", "data-name": "log" }, TEXT));
  const { valid: sound, faults } = partsOf(document, ["run", "log"]);
  expect([[...sound.keys()], [...faults]]).toEqual([["run"], [["log", 'The part "log" is missing.']]]);
});

test("long texts come back in their places, and what looks like a number of one stays itself", () => {
  const texts = joinTexts(["first", ["\x7f0", " and ", "\x7f'\x7f0"]]);
  expect(texts).toEqual(["first", "first and \x7f0"]);
  expect(withTexts(JSON.stringify({ a: "\x7f1", b: ["\x7f0", "short", "\x7f'\x7f9"], c: 7 }), texts)).toEqual({ a: "first and \x7f0", b: ["first", "short", "\x7f9"], c: 7 });
});

test("a text that is not there, or is made of itself, is refused", () => {
  expect(() => withTexts('{"a": "\\u007f4"}', ["one"])).toThrow("one of its texts is missing");
  expect(() => joinTexts([["\x7f0"]])).toThrow("one of its texts refers to itself");
});
