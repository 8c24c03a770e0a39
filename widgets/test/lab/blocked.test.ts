// Results for the blocked calls of a what-if: what is read from a notebook is checked, and the what-if continues in a cell.

import { beforeEach, expect, test } from "vitest";
import { blockedCalls, codeFor, valueOf, whatIfOf } from "../../src/lab/blocked";

const WHAT_IF = { run: "exec_1", blocked: [{ operation: "op_1", what: "action Pay", step: "pay" }, { operation: "op_2", what: "action Mail", step: "mail" }] };

beforeEach(() => { document.body.replaceChildren(); });

test("data of a notebook are checked", () => {
  expect(whatIfOf({ runs: [], what_if: WHAT_IF })).toEqual(WHAT_IF);
  for (const forged of [null, {}, { what_if: { run: 'x"); import os', blocked: WHAT_IF.blocked } }, { what_if: { run: "exec_1", blocked: [{ operation: 1 }] } }, { what_if: { run: "exec_1", blocked: [] } }]) {
    expect(whatIfOf(forged)).toBeNull();
  }
});

test("a result is JSON if it can be read as JSON, otherwise a text, and becomes Python", () => {
  expect(["7", '{"id": null}', "paid", "{broken"].map(valueOf)).toEqual([7, { id: null }, "paid", "{broken"]);
  const code = codeFor("exec_1", new Map<string, unknown>([["op_1", { id: null, ok: true }], ["op_2", 'a "quoted"\nline']]));
  expect(code).toBe('import divebook\n\ndivebook.show("exec_1").what_if({"results": {"op_1": {"id": None, "ok": True}, "op_2": "a \\"quoted\\"\\nline"}})');
});

test("the form inserts and runs a cell with the results that were entered", () => {
  const notebook = document.createElement("div");
  notebook.className = "jp-Notebook";
  document.documentElement.dataset["divebookGuide"] = "";
  document.body.append(notebook);
  const form = blockedCalls(WHAT_IF);
  notebook.append(form);
  const requests: unknown[] = [];
  document.addEventListener("divebook:insert", (event) => { requests.push((event as CustomEvent).detail); });
  const press = (name: string): void => { [...form.querySelectorAll("button")].find((one) => one.textContent === name)?.click(); };
  expect(form.textContent).toContain("2 calls were blocked");
  expect(form.querySelector<HTMLElement>(".fields")?.hidden).toBe(true);
  press("Enter a result");
  press("Continue the what-if");
  expect(requests).toEqual([]); // there is no result yet
  const [first] = form.querySelectorAll("textarea");
  if (first !== undefined) first.value = "[1, 2]";
  first?.dispatchEvent(new Event("input"));
  expect(form.textContent).toContain("is a list of 2");
  expect(form.querySelector("[role=status]")?.textContent).toBe("1 call without a result stays blocked.");
  press("Continue the what-if");
  expect(requests).toEqual([{ code: codeFor("exec_1", new Map([["op_1", [1, 2]]])), isRun: true }]);
});
