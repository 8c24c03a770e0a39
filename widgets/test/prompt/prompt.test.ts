import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Prompt } from "../../src/prompt/prompt";
import type { Draft, AnswerResult, PromptHost, Question } from "../../src/prompt/types";
import { buttonOf, heads, many, press, question, type } from "./questions";

const NOW = 1_000_000_000;
let sent: unknown[];
let settle: (outcome: AnswerResult) => void;
let now: number;
let away: string;
const drafts = new Map<string, Draft>();

const shownWith = (...questions: Partial<Question>[]): Prompt => promptWith({}, ...questions);

function promptWith(host: Partial<PromptHost>, ...questions: Partial<Question>[]): Prompt {
  const answer = (id: string, response: unknown): Promise<AnswerResult> => {
    sent.push([id, response]);
    return new Promise((resolve) => { settle = resolve; });
  };
  const prompt = new Prompt({ answer, blockedReason: () => away, now: () => now, drafts, ...host });
  document.body.replaceChildren(prompt.element);
  prompt.update(questions.map((given, index) => question({ interrupt_id: `int_${index + 1}`, raised_us: index, ...given })));
  return prompt;
}

beforeEach(() => {
  vi.useFakeTimers();
  sent = [];
  now = NOW;
  away = "";
  drafts.clear();
});

afterEach(() => { vi.useRealTimers(); });

const ANSWERS: [string, Partial<Question>, string, unknown][] = [
  ["approve", { kind: "confirmation" }, "Approve", { approved: true }],
  ["deny", { kind: "confirmation" }, "Deny", { approved: false }],
  ["review: approve", { kind: "agent_review" }, "Approve", { decision: "approve", approved: true }],
  ["review: reject", { kind: "agent_review" }, "Reject", { decision: "reject", approved: false }],
  ["go on", { kind: "checkpoint" }, "Continue", { decision: "continue" }],
  ["raise", { kind: "resource_exhausted", data: { bound: "max_model_calls", used: 20, limit: 20 } }, "Raise", { decision: "raise", data: { to: 40 } }],
  ["raise money", { kind: "resource_exhausted", data: { bound: "max_cost", used: "0.51", limit: "0.50" } }, "Raise", { decision: "raise", data: { to: "1.02" } }],
  ["stop", { kind: "resource_exhausted", data: { bound: "max_tokens", used: 1, limit: 1 } }, "Stop", { decision: "stop" }],
  ["retry", { kind: "outcome_unknown" }, "Repeat the call", { choice: "retry" }],
  ["done", { kind: "outcome_unknown" }, "It went through", { choice: "done", result: null }],
  ["fail", { kind: "outcome_unknown" }, "It did not", { choice: "fail" }],
  ["skip", { kind: "timeout", required: false }, "Skip", {}],
];

test.each(ANSWERS)("each kind sends what the kernel takes: %s", (_name, given, label, response) => {
  shownWith(given);
  buttonOf(document.body, label).click();
  expect(sent).toEqual([["int_1", response]]);
});

test("a comment goes along as text", () => {
  shownWith({ kind: "confirmation" });
  type(document.querySelector("textarea"), "only once");
  buttonOf(document.body, "Approve").click();
  expect(sent).toEqual([["int_1", { approved: true, text: "only once" }]]);
});

test("edited arguments go along, wrong ones do not, undone ones neither", () => {
  shownWith({ kind: "confirmation", data: { parameters: { n: 1 } } });
  buttonOf(document.body, "Edit").click();
  const input = document.querySelector("textarea");
  expect(document.activeElement).toBe(input);
  type(input, "{");
  buttonOf(document.body, "Approve").click();
  expect(sent).toEqual([]);
  expect(document.body.textContent).toContain("Arguments is not valid JSON");
  press(input, "Escape");
  expect(buttonOf(document.body, "Edit")).toBe(document.activeElement);
  buttonOf(document.body, "Edit").click();
  type(document.querySelector("textarea"), '{"n": 2}');
  buttonOf(document.body, "Approve").click();
  expect(sent).toEqual([["int_1", { approved: true, data: { n: 2 } }]]);
});

test("a schema makes the arguments' form typed", () => {
  const schema = { type: "object", properties: { n: { type: "integer", maximum: 5 } } };
  shownWith({ kind: "confirmation", data: { parameters: { n: 1 } }, schema });
  buttonOf(document.body, "Edit").click();
  type(document.querySelector("input[type=number]"), "9");
  buttonOf(document.body, "Approve").click();
  expect(sent).toEqual([]);
  expect(document.body.textContent).toContain("N must be at most 5.");
});

