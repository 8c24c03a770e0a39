// Graph of a workflow with the state of its execution. It scrolls if it is larger than its place, and can be zoomed and
// navigated by keys.

import type { Graph, StepProgress } from "../protocol";
import { h, setText, type View } from "../shared/dom";
import { button, newId, setAttribute } from "../shared/element";
import { svg } from "../shared/svg";
import { drawEdge, drawStep, SIGNS, WORDS, type StepDrawing } from "./draw";
import { HEIGHT, layout, WIDTH, type Layout, type Point } from "./layout";
import { NOT_TAKEN, NOT_YET, type StepStatus, type StepState } from "./stepstate";

const SIDE_MARGIN = 28; // least room at the left in pixels
const TOP_MARGIN = 14; // least room at the top
// Limits of the scale. No text is smaller than `LEAST_TYPE` pixels: a large graph scrolls at first instead of shrinking, and
// after a zoom texts that would be smaller are hidden (graph.css: the small texts have 12 pixels, names grow).
const MAX_SCALE = 2.5;
const MIN_SCALE = 0.05;
const LEAST_TYPE = 11;
const NAME_TYPE = 12.5;
const FULL_TEXT_SCALE = LEAST_TYPE / 12;
const NAMES_SCALE = 0.75; // below it names would be wider than their step
const DRAG_DISTANCE = 4; // pixels from which a press is a drag and not a click
const LEAST_HIGH = 72;
const MOST_HIGH = 420;
const LEGEND: StepStatus[] = ["pending", "untaken", "running", "stopped", "waiting", "completed", "failed", "cancelled", "caught"];

/** Callbacks of the view that contains the graph. */
export interface GraphHost {
  /** Called with the selected step; null if the selection was removed. */
  select: (step: string | null) => void;
}

/** View of a workflow graph. */
export class GraphView implements View {
  readonly element: HTMLElement;
  readonly #host: GraphHost;
  readonly #scene = svg("g");
  readonly #arrow = newId();
  readonly #canvas: SVGSVGElement;
  readonly #scroller: HTMLElement;
  readonly #legend = h("div", { class: "legend" });
  readonly #steps = new Map<string, StepDrawing>();
  readonly #resizeObserver: ResizeObserver;
  #graph: Graph | undefined;
  #layout: Layout = { steps: new Map(), edges: [], width: 0, height: 0 };
  #selected: string | null = null;
  #focused: string | null = null;
  #replayStep: string | null = null;
  #scale = 1;
  /** Room to the left of the graph and above it in pixels. */
  #offset: Point = { x: 0, y: 0 };
  /** True if a person has zoomed the graph: a new size of the page then does not fit it again. */
  #isZoomedByUser = false;

