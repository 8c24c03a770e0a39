// What an approval may say of calls to come.

import { afterEach, beforeEach, expect, test } from "vitest";

import { ApprovalRuleForm } from "../../src/prompt/rule";
import { answerForm } from "../../src/prompt/kinds";
import { question } from "./questions";

const OFFERS = { scopes: ["run", "always"], expires_in: 86_400 };
const SCHEMA = { type: "object", properties: { parameters: { type: "object" }, rule: { type: "object" } } };
const ASKED = question({ kind: "confirmation", data: { tool: "fetch", parameters: { url: "https://a.b/*", n: 1 }, offers: OFFERS }, schema: SCHEMA });

let card: ReturnType<typeof answerForm>;

function show(draft = {}): void {
  card = answerForm(ASKED, draft);
  document.body.replaceChildren(...card.parts);
}

function choose(label: string): void {
  const select = document.querySelector("select");
  const option = [...(select?.options ?? [])].find((one) => one.textContent.includes(label));
  if (select === null || option === undefined) throw new Error(`there is no choice ${label}`);
  select.value = option.value;
  select.dispatchEvent(new Event("input", { bubbles: true }));
}

function pressed(label: string): unknown {
  return card.actions.find((action) => action.label === label)?.response();
}

beforeEach(() => { show(); });
afterEach(() => { document.body.replaceChildren(); });

test("nothing is said of other calls unless somebody says it", () => {
  expect(pressed("Approve")).toEqual({ approved: true });
  choose("in this run");
  expect(pressed("Approve")).toEqual({ approved: true, data: { rule: { scope: "run" } } });
  expect(pressed("Deny")).toEqual({ approved: false });
});

test("a rule for every run says for how long", () => {
  choose("for a day");
  expect(pressed("Approve")).toEqual({ approved: true, data: { rule: { scope: "always", expires_in: 86_400 } } });
});

test("what was chosen survives the view", () => {
  choose("for an hour");
  show(card.draft());
  expect(pressed("Approve")).toEqual({ approved: true, data: { rule: { scope: "always", expires_in: 3600 } } });
});

test("arguments can be widened where a rule is wanted, and a text with a star stands for itself until then", () => {
  const begun = { choice: "Allow them in this run", patterns: { url: "https://a.b/**", n: 1 } };
  const standing = new ApprovalRuleForm(ASKED, begun);
  expect(standing.rule()).toEqual({ scope: "run", arguments: { url: "https://a.b/**", n: 1 } });
  const exact = { url: { equals: "https://a.b/*" }, n: 1 };
  expect(answerForm(ASKED, {}).draft()["standing"]).toEqual({ choice: "Ask every time", patterns: exact });
});

test("a rule is about the arguments as they were changed", () => {
  choose("in this run");
  const hint = document.querySelector<HTMLElement>(".standing > :last-child");
  expect(hint?.hidden).toBe(false);
  document.querySelector<HTMLButtonElement>("button")?.click();
  expect(hint?.hidden).toBe(true);
  const edited = { url: "https://a.b/*", n: 1 };
  expect(pressed("Approve")).toEqual({ approved: true, data: { parameters: edited, rule: { scope: "run" } } });
});

test("a question that offers no rule asks for none", () => {
  expect(new ApprovalRuleForm(question({ kind: "confirmation" }), undefined).element.textContent).toBe("");
});
