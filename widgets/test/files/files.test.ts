import { afterEach, beforeEach, expect, test, vi } from "vitest";
import part from "../../src/files";
import type { Files, FileView, WorkspaceView } from "../../src/protocol";
import type { Host } from "../../src/shared/lazypart";
import { Model } from "../../src/shared/model";

function file(path: string, given: Partial<FileView> = {}): FileView {
  return { path, kind: "changed", was: "", added: 1, removed: 1, diff: `@@ -1 +1 @@\n-old ${path}\n+new ${path}\n`, protected: false, ...given };
}

function workspace(files: FileView[], given: Partial<WorkspaceView> = {}): WorkspaceView {
  return { name: "app", kind: "local", folder: "/home/ann/app", total: files.length, added: 3, removed: 1, files, left_out: [], points: [], ...given };
}

let asked: number[] = [];
let standing: [number, number][] = [];
let answer: (told: Files) => void = () => undefined;

const taken = vi.fn<NonNullable<Host["takeOver"]>>();

function begin(): { model: Model; element: HTMLElement } {
  const model = new Model();
  const host = { takeOver: taken, files: (version: number, receive: (told: Files) => void, at = 0, since = 0) => { asked.push(version); standing.push([at, since]); answer = receive; } } as unknown as Host;
  const { element } = part.make(model, host);
  document.body.replaceChildren(element);
  return { model, element };
}

function told(version: number, workspaces: WorkspaceView[] | null, at = 0, since = 0): void {
  answer({ type: "files", view: "", version, at, since, workspaces });
}

beforeEach(() => { asked = []; standing = []; taken.mockReset(); vi.useFakeTimers(); });
afterEach(() => { vi.useRealTimers(); });

test("nothing is shown until a file has changed", () => {
  const { element } = begin();
  expect(asked).toEqual([0]);
  told(0, null);
  expect(element.hidden).toBe(true);
});

test("each file is a line under its workspace, and unfolds to its difference", () => {
  const { element } = begin();
  told(1, [workspace([file("calc.py"), file("new.txt", { kind: "added", removed: 0 })])]);
  expect(element.hidden).toBe(false);
  expect(element.querySelector("summary")?.textContent).toBe("Changed files (2)");
  expect(element.querySelector(".head")?.textContent).toBe("applocal, a copy of /home/ann/app+3 −1");
  expect([...element.querySelectorAll("summary code")].map((one) => one.textContent)).toEqual(["calc.py", "new.txt"]);
  expect(element.querySelector(".came")?.textContent).toBe("+new calc.py\n");
});

test("what is not kept is named with the reason", () => {
  const { element } = begin();
  told(1, [workspace([file("calc.py")], { left_out: [{ path: "big.bin", reason: "too large" }, { path: "pipe", reason: "not a file" }] })]);
  expect([...element.querySelectorAll("p.soft")].map((one) => one.textContent)).toEqual(["Not saved: big.bin (too large), pipe (not a file)"]);
});

test("files are shown as they were at an event, with the lines that put them into a folder and go on from there", () => {
  const { model, element } = begin();
  const points = [{ sequence: 57, told: "calc.py" }, { sequence: 12, told: "begin" }];
  told(1, [workspace([file("calc.py")], { points })]);
  const select = (): HTMLSelectElement => element.querySelector("select") ?? expect.fail("no select");
  expect([...select().options].map((one) => one.text)).toEqual(["the latest event", "event 57: calc.py", "event 12: begin"]);
  select().value = "12";
  select().dispatchEvent(new Event("change"));
  expect(standing).toEqual([[0, 0], [12, 0]]);
  told(1, [workspace([], { points, total: 0 })]); // of before
  expect(element.querySelectorAll("summary code").length).toBe(1);
  told(0, [workspace([], { points, total: 0 })], 12);
  expect(element.hidden).toBe(false);
  expect(element.querySelectorAll("summary code").length).toBe(0);
  expect(select().value).toBe("12");
  expect([...element.querySelectorAll(".at button")].map((one) => one.textContent)).toEqual(["‹", "›", "Copy %dive restore", "Copy %dive fork"]);
  expect([...element.querySelectorAll<HTMLButtonElement>(".at button")].map((one) => one.disabled)).toEqual([true, false, false, false]);
  vi.advanceTimersByTime(60_000);
  model.notify("header");
  expect(standing).toEqual([[0, 0], [12, 0]]);
  select().value = "0";
  select().dispatchEvent(new Event("change"));
  expect(standing).toEqual([[0, 0], [12, 0], [0, 0]]);
});