test("arguments that the schema wants as a part are shown, edited and sent as that part", () => {
  const schema = { type: "object", properties: { parameters: { type: "object" } }, required: ["parameters"], additionalProperties: false };
  const given = { kind: "confirmation" as const, data: { action: "Mail.Send", parameters: { n: 1 } }, schema };
  shownWith(given);
  buttonOf(document.body, "Edit").click();
  expect(document.querySelector("textarea")?.value).toBe('{\n  "n": 1\n}');
  type(document.querySelector("textarea"), '{"n": 2}');
  shownWith(given);
  expect(document.querySelector("textarea")?.value).toBe('{\n  "n": 2\n}');
  buttonOf(document.body, "Approve").click();
  expect(sent).toEqual([["int_1", { approved: true, data: { parameters: { n: 2 } } }]]);
});

test("arguments stand on lines of their own, and nothing can be taken for another value", () => {
  const parameters = { path: "src/a.py", count: 2, size: "2", note: "", name: " x", text: "one\n\u202etwo\n", to: ["a"] };
  shownWith({ kind: "confirmation", data: { tool: "edit", hints: { destructive: true, read_only: false }, parameters } });
  const rows = [...document.querySelectorAll(".values dd")].map((row) => row.textContent);
  expect(rows).toEqual(["src/a.py", "2", '"2"', '""', '" x"', "one\n\\u202etwo\n", '[\n  "a"\n]']);
  expect(document.querySelector("dl:not(.values)")?.textContent).toBe("TooleditHintsdestructive, not read only");
});

test("an answer that stands already needs no mark, and cannot become none", () => {
  const schema = { type: "string", enum: ["a", "b", "c", "d", "e"], default: "b", title: "Which" };
  shownWith({ schema });
  expect(document.querySelector(".star")).toBeNull();
  expect([...(document.querySelector("select")?.options ?? [])].map((option) => option.textContent)).toEqual(["a", "b", "c", "d", "e"]);
  shownWith({ schema: { ...schema, default: undefined } });
  expect(document.querySelector(".star")).not.toBeNull();
  expect(document.querySelector("option")?.textContent).toBe("Choose…");
});

test("a card says in whole minutes for how long it has been waiting", () => {
  const at = (minutes: number): string | null | undefined => {
    shownWith({ raised_us: NOW - minutes * 60_000_000 });
    return document.querySelector(".clock")?.textContent;
  };
  expect([0.5, 1.9, 59, 60, 47 * 60, 49 * 60].map(at)).toEqual(["asked just now", "asked 1 min ago", "asked 59 min ago", "asked 1 h ago", "asked 47 h ago", "asked 2 days ago"]);
});

test("a changed text is sent as a review's data", () => {
  shownWith({ kind: "agent_review", data: { output: "old" } });
  buttonOf(document.body, "Edit").click();
  type(document.querySelector("textarea"), "new");
  expect(buttonOf(document.body, "Approve").hidden).toBe(true);
  buttonOf(document.body, "Send changes").click();
  expect(sent).toEqual([["int_1", { decision: "modify", approved: false, data: "new" }]]);
});

test("a text answers; nothing does not", () => {
  shownWith({});
  buttonOf(document.body, "Answer").click();
  expect(sent).toEqual([]);
  expect(document.body.textContent).toContain("Your answer needs an answer.");
  type(document.querySelector("textarea"), "MIT");
  buttonOf(document.body, "Answer").click();
  expect(sent).toEqual([["int_1", { text: "MIT" }]]);
});

test("a value that a schema asks for is sent as it is", () => {
  shownWith({ schema: { type: "integer", title: "Port" } });
  type(document.querySelector("form input"), "80");
  press(document.querySelector("form input"), "Enter");
  expect(sent).toEqual([["int_1", 80]]);
});

test("Enter in a field never approves anything", () => {
  shownWith({ kind: "confirmation", data: { parameters: { n: 1 } }, schema: { type: "object", properties: { n: { type: "integer" } } } });
  buttonOf(document.body, "Edit").click();
  press(document.querySelector("form input"), "Enter");
  press(document.querySelector("form textarea"), "Enter", { ctrlKey: true });
  expect(sent).toEqual([]);
});

test("Enter begins a line in a long text, Ctrl+Enter sends it", () => {
  shownWith({});
  type(document.querySelector("textarea"), "MIT");
  press(document.querySelector("textarea"), "Enter");
  expect(sent).toEqual([]);
  press(document.querySelector("textarea"), "Enter", { ctrlKey: true });
  expect(sent).toEqual([["int_1", { text: "MIT" }]]);
});

