// Overview of the whole run in one line, with the visible range: drag its edges or its middle, or drag a new one.

import { h, type View } from "../shared/dom";
import type { Model } from "../shared/model";
import type { TimelineCanvas } from "./canvas";
import { isWork } from "./kinds";
import type { Palette } from "./palette";
import { labelsWide } from "./scene";
import { drawStrip } from "./strip";
import type { TimeMap } from "./timemap";

const HEIGHT = 34;
const EDGE = 6;
const DRAW_EVERY = 250; // milliseconds
const SPANS_PER_MILLISECOND = 50; // of many, the strip is painted less often

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
  #drawnWide = -1;
  #drawnPalette: Palette | null = null;
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
    const [edge, room] = [labelsWide(this.element.clientWidth), this.#room()];
    const [left, right] = [Math.max(0, viewport.from / whole), Math.min(1, viewport.to / whole)];
    this.#window.style.left = `${edge + left * room}px`;
    this.#window.style.width = `${Math.max(4, (right - left) * room)}px`;
    this.element.classList.toggle("db-all", viewport.fitted);
    const now = performance.now();
    const { spans } = this.model;
    const isNewTheme = this.timeline.palette !== this.#drawnPalette;
    const isNew = isNewTheme || spans.version !== this.#drawnVersion || spans.running.size > 0 || this.#canvas.clientWidth !== this.#drawnWide || this.timeline.map !== this.#drawnMap;
    if (!isNew) return;
    const least = Math.max(DRAW_EVERY, spans.total / SPANS_PER_MILLISECOND);
    if (isNewTheme || now - this.#drawnAt > least || this.element.clientWidth !== this.#drawnWide) this.#paint(now, room);
    else this.#later ??= setTimeout(() => { this.#later = undefined; this.timeline.invalidate(); }, least);
  }

  #room(): number {
    return Math.max(1, this.element.clientWidth - labelsWide(this.element.clientWidth));
  }

  #whole(): number {
    return Math.max(1, this.timeline.map.toDrawn(this.model.now()) * 1.02);
  }

  #paint(now: number, room: number): void {
    [this.#drawnAt, this.#drawnVersion, this.#drawnMap, this.#drawnPalette] = [now, this.model.spans.version, this.timeline.map, this.timeline.palette];
    const scene = this.timeline.scene();
    const ratio = window.devicePixelRatio || 1;
    const width = (this.#drawnWide = this.element.clientWidth);
    [this.#canvas.width, this.#canvas.height] = [Math.round(width * ratio), HEIGHT * ratio];
    const context = this.#canvas.getContext("2d");
    if (context === null) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const x = (real: number): number => labelsWide(width) + (this.timeline.map.toDrawn(Math.min(real, scene.now)) / this.#whole()) * room;
    drawStrip(context, scene, { busy: this.#counted(Math.max(1, Math.round(room))), x, bottom: HEIGHT - 4 });
  }

  /** How much worked at each pixel. */
  #counted(room: number): Float64Array {
    const { spans } = this.model;
    const steps = new Float64Array(room + 2);
    const scale = room / this.#whole();
    const moment = this.model.now();
    spans.within(-Infinity, Infinity, (id) => {
      if (!isWork(spans, id)) return;
      const x0 = Math.max(0, Math.min(room - 1, Math.floor(this.timeline.map.toDrawn(spans.startOf(id)) * scale)));
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
    const scale = this.#whole() / this.#room();
    const x = this.#place(event);
    const { kind, from, to } = this.#drag;
    const by = (x - this.#drag.x) * scale;
    if (kind === "new" && Math.abs(x - this.#drag.x) < 4) return;
    if (kind === "both") this.#show(from + by, to + by);
    else if (kind === "from") this.#show(Math.min(from + by, to), to);
    else if (kind === "to") this.#show(from, Math.max(from, to + by));
    else {
      const edge = labelsWide(this.element.clientWidth);
      this.#show((Math.min(x, this.#drag.x) - edge) * scale, (Math.max(x, this.#drag.x) - edge) * scale);
    }
  }

  #show(from: number, to: number): void {
    if (to === Infinity) this.timeline.viewport.fit();
    else this.timeline.viewport.show(from, to);
    this.timeline.invalidate();
  }
}
