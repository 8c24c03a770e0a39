// Controls of the timeline: search, types, failures, folding, zoom and lanes.

import { h, setText, type View } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import { formatCount, plural } from "../shared/format";
import type { Model } from "../shared/model";
import type { TimelineCanvas } from "./canvas";
import { KINDS, kindOf } from "./kinds";

const SEARCH_AFTER = 120; // milliseconds without a key
const UPDATE_EVERY = 500; // milliseconds between two searches for new types

/** Create the search field. `search` is called when a person stops typing. */
export function searchBox(search: (words: string) => void): HTMLElement {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const input = h("input", {
    type: "search",
    class: "db-search",
    placeholder: "Search",
    "aria-label": "Search items, values, errors",
    "aria-keyshortcuts": "/",
  });
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { search(input.value.trim()); }, SEARCH_AFTER);
  });
  return input;
}

/** Create a button for each type that occurs. A pressed button means that the type is shown. */
export function typeFilters(model: Model, filter: (hidden: ReadonlySet<string>) => void): View {
  const element = h("span", { class: "db-filters", role: "group", "aria-label": "Shown types" });
  const hidden = new Set<string>();
  const shownKeys = new Set<string>();
  let nextId = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;

  /** Add the button of a kind, in the order of `KINDS`, unless it exists. */
  function add(key: string): void {
    const kind = KINDS.find((candidate) => candidate.key === key);
    if (kind === undefined || shownKeys.has(key)) return;
    shownKeys.add(key);
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

  /** Add buttons for the kinds of new spans. While older spans are still loading, all are read again. */
  function addTypes(): void {
    timer = undefined;
    const { spans } = model;
    for (const id of spans.early) add(kindOf(spans, id).key); // a sample hardly has other types
    for (let id = Math.max(nextId, spans.floor); id < spans.total; id++) add(kindOf(spans, id).key);
    nextId = spans.floor === 0 ? spans.total : 0;
  }

  const undo = model.on((change) => {
    if (change === "spans") timer ??= setTimeout(addTypes, nextId === 0 ? 0 : UPDATE_EVERY);
  });
  addTypes(); // a saved run has all spans from the beginning, and sends no changes
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
  };
  return { element, destroy };
}

/** Create a button that names the step filter, which is set elsewhere (in the graph), and removes it. */
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

/** Create the button that folds and unfolds idle time. */
export function foldSwitch(canvas: TimelineCanvas): HTMLElement {
  const element = button("Fold idle time", () => {
    canvas.fold(!canvas.isFolding);
    element.setAttribute("aria-pressed", String(canvas.isFolding));
  }, { class: "db-button", "aria-pressed": "true", "aria-keyshortcuts": "F", title: "Fold periods in which nothing runs" });
  return element;
}

/** Create the button that follows the present. It is visible while the run is live. */
export function followSwitch(model: Model, canvas: TimelineCanvas): { element: HTMLElement; update: () => void } {
  const element = button("Follow", () => {
    canvas.viewport.follow();
    canvas.invalidate();
  }, { class: "db-button", "aria-pressed": "true", title: "Follow new events" });
  const update = (): void => {
    element.hidden = model.isOver || model.header?.live === false;
    setAttribute(element, "aria-pressed", String(canvas.viewport.isFollowing));
  };
  return { element, update };
}

/** Create the buttons for the previous and the next failure. They are visible if there are failures. */
export function failureSteps(canvas: TimelineCanvas): { element: HTMLElement; update: () => void } {
  const step = (text: string, key: string, label: string, direction: 1 | -1): HTMLElement =>
    button(text, () => { canvas.toFailure(direction); }, { class: "db-button", "aria-keyshortcuts": key, "aria-label": label, title: `${label} (${key})` });
  const previous = step("‹", "P", "Previous failure", -1);
  const count = h("span", { class: "db-failures" });
  const next = step("›", "N", "Next failure", 1);
  const element = h("span", { class: "seg", role: "group", "aria-label": "Failures", hidden: true }, previous, count, next);
  const update = (): void => {
    const { ids } = canvas.layout.failures;
    element.hidden = ids.length === 0;
    setText(count, `✕ ${formatCount(ids.length)}`);
  };
  return { element, update };
}

/** Create the zoom buttons. */
export function zoomButtons(canvas: TimelineCanvas): HTMLElement {
  const tool = (text: string, label: string, action: () => void): HTMLElement =>
    button(text, () => {
      action();
      canvas.invalidate();
    }, { class: "db-button", "aria-label": label, title: label });
  const zoom = (factor: number) => (): void => { canvas.viewport.zoom(factor); };
  const tools = [tool("−", "Zoom out", zoom(2)), tool("+", "Zoom in", zoom(0.5)), tool("Fit", "Fit all", () => { canvas.viewport.fit(); })];
  return h("span", { class: "seg", role: "group", "aria-label": "Zoom" }, ...tools);
}

/** Create the button that states the number of hidden lanes and shows them. */
export function laneSwitch(canvas: TimelineCanvas): { element: HTMLElement; update: () => void } {
  const { layout } = canvas;
  const more = button("", () => { canvas.showLanes(!layout.isExpanded); }, { class: "db-button" });
  const order = h("span", {}, "Lanes with a failure come first.");
  const element = h("span", { class: "db-lanes", hidden: true }, more, order);
  const update = (): void => {
    element.hidden = !layout.isDeep;
    setText(more, layout.isExpanded ? "Fewer lanes" : `+${plural(layout.hidden, "lane")}`);
    order.hidden = layout.failures.ids.length === 0;
  };
  return { element, update };
}

/** Create the entries of the legend. */
export function legend(): HTMLElement[] {
  const signs = ["▸ running, dashed", "✕ failed, hatched", "? waiting, lightly hatched", "◼ cancelled, hatched"];
  return [...signs, "Ctrl + wheel: zoom, drag: move"].map((text) => h("span", {}, text));
}
