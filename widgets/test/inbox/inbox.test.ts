// The inbox in a page, without a kernel: cards of several executions, answered, followed, and left alone.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import inbox from "../../src/inbox";
import type { Asked, Inbox, InboxToBrowser, ToKernel } from "../../src/protocol";
import { wired, type Wire } from "../shared/wire";
import { buttonOf, question } from "../prompt/questions";

let wire: Wire<InboxToBrowser, ToKernel>;
let end: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  wire = wired();
  end = inbox.render(wire.given as unknown as Parameters<typeof inbox.render>[0]);
});

afterEach(() => {
  end();
  vi.useRealTimers();
});

function asked(id: string, workflow: string, given: Parameters<typeof question>[0] = {}): Asked {
  return { execution_id: `exec_${workflow}`, workflow, question: question({ interrupt_id: id, question: `${workflow}?`, ...given }), cell: "", trial_of: "" };
}

function begin(all: Asked[], more: Partial<Inbox> = {}): void {
  const hello = wire.heard.find((message) => message.type === "hello");
  wire.say({ type: "inbox", view: hello?.view ?? "", last: 1, now_us: 0, hidden: 0, asked: all, ...more });
}

function change(all: Asked[], after = 1): void {
  wire.say({ type: "asked", after, last: after + 1, now_us: 0, hidden: 0, asked: all });
}

const text = (): string => wire.page.textContent;
const cards = (): HTMLElement[] => [...wire.page.querySelectorAll<HTMLElement>("article.card")];

test("a card says that only a what-if asks", () => {
  begin([{ ...asked("a", "audit"), trial_of: "what-if" }]);
  expect(cards()[0]?.getAttribute("aria-label")).toMatch(/ in a what-if: audit\?$/);
  expect(cards()[0]?.querySelector(".trial")?.textContent).toBe("This question comes from a what-if, not from a real run. Your answer affects only the what-if.");
  change([{ ...asked("a", "audit", { status: "resolved" }), trial_of: "what-if" }]);
  expect(wire.page.querySelector(".closed .kind")?.textContent).toMatch(/ in a what-if$/);
});

test("each question is a card that names its workflow and execution", () => {
  expect(text()).toContain("connecting to the kernel");
  begin([asked("ask_1", "publish", { kind: "confirmation" }), asked("ask_2", "order")]);
  expect(text()).toContain("2 open questions");
  expect(cards().map((card) => card.querySelector(".asker")?.textContent)).toEqual(["publish", "order"]);
  expect(cards()[0]?.querySelector(".where")?.textContent).toContain("publish");
});

test("an answer goes out under the id of its question, and its card becomes a line once it is known", async () => {
  begin([asked("ask_1", "publish", { kind: "confirmation" }), asked("ask_2", "order")]);
  buttonOf(wire.page, "Approve").click();
  const answer = wire.heard.find((message) => message.type === "answer");
  expect(answer).toMatchObject({ interrupt_id: "ask_1", response: { approved: true } });
  wire.say({ type: "ack", id: answer?.id ?? "", accepted: true, text: "Kept, but it does not go on here" });
  await vi.advanceTimersByTimeAsync(0);
  expect(text()).toContain("Kept, but it does not go on here");
  change([asked("ask_1", "publish", { kind: "confirmation", status: "resolved", response: { approved: true }, became: "approved", answered_by: "ann" })]);
  expect(cards()).toHaveLength(1);
  expect(wire.page.querySelector(".closed li")?.textContent).toContain("publish: publish?approved by ann");
});

test("what was missed is asked for, and questions that are no longer there are over", () => {
  begin([asked("ask_1", "publish"), asked("ask_2", "order")]);
  change([], 7);
  expect(wire.heard.at(-1)).toMatchObject({ type: "hello", since: 1 });
  expect(cards()).toHaveLength(2);
  begin([asked("ask_2", "order")], { last: 8 });
  expect(cards()).toHaveLength(1);
  expect(wire.page.querySelector(".closed li")?.textContent).toContain("withdrawn");
});

test("a welcome of another view is not ours, and changes wait for the own one", () => {
  begin([asked("ask_1", "publish")], { view: "somebody" });
  change([asked("ask_1", "publish")], 0);
  expect(cards()).toHaveLength(0);
});

test("it says how many questions are not shown", () => {
  begin([asked("ask_1", "publish")], { hidden: 1200 });
  expect(text()).toContain("1,200 more open questions appear after you answer these.");
});

test("where the kernel is gone cards say how to go on, and send nothing", () => {
  begin([asked("ask_1", "publish", { kind: "confirmation" })]);
  wire.isGone = true;
  vi.advanceTimersByTime(10_000);
  expect(text()).toContain("The kernel stopped. Run the notebook up to this cell again to continue.");
  expect(text()).toContain("%dive answer ask_1 ANSWER");
  expect(buttonOf(wire.page, "Approve").getAttribute("aria-disabled")).toBe("true");
  wire.isGone = false;
  buttonOf(wire.page, "Approve").click();
  expect(wire.heard.some((message) => message.type === "answer")).toBe(false);
});

test("the countdown follows the kernel's clock", () => {
  begin([asked("ask_1", "publish", { expires_us: 90_000_000 })], { now_us: 30_000_000 });
  vi.advanceTimersByTime(1000);
  expect(wire.page.querySelector(".clock")?.textContent).toBe("59 s left");
});
