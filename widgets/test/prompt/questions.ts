// Questions for tests.

import type { Question } from "../../src/prompt/types";

/** Makes a question; what is not given is plain. */
export function question(given: Partial<Question> = {}): Question {
  return {
    interrupt_id: "int_1",
    kind: "clarification",
    question: "Which licence?",
    message: "",
    path: "main",
    step: "review",
    data: {},
    schema: null,
    raised_us: 1,
    expires_us: null,
    required: true,
    status: "pending",
    response: null,
    answered_by: null,
    answered_us: null,
    became: "",
    fallback: "",
    alike: "",
    ...given,
  };
}

/** Types a value into a field as a person does. */
export function type(field: Element | null, value: string): void {
  const input = field as HTMLInputElement;
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  input.dispatchEvent(new Event("change", { bubbles: true }));
}

/** Returns the button of that label. */
export function buttonOf(element: Element, label: string): HTMLButtonElement {
  const found = [...element.querySelectorAll("button")].find((one) => one.textContent.includes(label));
  if (found === undefined) throw new Error(`no button ${label}`);
  return found;
}

/** Makes questions that differ in their text. */
export function many(count: number): Partial<Question>[] {
  return Array.from({ length: count }, (_, index) => ({ question: `Question ${index + 1}` }));
}

/** Returns the first lines of all cards. */
export function heads(): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>(".head")];
}

/** Presses a key in an element. */
export function press(target: Element | null | undefined, key: string, more: KeyboardEventInit = {}): void {
  target?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
}
