// The chat of a run: requests, calls, the work of others within them, and what waits for a person.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Conversation, ConversationCall, ConversationPart, ConversationRequest } from "../../src/protocol";
import type { View } from "../../src/shared/dom";
import type { Host } from "../../src/shared/lazypart";
import { Model } from "../../src/shared/model";
import part, { frameLine } from "../../src/turn";
import { argumentsText, requestSummary, outcomeText } from "../../src/turn/descriptions";
import { delta, type Row, welcome } from "../blocks";
import { buttonOf, question } from "../prompt/questions";
import { spoken } from "./spoken";

const HOSTILE = "<img src=x onerror=alert(1)> \x1b[31mred \u202eevil";
const TURN: Row = { id: 1, kind: "operation", type: "agent_turn", label: "fixer", start: 0, step: "ask" };
const ROWS: Row[] = [
  { id: 0, step: "ask", start: 0 },
  TURN,
  { id: 2, kind: "operation", type: "agent_response", label: "request 1", start: 0, end: 1_000_000, within: 1, step: "ask" },
  { id: 3, kind: "operation", type: "tool_call", label: "search", start: 1_000_000, end: 3_500_000, within: 1, step: "ask" },
  { id: 4, kind: "operation", type: "agent_turn", label: "reader", start: 1_000_000, end: 2_000_000, within: 1, step: "ask" },
  { id: 5, kind: "operation", type: "agent_response", label: "request 1", start: 1_000_000, end: 2_000_000, within: 4, step: "ask" },
];

function request(given: Partial<ConversationRequest> = {}): ConversationRequest {
  return {
    id: 2, number: 1, model: "large-3", finish: "tool_call", is_cached: false, input_tokens: 2914, cached_tokens: 0, output_tokens: 61, cost: 0.0041,
    instructions: "You repair.", tools: ["search", "edit"], output: "", sent: [{ kind: "user", text: "Repair it.", call: "" }],
    answer: [{ kind: "thinking", text: "Tests first.", call: "" }, { kind: "assistant", text: "I look for `Z`.", call: "" }, { kind: "call", text: "search", call: "a" }],
    ...given,
  };
}

function call(given: Partial<ConversationCall> = {}): ConversationCall {
  return { id: 3, call: "a", request: 1, tool: "search", server: "", arguments: { query: "offset" }, result: "one\ntwo", lines: 2, outcome: "returned", turn: -1, questions: ["int_1"], ...given };
}

function conversation(given: Partial<Conversation> = {}): Conversation {
  return { type: "conversation", view: "", id: 1, last: 10, agent: "fixer", thread: "", requests: [request()], calls: [call()], error: "", ...given };
}

let model: Model;
let view: View;
let said: Map<number, Conversation>;
let asked: [id: number, since: number][];
let placed: [string, HTMLElement][];
let host: Host;

beforeEach(() => {
  vi.useFakeTimers();
  model = new Model(() => 0);
  model.show("chat");
  [said, asked, placed] = [new Map([[1, conversation()]]), [], []];
  host = {
    control: vi.fn(),
    replay: undefined,
    takeOver: undefined,
    conversation: (id, since, receive) => {
      asked.push([id, since]);
      receive(said.get(id) ?? conversation({ id, requests: [], calls: [], error: `no ${id}` }));
    },
    sent: (id, receive) => { receive({ type: "sent", view: "", id, parts: [{ kind: "system", text: "the whole", call: "" }], error: "" }); },
    variables: () => undefined,
    files: () => undefined,
    placeCard: (id, place) => { placed.push([id, place]); },
    gatherCards: vi.fn(),
    root: document.createElement("div"),
    detail: vi.fn(),
  };
});

afterEach(() => {
  view.destroy();
  vi.useRealTimers();
});

function begin(rows: Row[] = ROWS, more: Parameters<typeof welcome>[1] = {}): void {
  model.welcome(welcome(rows, more));
  view = part.make(model, host);
  document.body.append(view.element);
  vi.advanceTimersByTime(100);
}

const find = (selector: string): HTMLElement => view.element.querySelector<HTMLElement>(selector) ?? expect.fail(`no ${selector}`);
const text = (selector: string): string => find(selector).textContent;

test("a request shows its numbers, what was asked, thought, said and called", () => {
  begin();
  expect(text(".req")).toBe("Request 1large-3 · 2,914 in, 61 out · $0.0041 · 1.0 s · ended with tool callsSent messages");
  expect(text(".chat")).toContain("System · instructions, 2 tools");
  expect(text(".chat")).toContain("YouRepair it.");
  expect(text(".think summary")).toBe("Thinking (2 words)");
  expect(text(".said code")).toBe("Z");
  expect(text(".call summary")).toBe("Tsearchoffset2 lines2.5 s");
});