test("files of now are compared with those of an event, and asked for again as they change", () => {
  const { model, element } = begin();
  const points = [{ sequence: 57, told: "calc.py" }, { sequence: 31, told: "b.py" }, { sequence: 12, told: "begin" }];
  told(1, [workspace([file("calc.py"), file("b.py")], { points })]);
  const select = (): HTMLSelectElement => element.querySelectorAll("select")[1] ?? expect.fail("no select");
  expect([...select().options].map((one) => one.text)).toEqual(["the start", "event 57: calc.py", "event 31: b.py"]);
  select().value = "31";
  select().dispatchEvent(new Event("change"));
  expect(standing.at(-1)).toEqual([0, 31]);
  told(2, [workspace([file("calc.py")], { points })]); // of before
  told(0, [workspace([], { points })], 0, 31);
  expect(element.hidden).toBe(false);
  expect(select().value).toBe("31");
  vi.advanceTimersByTime(1_000);
  model.notify("header");
  expect(standing.at(-1)).toEqual([0, 31]);
  told(0, [workspace([file("new.py")], { points })], 0, 31);
  expect([...element.querySelectorAll("summary code")].map((one) => one.textContent)).toEqual(["new.py"]);
});

test("news are asked for at most once a second, and only while it is unfolded", () => {
  const { model, element } = begin();
  told(1, [workspace([file("calc.py")])]);
  for (let count = 0; count < 20; count += 1) model.notify("header");
  expect(asked).toEqual([0]);
  vi.advanceTimersByTime(1_000);
  expect(asked).toEqual([0, 1]);
  told(1, null);
  vi.advanceTimersByTime(1_000);
  (element as HTMLDetailsElement).open = false;
  model.notify("header");
  vi.advanceTimersByTime(10_000);
  expect(asked).toEqual([0, 1]);
});

test("what somebody has unfolded or folded stays so when files change", () => {
  const { model, element } = begin();
  told(1, [workspace([file("a"), file("b")])]);
  const [first] = element.querySelectorAll<HTMLDetailsElement>(".db-files details");
  if (first !== undefined) first.open = false;
  vi.advanceTimersByTime(1_000);
  model.notify("header");
  told(2, [workspace([file("a"), file("b", { diff: "+otherwise\n" }), file("c")])]);
  expect([...element.querySelectorAll<HTMLDetailsElement>(".db-files details")].map((one) => one.open)).toEqual([false, true, false]);
  expect(element.querySelectorAll("details")[1]?.querySelector(".came")?.textContent).toBe("+otherwise\n");
});

test("files that are not shown are counted", () => {
  const { element } = begin();
  told(1, [workspace([file("a")], { total: 2001, folder: "" })]);
  expect(element.querySelector(".head")?.textContent).toBe("applocal+3 −1");
  expect(element.textContent).toContain("2,000 more files. %dive files lists all files.");
});

test("a protected file is taken over only if it is ticked", async () => {
  const { element } = begin();
  told(1, [workspace([file("calc.py"), file(".git/config", { protected: true })])]);
  const button = (): HTMLButtonElement => [...element.querySelectorAll("button")].find((one) => one.textContent.startsWith("Apply")) ?? expect.fail("no button");
  const tick = element.querySelector<HTMLInputElement>('[aria-label="Apply .git/config"]') ?? expect.fail("no tick");
  expect([button().textContent, tick.checked]).toEqual(["Apply 1 file", false]);
  tick.click();
  expect(button().textContent).toBe("Apply 2 files");
  taken.mockResolvedValueOnce({ type: "ack", id: "1", accepted: true, text: "taken over" });
  button().click();
  expect(taken.mock.lastCall?.[2]).toEqual(["calc.py", ".git/config"]);
  await vi.advanceTimersByTimeAsync(0);
});