  constructor(host: GraphHost) {
    this.#host = host;
    const tip = svg("path", { d: "M 0 0.5 L 7 4 L 0 7.5 z", class: "arrow" });
    const markerSize = { viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 8, markerHeight: 8 };
    const arrow = svg("marker", { id: this.#arrow, ...markerSize, orient: "auto-start-reverse" }, tip);
    const label = "Steps of the workflow; arrow keys go from step to step, Enter selects";
    this.#canvas = svg("svg", { role: "group", "aria-label": label }, svg("defs", {}, arrow), this.#scene);
    const tools = h(
      "div",
      { class: "seg", role: "group", "aria-label": "Zoom" },
      button("+", () => { this.#zoom(1.25); }, { class: "small", "aria-label": "Zoom in" }),
      button("−", () => { this.#zoom(0.8); }, { class: "small", "aria-label": "Zoom out" }),
      button("Fit", () => {
        this.fit();
        this.#isZoomedByUser = true;
      }, { class: "small" }),
    );
    this.#scroller = h("div", { class: "scroll" }, this.#canvas);
    this.element = h("section", { class: "divebook divebook-graph", "aria-label": "Workflow" }, this.#scroller, h("div", { class: "foot" }, this.#legend, tools));
    this.#listen();
    this.#resizeObserver = new ResizeObserver(() => {
      if (this.#isZoomedByUser) this.#apply();
      else this.fit(FULL_TEXT_SCALE);
    });
    this.#resizeObserver.observe(this.#scroller);
  }

  /** Show a workflow with the states of its steps. The layout is computed again only for a different workflow. */
  update(graph: Graph, states: ReadonlyMap<string, StepState>, progress: readonly StepProgress[] = [], isOver = false): void {
    if (graph !== this.#graph && JSON.stringify(graph) !== JSON.stringify(this.#graph)) this.#draw(graph);
    this.#graph = graph;
    const stateOf = (name: string): StepState => states.get(name) ?? (isOver ? NOT_TAKEN : NOT_YET);
    for (const [name, step] of this.#steps) step.showState(stateOf(name), progress.find((one) => one.step === name));
    const statuses = new Set([...this.#steps.keys()].map((name) => stateOf(name).status));
    const entries = LEGEND.filter((status) => statuses.has(status)).map((status) => `${SIGNS[status]} ${WORDS[status]}`);
    setText(this.#legend, entries.join("   "));
  }

  /** Mark a step as selected, without calling the host. */
  select(step: string | null): void {
    this.#selected = step;
    for (const [name, { element }] of this.#steps) {
      element.classList.toggle("selected", name === step);
      setAttribute(element, "aria-pressed", String(name === step));
    }
  }

  /** Mark the step of a replay's position, and scroll to it. */
  markReplayStep(step: string | null): void {
    if (step === this.#replayStep) return;
    this.#replayStep = step;
    for (const [name, { element }] of this.#steps) {
      element.classList.toggle("here", name === step);
      setAttribute(element, "aria-current", name === step ? "step" : null);
    }
    this.#reveal(step);
  }

  /** Show the whole graph; if the scale would be below `least`, the graph has this scale and scrolls. */
  fit(least = MIN_SCALE): void {
    const { width, height } = this.#layout;
    const widthScale = (this.#scroller.clientWidth - 2 * SIDE_MARGIN) / width;
    const heightScale = (MOST_HIGH - 2 * TOP_MARGIN) / height;
    this.#scale = Math.max(least, Math.min(widthScale, heightScale, 1)) || 1; // NaN for an empty graph
    this.#isZoomedByUser = false;
    this.#apply();
  }

  destroy(): void {
    this.#resizeObserver.disconnect();
    this.element.remove();
  }

  /** Lay out a workflow and create its elements. */
  #draw(graph: Graph): void {
    this.#layout = layout(graph);
    const { steps, edges } = this.#layout;
    this.#steps.clear();
    const lines = edges.map((edge) => drawEdge(edge, steps.get(edge.edge.source), this.#arrow));
    for (const step of graph.steps) {
      const at = steps.get(step.name);
      if (at !== undefined) this.#steps.set(step.name, this.#withClick(drawStep(step, at), step.name));
    }
    this.#scene.replaceChildren(...lines, ...[...this.#steps.values()].map(({ element }) => element));
    this.#focus(graph.steps[0]?.name ?? null, false);
    this.select(this.#selected);
    this.fit(FULL_TEXT_SCALE);
  }

  /** Make a step selectable by clicking. */
  #withClick(drawing: StepDrawing, name: string): StepDrawing {
    drawing.element.addEventListener("click", () => { this.#toggle(name); });
    return drawing;
  }

  #toggle(name: string): void {
    this.#focus(name, false);
    this.select(this.#selected === name ? null : name);
    this.#host.select(this.#selected);
  }

  /** Give a step the tab stop of the graph. */
  #focus(name: string | null, isMove: boolean): void {
    if (this.#focused !== null) this.#steps.get(this.#focused)?.element.setAttribute("tabindex", "-1");
    this.#focused = name;
    const element = name === null ? undefined : this.#steps.get(name)?.element;
    element?.setAttribute("tabindex", "0");
    if (!isMove) return;
    this.#reveal(name);
    element?.focus({ preventScroll: true });
  }

  /** Scroll until a step is visible. */
  #reveal(name: string | null): void {
    const at = name === null ? undefined : this.#layout.steps.get(name);
    if (at === undefined) return;
    const { clientWidth, clientHeight, scrollLeft, scrollTop } = this.#scroller;
    const x = this.#offset.x + at.x * this.#scale - scrollLeft;
    const y = this.#offset.y + at.y * this.#scale - scrollTop;
    /** Return the distance by which a center with a half size is outside of the range from 0 to `size`. */
    const outside = (place: number, half: number, size: number): number => Math.max(0, place + half - size) + Math.min(0, place - half);
    this.#scroller.scrollLeft += outside(x, (WIDTH / 2) * this.#scale + 8, clientWidth);
    this.#scroller.scrollTop += outside(y, (HEIGHT / 2) * this.#scale + 8, clientHeight);
  }

  /** Zoom about a point of the visible part, which stays in place. */
  #zoom(factor: number, x = this.#scroller.clientWidth / 2, y = this.#scroller.clientHeight / 2): void {
    const { scrollLeft, scrollTop } = this.#scroller;
    const before = { scale: this.#scale, left: scrollLeft + x - this.#offset.x, top: scrollTop + y - this.#offset.y };
    this.#scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.#scale * factor));
    this.#isZoomedByUser = true;
    this.#apply();
    const ratio = this.#scale / before.scale;
    this.#scroller.scrollLeft = before.left * ratio + this.#offset.x - x;
    this.#scroller.scrollTop = before.top * ratio + this.#offset.y - y;
  }

  /** Apply the scale: the canvas is as large as the graph, or as its place, in which the graph is then centered. */
  #apply(): void {
    const scale = this.#scale;
    const width = Math.max(this.#scroller.clientWidth, this.#layout.width * scale + 2 * SIDE_MARGIN);
    const height = Math.max(LEAST_HIGH, this.#layout.height * scale + 2 * TOP_MARGIN);
    this.#offset = { x: (width - this.#layout.width * scale) / 2, y: (height - this.#layout.height * scale) / 2 };
    this.#canvas.setAttribute("width", width.toFixed(0));
    this.#canvas.setAttribute("height", height.toFixed(0));
    this.#scene.setAttribute("transform", `translate(${this.#offset.x.toFixed(1)} ${this.#offset.y.toFixed(1)}) scale(${scale.toFixed(4)})`);
    this.#canvas.style.setProperty("--name-size", `${Math.max(NAME_TYPE, LEAST_TYPE / scale).toFixed(1)}px`);
    this.#canvas.classList.toggle("near", scale >= FULL_TEXT_SCALE);
    this.#canvas.classList.toggle("far", scale < NAMES_SCALE);
  }

  #listen(): void {
    this.#canvas.addEventListener("keydown", (event) => { this.#onKey(event); });
    this.#canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the wheel alone scrolls the page
      event.preventDefault();
      const frame = this.#scroller.getBoundingClientRect();
      this.#zoom(Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
    }, { passive: false });
    this.#canvas.addEventListener("pointerdown", (event) => { this.#startPan(event); });
  }

  /** Scroll with the mouse until its button is released. Touches scroll without this. */
  #startPan(down: PointerEvent): void {
    if (down.button !== 0 || down.pointerType === "touch") return;
    const { scrollLeft, scrollTop } = this.#scroller;
    let isDrag = false;
    const move = (event: PointerEvent): void => {
      const dx = event.clientX - down.clientX;
      const dy = event.clientY - down.clientY;
      if (!isDrag && Math.hypot(dx, dy) < DRAG_DISTANCE) return;
      if (!isDrag) this.#canvas.setPointerCapture(down.pointerId); // not earlier: a captured press does not click a step
      isDrag = true;
      this.#scroller.scrollLeft = scrollLeft - dx;
      this.#scroller.scrollTop = scrollTop - dy;
    };
    const end = new AbortController();
    const stop = (): void => { end.abort(); };
    this.#canvas.addEventListener("pointermove", move, { signal: end.signal });
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) this.#canvas.addEventListener(name, stop, { signal: end.signal });
  }

  /** Move between steps, toggle the selection, or zoom. */
  #onKey(event: KeyboardEvent): void {
    const name = this.#focused;
    const moves: Record<string, [number, number]> = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const move = moves[event.key];
    if (move !== undefined) this.#focus(this.#nearest(name, ...move), true);
    else if (event.key === "Enter" || event.key === " ") this.#toggle(name ?? "");
    else if (event.key === "Escape" && this.#selected !== null) this.#toggle(this.#selected);
    else if (event.key === "+" || event.key === "-") this.#zoom(event.key === "+" ? 1.25 : 0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  /** Return the nearest step in a direction; the same step if there is none. Distance to the side counts double. */
  #nearest(name: string | null, dx: number, dy: number): string | null {
    const from = name === null ? undefined : this.#layout.steps.get(name);
    if (from === undefined) return name;
    let best = name;
    let least = Infinity;
    for (const [other, at] of this.#layout.steps) {
      const ahead = (at.x - from.x) * dx + (at.y - from.y) * dy;
      const aside = Math.abs((at.x - from.x) * dy) + Math.abs((at.y - from.y) * dx);
      const distance = ahead + 2 * aside;
      if (ahead <= 1 || distance >= least) continue;
      best = other;
      least = distance;
    }
    return best;
  }
}
