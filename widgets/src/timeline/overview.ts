// Overview of the whole run in one strip, with the visible range. Drag its edges or its middle, or drag a new range.

import { h, type View } from "../shared/dom";
import type { Model } from "../shared/model";
import type { TimelineCanvas } from "./canvas";
import { isWork } from "./kinds";
import type { Palette } from "./palette";
import { labelsWidth } from "./scene";
import { drawStrip } from "./strip";
import type { TimeMap } from "./timemap";

const HEIGHT = 34;
const EDGE = 6; // pixels around an edge in which a press drags it
const DRAW_EVERY = 250; // milliseconds
const SPANS_PER_MILLISECOND = 50; // with many spans, the strip is drawn less often

/** Overview strip of a timeline. */
export class Overview implements View {
  readonly #canvas = h("canvas", { class: "db-strip", "aria-hidden": "true" });
  readonly #window = h("div", { class: "db-window" });
  readonly element = h("div", {
    class: "db-overview",
    onpointerdown: (event: PointerEvent) => { this.#onPress(event); },
    onpointermove: (event: PointerEvent) => { this.#onMove(event); },
    onpointerup: () => { this.#drag = null; },
    ondblclick: () => { this.#show(0, Infinity); },
  }, this.#canvas, this.#window);

  #drag: { kind: "from" | "to" | "both" | "new"; x: number; from: number; to: number } | null = null;
  #drawnAt = -Infinity;
  #drawnVersion = -1;
  #drawnMap: TimeMap | null = null;
  #drawnWidth = -1;
  #drawnPalette: Palette | null = null;
  #delayed: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly model: Model,
    private readonly timeline: TimelineCanvas,
  ) {}

  destroy(): void {
    clearTimeout(this.#delayed);
  }

  /**
   * Show the visible range, and draw the strip again if its content has changed. Drawing is throttled, except for a new size
   * or theme.
   */
  update(): void {
    const { viewport } = this.timeline;
    const totalTime = this.#totalTime();
    const edge = labelsWidth(this.element.clientWidth);
    const room = this.#room();
    const left = Math.max(0, viewport.from / totalTime);
    const right = Math.min(1, viewport.to / totalTime);
    this.#window.style.left = `${edge + left * room}px`;
    this.#window.style.width = `${Math.max(4, (right - left) * room)}px`;
    this.element.classList.toggle("db-all", viewport.isFitted);
    const now = performance.now();
    const { spans } = this.model;
    const isNewTheme = this.timeline.palette !== this.#drawnPalette;
    const isNewContent = spans.version !== this.#drawnVersion || spans.running.size > 0;
    const isNewScale = this.#canvas.clientWidth !== this.#drawnWidth || this.timeline.map !== this.#drawnMap;
    if (!isNewTheme && !isNewContent && !isNewScale) return;
    const interval = Math.max(DRAW_EVERY, spans.total / SPANS_PER_MILLISECOND);
    if (isNewTheme || now - this.#drawnAt > interval || this.element.clientWidth !== this.#drawnWidth) {
      this.#paint(now, room);
      return;
    }
    this.#delayed ??= setTimeout(() => {
      this.#delayed = undefined;
      this.timeline.invalidate();
    }, interval);
  }

  /** Return the width of the strip without the names. */
  #room(): number {
    return Math.max(1, this.element.clientWidth - labelsWidth(this.element.clientWidth));
  }

  /** Return the drawn time that the strip covers. */
  #totalTime(): number {
    return Math.max(1, this.timeline.map.toDrawn(this.model.now()) * 1.02);
  }

  /** Draw the strip. */
  #paint(now: number, room: number): void {
    this.#drawnAt = now;
    this.#drawnVersion = this.model.spans.version;
    this.#drawnMap = this.timeline.map;
    this.#drawnPalette = this.timeline.palette;
    const scene = this.timeline.scene();
    const ratio = window.devicePixelRatio || 1;
    const width = this.element.clientWidth;
    this.#drawnWidth = width;
    this.#canvas.width = Math.round(width * ratio);
    this.#canvas.height = HEIGHT * ratio;
    const context = this.#canvas.getContext("2d");
    if (context === null) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const x = (real: number): number => labelsWidth(width) + (this.timeline.map.toDrawn(Math.min(real, scene.now)) / this.#totalTime()) * room;
    drawStrip(context, scene, { busy: this.#concurrency(Math.max(1, Math.round(room))), x, bottom: HEIGHT - 4 });
  }

  /** Return the number of concurrent calls at each pixel: a prefix sum over the starts and ends. */
  #concurrency(room: number): Float64Array {
    const { spans } = this.model;
    const steps = new Float64Array(room + 2);
    const scale = room / this.#totalTime();
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

  /** Start to drag an edge, the middle, or a new range, depending on the position of the press. */
  #onPress(event: PointerEvent): void {
    const { viewport } = this.timeline;
    const x = this.#xOf(event);
    const left = this.#window.offsetLeft;
    const right = left + this.#window.offsetWidth;
    const isInside = x > left && x < right && !viewport.isFitted;
    let kind: "from" | "to" | "both" | "new" = isInside ? "both" : "new";
    if (Math.abs(x - left) <= EDGE) kind = "from";
    else if (Math.abs(x - right) <= EDGE) kind = "to";
    this.#drag = { kind, x, from: viewport.from, to: viewport.to };
    this.element.setPointerCapture(event.pointerId);
  }

  #xOf(event: PointerEvent): number {
    return event.clientX - this.element.getBoundingClientRect().left;
  }

  #onMove(event: PointerEvent): void {
    if (this.#drag === null) return;
    const scale = this.#totalTime() / this.#room();
    const x = this.#xOf(event);
    const { kind, from, to } = this.#drag;
    const shift = (x - this.#drag.x) * scale;
    if (kind === "new" && Math.abs(x - this.#drag.x) < 4) return;
    if (kind === "both") this.#show(from + shift, to + shift);
    else if (kind === "from") this.#show(Math.min(from + shift, to), to);
    else if (kind === "to") this.#show(from, Math.max(from, to + shift));
    else {
      const edge = labelsWidth(this.element.clientWidth);
      this.#show((Math.min(x, this.#drag.x) - edge) * scale, (Math.max(x, this.#drag.x) - edge) * scale);
    }
  }

  #show(from: number, to: number): void {
    if (to === Infinity) this.timeline.viewport.fit();
    else this.timeline.viewport.show(from, to);
    this.timeline.invalidate();
  }
}