test("files are taken over as they are shown, those that are ticked", async () => {
  const { model, element } = begin();
  const points = [{ sequence: 57, told: "calc.py" }, { sequence: 12, told: "begin" }];
  const changed = [file("calc.py"), file("b.txt", { kind: "renamed", was: "a.txt" }), file("new.txt")];
  told(1, [workspace(changed, { points })]);
  const button = (): HTMLButtonElement => [...element.querySelectorAll("button")].find((one) => one.textContent.startsWith("Apply")) ?? expect.fail("no button");
  const tick = (name: string): HTMLInputElement => element.querySelector<HTMLInputElement>(`[aria-label="Apply ${name}"]`) ?? expect.fail("no tick");
  expect(button().textContent).toBe("Apply 3 files");
  tick("new.txt").click();
  expect(button().textContent).toBe("Apply 2 files");
  told(2, [workspace(changed, { points: [{ sequence: 60, told: "calc.py" }, ...points] })]);
  expect([tick("calc.py").checked, tick("new.txt").checked]).toEqual([true, false]);
  taken.mockResolvedValueOnce({ type: "ack", id: "1", accepted: true, text: "taken over into /home/ann/app: calc.py" });
  button().click();
  expect([taken.mock.lastCall, button().disabled]).toEqual([["app", 60, ["calc.py", "b.txt"]], true]);
  await vi.runAllTimersAsync();
  expect([element.querySelector("[role=status]")?.textContent, button().disabled]).toEqual(["taken over into /home/ann/app: calc.py", false]);
  taken.mockResolvedValueOnce({ type: "ack", id: "2", accepted: false, text: "calc.py was changed" });
  button().click();
  await vi.runAllTimersAsync();
  expect(element.querySelector("[role=status]")?.textContent).toBe("Nothing was written: calc.py was changed");
  model.setConnected("detached");
  expect(button().disabled).toBe(true);
});

test("nothing is taken over where there is no folder to take it to, or nobody to do it", () => {
  const { element } = begin();
  told(1, [workspace([file("calc.py")], { folder: "" })]);
  expect(element.textContent).not.toContain("Apply");
});

test("a tree groups several files by folder, and keys approve, leave out and open them", () => {
  const { element } = begin();
  told(1, [workspace([file("src/app/a.py"), file("src/app/b.py"), file("tests/t.py"), file("new.md", { kind: "added" })])]);
  const items = (): HTMLElement[] => [...element.querySelectorAll<HTMLElement>("[role=treeitem]")];
  const names = (): (string | null)[] => items().map((one) => one.getAttribute("aria-label"));
  expect(names()).toEqual([
    "folder src/app", "src/app/a.py, changed, approved", "src/app/b.py, changed, approved", "folder tests", "tests/t.py, changed, approved", "new.md, new, approved",
  ]);
  const press = (key: string): void => { document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })); };
  items()[0]?.focus();
  press("j");
  expect([document.activeElement, items().filter((one) => one.tabIndex === 0)]).toEqual([items()[1], [items()[1]]]);
  press("x");
  expect(names()[1]).toBe("src/app/a.py, changed, left out");
  expect(element.querySelector<HTMLInputElement>('[aria-label="Apply src/app/a.py"]')?.checked).toBe(false);
  expect(element.querySelector(".act")?.textContent).toBe("Apply 3 files3 approved, 1 left out");
  press("j");
  press("Enter");
  expect([...element.querySelectorAll<HTMLDetailsElement>("details")].map((one) => one.open)).toEqual([false, true, false, false]);
  press("k");
  press("a");
  expect(names()[1]).toBe("src/app/a.py, changed, approved");
});

test("changed words and the syntax of a known language are marked, in one column and side by side", () => {
  const diff = "@@ -1,2 +1,2 @@\n def offset(text):\n-    if text.endswith(\"Z\"):  # zone\n+    if text.endswith((\"Z\", \"z\")):  # zone\n";
  const { element } = begin();
  told(1, [workspace([file("times.py", { diff })])]);
  const texts = (selector: string): string[] => [...element.querySelectorAll(selector)].map((one) => one.textContent);
  const check = (): void => {
    expect(texts(".went .words").join("")).toBe("\"Z\"");
    expect(texts(".came .words").join("")).toBe("(\"Z\", \"z\")");
    expect(texts(".s-keyword")).toEqual(expect.arrayContaining(["def", "if"]));
    expect(texts(".came .s-comment")).toEqual(["# zone"]);
  };
  check();
  const button = (name: string): HTMLButtonElement => [...element.querySelectorAll("button")].find((one) => one.textContent === name) ?? expect.fail(name);
  button("Split").click();
  expect(element.querySelector(".split")).not.toBeNull();
  check();
  button("Unified").click();
  expect(element.querySelector(".split")).toBeNull();
  expect(texts(".came")).toEqual(["+    if text.endswith((\"Z\", \"z\")):  # zone\n"]);
});
