/// <reference types="vite/client" />
// The colours of what is painted: as the page has them now, however it came to have them; read in one place.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Model } from "../../src/shared/model";
import { TimelineCanvas } from "../../src/timeline/canvas";
import { paletteFor } from "../../src/timeline/palette";
import { Matches } from "../../src/timeline/query";

const SOURCES: Record<string, string> = import.meta.glob("../../src/**/*.ts", { query: "?raw", import: "default", eager: true });

let root: HTMLElement;

beforeEach(() => {
  vi.useFakeTimers();
  root = document.createElement("div");
  root.style.setProperty("--db-ink", "black");
  document.body.append(root);
});

afterEach(() => {
  root.remove();
  vi.useRealTimers();
});

test("colours that come after the change of theme was told are painted once their style sheet is there", async () => {
  const model = new Model(() => 0);
  const canvas = new TimelineCanvas(root, model, new Matches());
  root.append(canvas.element);
  canvas.element.style.setProperty("--db-ink", "black"); // the page of tests inherits no properties
  Object.defineProperty(canvas.element, "clientWidth", { value: 600 });
  const paint = (): unknown => {
    vi.advanceTimersByTime(50);
    return canvas.palette["ink"];
  };
  expect(paint()).toBe("black");
  document.body.dataset["theme"] = "dark";
  await Promise.resolve(); // observers are told
  expect(paint()).toBe("black"); // told, and the style sheet is not there yet
  canvas.element.style.setProperty("--db-ink", "white");
  const sheet = document.head.appendChild(document.createElement("link"));
  sheet.dispatchEvent(new Event("load"));
  expect(paint()).toBe("white");
  sheet.remove();
  delete document.body.dataset["theme"];
  canvas.destroy();
});

test("a page that is hidden for a part of a frame while its theme changes is painted in the new colours", async () => {
  const canvas = new TimelineCanvas(root, new Model(() => 0), new Matches());
  root.append(canvas.element);
  canvas.element.style.setProperty("--db-ink", "black");
  let width = 600;
  Object.defineProperty(canvas.element, "clientWidth", { get: () => width });
  vi.advanceTimersByTime(50);
  expect(canvas.palette["ink"]).toBe("black");
  canvas.element.style.setProperty("--db-ink", "white");
  document.body.dataset["theme"] = "hidden";
  await Promise.resolve(); // observers are told
  width = 0;
  vi.advanceTimersToNextFrame();
  width = 600;
  vi.advanceTimersByTime(50);
  expect(canvas.palette["ink"]).toBe("white");
  canvas.destroy();
});

test("while no colour differs the palette is the same one, and what is made of it is kept", () => {
  const known = paletteFor(root);
  expect(paletteFor(root, known)).toBe(known);
  root.style.setProperty("--db-ink", "white");
  expect(paletteFor(root, known)).not.toBe(known);
});

test("only the palette reads colours, and only a picture of the timeline keeps them", () => {
  const using = (word: RegExp): string[] => Object.keys(SOURCES).filter((path) => word.test(SOURCES[path] ?? "")).map((path) => path.replace("../../src/", "")).sort();
  expect(using(/\bpaletteOf\(/)).toEqual(["shared/theme.ts", "timeline/palette.ts"]);
  expect(using(/\bpaletteFor\(/)).toEqual(["timeline/canvas.ts", "timeline/palette.ts"]);
  expect(using(/getPropertyValue\(/)).toEqual(["shared/theme.ts"]);
});