test("a call unfolds into its arguments and its result", () => {
  begin();
  const line = find(".call") as HTMLDetailsElement;
  line.open = true;
  line.dispatchEvent(new Event("toggle"));
  expect(text(".call .in")).toContain("queryoffsetresult");
  expect(text(".call .in")).toContain("one\ntwo");
});

test("a call that is unfolded after it has returned shows what it returned", () => {
  said.set(1, conversation({ calls: [call({ outcome: "", result: "" })] }));
  begin();
  said.set(1, conversation({ last: 11, requests: [], calls: [call()] }));
  model.delta(delta([], { after: 10, last: 11, total: 5 }));
  vi.advanceTimersByTime(1_000);
  const line = find(".call") as HTMLDetailsElement;
  line.open = true;
  line.dispatchEvent(new Event("toggle"));
  expect(text(".call .in")).toContain("one\ntwo");
});

test("a long result is folded to its ends, and unfolds", () => {
  said.set(1, conversation({ calls: [call({ result: Array.from({ length: 100 }, (_, line) => `line ${line}`).join("\n"), lines: 1_000_000 })] }));
  begin();
  const line = find(".call") as HTMLDetailsElement;
  line.open = true;
  line.dispatchEvent(new Event("toggle"));
  expect(text(".call .in")).not.toContain("line 50");
  buttonOf(line, "Show 999,984 more lines").click();
  expect(text(".call .in")).toContain("line 50");
});

test("what a model writes now stands in its request, with the arguments of the call it is about to make", () => {
  said.set(1, conversation({ requests: [request({ answer: [], finish: "", cost: null, input_tokens: 0, output_tokens: 0 })], calls: [] }));
  begin([...ROWS.slice(0, 2), { id: 2, kind: "operation", type: "agent_response", label: "request 1", start: 0, within: 1, step: "ask" }]);
  const streamed = [["thinking", "Hm"], ["text", "So"], ["arguments:edit:c", '{"path"']].map(([name = "", piece = ""]) => ({ id: 2, part: name, at: 0, text: piece }));
  model.delta(delta([], { streamed }));
  vi.advanceTimersByTime(100);
  expect(find(".said").classList.contains("live")).toBe(true);
  expect(text(".said")).toBe('Thinking …HmfixerSoTedit{"path"');
  model.delta(delta([], { streamed: [{ id: 2, part: "text", at: 2, text: "a".repeat(29_000) + "end" }] }));
  vi.advanceTimersByTime(100);
  expect(text(".said .db-markdown").length).toBeLessThan(20_100);
  expect(text(".said .db-markdown")).toMatch(/^…a+end$/);
  said.set(1, conversation());
  model.delta(delta([{ id: 2, kind: "operation", type: "agent_response", start: 0, end: 5, within: 1 }], { after: 10, last: 12, total: 3 }));
  vi.advanceTimersByTime(500);
  expect(find(".said").classList.contains("live")).toBe(false);
  expect(text(".said")).toContain("I look for Z.");
});

test("below a call that runs stands what its command prints, as in a terminal, until it has ended", () => {
  const running: Row = { id: 3, kind: "operation", type: "tool_call", label: "shell", start: 1_000_000, within: 1, step: "ask" };
  said.set(1, conversation({ calls: [call({ tool: "shell", outcome: "", result: "" })] }));
  begin([...ROWS.slice(0, 3), running]);
  expect(find(".printed").hidden).toBe(true);
  const lines = Array.from({ length: 40 }, (_, line) => `line ${line}\n`).join("");
  model.delta(delta([], { streamed: [{ id: 3, part: "output", at: 0, text: `${lines}\x1b[32m 10%\r 50%\r` }] }));
  vi.advanceTimersByTime(100);
  expect(find(".printed").hidden).toBe(false);
  expect(text(".printed")).toBe(`…\n${Array.from({ length: 11 }, (_, line) => `line ${line + 29}`).join("\n")}\n 50%`);
  said.set(1, conversation({ last: 12, requests: [], calls: [call({ tool: "shell" })] }));
  model.delta(delta([{ ...running, end: 2_000_000 }], { after: 10, last: 12, total: 4 }));
  vi.advanceTimersByTime(500);
  expect(find(".printed").hidden).toBe(true);
  expect(text(".printed")).toBe("");
});

