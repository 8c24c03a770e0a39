// Picture of the workflow with the state of its execution; choosing a step filters the timeline.

import type { Graph, StepProgress } from "../protocol";
import { h, setText, type View } from "../shared/dom";
import { button, newId, setAttribute } from "../shared/element";
import { svg } from "../shared/svg";
import { drawEdge, drawStep, SIGNS, WORDS, type Drawn } from "./draw";
import { HEIGHT, layout, WIDTH, type Layout } from "./layout";
import { NOT_TAKEN, NOT_YET, type Lit, type StepState } from "./lit";

const PAD = 28;
const ABOVE = 14;
const [CLOSEST, FARTHEST] = [2.5, 0.05];
const READABLE = 0.5; // below this scale texts are left out
const AT_FIRST = 0.65;
const DRAGGED = 4;
const [LEAST_HIGH, MOST_HIGH] = [72, 420];
const LEGEND: Lit[] = ["pending", "untaken", "running", "stopped", "waiting", "completed", "failed", "cancelled", "caught"];

/** What the graph needs of the view that embeds it. */
export interface GraphHost {
  /** A step was chosen, or none. */
  select: (step: string | null) => void;
}

/** Shows a workflow until it is destroyed. */
export class GraphView implements View {
  readonly element: HTMLElement;
  readonly #host: GraphHost;
  readonly #scene = svg("g");
  readonly #arrow = newId();
  readonly #canvas: SVGSVGElement;
  readonly #legend = h("div", { class: "legend" });
  readonly #steps = new Map<string, Drawn>();
  readonly #resized: ResizeObserver;
  #graph: Graph | undefined;
  #layout: Layout = { steps: new Map(), edges: [], width: 0, height: 0 };
  #selected: string | null = null;
  #focused: string | null = null;
  #marked: string | null = null;
  #view = { x: 0, y: 0, scale: 1 };
  #isMoved = false;