test("an answer is sent once; a refusal is shown and what was typed stays", async () => {
  shownWith({});
  type(document.querySelector("textarea"), "MIT");
  buttonOf(document.body, "Answer").click();
  buttonOf(document.body, "Answer").click();
  expect(sent).toHaveLength(1);
  expect(document.querySelector(".status")?.textContent).toBe("Sending…");
  settle({ accepted: false, text: "it was already answered by bob" });
  await vi.advanceTimersByTimeAsync(0);
  expect(document.querySelector(".status")?.textContent).toBe("it was already answered by bob");
  expect(document.querySelector("textarea")?.value).toBe("MIT");
  expect(buttonOf(document.body, "Answer").hasAttribute("aria-disabled")).toBe(false);
});

test("after an answer the focus goes to the next question, and who answered is told", async () => {
  const prompt = shownWith({ question: "One", kind: "confirmation" }, { question: "Two" });
  buttonOf(document.body, "Approve").focus();
  buttonOf(document.body, "Approve").click();
  settle({ accepted: true, text: "" });
  await vi.advanceTimersByTimeAsync(0);
  expect(document.activeElement).toBe(heads()[1]);
  expect(document.querySelector("textarea")?.disabled).toBe(true);
  prompt.update([
    question({ interrupt_id: "int_1", question: "One", kind: "confirmation", status: "resolved", response: { approved: true, text: "fine" }, became: "approved: fine", answered_by: "ada", answered_us: NOW }),
    question({ interrupt_id: "int_2", question: "Two" }),
  ]);
  expect(heads()).toHaveLength(1);
  expect(document.querySelector(".closed li")?.textContent).toMatch(/✓ApprovalOneapproved: fine by ada, .*\d\d:\d\d/);
  expect(document.activeElement).toBe(heads()[0]);
});

test("a new question does not take the focus or what is being typed", () => {
  const prompt = shownWith({});
  const input = document.querySelector("textarea");
  input?.focus();
  type(input, "half a sen");
  prompt.update([question(), question({ interrupt_id: "int_2", raised_us: 2 })]);
  expect(document.activeElement).toBe(input);
  expect(input?.isConnected).toBe(true);
  expect(input?.value).toBe("half a sen");
  expect(document.querySelector(".db-hidden")?.textContent).toBe("New question: Which licence?");
});

test("what was begun survives the view", () => {
  const given = { kind: "confirmation" as const, data: { parameters: { n: 1 } } };
  shownWith(given).destroy();
  shownWith(given);
  buttonOf(document.body, "Edit").click();
  const [edited, comment] = document.querySelectorAll("textarea");
  type(edited ?? null, "{bad");
  type(comment ?? null, "because");
  shownWith(given);
  expect([...document.querySelectorAll("textarea")].map(({ value }) => value)).toEqual(["{bad", "because"]);
});

test("each card that stands elsewhere has a way to it", () => {
  const prompt = promptWith({ awaitsPlace: () => true }, { kind: "confirmation", question: "Run save_note?", data: { agent: "fixer", parameters: { n: 38, m: 1 } } }, { question: "Which?" }, ...many(3));
  const [places, ways] = [["int_1", "int_2", "int_3", "int_4", "int_5"].map((id) => ({ id, place: document.createElement("div") })), (): string[] => [...document.querySelectorAll(".go")].map((go) => go.textContent)];
  expect(ways()).toEqual([""]);
  for (const { id, place } of places.slice(0, 2)) {
    document.body.append(place);
    prompt.place(id, place);
    if (id === "int_1") expect(ways()).toEqual(["Go to question"]);
  }
  expect(ways()).toEqual(["Run save_note? n=38 (fixer)Which?"]);
  buttonOf(document.body, "Which?").click();
  expect(places[1]?.place.contains(document.activeElement)).toBe(true);
  for (const { id, place } of places) prompt.place(id, place);
  expect(ways()).toEqual(["Run save_note? n=38 (fixer)Which?Question 1and 2 more questions"]);
  prompt.gather();
  expect(ways()).toEqual([""]);
});

