// The offer in a page, without a kernel: buttons that say what is chosen, once, and what is said where that fails.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import offer from "../../src/offer";
import type { Offer, OfferToBrowser, ToKernel } from "../../src/protocol";
import { buttonOf } from "../prompt/questions";

let page: HTMLElement;
let heard: ToKernel[];
let say: (message: OfferToBrowser) => void;
let isGone: boolean;
let end: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  page = document.createElement("div");
  document.body.replaceChildren(page);
  [heard, isGone] = [[], false];
  const listeners = new Set<(message: OfferToBrowser) => void>();
  const wire = {
    send: (message: ToKernel) => {
      if (isGone) throw new Error("Cannot send");
      heard.push(message);
    },
    on: (name: string, listener: (message: OfferToBrowser) => void) => name === "msg:custom" && listeners.add(listener),
    off: (_: string, listener: (message: OfferToBrowser) => void) => listeners.delete(listener),
  };
  say = (message) => { listeners.forEach((listener) => { listener(message); }); };
  end = offer.render({ model: wire, el: page } as unknown as Parameters<typeof offer.render>[0]);
});

afterEach(() => {
  end();
  vi.useRealTimers();
});

function begin(given: Partial<Offer> = {}): void {
  const hello = heard.find((message) => message.type === "hello");
  const choices = [{ name: "again", label: "Run again", told: "reuses 1 call" }, { name: "keep", label: "Keep", told: "as it is" }];
  say({ type: "offer", view: hello?.view ?? "", id: "edited", text: "step <b>one</b> changed", choices, ...given });
}

const answers = (): ToKernel[] => heard.filter((message) => message.type === "answer");
const buttons = (): HTMLButtonElement[] => [...page.querySelectorAll("button")];

test("it says what has happened, and offers each way on with what comes of it", () => {
  begin();
  expect(page.textContent).toContain("step <b>one</b> changed");
  expect(page.querySelectorAll("b")).toHaveLength(0);
  expect(buttons().map((one) => [one.textContent, one.nextElementSibling?.textContent])).toEqual([["Run again", "reuses 1 call"], ["Keep", "as it is"]]);
  expect(buttons().every((one) => !one.disabled && one.tabIndex === 0)).toBe(true);
});

test("one way is chosen once, however often it is pressed", () => {
  begin();
  buttonOf(page, "Keep").click();
  buttonOf(page, "Run again").click();
  expect(answers()).toMatchObject([{ interrupt_id: "edited", response: "keep" }]);
  expect(buttons().every((one) => one.disabled)).toBe(true);
  expect(page.querySelector(".status")?.textContent).toBe("Keep …");
});

test("where it is refused it says why, and another way can be chosen", async () => {
  begin();
  buttonOf(page, "Keep").click();
  const [asked] = answers();
  say({ type: "ack", id: asked?.type === "answer" ? asked.id : "", accepted: false, text: "it is gone" });
  await vi.advanceTimersByTimeAsync(0);
  expect(page.querySelector(".status")?.textContent).toBe("it is gone");
  buttonOf(page, "Run again").click();
  expect(answers()).toHaveLength(2);
});

test("an offer to another view is not ours", () => {
  begin({ view: "somebody" });
  expect(buttons()).toHaveLength(0);
});

test("where the kernel is gone nothing can be pressed, and it says how to go on", () => {
  begin();
  isGone = true;
  vi.advanceTimersByTime(10_000);
  expect(page.textContent).toContain("Detached: the kernel is gone. Run the cell again to choose here.");
  expect(buttons().every((one) => one.disabled)).toBe(true);
});