test("only what may have changed is asked for again, and only while there is news", () => {
  begin();
  expect(asked).toEqual([[1, 0]]);
  vi.advanceTimersByTime(60_000);
  expect(asked).toHaveLength(1);
  said.set(1, conversation({ last: 11, requests: [], calls: [call({ outcome: "failed", result: "boom" })] }));
  model.delta(delta([], { after: 10, last: 11, total: 5 }));
  vi.advanceTimersByTime(1_000);
  expect(asked).toEqual([[1, 0], [1, 10]]);
  expect(text(".call .came")).toBe("✕ boom");
  expect(text(".req")).toContain("Request 1");
});

test("a turn with much news is asked for a few times a second, and again where no answer came", () => {
  begin();
  for (let last = 11; last <= 70; last++) {
    said.set(1, conversation({ last, requests: [], calls: [] }));
    model.delta(delta([], { after: last - 1, last, total: 5 }));
    vi.advanceTimersByTime(33);
  }
  expect(asked.length).toBeLessThan(12);
  host.conversation = (id, since) => { asked.push([id, since]); };
  asked = [];
  model.delta(delta([], { after: 70, last: 71, total: 5 }));
  vi.advanceTimersByTime(2_000);
  expect(asked).toHaveLength(1);
  model.delta(delta([], { after: 71, last: 72, total: 5 }));
  vi.advanceTimersByTime(4_000);
  expect(asked).toHaveLength(2);
});

test("a call that needs an approval says so, and has the card in its place", () => {
  said.set(1, conversation({ calls: [call({ id: -1, outcome: "", result: "" })] }));
  begin(ROWS, { questions: [question({ kind: "confirmation", step: "ask", data: { agent: "fixer", tool: "search" } })] });
  expect(text(".call .came")).toBe("? waits for you");
  expect(placed.at(-1)?.[0]).toBe("int_1");
  expect(view.element.contains(placed.at(-1)?.[1] ?? null)).toBe(true);
  expect(text(".rail .waits .facts")).toBe("? waits for you");
});

test("a question about something else is not put at this call", () => {
  begin(ROWS, { questions: [question({ interrupt_id: "b", kind: "confirmation", step: "ask" })] });
  expect(placed).toEqual([]);
});

test("cards are given back before their places go", () => {
  begin();
  view.destroy();
  expect(host.gatherCards).toHaveBeenCalled();
});

test("the work that was given to another agent is a line that unfolds into its conversation", () => {
  said.set(1, conversation({ calls: [call({ turn: 4, tool: "assign_work", arguments: { agent: "reader", description: "Which forms?" } })] }));
  said.set(4, conversation({ id: 4, agent: "reader", requests: [request({ cost: 0.002, answer: [{ kind: "assistant", text: "Z or z.", call: "" }] })], calls: [] }));
  begin();
  expect(text(".call .what")).toBe("to reader: Which forms?");
  expect(text(".team")).toContain("↳ reader1 request · $0.0020 · 1.0 s");
  expect(text(".team .answer")).toBe("Z or z.");
  buttonOf(find(".team"), "Open").click();
  vi.advanceTimersByTime(100);
  expect(text(".team .chat")).toContain("fixerRepair it."); // who gave the work, and no person
  expect(text(".team .chat")).toContain("readerZ or z.");
  expect(text(".call .came")).toBe("answered");
  expect(text(".rail .given")).toContain("reader$0.0020");
  buttonOf(find(".team"), "Show lane").click();
  expect([model.view, model.selected]).toEqual(["timeline", 4]);
});

test("what was sent is shown whole, and hidden again", () => {
  begin();
  const button = buttonOf(find(".req"), "Sent messages");
  button.click();
  expect(text(".all")).toContain("Systemthe whole");
  expect(button.getAttribute("aria-expanded")).toBe("true");
  button.click();
  expect(find(".all").hidden).toBe(true);
});

function sending(sent: Record<number, ConversationPart[]>): void {
  host.sent = (id, receive) => { receive({ type: "sent", view: "", id, parts: sent[id] ?? [], error: id in sent ? "" : `span ${id} is no request` }); };
}

test("what was sent is compared with the request before it", () => {
  const before = [spoken("system", "You repair."), spoken("user", "Repair it.")];
  const sent: Record<number, ConversationPart[]> = { 2: before, 5: [...before, spoken("assistant", "I look."), spoken("result", "one", "search")] };
  sending(sent);
  said.set(1, conversation({ requests: [request(), request({ id: 5, number: 2, sent: [], tools: ["search"], model: "small-1" })] }));
  begin();
  const second = [...view.element.querySelectorAll<HTMLElement>(".exchange")][1] ?? expect.fail("no request 2");
  buttonOf(second, "Sent messages").click();
  expect(buttonOf(second, "All messages").getAttribute("aria-pressed")).toBe("true");
  buttonOf(second, "Changes since request 1").click();
  const panel = second.querySelector<HTMLElement>(".all") ?? expect.fail("no panel");
  expect(panel.textContent).toContain("model: large-3 → small-1− tools: edit2 unchanged messages+new: AgentI look.Result of searchone");
  const same = panel.querySelector("details");
  same?.dispatchEvent(new Event("toggle"));
  expect(same?.textContent).toContain("YouRepair it.");
  expect(buttonOf(second, "Changes").getAttribute("aria-pressed")).toBe("true");
  delete sent[5];
  buttonOf(second, "Changes since").click();
  expect(panel.querySelector(".bad")?.textContent).toBe("span 5 is no request");
});