test("a card appears once, at its place or in the list, and does not move before a person leaves that part of the page", () => {
  const prompt = promptWith({ awaitsPlace: ({ interrupt_id: id }) => id !== "int_3" }, {}, {}, {});
  const place = document.createElement("div");
  document.body.append(place);
  const shown = (where: ParentNode): (string | undefined)[] => [...where.querySelectorAll<HTMLElement>("article.card")].map((card) => card.dataset["question"]);
  expect([shown(prompt.element), shown(place)]).toEqual([["int_3@"], []]);
  prompt.place("int_1", place);
  prompt.place("int_3", place); // a person sees it in the list
  expect([shown(prompt.element), shown(place)]).toEqual([["int_3@"], ["int_1@"]]);
  vi.advanceTimersByTime(2000); // nothing has placed the second one
  prompt.place("int_2", place);
  expect([shown(prompt.element), shown(place)]).toEqual([["int_3@", "int_2@"], ["int_1@"]]);
  prompt.gather();
  expect(shown(prompt.element)).toHaveLength(3);
  document.querySelector<HTMLElement>("[data-question='int_2@'] textarea")?.focus();
  for (const id of ["int_1", "int_2", "int_3"]) prompt.place(id, place);
  expect([shown(prompt.element), shown(place)]).toEqual([["int_2@"], ["int_1@", "int_3@"]]);
});

test("the time that is left counts down, and then nothing can be sent", () => {
  shownWith({ expires_us: NOW + 90_000_000 });
  expect(document.querySelector(".clock")?.textContent).toBe("1 min 30 s left");
  now += 80_000_000;
  vi.advanceTimersByTime(1000);
  expect(document.querySelector(".clock.urgent")?.textContent).toBe("10 s left");
  now += 10_000_000;
  vi.advanceTimersByTime(1000);
  expect(document.querySelector(".clock")?.textContent).toBe("time is up");
  buttonOf(document.body, "Answer").click();
  expect(sent).toEqual([]);
  expect(document.querySelector("textarea")?.disabled).toBe(true);
});

test("a question that is settled is a line with a sign: a cross where somebody said no", () => {
  const settled: [Partial<Question>, string, string][] = [
    [{ status: "expired", became: "expired without an answer" }, "◷", "expired without an answer"],
    [{ status: "resolved", kind: "confirmation", response: { approved: false, text: "too dear" }, became: "denied: too dear", answered_by: "mara" }, "✕", "denied: too dear by mara"],
    [{ status: "resolved", kind: "outcome_unknown", response: { choice: "fail" }, became: "it did not go through" }, "✕", "it did not go through"],
    [{ status: "resolved", response: { text: "MIT" }, became: "MIT", answered_by: "ada" }, "✓", "MIT by ada"],
    [{ status: "cancelled", became: "withdrawn" }, "◼", "withdrawn"],
  ];
  shownWith(...settled.map(([given]) => given));
  const lines = [...document.querySelectorAll(".closed li")].map((line) => [line.querySelector(".sign")?.textContent, line.querySelector(".answer")?.textContent]);
  expect(lines.reverse()).toEqual(settled.map(([, sign, words]) => [sign, words]));
  expect(document.querySelector(".closed summary")?.textContent).toBe("5 closed questions");
});

test("what is wrong is marked until it is filled", () => {
  shownWith({ schema: { type: "object", properties: { name: { type: "string" }, size: { type: "integer" } }, required: ["name", "size"] } });
  buttonOf(document.body, "Answer").click();
  const wrong = (): string[] => [...document.querySelectorAll(".error, .status")].map((part) => part.textContent).filter((text) => text !== "");
  expect(wrong()).toEqual(["Name needs an answer.", "Size needs an answer.", "Not sent. Correct the marked fields."]);
  type(document.querySelector("textarea"), "wheel");
  expect(wrong()).toEqual(["Size needs an answer.", "Not sent. Correct the marked fields."]);
  type(document.querySelector(".card input"), "3");
  expect(wrong()).toEqual([]);
  buttonOf(document.body, "Answer").click();
  expect(sent).toEqual([["int_1", { name: "wheel", size: 3 }]]);
});

test("a call of unknown outcome is shown by its arguments, and no button stands out", () => {
  shownWith({ kind: "outcome_unknown", question: "Did the call to Pay go through?", message: "The kernel stopped after it began.", data: { parameters: { action_name: "Pay", params: { amount: 5, to: "Ann" } }, choices: ["retry"] } });
  expect(document.querySelector(".seen")?.textContent).toBe("The callCallPayAmount5ToAnn");
  expect(document.querySelectorAll(".primary")).toHaveLength(0);
  expect([...document.querySelectorAll(".actions button:not([hidden])")].map((one) => one.textContent)).toEqual(["✓ It went through", "✕ It did not. Fail the step", "↻ Repeat the call"]);
  shownWith({});
  expect(document.querySelector(".primary")?.textContent).toBe("✓ Answer");
});

