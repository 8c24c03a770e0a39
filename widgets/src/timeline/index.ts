// The timeline: its tools, the whole run in one line, the picture, what is being written, rows and details.

import type { Connection } from "../shared/connection";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import type { Model } from "../shared/model";
import { TimelineCanvas } from "./canvas";
import { detail } from "./detail";
import { KINDS, typeOf } from "./kinds";
import { list } from "./list";
import { Overview } from "./overview";
import { Matches, type Wanted } from "./query";

const SEARCH_AFTER = 120; // milliseconds without a key
const WRITERS = 3;
const WRITTEN = 240; // characters of each text that is being written
const LOOK_EVERY = 500;

/** Makes the timeline of a model; `root` is the element whose theme it follows. */
export function timeline(root: HTMLElement, model: Model, connection: Pick<Connection, "detail">): View & { canvas: TimelineCanvas } {
  const matches = new Matches();
  const canvas = new TimelineCanvas(root, model, matches);
  const overview = new Overview(model, canvas);
  const rows = list(model, matches, (id) => { canvas.focus(id); });
  const close = (): void => {
    model.select(null);
    canvas.element.querySelector("canvas")?.focus();
  };
  const panel = detail(model, connection, (id) => canvas.describe(id), close);
  const writing = h("div", { class: "db-writing", hidden: true });
  const found = h("span", { class: "db-found", role: "status" });
  canvas.afterDraw = () => { overview.update(); };

  function want(changes: Partial<Wanted>): void {
    matches.want({ ...matches.wanted, ...changes });
    rows.update();
    setText(found, matches.isAll ? "" : `${matches.ids.length.toLocaleString("en")} of ${model.spans.total.toLocaleString("en")}`);
    canvas.invalidate();
  }

  const search = searchBox((words) => { want({ words }); });
  const types = filters(model, (hidden) => { want({ hidden }); });
  const step = stepFilter(model, (name) => { want({ step: name }); });
  const tools = h("div", { class: "db-tools" }, search, types.element, step.element, found, h("span", { class: "db-grow" }), ...zoomers(canvas));
  const table = h("details", { class: "db-table" }, h("summary", {}, "Rows"), rows.element);
  table.addEventListener("toggle", () => { rows.update(); });
  const undo = model.on((change) => { if (change === "streams" || change === "spans") write(writing, model); });
  const element = h("div", { class: "db-timeline" }, tools, overview.element, canvas.element, legend(), writing, panel.element, table);
  const destroy = (): void => {
    [canvas, overview, rows, panel, types, step].forEach((view) => { view.destroy(); });
    undo();
  };
  return { element, destroy, canvas };
}

/** Shows the timeline, and a span in it. */
export function reveal(model: Model, { canvas }: { canvas: TimelineCanvas }, id: number): void {
  model.show("timeline");
  model.select(id);
  canvas.focus(id);
}

function searchBox(search: (words: string) => void): HTMLElement {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const input = h("input", { type: "search", class: "db-search", placeholder: "Search", "aria-label": "Search spans" });
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { search(input.value.trim()); }, SEARCH_AFTER);
  });
  return input;
}

/** A button for each type that occurs; pressed means shown. */
function filters(model: Model, filter: (hidden: ReadonlySet<string>) => void): View {
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
    for (let id = Math.max(looked, spans.floor); id < spans.total; id++) add(typeOf(spans, id).key);
    looked = spans.floor === 0 ? spans.total : 0;
  }

  const undo = model.on((change) => { if (change === "spans") timer ??= setTimeout(look, looked === 0 ? 0 : LOOK_EVERY); });
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
  };
  return { element, destroy };
}

/** Says which step is shown alone, chosen elsewhere (in the graph), and lets go of it. */
function stepFilter(model: Model, filter: (step: string | null) => void): View {
  const element = button("", () => { model.filterStep(null); }, { class: "db-chip", hidden: true });
  const undo = model.on((change) => {
    if (change !== "filter") return;
    element.hidden = model.step === null;
    setText(element, `step ${model.step ?? ""} ✕`);
    filter(model.step);
  });
  return { element, destroy: undo };
}

function zoomers(canvas: TimelineCanvas): HTMLElement[] {
  const tool = (text: string, label: string, act: () => void): HTMLElement =>
    button(text, () => { act(); canvas.invalidate(); }, { class: "db-button", "aria-label": label, title: label });
  let folding = false;
  const fold = button("Fold idle", () => {
    folding = !folding;
    fold.setAttribute("aria-pressed", String(folding));
    canvas.fold(folding);
  }, { class: "db-button", "aria-pressed": "false", title: "Fold stretches in which nothing runs" });
  const zoom = (factor: number) => (): void => { canvas.viewport.zoom(factor); };
  return [fold, tool("−", "Zoom out", zoom(2)), tool("+", "Zoom in", zoom(0.5)), tool("Fit", "Fit all", () => { canvas.viewport.fit(); })];
}

function legend(): HTMLElement {
  const signs = ["▸ running, dashed", "✕ failed, hatched", "◼ cancelled, hatched"];
  return h("div", { class: "db-legend" }, ...signs.map((text) => h("span", {}, text)), h("span", {}, "Ctrl + wheel zooms, drag moves"));
}

/** Shows the ends of the texts that models are writing. */
function write(element: HTMLElement, model: Model): void {
  const writers = [...model.streams].map(([id, parts]) => [id, [...parts.values()].at(-1)] as const).slice(-WRITERS);
  element.hidden = writers.length === 0;
  while (element.children.length > writers.length) element.lastElementChild?.remove();
  writers.forEach(([id, stream], place) => {
    let line = element.children[place];
    if (line === undefined) {
      line = h("div", { class: "db-writer" }, h("span", { class: "db-by" }), h("span", { class: "db-tail", dir: "auto" }));
      element.append(line);
    }
    const [by, tail] = [line.children[0], line.children[1]];
    if (by !== undefined) setText(by, `M ${model.spans.nameOf(id)}`);
    if (tail !== undefined) setText(tail, stream === undefined ? "" : `${stream.length > WRITTEN ? "…" : ""}${stream.text.slice(-WRITTEN)}`);
  });
}