test("a first request has nothing to be compared with", () => {
  begin();
  buttonOf(find(".req"), "Sent messages").click();
  expect(buttonOf(find(".all"), "All messages").hidden).toBe(false);
  expect([...find(".all").querySelectorAll("button")].filter((one) => !one.hidden)).toHaveLength(1);
});

test("of a message that was changed only the other lines are shown", () => {
  sending({ 2: [spoken("system", "one\ntwo\nthree")], 5: [spoken("system", "one\n2\n2b\nthree")] });
  said.set(1, conversation({ requests: [request(), request({ id: 5, number: 2, sent: [] })] }));
  begin();
  const second = [...view.element.querySelectorAll<HTMLElement>(".exchange")][1] ?? expect.fail("no request 2");
  buttonOf(second, "Sent messages").click();
  buttonOf(second, "Changes since").click();
  expect(second.querySelector(".diff")?.textContent).toBe("±changed: System(2 unchanged lines)− two+ 2+ 2b");
});

test("the line that gives the messages as a frame is shown to be copied", () => {
  begin();
  const button = buttonOf(find(".bar"), "As a DataFrame");
  button.click();
  expect(button.getAttribute("aria-expanded")).toBe("true");
  expect(text(".frame code")).toBe('import divebook; divebook.show("exec_1").messages');
  expect(buttonOf(find(".frame"), "Copy")).toBeDefined();
  button.click();
  expect(find(".frame").hidden).toBe(true);
  expect(frameLine("exec_1", 'a "b"')).toBe('import divebook; divebook.show("exec_1").messages.loc[lambda said: said.agent == "a \\"b\\""]');
});

const answered = { kind: "confirmation" as const, question: "Run search?", step: "ask", status: "resolved" as const, response: { approved: true }, answered_by: "ada" };

test("what was worked and what was waited are told apart", () => {
  const asked = question({ ...answered, raised_us: 4_600_000, answered_us: 44_600_000 }); // spans begin at second 1
  begin([ROWS[0], TURN, ...ROWS.slice(2), { id: 6, kind: "operation", type: "agent_response", start: 43_600_000, end: 44_600_000, within: 1, step: "ask" }] as Row[], { questions: [asked] });
  expect(text(".bar")).toContain("requests and calls 4.5 s · waited for you 40.0 s");
  expect(text(".rail .facts")).toBe("1 call · 3.5 s · waited for you 40.0 s");
});

test("a wait in which something else went on is none", () => {
  begin(ROWS, { questions: [question({ ...answered, raised_us: 0, answered_us: 3_400_000 })] });
  expect(text(".rail .facts")).toBe("1 call · 3.5 s");
});

test("what one agent waits for holds up no other", () => {
  said.set(1, conversation({ calls: [call({ turn: 4, questions: [] }), call({ call: "b", id: -1, outcome: "", result: "" })] }));
  said.set(4, conversation({ id: 4, agent: "reader", calls: [] }));
  begin(ROWS, { questions: [question({ kind: "confirmation", step: "ask" })] });
  expect(text(".team")).not.toContain("waits");
  expect(text(".rail .given .facts")).toBe("1 request · 1.0 s");
  expect(text(".bar")).toContain("waits for you");
});

test("a call says what a person answered, and after how long", () => {
  begin(ROWS, { questions: [question({ ...answered, raised_us: 0, answered_us: 40_000_000, response: { approved: true, data: { parameters: { query: "b" } } }, became: "approved with changes" })] });
  find(".call").setAttribute("open", "");
  find(".call").dispatchEvent(new Event("toggle"));
  expect(text(".call .in")).toMatch(/askedRun search\? approved with changes by ada, .*, after 40\.0 s/);
});

test("why a call was denied stands beside its request", () => {
  said.set(1, conversation({ calls: [call({ id: -1, outcome: "denied", result: "User denied tool call: keep the draft" })] }));
  begin();
  expect(text(".rail .facts")).toBe("✕ denied: keep the draft · 1 call · 1.0 s");
  expect(text(".call .came")).toBe("✕ denied: keep the draft");
});

