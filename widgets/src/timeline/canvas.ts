// Canvas of the timeline: drawing, zooming, panning and selection by mouse, touch or keys.

import { h, setText, type View } from "../shared/dom";
import { duration, formatCount } from "../shared/format";
import type { Model } from "../shared/model";
import { onThemeChange } from "../shared/theme";
import { branchOf } from "../shared/words";
import { type Aggregates, describeColumn } from "./aggregate";
import { rectangle } from "./bars";
import { draw } from "./draw";
import { SIGNS, kindOf } from "./kinds";
import { Layout, ROW } from "./layout";
import { neighbour } from "./neighbours";
import { type Palette, paletteFor } from "./palette";
import type { Matches } from "./query";
import { AXIS, labelsWidth, momentAt, type Scene } from "./scene";
import { idlePeriods, TimeMap } from "./timemap";
import { Viewport } from "./viewport";
import { pausesOf, waitsOf } from "./waits";

// Heights in pixels; the last one applies when all lanes are shown.
const LEAST_HIGH = 64;
const MOST_HIGH = 320;
const MOST_HIGH_WHOLE = 640;
// Widths of one fold, and of all folds together, as shares of the unfolded time.
const FOLDED_TO = 0.06;
const ALL_FOLDED_TO = 0.3;
const COLUMN_ZOOM = 0.2; // share of the range that a click on aggregated calls shows
const SPANS_PER_MILLISECOND = 100; // with many spans, idle time is computed less often
const GROW_EVERY = 100; // milliseconds between two drawings while spans run
// Pause between two drawings while spans arrive: a multiple of the last drawing's time, at most so many milliseconds.
const PAUSE_FACTOR = 12;
const MOST_PAUSE = 125;

const KEYS = "← → ↑ ↓: move between bars | Enter: show details | Escape: leave the timeline | + -: zoom | 0: fit all | Ctrl+wheel: zoom";

/**
 * Canvas that draws the spans of a model, at most once per animation frame.
 *
 * Actions of a person draw with the next frame (`invalidate`). Changes from the kernel are throttled by the time that the
 * last drawing took (`#drawThrottled`), so that the page stays responsive while thousands of spans arrive.
 */
