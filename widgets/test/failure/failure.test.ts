// The card of what failed: what it says, which failure it shows, and what its buttons ask for.

import axe from "axe-core";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import part from "../../src/failure";
import type { FailureReport, FailureView, Header, Way } from "../../src/protocol";
import type { View } from "../../src/shared/dom";
import { containKeys } from "../../src/shared/keys";
import type { Host } from "../../src/shared/lazypart";
import { Model } from "../../src/shared/model";
import { provideNavigation, type CellHandlers, type CellLine } from "../../src/shared/celllinks";
import { delta, HEADER, type Row, welcome } from "../blocks";
import { buttonOf } from "../prompt/questions";

const ROWS: Row[] = [{ id: 0, start: 0, status: "failed", end: 9 }, { id: 1, start: 0, status: "failed", end: 5 }, { id: 2, start: 0, status: "failed", end: 6 }];
const WAYS: Way[] = [
  { name: "fix", label: "Fix and continue from here", told: "Continuing uses parse as it is now.", reused: "1,401 calls", live: "", cost: null, took_us: null, ready: true },
  { name: "again", label: "Run again", told: "", reused: "", live: "everything", cost: 0.84, took_us: 27_000_000, ready: true },
  { name: "replay", label: "Open replay here", told: "", reused: "", live: "", cost: null, took_us: null, ready: true },
];

function failure(more: Partial<FailureView> = {}): FailureView {
  return {
    id: 1, sequence: 12, failed_us: 1_700_000_000_000_000, error_type: "KeyError", message: "'label'", means: "answer has no key 'label'. It has: category.", step: "parse", path: "main", item: "rows[1342]", attempt: 1,
    called: "parse", arguments: [{ name: "answer", text: "{'category': 'billing'}" }, { name: "row", text: "7" }], place: "Cell [5], line 4", cell: "abc", line: 4,
    source: [{ number: 3, text: "def parse(answer, row):" }, { number: 4, text: '    return answer["label"]' }], traceback: "Cell [5], line 4, in parse", handled: "", same: 3, ...more,
  };
}

const NOWHERE: CellHandlers = { go: () => undefined, read: () => null, rerun: () => undefined, insert: () => undefined };
let model: Model;
let view: View;
let root: HTMLElement;
let host: Host;

beforeEach(() => {
  model = new Model(() => 0);
  root = document.createElement("div");
  containKeys(root);
  document.body.replaceChildren(root);
  document.documentElement.lang = "en";
  const ack = { type: "ack", id: "", accepted: false, text: "it goes on already" } as const;
  host = { root, control: vi.fn(() => Promise.resolve(ack)), replay: vi.fn() } as unknown as Host;
});

afterEach(() => { view.destroy(); });

function begin(report: Partial<FailureReport>, header: Partial<Header> = {}): void {
  model.setConnected("connected");
  const failures = { total: report.shown?.length ?? 0, kept: "1,398 items and 1,401 calls", shown: [], ...report };
  model.welcome(welcome(ROWS, { failures, header: { ...HEADER, status: "failed", live: false, commands: ["fix", "again"], ways: WAYS, ...header } }));
  view = part.make(model, host);
  root.append(view.element);
}

const find = (selector: string): HTMLElement => root.querySelector<HTMLElement>(selector) ?? expect.fail(`no ${selector}`);
const shown = (selector: string): string => find(selector).textContent;
const press = (key: string): void => { root.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })); };

test("a failure says class, message, place, arguments, line and what is kept", () => {
  begin({ shown: [failure()] });
  expect(find("details").hasAttribute("open")).toBe(true);
  expect(shown(".err")).toBe("✕ KeyError: 'label'");
  expect(shown(".head .soft")).toBe("3 failures with the same error");
  expect([...root.querySelectorAll("dt")].map((term) => term.textContent)).toEqual(["Meaning", "Where", "Arguments", "Saved"]);
  expect(shown("dd")).toBe("answer has no key 'label'. It has: category.");
  expect(root.querySelectorAll("dd")[1]?.textContent).toMatch(/^step parse, item rows\[1342\], at .*14 Nov 2023.*Show in timeline$/);
  expect(shown("pre.args")).toBe("answer = {'category': 'billing'}\nrow = 7");
  expect(shown(".src .at")).toBe('4✕    return answer["label"]');
  expect(shown(".trace summary")).toBe("Traceback");
  expect(find(".trace").hasAttribute("open")).toBe(false);
  expect(find(".seg").hidden).toBe(true);
});

test("each way says what is reused and live, and what that costs, before it is pressed", async () => {
  begin({ shown: [failure()] });
  const rows = [...root.querySelectorAll(".ways .row")].map((row) => row.textContent);
  expect(rows[0]).toBe("Fix and continue from hereContinuing uses parse as it is now. Reused: 1,401 calls.");
  expect(rows[1]).toBe("Run again New calls: everything, about $0.84 and 27.0 s.");
  expect(root.querySelectorAll(".ways .primary")).toHaveLength(1);
  buttonOf(root, "Run again").click();
  expect(host.control).toHaveBeenCalledWith("again");
  await vi.waitFor(() => { expect(shown(".notice")).toBe("it goes on already"); });
  buttonOf(root, "Open replay here").click();
  expect(host.replay).toHaveBeenCalledWith(12);
});

