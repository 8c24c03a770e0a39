import { expect, test } from "vitest";
import { fileDiffs, fileList, type FileDiff } from "../../src/shared/filediff";

const DIFF = "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n";

function file(given: Partial<FileDiff> = {}): FileDiff {
  return { path: "calc.py", kind: "changed", added: 1, removed: 1, diff: DIFF, ...given };
}

function shown(...files: FileDiff[]): HTMLElement {
  const element = fileList(files);
  document.body.replaceChildren(element);
  return element;
}

test("what is no list of changed files is told apart", () => {
  expect(fileDiffs([file()])).toHaveLength(1);
  for (const other of [[], "calc.py", ["calc.py"], [{ path: "calc.py" }], null]) expect(fileDiffs(other)).toBeUndefined();
});

test("each file is a line with what happened to it, and unfolds to its difference", () => {
  const element = shown(file(), file({ path: "new.txt", kind: "added", added: 2, removed: 0 }));
  expect([...element.querySelectorAll("summary")].map((one) => one.textContent)).toEqual(["Mcalc.py+1 −1", "Anew.txt+2 −0"]);
  const lines = [...(element.querySelector(".difference")?.children ?? [])];
  expect(lines.filter((line) => line.className === "came").map((line) => line.textContent)).toEqual(["+    return a + b\n"]);
  expect(lines.filter((line) => line.className === "went").map((line) => line.textContent)).toEqual(["-    return a - b\n"]);
  expect(lines.filter((line) => line.className === "soft")).toHaveLength(1);
  const places = lines.map((line) => [...line.querySelectorAll(".place")].map((one) => one.getAttribute("data-place")));
  expect(places).toEqual([["", ""], ["1", "1"], ["2", ""], ["", "2"]]);
});

test("what went stands beside what came in its place, as somebody chooses for all files", () => {
  const element = shown(file(), file({ path: "b.py" }));
  const choice = element.querySelector<HTMLButtonElement>(".columns button:last-child");
  const [first, second] = element.querySelectorAll("details");
  if (second !== undefined) second.open = false;
  second?.dispatchEvent(new Event("toggle"));
  choice?.click();
  expect(choice?.getAttribute("aria-pressed")).toBe("true");
  const pairs = [...(first?.querySelectorAll(".pair") ?? [])].map((pair) => [...pair.querySelectorAll(".code")].map((code) => code.textContent));
  expect(pairs).toEqual([[], [" def add(a, b):\n", " def add(a, b):\n"], ["-    return a - b\n", "+    return a + b\n"]]);
  expect(second?.querySelector(".difference")).toBeNull();
  if (second !== undefined) second.open = true;
  second?.dispatchEvent(new Event("toggle"));
  expect(second?.querySelectorAll(".pair")).toHaveLength(3);
  expect(shown(file()).querySelector(".split")).not.toBeNull(); // what comes later is shown so as well
  document.querySelector<HTMLButtonElement>(".columns button")?.click();
  expect(document.querySelector(".split")).toBeNull();
});

test("of many files each is made once somebody unfolds it", () => {
  const element = shown(...Array.from({ length: 500 }, (_, index) => file({ path: `f${index}` })));
  expect(element.querySelectorAll(".difference")).toHaveLength(0);
  const first = element.querySelector("details");
  if (first !== null) first.open = true;
  first?.dispatchEvent(new Event("toggle"));
  expect(element.querySelectorAll(".difference")).toHaveLength(1);
});

test("a long difference is shown in pieces", () => {
  const element = shown(file({ diff: Array.from({ length: 1000 }, (_, index) => `+line ${index}\n`).join("") }));
  expect(element.querySelectorAll(".came")).toHaveLength(400);
  const more = element.querySelector<HTMLButtonElement>("button.db-more");
  expect(more?.textContent).toBe("Show 600 more lines");
  more?.click();
  more?.click();
  expect(element.querySelectorAll(".came")).toHaveLength(1000);
  expect(more?.hidden).toBe(true);
});

test("what is binary, or too long, is said to be", () => {
  const element = shown(file({ added: null, removed: null }), file({ diff: null }), file({ kind: "renamed", was: "old.py" }));
  expect([...element.querySelectorAll("summary")].map((one) => one.textContent)).toEqual(["Mcalc.pybinary", "Mcalc.py+1 −1", "Rcalc.py ← old.py+1 −1"]);
  expect(element.textContent).toContain("Run %dive diff to see it");
});

test("nothing of a file becomes markup", () => {
  const element = shown(file({ path: "<img src=x>", diff: "+<script>alert(1)</script>\n" }));
  expect(element.querySelector("img, script")).toBeNull();
  expect(element.querySelector(".came")?.textContent).toBe("+<script>alert(1)</script>\n");
});
