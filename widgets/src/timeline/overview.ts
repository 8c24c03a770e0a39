// The whole run in one line, with the stretch that is seen: drag its edges or its middle, or drag a new one.

import { h, type View } from "../shared/dom";
import type { Model } from "../shared/model";
import type { TimelineCanvas } from "./canvas";
import { LABELS, type Palette } from "./draw";
import type { TimeMap } from "./timemap";

const HEIGHT = 26;
const EDGE = 6;
const DRAW_EVERY = 250; // milliseconds

/** Makes the line for a timeline. */
export class Overview implements View {
  readonly #canvas = h("canvas", { class: "db-strip", "aria-hidden": "true" });
  readonly #window = h("div", { class: "db-window" });
  readonly element = h("div", {
    class: "db-overview",
    onpointerdown: (event: PointerEvent) => { this.#press(event); },
    onpointermove: (event: PointerEvent) => { this.#move(event); },
    onpointerup: () => { this.#drag = null; },
    ondblclick: () => { this.#show(0, Infinity); },
  }, this.#canvas, this.#window);

  #drag: { kind: "from" | "to" | "both" | "new"; x: number; from: number; to: number } | null = null;
  #drawnAt = -Infinity;
  #drawnVersion = -1;
  #drawnMap: TimeMap | null = null;
  #later: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly model: Model,
    private readonly timeline: TimelineCanvas,
  ) {}

  destroy(): void {
    clearTimeout(this.#later);
  }

  /** Shows where the timeline is now. */
  update(): void {
    const { viewport } = this.timeline;
    const whole = this.#whole();
    const room = this.element.clientWidth - LABELS;
    const [left, right] = [Math.max(0, viewport.from / whole), Math.min(1, viewport.to / whole)];
    this.#window.style.left = `${LABELS + left * room}px`;
    this.#window.style.width = `${Math.max(4, (right - left) * room)}px`;
    this.element.classList.toggle("db-all", viewport.fitted);
    const now = performance.now();
    const isNew = this.model.spans.version !== this.#drawnVersion || this.model.spans.running.size > 0 || this.#canvas.width !== this.element.clientWidth || this.timeline.map !== this.#drawnMap;
    if (!isNew) return;
    if (now - this.#drawnAt > DRAW_EVERY) this.#paint(now, room);
    else this.#later ??= setTimeout(() => { this.#later = undefined; this.timeline.invalidate(); }, DRAW_EVERY);
  }

  #whole(): number {
    return Math.max(1, this.timeline.map.toDrawn(this.model.now()) * 1.02);
  }

  /** How much runs at each pixel, calls only where there are any. */
  #paint(now: number, room: number): void {
    [this.#drawnAt, this.#drawnVersion, this.#drawnMap] = [now, this.model.spans.version, this.timeline.map];
    const [width, palette] = [this.element.clientWidth, this.timeline.scene().palette];
    [this.#canvas.width, this.#canvas.height] = [width, HEIGHT];
    const busy = this.#counted(Math.max(1, Math.round(room)));
    const most = Math.max(1, ...busy);
    const context = this.#canvas.getContext("2d");
    if (context === null) return;
    bars(context, busy, most, palette);
  }

  #counted(room: number): Float64Array {
    const { spans } = this.model;
    const steps = new Float64Array(room + 2);
    const scale = room / this.#whole();
    const moment = this.model.now();
    spans.within(-Infinity, Infinity, (id) => {
      const x0 = Math.max(0, Math.floor(this.timeline.map.toDrawn(spans.startOf(id)) * scale));
      const x1 = Math.min(room, Math.max(x0 + 1, Math.ceil(this.timeline.map.toDrawn(spans.endOf(id, moment)) * scale)));
      steps[x0] = (steps[x0] ?? 0) + 1;
      steps[x1] = (steps[x1] ?? 0) - 1;
    });
    for (let x = 1; x < steps.length; x++) steps[x] = (steps[x] ?? 0) + (steps[x - 1] ?? 0);
    return steps.subarray(0, room);
  }

  #press(event: PointerEvent): void {
    const { viewport } = this.timeline;
    const x = this.#place(event);
    const [left, right] = [this.#window.offsetLeft, this.#window.offsetLeft + this.#window.offsetWidth];
    const inside = x > left && x < right && !viewport.fitted;
    const kind = Math.abs(x - left) <= EDGE ? "from" : Math.abs(x - right) <= EDGE ? "to" : inside ? "both" : "new";
    this.#drag = { kind, x, from: viewport.from, to: viewport.to };
    this.element.setPointerCapture(event.pointerId);
  }

  #place(event: PointerEvent): number {
    return event.clientX - this.element.getBoundingClientRect().left;
  }

  #move(event: PointerEvent): void {
    if (this.#drag === null) return;
    const scale = this.#whole() / Math.max(1, this.element.clientWidth - LABELS);
    const x = this.#place(event);
    const { kind, from, to } = this.#drag;
    const by = (x - this.#drag.x) * scale;
    if (kind === "new" && Math.abs(x - this.#drag.x) < 4) return;
    if (kind === "both") this.#show(from + by, to + by);
    else if (kind === "from") this.#show(Math.min(from + by, to), to);
    else if (kind === "to") this.#show(from, Math.max(from, to + by));
    else this.#show((Math.min(x, this.#drag.x) - LABELS) * scale, (Math.max(x, this.#drag.x) - LABELS) * scale);
  }

  #show(from: number, to: number): void {
    if (to === Infinity) this.timeline.viewport.fit();
    else this.timeline.viewport.show(from, to);
    this.timeline.invalidate();
  }
}

function bars(context: CanvasRenderingContext2D, busy: Float64Array, most: number, palette: Palette): void {
  context.fillStyle = palette["step"] ?? "";
  busy.forEach((count, x) => {
    const height = count === 0 ? 0 : Math.max(2, (Math.log1p(count) / Math.log1p(most)) * (HEIGHT - 4));
    context.fillRect(LABELS + x, HEIGHT - 1 - height, 1, height);
  });
}
