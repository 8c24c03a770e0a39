// Controls around the picture: search, types, failures, folding, zoom, lanes.

import { h, setText, type View } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { plural } from "../shared/format";
import type { Model } from "../shared/model";
import type { TimelineCanvas } from "./canvas";
import { KINDS, typeOf } from "./kinds";

const SEARCH_AFTER = 120; // milliseconds without a key
const LOOK_EVERY = 500;

export function searchBox(search: (words: string) => void): HTMLElement {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const input = h("input", { type: "search", class: "db-search", placeholder: "Search", "aria-label": "Search items, values, errors", "aria-keyshortcuts": "/" });
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { search(input.value.trim()); }, SEARCH_AFTER);
  });
  return input;
}

/** A button for each type that occurs; pressed means shown. */
export function filters(model: Model, filter: (hidden: ReadonlySet<string>) => void): View {
  const element = h("span", { class: "db-filters", role: "group", "aria-label": "Shown types" });
  const hidden = new Set<string>();
  const present = new Set<string>();
  let looked = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;

  function add(key: string): void {
    const kind = KINDS.find((candidate) => candidate.key === key);
    if (kind === undefined || present.has(key)) return;
    present.add(key);
    const swatch = h("span", { class: "db-swatch", "aria-hidden": "true" }, kind.letter);
    swatch.style.background = `var(--db-${key})`;
    swatch.style.color = `var(--db-${key}-text)`;
    const chip = button("", () => { toggle(key, chip); }, { class: "db-chip", "aria-pressed": "true", "data-key": key });
    chip.append(swatch, kind.name);
    const order = (other: Element): number => KINDS.findIndex((candidate) => candidate.key === (other as HTMLElement).dataset["key"]);
    const after = [...element.children].find((other) => order(other) > KINDS.indexOf(kind)) ?? null;
    element.insertBefore(chip, after);
  }

  function toggle(key: string, chip: HTMLElement): void {
    if (!hidden.delete(key)) hidden.add(key);
    chip.setAttribute("aria-pressed", String(!hidden.has(key)));
    filter(new Set(hidden));
  }

  function look(): void {
    timer = undefined;
    const { spans } = model;
    for (const id of spans.early) add(typeOf(spans, id).key); // a sample has hardly any others
    for (let id = Math.max(looked, spans.floor); id < spans.total; id++) add(typeOf(spans, id).key);
    looked = spans.floor === 0 ? spans.total : 0;
  }

  const undo = model.on((change) => { if (change === "spans") timer ??= setTimeout(look, looked === 0 ? 0 : LOOK_EVERY); });
  look(); // what was saved does not change any more
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
  };
  return { element, destroy };
}

/** Says which step is shown alone, chosen elsewhere (in the graph), and lets go of it. */
export function stepFilter(model: Model, filter: (step: string | null) => void): View {
  const element = button("", () => { model.filterStep(null); }, { class: "db-chip", hidden: true });
  const undo = model.on((change) => {
    if (change !== "filter") return;
    element.hidden = model.step === null;
    setText(element, `step ${model.step ?? ""} ✕`);
    filter(model.step);
  });
  return { element, destroy: undo };
}

/** Folds idle time, and unfolds it. */
export function foldSwitch(canvas: TimelineCanvas): HTMLElement {
  const element = button("Fold idle", () => {
    canvas.fold(!canvas.isFolding);
    element.setAttribute("aria-pressed", String(canvas.isFolding));
  }, { class: "db-button", "aria-pressed": "true", "aria-keyshortcuts": "F", title: "Fold stretches in which nothing runs" });
  return element;
}

/** Goes to the present and along with it; there while a run goes on. */
export function followSwitch(model: Model, canvas: TimelineCanvas): { element: HTMLElement; update: () => void } {
  const element = button("Follow", () => {
    canvas.viewport.follow();
    canvas.invalidate();
  }, { class: "db-button", "aria-pressed": "true", title: "Go along with what is new" });
  const update = (): void => {
    element.hidden = model.isOver || model.header?.live === false;
    setAttribute(element, "aria-pressed", String(canvas.viewport.follows));
  };
  return { element, update };
}

/** Goes from failure to failure; there while there are any. */
export function failureSteps(canvas: TimelineCanvas): { element: HTMLElement; update: () => void } {
  const step = (text: string, key: string, label: string, by: 1 | -1): HTMLElement =>
    button(text, () => { canvas.toFailure(by); }, { class: "db-button", "aria-keyshortcuts": key, "aria-label": label, title: `${label} (${key})` });
  const count = h("span", { class: "db-failures" });
  const element = h("span", { class: "seg", role: "group", "aria-label": "Failures", hidden: true }, step("‹", "P", "Previous failure", -1), count, step("›", "N", "Next failure", 1));
  const update = (): void => {
    const { ids } = canvas.layout.failures;
    element.hidden = ids.length === 0;
    setText(count, `✕ ${ids.length.toLocaleString("en")}`);
  };
  return { element, update };
}

export function zoomers(canvas: TimelineCanvas): HTMLElement {
  const tool = (text: string, label: string, act: () => void): HTMLElement =>
    button(text, () => { act(); canvas.invalidate(); }, { class: "db-button", "aria-label": label, title: label });
  const zoom = (factor: number) => (): void => { canvas.viewport.zoom(factor); };
  const tools = [tool("−", "Zoom out", zoom(2)), tool("+", "Zoom in", zoom(0.5)), tool("Fit", "Fit all", () => { canvas.viewport.fit(); })];
  return h("span", { class: "seg", role: "group", "aria-label": "Zoom" }, ...tools);
}

/** Says how many lanes are hidden, and shows them. */
export function laneSwitch(canvas: TimelineCanvas): { element: HTMLElement; update: () => void } {
  const { layout } = canvas;
  const more = button("", () => { canvas.showLanes(!layout.isWhole); }, { class: "db-button" });
  const order = h("span", {}, "Lanes with a failure come first.");
  const element = h("span", { class: "db-lanes", hidden: true }, more, order);
  const update = (): void => {
    element.hidden = !layout.isDeep;
    setText(more, layout.isWhole ? "Fewer lanes" : `+${plural(layout.hidden, "lane")}`);
    order.hidden = layout.failures.ids.length === 0;
  };
  return { element, update };
}

export function legend(): HTMLElement[] {
  const signs = ["▸ running, dashed", "✕ failed, hatched", "? waiting, hatched light", "◼ cancelled, hatched"];
  return [...signs, "Ctrl + wheel zooms, drag moves"].map((text) => h("span", {}, text));
}
