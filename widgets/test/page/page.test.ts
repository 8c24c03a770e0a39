// A file that holds a run as a browser opens it: what its first script shows, and what it says of parts that are not sound.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { checksum } from "../../src/page/parts";
import { decode } from "../../src/lab/decode";
import { recordedRun } from "../../src/lab/view";
import type { PackedRun } from "../../src/protocol";
import { h } from "../../src/shared/dom";
import fixture from "../lab/saved.json";

const saved: PackedRun = fixture.saved;

async function packed(text: string): Promise<string> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** Lays out a page as Python writes it; `changed` are parts in place of the sound ones, null for none. */
async function laid(changed: Record<string, string | null> = {}, names = "viewer texts run log"): Promise<void> {
  const parts: Record<string, string | null> = {
    viewer: await packed("/* the viewer */"),
    texts: await packed(JSON.stringify(["Which one?"])),
    run: await packed(JSON.stringify({ ...saved, asked: "\x7f0" })),
    log: await packed("{}"),
  };
  const sums = Object.fromEntries(Object.entries(parts).map(([name, text]) => [name, checksum(text ?? "")]));
  const made = Object.entries({ ...parts, ...changed }).filter(([, text]) => text !== null);
  const scripts = made.map(([name, text]) => h("script", { type: "application/vnd.divebook.part", "data-name": name, "data-crc32": sums[name] }, text));
  document.body.replaceChildren(h("header", { id: "told" }), h("main", { "data-parts": names }), ...scripts);
}

async function opened(): Promise<unknown[]> {
  const seen: unknown[] = [];
  Object.assign(window, { show: (run: unknown) => {
    seen.push(run);
    return h("p", {}, "the run");
  } });
  vi.resetModules();
  await import("../../src/page");
  await vi.waitFor(() => { expect(/All parts|cannot be shown/u.test(told()) || seen.length > 0).toBe(true); });
  return seen;
}

const told = (): string => document.querySelector("#told")?.textContent ?? "";

beforeEach(() => { document.head.replaceChildren(); });
afterEach(() => { document.body.replaceChildren(); });

test("sound parts are unpacked, the texts put in, and the run shown", async () => {
  await laid();
  const [run] = await opened();
  expect(run).toEqual({ ...saved, asked: "Which one?" });
  expect([document.querySelector("main")?.textContent, told()]).toEqual(["the run", "All parts of this file are undamaged: viewer, texts, run, log."]);
  expect(document.head.textContent).toContain("/* the viewer */");
});

test.each(["viewer", "texts", "run"])("without a sound part %s nothing is shown, and it is said", async (name) => {
  await laid({ [name]: "AAAA" });
  expect(await opened()).toEqual([]);
  expect(told()).toContain(`The part "${name}" is damaged`);
  expect(told()).toContain("The run cannot be shown without these parts.");
});

test.each([["AAAA", 'The part "log" is damaged'], [null, 'The part "log" is missing.']])("a log that is %s is said, and the run is shown all the same", async (text, why) => {
  await laid({ log: text });
  expect(await opened()).toHaveLength(1);
  expect(told()).toContain(why);
  expect(told()).not.toContain("All parts");
});

test("a page that was written without its log lacks nothing", async () => {
  await laid({ log: null }, "viewer texts run");
  expect(await opened()).toHaveLength(1);
  expect(told()).toBe("All parts of this file are undamaged: viewer, texts, run.");
});

test("what cannot be unpacked is said", async () => {
  const text = btoa("no deflate");
  await laid({ run: text });
  document.querySelector('[data-name="run"]')?.setAttribute("data-crc32", checksum(text));
  await opened();
  expect(told()).toContain("This run cannot be shown:");
});

test("the run in it is stepped through without a kernel, and texts that were cut say so", async () => {
  const recording = await decode(saved);
  const cut = `${"x".repeat(400)} … (19,600 more characters)`;
  recording.data = recording.data.map((data) => ({ ...data, long: cut }));
  const view = recordedRun(saved, recording, () => import("../../src/graph"));
  document.body.append(view.element);
  view.element.querySelector<HTMLDetailsElement>(".db-stepping")?.dispatchEvent(new Event("toggle"));
  await vi.waitFor(() => { expect(view.element.textContent).toContain("State after event 24"); });
  const slider = view.element.querySelector<HTMLInputElement>("[type=range]");
  for (const place of [1, 3, 2]) {
    if (slider !== null) slider.value = String(place);
    slider?.dispatchEvent(new Event("input"));
    await vi.waitFor(() => { expect(view.element.textContent).toContain(`State after event ${place}`); });
  }
  [...view.element.querySelectorAll<HTMLElement>("[role=tab]")].find(({ textContent }) => textContent === "Event")?.click();
  const panel = view.element.querySelector("[role=tabpanel]:not([hidden])");
  expect(panel?.textContent).toContain("(first part of 20,000 characters)");
  panel?.querySelectorAll<HTMLDetailsElement>("details.value").forEach((details) => details.dispatchEvent(new Event("toggle")));
  expect(panel?.textContent).toContain("(19,600 more characters)");
  view.destroy();
});
