import { expect, test } from "vitest";
import { diffLines, sideBySide, type DiffLine } from "../../src/shared/difference";

const told = ({ kind, before, after }: DiffLine): string => `${kind} ${before ?? ""}:${after ?? ""}`;

test("lines are numbered by their part, whatever they begin with", () => {
  const text = "diff --git a/q.sql b/q.sql\n--- a/q.sql\n+++ b/q.sql\n@@ -7,3 +7,2 @@ select\n--- so\n-@@ -1 +1 @@\n+++ more\n same\n\\ No newline at end of file\n@@ -20 +19 @@\n-a\n+b\n";
  expect(diffLines(text).map(told)).toEqual(["soft :", "went 7:", "went 8:", "came :7", "same 9:8", "soft :", "soft :", "went 20:", "came :19"]);
  expect(diffLines(text)[1]?.text).toBe("--- so");
});

test("of a file without parts all is told", () => {
  expect(diffLines("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n").map(told)).toEqual(["soft :", "soft :", "soft :"]);
  expect(diffLines("Binary files a/x and b/x differ\n").map(told)).toEqual(["soft :"]);
});

test("an empty line of a part stands in both files", () => {
  expect(diffLines("@@ -1,2 +1,2 @@\n\n-a\n+b").map(told)).toEqual(["soft :", "same 1:1", "went 2:", "came :2"]);
});

test("more that came than went leaves the other side empty, and neither is lost", () => {
  const pairs = sideBySide(diffLines("@@ -1,3 +1,4 @@\n-a\n+b\n+c\n same\n-d\n+e\n"));
  expect(pairs.map((pair) => pair.map((line) => line?.text ?? null))).toEqual([
    ["@@ -1,3 +1,4 @@", "@@ -1,3 +1,4 @@"],
    ["-a", "+b"],
    [null, "+c"],
    [" same", " same"],
    ["-d", "+e"],
  ]);
});
