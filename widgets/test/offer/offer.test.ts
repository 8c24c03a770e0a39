// The offer in a page, without a kernel: buttons that say what is chosen, once, and what is said where that fails.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import offer from "../../src/offer";
import type { Offer, OfferToBrowser, ToKernel } from "../../src/protocol";
import { wired, type Wire } from "../shared/wire";
import { buttonOf } from "../prompt/questions";

let wire: Wire<OfferToBrowser, ToKernel>;
let end: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  wire = wired();
  end = offer.render(wire.given as unknown as Parameters<typeof offer.render>[0]);
});

afterEach(() => {
  end();
  vi.useRealTimers();
});

function begin(given: Partial<Offer> = {}): void {
  const hello = wire.heard.find((message) => message.type === "hello");
  const choices = [{ name: "again", label: "Run again", description: "reuses 1 call" }, { name: "keep", label: "Keep", description: "as it is" }];
  wire.say({ type: "offer", view: hello?.view ?? "", id: "edited", text: "step <b>one</b> changed", choices, ...given });
}

const answers = (): ToKernel[] => wire.heard.filter((message) => message.type === "answer");
const buttons = (): HTMLButtonElement[] => [...wire.page.querySelectorAll("button")];

test("it says what has happened, and offers each way on with what comes of it", () => {
  begin();
  expect(wire.page.textContent).toContain("step <b>one</b> changed");
  expect(wire.page.querySelectorAll("b")).toHaveLength(0);
  expect(buttons().map((one) => [one.textContent, one.nextElementSibling?.textContent])).toEqual([["Run again", "reuses 1 call"], ["Keep", "as it is"]]);
  expect(buttons().every((one) => !one.disabled && one.tabIndex === 0)).toBe(true);
});

test("one way is chosen once, however often it is pressed", () => {
  begin();
  buttonOf(wire.page, "Keep").click();
  buttonOf(wire.page, "Run again").click();
  expect(answers()).toMatchObject([{ interrupt_id: "edited", response: "keep" }]);
  expect(buttons().every((one) => one.disabled)).toBe(true);
  expect(wire.page.querySelector(".status")?.textContent).toBe("Keep …");
});

test("where it is refused it says why, and another way can be chosen", async () => {
  begin();
  buttonOf(wire.page, "Keep").click();
  const [asked] = answers();
  wire.say({ type: "ack", id: asked?.type === "answer" ? asked.id : "", accepted: false, text: "it is gone" });
  await vi.advanceTimersByTimeAsync(0);
  expect(wire.page.querySelector(".status")?.textContent).toBe("it is gone");
  buttonOf(wire.page, "Run again").click();
  expect(answers()).toHaveLength(2);
});

test("an offer to another view is not ours", () => {
  begin({ view: "somebody" });
  expect(buttons()).toHaveLength(0);
});

test("where the kernel is gone nothing can be pressed, and it says how to go on", () => {
  begin();
  wire.isGone = true;
  vi.advanceTimersByTime(10_000);
  expect(wire.page.textContent).toContain("The kernel stopped. Run the notebook up to this cell again to choose here.");
  expect(buttons().every((one) => one.disabled)).toBe(true);
});