test("one answer is given to all of a kind once somebody has seen which those are", async () => {
  const about = (name: string): Partial<Question> => ({ kind: "confirmation", question: `Delete ${name}?`, alike: "deletions", data: { tool: "delete", parameters: { name } } });
  shownWith(about("a"), about("b"), { question: "Which?" }, about("c"));
  const offer = [...document.querySelectorAll<HTMLButtonElement>(".to-all")].filter((one) => !one.hidden);
  expect(offer.map((one) => one.textContent)).toEqual(["Answer all 3 similar questions …"]);
  type(document.querySelector("textarea"), "old files");
  offer[0]?.click();
  expect([...document.querySelectorAll(".all li")].map((line) => line.textContent)).toEqual(["Delete a? name=a", "Delete b? name=b", "Delete c? name=c"]);
  expect(sent).toEqual([]);
  buttonOf(document.body, "Approve 3").click();
  expect(sent).toEqual(["int_1", "int_2", "int_4"].map((id) => [id, { approved: true, text: "old files" }]));
  await vi.advanceTimersByTimeAsync(0);
});

test("no answer is offered for all if the kernel, or an older one, sends no key", () => {
  for (const alike of ["", undefined as unknown as string]) {
    shownWith({ question: "Delete a?", alike }, { question: "Delete b?", alike });
    expect([...document.querySelectorAll<HTMLButtonElement>(".to-all")].filter((one) => !one.hidden)).toEqual([]);
  }
});

test("changed arguments and rules are given to no other call", () => {
  const about = (name: string): Partial<Question> => ({ kind: "confirmation", alike: "deletions", data: { tool: "delete", parameters: { name }, offers: { scopes: ["run"] } } });
  shownWith(about("a"), about("b"));
  buttonOf(document.body, "Edit").click();
  buttonOf(document.body, "Answer all").click();
  buttonOf(document.body, "Approve 2").click();
  expect(sent).toEqual([["int_1", { approved: true, data: { name: "a" } }], ["int_2", { approved: true }]]);
});

test("a number chooses an option, or goes to a button, and sends nothing", () => {
  shownWith({ schema: { enum: ["keep", "drop"] } });
  press(heads()[0], "2");
  expect([...document.querySelectorAll<HTMLInputElement>(".card input")].map((one) => one.checked)).toEqual([false, true]);
  shownWith({ kind: "confirmation" });
  press(heads()[0], "2");
  expect(document.activeElement?.textContent).toBe("✕ Deny");
  press(document.querySelector("textarea"), "1");
  expect(document.activeElement?.textContent).toBe("✕ Deny");
  expect(sent).toEqual([]);
});

test("the default that will be used is told beside the time that is left", () => {
  shownWith({ expires_us: NOW + 90_000_000, fallback: "keep" });
  expect(document.querySelector(".clock")?.textContent).toBe("default answer in 1 min 30 s: keep");
});

test("hostile texts are text, and long ones are cut", () => {
  const evil = "<img src=x onerror=alert(1)>\u202e\x1b[31m";
  shownWith({ question: evil, message: "x".repeat(5_000_000), path: evil, step: evil, data: { [evil]: evil, line: "y".repeat(5_000_000) } });
  expect(document.querySelector("img")).toBeNull();
  expect(document.body.textContent).toContain("\\u202e\\x1b[31m");
  expect(document.body.textContent.length).toBeLessThan(50_000);
});

test("where nothing can be sent buttons are off, and the sentence how to go on stands beside them", () => {
  const prompt = shownWith({ kind: "confirmation" });
  type(document.querySelector("textarea"), "only once");
  away = "Detached: run the cell again.";
  prompt.showStatus();
  expect(buttonOf(document.body, "Approve").getAttribute("aria-disabled")).toBe("true");
  expect(document.querySelector(".status")?.textContent).toBe(away);
  buttonOf(document.body, "Approve").click();
  expect(sent).toEqual([]);
  away = "";
  prompt.showStatus();
  expect(document.querySelector(".status")?.textContent).toBe("");
  buttonOf(document.body, "Approve").click();
  expect(sent).toEqual([["int_1", { approved: true, text: "only once" }]]);
});

test("a card that is opened later says it as well", () => {
  away = "Detached: run the cell again.";
  shownWith(...many(5));
  heads()[3]?.click();
  expect(document.querySelectorAll(".card.open .status")[1]?.textContent).toBe(away);
});