export class TimelineCanvas implements View {
  readonly element: HTMLElement;
  readonly viewport = new Viewport();
  readonly layout = new Layout();
  map = new TimeMap();
  /** Id of the bar with the keyboard focus. */
  focused: number | null = null;
  /** Called after each drawing. */
  afterDraw: () => void = () => undefined;
  /** Time of the last drawing, and the number of spans in it. */
  cost = { milliseconds: 0, spans: 0 };
  readonly #canvas = h("canvas", {
    class: "db-canvas",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "timeline",
    "aria-label": "Timeline",
    "data-keys": KEYS,
    onpointerdown: (event: PointerEvent) => { this.#onPress(event); },
    onpointermove: (event: PointerEvent) => { this.#onMove(event); },
    onpointerup: (event: PointerEvent) => { this.#onRelease(event); },
    onpointerleave: () => { this.#tip.hidden = true; },
    ondblclick: () => {
      this.viewport.fit();
      this.invalidate();
    },
    onkeydown: (event: KeyboardEvent) => { this.#onKey(event); },
    onblur: () => { this.focus(null); },
  });

  readonly #spacer = h("div", { class: "db-spacer" });
  readonly #scroller = h("div", { class: "db-scroller", onscroll: () => { this.invalidate(); } }, this.#canvas, this.#spacer);
  readonly #tip = h("div", { class: "db-tip", hidden: true });
  readonly #announcement = h("div", { class: "db-hidden", "aria-live": "polite" });
  #palette: Palette | null = null;
  /** Aggregated bands of the last drawing. */
  #aggregates: Aggregates | null = null;
  /** True if the element was hidden when it should have been drawn last. */
  #wasHidden = false;
  #requested = 0;
  #paintedAt = -Infinity;
  #delayed: ReturnType<typeof setTimeout> | undefined;
  #isFolding = true;
  #foldedAt = -Infinity;
  #waits: Scene["waits"] = new Map();
  #drag: { x: number; from: number; to: number; hasMoved: boolean } | null = null;
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #cleanups: (() => void)[] = [];

  constructor(
    root: HTMLElement,
    private readonly model: Model,
    private readonly matches: Matches,
  ) {
    this.element = h("div", { class: "db-picture" }, this.#scroller, this.#tip, this.#announcement);
    this.#canvas.addEventListener("wheel", (event) => { this.#onWheel(event); }, { passive: false });
    this.#waits = waitsOf(model);
    this.#cleanups.push(
      onThemeChange(root, () => { this.invalidate(); }),
      model.on((change) => {
        if (change === "questions") this.#waits = waitsOf(model);
        if (change === "selection" && model.selected !== null) this.#scrollTo(model.selected);
        if (change === "position" && model.position !== null) {
          const moment = this.map.toDrawn(model.position.time);
          this.viewport.reveal(moment, moment);
        }
        if (change === "spans" || change === "header") this.#drawThrottled();
        else this.invalidate();
      }),
    );
    const resizeObserver = new ResizeObserver(() => { this.invalidate(); });
    resizeObserver.observe(this.element);
    this.#cleanups.push(() => { resizeObserver.disconnect(); });
    this.#timer = setInterval(() => {
      if (model.spans.running.size > 0 && !document.hidden) this.#drawThrottled();
    }, GROW_EVERY);
  }

  destroy(): void {
    clearInterval(this.#timer);
    clearTimeout(this.#delayed);
    cancelAnimationFrame(this.#requested);
    this.#cleanups.forEach((cleanup) => { cleanup(); });
  }

  /** Fold idle time, or show it at its full length. */
  fold(isFolding: boolean): void {
    this.#isFolding = isFolding;
    this.#foldedAt = -Infinity;
    this.viewport.fit();
    this.invalidate();
  }

  get isFolding(): boolean {
    return this.#isFolding;
  }

  /** Show all lanes, or only the first ones. */
  showLanes(isExpanded: boolean): void {
    this.layout.isExpanded = isExpanded;
    this.invalidate();
  }

  /** Draw again with the next frame. */
  invalidate(): void {
    if (this.#requested === 0) this.#requested = requestAnimationFrame(() => { this.#paint(); });
  }

  /** Draw again for new data, after a pause in proportion to the time of the last drawing. */
  #drawThrottled(): void {
    const pause = Math.min(MOST_PAUSE, this.cost.milliseconds * PAUSE_FACTOR);
    const remaining = pause - (performance.now() - this.#paintedAt);
    if (remaining <= 0) this.invalidate();
    else this.#delayed ??= setTimeout(() => { this.invalidate(); }, remaining);
  }

  /**
   * Draw the timeline.
   *
   * The order matters: the layout decides the height, the map depends on the spans, the viewport on the map, and the scene on all
   * of them. Nothing is drawn while the element is hidden; its first visible size triggers a drawing.
   */
  #paint(): void {
    this.#requested = 0;
    clearTimeout(this.#delayed);
    this.#delayed = undefined;
    if (this.element.clientWidth === 0) {
      // JupyterLab hides the page for a part of a frame while it changes the theme. That is too short for the ResizeObserver.
      if (!this.#wasHidden) this.invalidate();
      this.#wasHidden = true;
      return;
    }
    this.#wasHidden = false;
    const startedAt = performance.now();
    this.#palette = paletteFor(this.element, this.#palette); // the event of a theme change may precede its colours
    this.layout.update(this.model.spans, this.model.generation);
    this.#updateMap(startedAt);
    this.viewport.extend(this.map.toDrawn(this.model.now()));
    const scene = this.#fitCanvas();
    const context = this.#canvas.getContext("2d");
    if (context === null) return;
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { spans, aggregates } = draw(context, scene);
    this.#aggregates = aggregates;
    this.#paintedAt = performance.now();
    this.cost = { milliseconds: this.#paintedAt - startedAt, spans };
    this.afterDraw();
  }

  /** Set the size of the canvas to the visible part of the lanes, and return the scene to draw. */
  #fitCanvas(): Scene {
    const width = this.element.clientWidth;
    const fullHeight = this.layout.height + AXIS;
    const height = Math.max(LEAST_HIGH, Math.min(this.layout.isExpanded ? MOST_HIGH_WHOLE : MOST_HIGH, fullHeight));
    const ratio = window.devicePixelRatio || 1;
    const pixelWidth = Math.round(width * ratio);
    const pixelHeight = Math.round(height * ratio);
    if (this.#canvas.width !== pixelWidth || this.#canvas.height !== pixelHeight) { // setting the size clears the canvas
      this.#canvas.width = pixelWidth;
      this.#canvas.height = pixelHeight;
      this.#canvas.style.width = `${width}px`;
      this.#canvas.style.height = this.#scroller.style.height = `${height}px`;
    }
    this.#spacer.style.height = `${Math.max(0, fullHeight - height)}px`;
    this.element.classList.toggle("db-below", this.#scroller.scrollTop + height < fullHeight - 6);
    return this.scene(width, height);
  }

  /** Colours of the last drawing. A changed colour results in a new object. */
  get palette(): Palette {
    this.#palette ??= paletteFor(this.element);
    return this.#palette;
  }

  /** Return the data of a drawing of this size. */
  scene(width = this.element.clientWidth, height = this.#canvas.clientHeight): Scene {
    const { model } = this;
    return {
      spans: model.spans,
      layout: this.layout,
      isMatch: (id) => this.matches.has(id),
      map: this.map,
      viewport: this.viewport,
      width,
      height,
      scroll: this.#scroller.scrollTop,
      now: model.now(),
      palette: this.palette,
      focused: this.focused,
      selected: model.selected,
      waits: this.#waits,
      pauses: pausesOf(model),
      replayTime: model.position?.time ?? null,
    };
  }

  /** Compute the folds again. The more spans there are, the less often this happens. */
  #updateMap(moment: number): void {
    const { spans } = this.model;
    if (!this.#isFolding) {
      if (this.map.gaps.length > 0) this.map = new TimeMap();
      return;
    }
    if (moment - this.#foldedAt < spans.total / SPANS_PER_MILLISECOND) return;
    this.#foldedAt = moment;
    const total = Math.max(1, this.model.now());
    const gaps = idlePeriods(spans, total, pausesOf(this.model).map(({ period: stretch }) => stretch));
    if (gaps.length === 0 && this.map.gaps.length === 0) return;
    const unfoldedTime = total - gaps.reduce((sum, [from, to]) => sum + to - from, 0);
    this.map = new TimeMap(gaps, Math.max(1, unfoldedTime * Math.min(FOLDED_TO, ALL_FOLDED_TO / gaps.length)));
  }

  // --- mouse, touch and keys --------------------------------------------------------------------------------------

  /** Zoom with Ctrl and wheel or a pinch, and pan sideways. Vertical scrolling stays with the page. */
  #onWheel(event: WheelEvent): void {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    const isSideways = Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY);
    const { viewport } = this;
    if (event.ctrlKey || event.metaKey) {
      const speed = Math.abs(event.deltaY) < 30 ? 0.01 : 0.002; // a touchpad reports smaller distances than a wheel
      viewport.zoom(Math.exp(event.deltaY * speed), this.#relativeX(event));
    } else if (isSideways) viewport.pan((sideways / this.#canvas.clientWidth) * (viewport.to - viewport.from));
    else return;
    event.preventDefault();
    this.invalidate();
  }

  /** Return the horizontal position of the pointer: 0 left, 1 right. */
  #relativeX(event: MouseEvent): number {
    const left = labelsWidth(this.#canvas.clientWidth);
    return Math.min(1, Math.max(0, (event.offsetX - left) / (this.#canvas.clientWidth - left)));
  }

  #onPress(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.#drag = { x: event.offsetX, from: this.viewport.from, to: this.viewport.to, hasMoved: false };
    this.#canvas.setPointerCapture(event.pointerId);
  }

  /** Pan while the pointer is down, otherwise show the tooltip. A range that shows the whole run cannot be panned. */
  #onMove(event: PointerEvent): void {
    if (this.#drag === null) {
      this.#showTip(event);
      return;
    }
    const pixels = event.offsetX - this.#drag.x;
    if (Math.abs(pixels) > 3) this.#drag.hasMoved = true;
    if (!this.#drag.hasMoved || this.viewport.isFitted) return;
    const { from, to } = this.#drag;
    const shift = (pixels / (this.#canvas.clientWidth - labelsWidth(this.#canvas.clientWidth))) * (to - from);
    this.viewport.show(from - shift, to - shift);
    this.#tip.hidden = true;
    this.invalidate();
  }

  #onRelease(event: PointerEvent): void {
    const wasDrag = this.#drag?.hasMoved ?? true;
    this.#drag = null;
    if (wasDrag) return;
    const at = this.#aggregates?.at(event.offsetX, event.offsetY) ?? null;
    if (at === null || "outlier" in at) this.model.select(this.pick(event.offsetX, event.offsetY));
    else {
      this.#tip.hidden = true;
      this.viewport.zoom(COLUMN_ZOOM, this.#relativeX(event));
      this.invalidate();
    }
  }

  /** Return the bar at a position on the canvas, or the nearest one within a few pixels. */
  pick(x: number, y: number): number | null {
    const scene = this.scene();
    if (x < labelsWidth(scene.width) || y < AXIS) return null;
    const aggregated = this.#aggregates?.at(x, y) ?? null;
    if (aggregated !== null) return "outlier" in aggregated ? aggregated.outlier : null;
    const at = this.layout.at(y - AXIS + scene.scroll);
    if (at === null) return null;
    let best: number | null = null;
    let nearest = 4;
    this.model.spans.within(momentAt(scene, x - 4), momentAt(scene, x + 4), (id) => {
      if (this.layout.band[id] !== at.band || this.layout.lane[id] !== at.lane || !this.matches.has(id)) return;
      const [left, , width] = rectangle(scene, id);
      const isFailed = this.model.spans.text(id, "status") === "failed"; // failed bars are drawn on top
      const distance = Math.max(left - x, x - left - width, isFailed ? -1 : 0);
      if (distance > nearest) return;
      best = id;
      nearest = distance;
    });
    return best;
  }

  /** Show the tooltip of the bar under the pointer. */
  #showTip(event: PointerEvent): void {
    const column = this.#aggregates?.at(event.offsetX, event.offsetY) ?? null;
    const id = this.pick(event.offsetX, event.offsetY);
    const isColumn = column !== null && !("outlier" in column);
    const text = isColumn ? describeColumn(column) : id === null ? "" : this.describe(id);
    this.#canvas.style.cursor = isColumn ? "zoom-in" : id === null ? "default" : "pointer";
    this.#tip.hidden = text === "";
    if (text === "") return;
    setText(this.#tip, text);
    const { offsetWidth: width, offsetHeight: height } = this.#tip;
    const left = Math.max(4, Math.min(event.offsetX + 12, this.element.clientWidth - width - 4));
    const above = Math.max(0, event.offsetY - height - 10);
    const below = event.offsetY + 18;
    const hasRoomBelow = below + height <= this.#canvas.clientHeight + 40;
    this.#tip.style.left = `${left}px`;
    this.#tip.style.top = `${hasRoomBelow ? below : above}px`;
  }

  /** Return the description of a span: its name on the first line, then its facts. */
  describe(id: number): string {
    const { spans } = this.model;
    const status = spans.text(id, "status");
    const parts = [
      `${spans.nameOf(id)}: ${SIGNS[status] ?? ""} ${status}`,
      [kindOf(spans, id).name.replace(/s$/, ""), spans.text(id, "label")].filter(Boolean).join(" "),
      `${duration(spans.endOf(id, this.model.now()) - spans.startOf(id))}, starting at ${duration(spans.startOf(id))}`,
      spans.text(id, "item") && `item ${spans.text(id, "item")}`,
      branchOf(spans.text(id, "path")),
      spans.number(id, "attempts") > 1 ? `${spans.number(id, "attempts")} attempts` : "",
      spans.number(id, "tokens") > 0 ? `${formatCount(spans.number(id, "tokens"))} tokens` : "",
      spans.text(id, "given"),
      spans.text(id, "note") || spans.text(id, "came"),
    ];
    return parts.filter(Boolean).join("\n");
  }

  #onKey(event: KeyboardEvent): void {
    if (!this.#handleKey(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    this.invalidate();
  }

  /** Execute the command of a key. Return false if the key has none. */
  #handleKey(key: string): boolean {
    const { viewport } = this;
    if (key === "+" || key === "=") viewport.zoom(0.7);
    else if (key === "-") viewport.zoom(1 / 0.7);
    else if (key === "0") viewport.fit();
    else if (key === "PageUp") viewport.pan((viewport.from - viewport.to) * 0.8);
    else if (key === "PageDown") viewport.pan((viewport.to - viewport.from) * 0.8);
    else if ((key === "Enter" || key === " ") && this.focused !== null) this.model.select(this.focused);
    else if (key === "Escape" && (this.focused ?? this.model.selected) !== null) this.#deselect();
    else return this.#moveFocus(key);
    return true;
  }

  #deselect(): void {
    if (this.model.selected !== null) this.model.select(null);
    else this.focus(null);
  }

  /** Move the keyboard focus to a neighbour. Return false if the key does not move. */
  #moveFocus(key: string): boolean {
    this.layout.update(this.model.spans, this.model.generation);
    const next = neighbour(this.model.spans, this.layout, (id) => this.matches.has(id), this.focused ?? this.model.selected, key);
    if (next === undefined) return false;
    if (next !== null) this.focus(next);
    return true;
  }

  /** Select the failure after the current bar, or the one before it. Wrap around at the ends. */
  toFailure(direction: 1 | -1): void {
    this.layout.update(this.model.spans, this.model.generation);
    const { ids } = this.layout.failures;
    const from = this.focused ?? this.model.selected ?? (direction > 0 ? -1 : Infinity);
    const after = ids.find((id) => id > from) ?? ids[0];
    const before = ids.findLast((id) => id < from) ?? ids.at(-1);
    const next = direction > 0 ? after : before;
    if (next === undefined) return;
    this.model.select(next);
    this.focus(next);
  }

  /** Move the keyboard focus to a bar, scroll to it, and describe it to screen readers. */
  focus(id: number | null): void {
    if (id === this.focused) return;
    this.focused = id;
    this.invalidate();
    if (id === null) return;
    this.#scrollTo(id);
    setText(this.#announcement, this.describe(id).replaceAll("\n", ", "));
  }

  /** Scroll until a bar is visible, and show its lane. */
  #scrollTo(id: number): void {
    const { spans } = this.model;
    if (!spans.has(id)) return;
    this.layout.update(spans, this.model.generation);
    if (this.layout.topOf(id) < 0) {
      this.layout.isExpanded = true;
      this.layout.update(spans, this.model.generation);
    }
    this.viewport.reveal(this.map.toDrawn(spans.startOf(id)), this.map.toDrawn(spans.endOf(id, this.model.now())));
    const top = this.layout.topOf(id);
    const visibleHeight = this.#canvas.clientHeight - AXIS;
    if (top < this.#scroller.scrollTop) this.#scroller.scrollTop = top;
    if (top + ROW > this.#scroller.scrollTop + visibleHeight) this.#scroller.scrollTop = top + ROW - visibleHeight;
    this.invalidate();
  }
}