test("continuing shows its plan first, and goes on once somebody agrees", async () => {
  const plan = "to go on with exec_1 of 'w': 12 operations reused, 3 live, about $0.04\nlive: action parse (step parse)";
  const control = vi.fn((command: string) => Promise.resolve({ type: "ack", id: "", accepted: true, text: command === "plan" ? plan : "" } as const));
  host = { ...host, control };
  begin({ shown: [failure()] });
  expect(find(".sure").hidden).toBe(true);
  buttonOf(root, "Fix and continue from here").click();
  await vi.waitFor(() => { expect(shown(".sure .told")).toBe(plan); });
  expect(document.activeElement).toBe(buttonOf(root, "Continue"));
  buttonOf(root, "Not now").click();
  expect(find(".sure").hidden).toBe(true);
  expect(control.mock.calls).toEqual([["plan"]]);
  buttonOf(root, "Fix and continue from here").click();
  await vi.waitFor(() => { expect(find(".sure").hidden).toBe(false); });
  buttonOf(root, "Continue").click();
  await vi.waitFor(() => { expect(control.mock.calls.at(-1)).toEqual(["fix"]); });
  expect(find(".sure").hidden).toBe(true);
});

test("what needs no plan goes on at once, and why there is none is said", async () => {
  const acks = [{ accepted: true, text: "" }, { accepted: true, text: "" }, { accepted: false, text: "it has other inputs" }];
  const control = vi.fn(() => Promise.resolve({ type: "ack", id: "", ...acks.shift() ?? expect.fail("one too many") } as const));
  host = { ...host, control };
  begin({ shown: [failure()] });
  buttonOf(root, "Fix and continue from here").click();
  await vi.waitFor(() => { expect(control.mock.calls).toEqual([["plan"], ["fix"]]); });
  buttonOf(root, "Fix and continue from here").click();
  await vi.waitFor(() => { expect(shown(".notice")).toBe("it has other inputs"); });
  expect(find(".sure").hidden).toBe(true);
});

test("N and P go from failure to failure and choose its bar; a bar that is chosen shows its failure", () => {
  begin({ total: 3, shown: [failure(), failure({ id: 2, sequence: 14, item: "rows[1377]", message: "'other'" })] });
  expect(shown(".place")).toBe("1 of 3, 2 shown");
  press("n");
  expect([shown(".err"), model.selected]).toEqual(["✕ KeyError: 'other'", 2]);
  press("n");
  expect([shown(".err"), model.selected]).toEqual(["✕ KeyError: 'label'", 1]);
  press("p");
  expect(model.selected).toBe(2);
  model.select(1);
  expect(shown(".err")).toBe("✕ KeyError: 'label'");
});

test("what the run went on from stands folded, until the run fails", () => {
  begin({ shown: [failure({ handled: "skipped" })] }, { status: "running", ways: [] });
  expect(find("details").hasAttribute("open")).toBe(false);
  expect(root.textContent).toContain("The run continued without this item.");
  expect(find(".todo").hidden).toBe(true);
  model.delta(delta([], { total: 3, failures: { total: 1, kept: "", shown: [failure()] }, header: { ...HEADER, status: "failed", ways: WAYS } }));
  expect(find("details").hasAttribute("open")).toBe(true);
});

test("as long as the code is the same the way to fix it leads to the line, where somebody can go there", () => {
  const unready = WAYS.map((way) => ({ ...way, ready: way.name !== "fix" }));
  begin({ shown: [failure()] }, { ways: unready });
  expect(buttonOf(root, "Fix and continue from here").disabled).toBe(true);
  view.destroy();
  view.element.remove();
  const gone: CellLine[] = [];
  provideNavigation({ ...NOWHERE, go: (wanted) => { gone.push(wanted); } });
  begin({ shown: [failure()] }, { ways: unready });
  buttonOf(root, "Edit Cell [5]").click();
  buttonOf(root, "Go to line").click();
  expect(gone).toEqual([{ cell: "abc", line: 4 }, { cell: "abc", line: 4 }]);
  delete document.documentElement.dataset["divebookGuide"];
});

test("lines that were edited since they ran stand beside what they were, where somebody knows the cell", () => {
  let cell = 'def parse(answer, row):\n    return answer["label"]\n';
  provideNavigation({ ...NOWHERE, read: (id) => (id === "abc" ? cell : null) });
  const source = [{ number: 1, text: "def parse(answer, row):" }, { number: 2, text: '    return answer["label"]' }];
  begin({ shown: [failure({ source, line: 2 })] });
  expect(shown(".src .at")).toBe('2✕    return answer["label"]');
  cell = '# by kind\ndef parse(answer, row):\n    return answer["category"]\n';
  find(".divebook-failure").dispatchEvent(new Event("pointerenter"));
  expect(shown(".cap .soft")).toBe("edited since the failure: 1 line");
  expect([...root.querySelectorAll(".src > div")].map((line) => line.textContent)).toEqual([
    "2def parse(answer, row):", '2−    return answer["label"]', '3+    return answer["category"]',
  ]);
  provideNavigation(NOWHERE);
  delete document.documentElement.dataset["divebookGuide"];
});

test("what has failed can be read by everybody", async () => {
  begin({ total: 3, shown: [failure(), failure({ id: 2, sequence: 14 })] });
  const { violations } = await axe.run(root, { rules: { "color-contrast": { enabled: false }, region: { enabled: false } } });
  expect(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
});

test("texts of models and errors are nothing but texts", () => {
  begin({ shown: [failure({ message: "<img src=x onerror=alert(1)>\u202e", item: "<b>", source: [{ number: 4, text: "<script>" }] })] });
  expect(root.querySelector("img, b, script")).toBeNull();
  expect(shown(".err")).toContain("\\u202e");
});
