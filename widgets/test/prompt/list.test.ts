import { expect, test } from "vitest";
import { Prompt } from "../../src/prompt/prompt";
import type { Question } from "../../src/prompt/types";
import { heads, many, press, question, type } from "./questions";

function shownWith(...questions: Partial<Question>[]): void {
  const prompt = new Prompt({ answer: () => new Promise(() => undefined), blockedReason: () => "", now: () => 0, drafts: new Map() });
  document.body.replaceChildren(prompt.element);
  prompt.update(questions.map((given, index) => question({ interrupt_id: `int_${index + 1}`, raised_us: index, ...given })));
}

test("few questions are open, many are a list", () => {
  shownWith(...many(3));
  expect(document.querySelectorAll(".card.open")).toHaveLength(3);
  shownWith(...many(20));
  expect(document.querySelectorAll(".card.open")).toHaveLength(1);
  expect(document.querySelector(".count")?.textContent).toBe("20 open questions");
});

test("many questions are filtered, and Escape ends that", () => {
  shownWith(...many(20));
  const filter = document.querySelector<HTMLInputElement>("input[type=search]");
  expect(filter?.hidden).toBe(false);
  type(filter, "question 12");
  expect(heads().filter((head) => !(head.parentElement?.hidden ?? true))).toHaveLength(1);
  expect(document.querySelector(".count")?.textContent).toBe("1 of 20 open questions");
  press(filter, "Escape");
  expect(document.querySelector(".count")?.textContent).toBe("20 open questions");
});

test("arrow keys go from question to question, Escape goes back to the question", () => {
  shownWith(...many(5));
  heads()[0]?.focus();
  press(heads()[0], "ArrowDown");
  expect(document.activeElement).toBe(heads()[1]);
  press(heads()[1], "End");
  expect(document.activeElement).toBe(heads()[4]);
  heads()[0]?.focus();
  const input = document.querySelector("textarea");
  input?.focus();
  press(input, "Escape");
  expect(document.activeElement).toBe(heads()[0]);
});