  constructor(host: GraphHost) {
    this.#host = host;
    const arrow = svg("marker", { id: this.#arrow, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto-start-reverse" }, svg("path", { d: "M 0 0.5 L 7 4 L 0 7.5 z", class: "arrow" }));
    this.#canvas = svg("svg", { role: "group", "aria-label": "Steps of the workflow; arrow keys go from step to step, Enter selects" }, svg("defs", {}, arrow), this.#scene);
    const tools = h(
      "div",
      { class: "seg", role: "group", "aria-label": "Zoom" },
      button("+", () => { this.#zoom(1.25); }, { class: "small", "aria-label": "Zoom in" }),
      button("−", () => { this.#zoom(0.8); }, { class: "small", "aria-label": "Zoom out" }),
      button("Fit", () => { this.fit(); this.#isMoved = true; }, { class: "small" }),
    );
    this.element = h("section", { class: "divebook divebook-graph", "aria-label": "Workflow" }, this.#canvas, h("div", { class: "foot" }, this.#legend, tools));
    this.#listen();
    this.#resized = new ResizeObserver(() => { if (!this.#isMoved) this.fit(AT_FIRST); });
    this.#resized.observe(this.#canvas);
  }

  /** Shows this workflow with these states; it is laid out again only if it is another. */
  update(graph: Graph, states: ReadonlyMap<string, StepState>, progress: readonly StepProgress[] = [], isOver = false): void {
    if (graph !== this.#graph && JSON.stringify(graph) !== JSON.stringify(this.#graph)) this.#draw(graph);
    this.#graph = graph;
    const stateOf = (name: string): StepState => states.get(name) ?? (isOver ? NOT_TAKEN : NOT_YET);
    for (const [name, step] of this.#steps) step.light(stateOf(name), progress.find((one) => one.step === name));
    const there = new Set([...this.#steps.keys()].map((name) => stateOf(name).status));
    setText(this.#legend, LEGEND.filter((status) => there.has(status)).map((status) => `${SIGNS[status]} ${WORDS[status]}`).join("   "));
  }

  /** Marks a step as chosen, without telling the host. */
  select(step: string | null): void {
    this.#selected = step;
    for (const [name, { element }] of this.#steps) {
      element.classList.toggle("selected", name === step);
      setAttribute(element, "aria-pressed", String(name === step));
    }
  }

  /** Marks the step in which a replay stands, and brings it into sight. */
  mark(step: string | null): void {
    if (step === this.#marked) return;
    this.#marked = step;
    for (const [name, { element }] of this.#steps) {
      element.classList.toggle("here", name === step);
      setAttribute(element, "aria-current", name === step ? "step" : null);
    }
    this.#reveal(step);
  }

  /** Shows all of it; at first only as much as can be read well, from the beginning. */
  fit(least = FARTHEST): void {
    const width = this.#canvas.clientWidth;
    const across = Math.max(least, Math.min((width - 2 * PAD) / this.#layout.width, 1)) || 1;
    const height = Math.min(MOST_HIGH, Math.max(LEAST_HIGH, this.#layout.height * across + 2 * ABOVE));
    this.#canvas.style.height = `${height}px`;
    const scale = Math.max(least, Math.min(across, (height - 2 * ABOVE) / this.#layout.height));
    const start = (size: number, room: number, least: number): number => Math.max(Math.min(least, room / 2), (room - size * scale) / 2);
    this.#isMoved = false;
    this.#view = { scale, x: start(this.#layout.width, width, PAD), y: start(this.#layout.height, height, ABOVE) };
    this.#apply();
  }

  destroy(): void {
    this.#resized.disconnect();
    this.element.remove();
  }

  #draw(graph: Graph): void {
    this.#layout = layout(graph);
    const { steps, edges } = this.#layout;
    this.#steps.clear();
    const lines = edges.map((edge) => drawEdge(edge, steps.get(edge.edge.source), this.#arrow));
    for (const step of graph.steps) {
      const at = steps.get(step.name);
      if (at !== undefined) this.#steps.set(step.name, this.#step(drawStep(step, at), step.name));
    }
    this.#scene.replaceChildren(...lines, ...[...this.#steps.values()].map(({ element }) => element));
    this.#focus(graph.steps[0]?.name ?? null, false);
    this.select(this.#selected);
    this.fit(AT_FIRST);
  }

  #step(drawn: Drawn, name: string): Drawn {
    drawn.element.addEventListener("click", () => { this.#choose(name); });
    return drawn;
  }

  #choose(name: string): void {
    this.#focus(name, false);
    this.select(this.#selected === name ? null : name);
    this.#host.select(this.#selected);
  }

  /** Makes a step the one that Tab comes to. */
  #focus(name: string | null, isMove: boolean): void {
    if (this.#focused !== null) this.#steps.get(this.#focused)?.element.setAttribute("tabindex", "-1");
    this.#focused = name;
    const element = name === null ? undefined : this.#steps.get(name)?.element;
    element?.setAttribute("tabindex", "0");
    if (!isMove) return;
    this.#reveal(name);
    element?.focus({ preventScroll: true });
  }

  /** Moves the picture so far that a step is in it. */
  #reveal(name: string | null): void {
    const at = name === null ? undefined : this.#layout.steps.get(name);
    if (at === undefined) return;
    const { x, y, scale } = this.#view;
    const within = (place: number, half: number, size: number): number => Math.min(0, size - half - place) + Math.max(0, half - place);
    this.#view.x += within(x + at.x * scale, (WIDTH / 2) * scale + 8, this.#canvas.clientWidth);
    this.#view.y += within(y + at.y * scale, (HEIGHT / 2) * scale + 8, this.#canvas.clientHeight);
    this.#apply();
  }

  #zoom(factor: number, x = this.#canvas.clientWidth / 2, y = this.#canvas.clientHeight / 2): void {
    const scale = Math.min(CLOSEST, Math.max(FARTHEST, this.#view.scale * factor));
    const by = scale / this.#view.scale;
    this.#isMoved = true;
    this.#view = { scale, x: x - (x - this.#view.x) * by, y: y - (y - this.#view.y) * by };
    this.#apply();
  }

  #apply(): void {
    const { x, y, scale } = this.#view;
    this.#scene.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scale.toFixed(4)})`);
    this.#canvas.classList.toggle("far", scale < READABLE);
    this.element.classList.toggle("beyond", x + this.#layout.width * scale > this.#canvas.clientWidth || y + this.#layout.height * scale > parseFloat(this.#canvas.style.height));
  }

  #listen(): void {
    this.#canvas.addEventListener("keydown", (event) => { this.#key(event); });
    this.#canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // scrolling the page must stay possible
      event.preventDefault();
      const frame = this.#canvas.getBoundingClientRect();
      this.#zoom(Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
    }, { passive: false });
    this.#canvas.addEventListener("pointerdown", (event) => { this.#drag(event); });
  }

  #drag(down: PointerEvent): void {
    if (down.button !== 0) return;
    const start = { ...this.#view };
    let isDrag = false;
    const move = (event: PointerEvent): void => {
      const [dx, dy] = [event.clientX - down.clientX, event.clientY - down.clientY];
      if (!isDrag && Math.hypot(dx, dy) < DRAGGED) return;
      if (!isDrag) this.#canvas.setPointerCapture(down.pointerId); // only now: it would take the click from a step
      isDrag = this.#isMoved = true;
      this.#view = { ...start, x: start.x + dx, y: start.y + dy };
      this.#apply();
    };
    const end = new AbortController();
    const stop = (): void => { end.abort(); };
    this.#canvas.addEventListener("pointermove", move, { signal: end.signal });
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) this.#canvas.addEventListener(name, stop, { signal: end.signal });
  }

  #key(event: KeyboardEvent): void {
    const name = this.#focused;
    const moves: Record<string, [number, number]> = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const move = moves[event.key];
    if (move !== undefined) this.#focus(this.#nearest(name, ...move), true);
    else if (event.key === "Enter" || event.key === " ") this.#choose(name ?? "");
    else if (event.key === "Escape" && this.#selected !== null) this.#choose(this.#selected);
    else if (event.key === "+" || event.key === "-") this.#zoom(event.key === "+" ? 1.25 : 0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  /** Returns the nearest step in a direction, or the same. */
  #nearest(name: string | null, dx: number, dy: number): string | null {
    const from = name === null ? undefined : this.#layout.steps.get(name);
    if (from === undefined) return name;
    let [best, least] = [name, Infinity];
    for (const [other, at] of this.#layout.steps) {
      const ahead = (at.x - from.x) * dx + (at.y - from.y) * dy;
      const aside = Math.abs((at.x - from.x) * dy) + Math.abs((at.y - from.y) * dx);
      if (ahead > 1 && ahead + 2 * aside < least) [best, least] = [other, ahead + 2 * aside];
    }
    return best;
  }
}