test("a call that failed without telling the model says why, and a request that was made again says so", () => {
  said.set(1, conversation({ calls: [call({ outcome: "failed", result: "", lines: 0 })] }));
  begin([...ROWS.slice(0, 2), { ...ROWS[2], attempts: 2 }, { ...ROWS[3], status: "failed", note: "Boom: disk full" }] as Row[]);
  expect(text(".call .came")).toBe("✕ Boom: disk full");
  expect(text(".req")).toContain("1.0 s · attempt 2 · ended with tool calls");
});

test("where nobody knows what was sent, it is not offered", () => {
  host.sent = undefined;
  begin();
  expect(text(".req")).not.toContain("Sent messages");
});

test("of several turns one is chosen, the newest first, or the one that is selected elsewhere", () => {
  said.set(2, conversation({ id: 2, agent: "second" }));
  begin([{ ...TURN, id: 0 }, { ...TURN, id: 1, label: "one" }, { ...TURN, id: 2, label: "two", end: 1 }]);
  const choice = find("select") as HTMLSelectElement;
  expect([...choice.options].map((option) => option.textContent)).toEqual(["▸ ask › fixer", "▸ ask › one", "✓ ask › two"]);
  expect(choice.value).toBe("2");
  model.select(1);
  vi.advanceTimersByTime(100);
  expect(choice.value).toBe("1");
  expect(view.element.querySelectorAll(".chat")).toHaveLength(1);
});

test("of a long turn it is said how much came before what is here", () => {
  begin();
  expect(find(".chat > p").hidden).toBe(true);
  view.destroy();
  said.set(1, conversation({ requests: [request({ number: 142 }), request({ id: 5, number: 143 })] }));
  begin();
  expect(text(".chat > p")).toBe("Not shown: 141 earlier requests. For all requests, see run.requests.");
  expect(text(".bar")).toContain("messages shown");
});

test("a conversation that cannot be shown is said not to be there", () => {
  said.clear();
  begin();
  expect(text(".chat .bad")).toBe("no 1");
});

test("hostile texts are text", () => {
  said.set(1, conversation({ agent: HOSTILE, requests: [request({ model: HOSTILE, answer: [{ kind: "assistant", text: HOSTILE, call: "" }] })], calls: [call({ tool: HOSTILE, arguments: HOSTILE, result: HOSTILE })] }));
  begin();
  find(".call").setAttribute("open", "");
  find(".call").dispatchEvent(new Event("toggle"));
  expect(view.element.querySelector("img")).toBeNull();
  expect(view.element.textContent).not.toMatch(/[\x1b\u202e]/); // eslint-disable-line no-control-regex -- that is the point
  expect(view.element.textContent).toContain("\\u202eevil");
});

test.each([
  [{ query: "a" }, "a"],
  [{ a: 1, b: "two" }, "a=1 b=two"],
  [["x"], '["x"]'],
  [null, "null"],
])("arguments %j are told as %s", (given, told) => {
  expect(argumentsText(given)).toBe(told);
});

test.each([
  [{ outcome: "returned", result: "", lines: 0 }, "nothing"],
  [{ outcome: "returned", result: "short", lines: 1 }, "short"],
  [{ outcome: "returned", result: "x".repeat(50), lines: 1 }, "50 characters"],
  [{ outcome: "denied", result: "User denied" }, "denied"],
  [{ outcome: "denied", result: "A rule denies search: not on Sundays\nat all" }, "denied by a rule: not on Sundays at all"],
  [{ outcome: "returned", result: "Z", lines: 1, turn: 4 }, "answered"],
  [{ outcome: "retry", result: "again" }, "retry requested"],
  [{ outcome: "", result: "" }, ""],
] as const)("an outcome %j is told as %s", (given, told) => {
  expect(outcomeText(call(given))).toBe(told);
});

test("what a request did is told by its calls, else by its answer", () => {
  const calls = ["a", "b", "a"].map((name) => ({ kind: "call" as const, text: name, call: "" }));
  expect(requestSummary(request({ answer: calls }), false, [])).toBe("2 × a, b");
  expect(requestSummary(request({ answer: calls.slice(0, 1) }), false, [call({ tool: "a" })])).toBe("a offset");
  expect(requestSummary(request({ answer: [] }), true, [])).toBe("writing …");
  expect(requestSummary(request({ answer: [] }), false, [])).toBe("no answer");
  expect(requestSummary(request({ output: "final_result", answer: [{ kind: "assistant", text: '{"n": 1}', call: "" }] }), false, [])).toBe("answers with data");
});
