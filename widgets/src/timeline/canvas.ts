// Canvas of the timeline and its interaction: zoom, move, point, choose, by mouse, touch or keys.

import { h, setText, type View } from "../shared/dom";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";
import { onThemeChange } from "../shared/theme";
import { branchOf } from "../shared/words";
import { rectangle } from "./bars";
import { draw } from "./draw";
import { SIGNS, typeOf } from "./kinds";
import { Layout, ROW } from "./layout";
import { neighbour } from "./neighbours";
import { type Palette, paletteFor } from "./palette";
import type { Matches } from "./query";
import { AXIS, labelsWide, momentAt, type Scene } from "./scene";
import { idle, TimeMap } from "./timemap";
import { Viewport } from "./viewport";
import { pausesOf, waitsOf } from "./waits";

const [LEAST_HIGH, MOST_HIGH, MOST_HIGH_WHOLE] = [64, 320, 640];
const [FOLDED_TO, ALL_FOLDED_TO] = [0.06, 0.3]; // of what is not folded
const SPANS_PER_MILLISECOND = 100; // of many, idle time is looked for less often
const GROW_EVERY = 100; // milliseconds
const [REST, MOST_REST] = [12, 125]; // of what a picture took, and milliseconds: between two while bars stream in

const KEYS = "← → ↑ ↓: bar to bar, spoken | Enter: details | Escape: leave | + -: zoom | 0: fit all | Ctrl+wheel: zoom";

/** Draws a model's spans, at most once a frame. */
export class TimelineCanvas implements View {
  readonly element: HTMLElement;
  readonly viewport = new Viewport();
  readonly layout = new Layout();
  map = new TimeMap();
  focused: number | null = null;
  /** Told after each picture. */
  afterDraw: () => void = () => undefined;
  /** What drawing took last, and how many spans it concerned. */
  cost = { milliseconds: 0, spans: 0 };
  readonly #canvas = h("canvas", {
    class: "db-canvas",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "timeline",
    "aria-label": "Timeline",
    "data-keys": KEYS,
    onpointerdown: (event: PointerEvent) => { this.#press(event); },
    onpointermove: (event: PointerEvent) => { this.#move(event); },
    onpointerup: (event: PointerEvent) => { this.#release(event); },
    onpointerleave: () => { this.#tip.hidden = true; },
    ondblclick: () => { this.viewport.fit(); this.invalidate(); },
    onkeydown: (event: KeyboardEvent) => { this.#key(event); },
    onblur: () => { this.focus(null); },
  });

  readonly #spacer = h("div", { class: "db-spacer" });
  readonly #scroller = h("div", { class: "db-scroller", onscroll: () => { this.invalidate(); } }, this.#canvas, this.#spacer);
  readonly #tip = h("div", { class: "db-tip", hidden: true });
  readonly #spoken = h("div", { class: "db-hidden", "aria-live": "polite" });
  #palette: Palette | null = null;
  #requested = 0;
  #paintedAt = -Infinity;
  #later: ReturnType<typeof setTimeout> | undefined;
  #folding = true;
  #foldedAt = -Infinity;
  #waits: Scene["waits"] = new Map();
  #grab: { x: number; from: number; to: number; moved: boolean } | null = null;
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #undo: (() => void)[] = [];

  constructor(
    root: HTMLElement,
    private readonly model: Model,
    private readonly matches: Matches,
  ) {
    this.element = h("div", { class: "db-picture" }, this.#scroller, this.#tip, this.#spoken);
    this.#canvas.addEventListener("wheel", (event) => { this.#wheel(event); }, { passive: false });
    this.#waits = waitsOf(model);
    this.#undo.push(
      onThemeChange(root, () => { this.invalidate(); }),
      model.on((change) => {
        if (change === "questions") this.#waits = waitsOf(model);
        if (change === "selection" && model.selected !== null) this.#bring(model.selected);
        if (change === "position" && model.position !== null) this.viewport.reveal(this.map.toDrawn(model.position.time), this.map.toDrawn(model.position.time));
        if (change === "spans" || change === "header") this.#follow();
        else this.invalidate();
      }),
    );
    const resized = new ResizeObserver(() => { this.invalidate(); });
    resized.observe(this.element);
    this.#undo.push(() => { resized.disconnect(); });
    this.#timer = setInterval(() => { if (model.spans.running.size > 0 && !document.hidden) this.#follow(); }, GROW_EVERY);
  }

  destroy(): void {
    clearInterval(this.#timer);
    clearTimeout(this.#later);
    cancelAnimationFrame(this.#requested);
    this.#undo.forEach((undo) => { undo(); });
  }

  /** Folds idle time, or shows it at its full length. */
  fold(folding: boolean): void {
    this.#folding = folding;
    this.#foldedAt = -Infinity;
    this.viewport.fit();
    this.invalidate();
  }

  get isFolding(): boolean {
    return this.#folding;
  }

  /** Shows all lanes, or only the first. */
  showLanes(isWhole: boolean): void {
    this.layout.isWhole = isWhole;
    this.invalidate();
  }

  /** Asks for a new picture with the next frame. */
  invalidate(): void {
    if (this.#requested === 0) this.#requested = requestAnimationFrame(() => { this.#paint(); });
  }

  /** Asks for a new picture for what came in: the dearer the last one was, the later, so that the page is free in between. */
  #follow(): void {
    const rest = Math.min(MOST_REST, this.cost.milliseconds * REST) - (performance.now() - this.#paintedAt);
    if (rest <= 0) this.invalidate();
    else this.#later ??= setTimeout(() => { this.invalidate(); }, rest);
  }

  #paint(): void {
    this.#requested = 0;
    clearTimeout(this.#later);
    this.#later = undefined;
    if (this.element.clientWidth === 0) return;
    const started = performance.now();
    this.#palette = paletteFor(this.element, this.#palette); // a change of theme may be told before its colours are there
    this.layout.update(this.model.spans, this.model.generation);
    this.#updateMap(started);
    this.viewport.extend(this.map.toDrawn(this.model.now()));
    const scene = this.#fitCanvas();
    const context = this.#canvas.getContext("2d");
    if (context === null) return;
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const spans = draw(context, scene);
    this.#paintedAt = performance.now();
    this.cost = { milliseconds: this.#paintedAt - started, spans };
    this.afterDraw();
  }

  #fitCanvas(): Scene {
    const width = this.element.clientWidth;
    const wanted = this.layout.height + AXIS;
    const height = Math.max(LEAST_HIGH, Math.min(this.layout.isWhole ? MOST_HIGH_WHOLE : MOST_HIGH, wanted));
    const ratio = window.devicePixelRatio || 1;
    const [pixelsWide, pixelsHigh] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.#canvas.width !== pixelsWide || this.#canvas.height !== pixelsHigh) {
      [this.#canvas.width, this.#canvas.height] = [pixelsWide, pixelsHigh];
      this.#canvas.style.width = `${width}px`;
      this.#canvas.style.height = this.#scroller.style.height = `${height}px`;
    }
    this.#spacer.style.height = `${Math.max(0, wanted - height)}px`;
    this.element.classList.toggle("db-below", this.#scroller.scrollTop + height < wanted - 6);
    return this.scene(width, height);
  }

  /** The colours of the last picture: another object once one of them has changed. */
  get palette(): Palette {
    this.#palette ??= paletteFor(this.element);
    return this.#palette;
  }

  scene(width = this.element.clientWidth, height = this.#canvas.clientHeight): Scene {
    const { model, layout, map, viewport, focused, palette } = this;
    const waits = this.#waits;
    const isMeant = (id: number): boolean => this.matches.has(id);
    const [spans, now, scroll, selected] = [model.spans, model.now(), this.#scroller.scrollTop, model.selected];
    return { spans, layout, isMeant, map, viewport, width, height, scroll, now, palette, focused, selected, waits, pauses: pausesOf(model), at: model.position?.time ?? null };
  }

  #updateMap(moment: number): void {
    const { spans } = this.model;
    if (!this.#folding) {
      if (this.map.gaps.length > 0) this.map = new TimeMap();
      return;
    }
    if (moment - this.#foldedAt < spans.total / SPANS_PER_MILLISECOND) return;
    this.#foldedAt = moment;
    const whole = Math.max(1, this.model.now());
    const gaps = idle(spans, whole, pausesOf(this.model).map(({ stretch }) => stretch));
    if (gaps.length === 0 && this.map.gaps.length === 0) return;
    const kept = whole - gaps.reduce((sum, [from, to]) => sum + to - from, 0);
    this.map = new TimeMap(gaps, Math.max(1, kept * Math.min(FOLDED_TO, ALL_FOLDED_TO / gaps.length)));
  }

  // --- hands ------------------------------------------------------------------------------------------------------

  /** Ctrl and wheel, or two fingers, zoom; sideways moves; up and down stays with the page. */
  #wheel(event: WheelEvent): void {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    const { viewport } = this;
    if (event.ctrlKey || event.metaKey) viewport.zoom(Math.exp(event.deltaY * (Math.abs(event.deltaY) < 30 ? 0.01 : 0.002)), this.#share(event));
    else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) viewport.pan((sideways / this.#canvas.clientWidth) * (viewport.to - viewport.from));
    else return;
    event.preventDefault();
    this.invalidate();
  }

  #share(event: MouseEvent): number {
    const left = labelsWide(this.#canvas.clientWidth);
    return Math.min(1, Math.max(0, (event.offsetX - left) / (this.#canvas.clientWidth - left)));
  }

  #press(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.#grab = { x: event.offsetX, from: this.viewport.from, to: this.viewport.to, moved: false };
    this.#canvas.setPointerCapture(event.pointerId);
  }

  #move(event: PointerEvent): void {
    if (this.#grab === null) {
      this.#point(event);
      return;
    }
    const by = event.offsetX - this.#grab.x;
    if (Math.abs(by) > 3) this.#grab.moved = true;
    if (!this.#grab.moved || this.viewport.fitted) return;
    const { from, to } = this.#grab;
    const moved = (by / (this.#canvas.clientWidth - labelsWide(this.#canvas.clientWidth))) * (to - from);
    this.viewport.show(from - moved, to - moved);
    this.#tip.hidden = true;
    this.invalidate();
  }

  #release(event: PointerEvent): void {
    const wasMoved = this.#grab?.moved ?? true;
    this.#grab = null;
    if (!wasMoved) this.model.select(this.pick(event.offsetX, event.offsetY));
  }

  /** Returns the bar at a place, or the nearest within a few pixels. */
  pick(x: number, y: number): number | null {
    const scene = this.scene();
    if (x < labelsWide(scene.width) || y < AXIS) return null;
    const at = this.layout.at(y - AXIS + scene.scroll);
    if (at === null) return null;
    let best: number | null = null;
    let nearest = 4;
    this.model.spans.within(momentAt(scene, x - 4), momentAt(scene, x + 4), (id) => {
      if (this.layout.band[id] !== at.band || this.layout.lane[id] !== at.lane || !this.matches.has(id)) return;
      const [left, , width] = rectangle(scene, id);
      const isFailed = this.model.spans.text(id, "status") === "failed"; // it is drawn on top
      const distance = Math.max(left - x, x - left - width, isFailed ? -1 : 0);
      if (distance <= nearest) [best, nearest] = [id, distance];
    });
    return best;
  }

  #point(event: PointerEvent): void {
    const id = this.pick(event.offsetX, event.offsetY);
    this.#canvas.style.cursor = id === null ? "default" : "pointer";
    this.#tip.hidden = id === null;
    if (id === null) return;
    setText(this.#tip, this.describe(id));
    const [width, height] = [this.#tip.offsetWidth, this.#tip.offsetHeight];
    const left = Math.max(4, Math.min(event.offsetX + 12, this.element.clientWidth - width - 4));
    const below = event.offsetY + 18;
    this.#tip.style.left = `${left}px`;
    this.#tip.style.top = `${below + height > this.#canvas.clientHeight + 40 ? Math.max(0, event.offsetY - height - 10) : below}px`;
  }

  /** Returns a span in words. */
  describe(id: number): string {
    const { spans } = this.model;
    const status = spans.text(id, "status");
    const parts = [
      `${spans.nameOf(id)}: ${SIGNS[status] ?? ""} ${status}`,
      [typeOf(spans, id).name.replace(/s$/, ""), spans.text(id, "label")].filter(Boolean).join(" "),
      `${duration(spans.endOf(id, this.model.now()) - spans.startOf(id))}, from ${duration(spans.startOf(id))}`,
      spans.text(id, "item") && `item ${spans.text(id, "item")}`,
      branchOf(spans.text(id, "path")),
      spans.number(id, "attempts") > 1 ? `${spans.number(id, "attempts")} attempts` : "",
      spans.number(id, "tokens") > 0 ? `${spans.number(id, "tokens").toLocaleString("en")} tokens` : "",
      spans.text(id, "given"),
      spans.text(id, "note") || spans.text(id, "came"),
    ];
    return parts.filter(Boolean).join("\n");
  }

  #key(event: KeyboardEvent): void {
    if (!this.#act(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    this.invalidate();
  }

  #act(key: string): boolean {
    const { viewport } = this;
    if (key === "+" || key === "=") viewport.zoom(0.7);
    else if (key === "-") viewport.zoom(1 / 0.7);
    else if (key === "0") viewport.fit();
    else if (key === "PageUp") viewport.pan((viewport.from - viewport.to) * 0.8);
    else if (key === "PageDown") viewport.pan((viewport.to - viewport.from) * 0.8);
    else if ((key === "Enter" || key === " ") && this.focused !== null) this.model.select(this.focused);
    else if (key === "Escape" && (this.focused ?? this.model.selected) !== null) this.#leave();
    else return this.#go(key);
    return true;
  }

  #leave(): void {
    if (this.model.selected !== null) this.model.select(null);
    else this.focus(null);
  }

  #go(key: string): boolean {
    this.layout.update(this.model.spans, this.model.generation);
    const next = neighbour(this.model.spans, this.layout, (id) => this.matches.has(id), this.focused ?? this.model.selected, key);
    if (next === undefined) return false;
    if (next !== null) this.focus(next);
    return true;
  }

  /** Chooses the failure that follows what is chosen, or the one before it. */
  toFailure(by: 1 | -1): void {
    this.layout.update(this.model.spans, this.model.generation);
    const { ids } = this.layout.failures;
    const from = this.focused ?? this.model.selected ?? (by > 0 ? -1 : Infinity);
    const next = by > 0 ? (ids.find((id) => id > from) ?? ids[0]) : (ids.findLast((id) => id < from) ?? ids.at(-1));
    if (next === undefined) return;
    this.model.select(next);
    this.focus(next);
  }

  /** Moves the keyboard's mark to a bar, brings it into sight and says what it is. */
  focus(id: number | null): void {
    if (id === this.focused) return;
    this.focused = id;
    this.invalidate();
    if (id === null) return;
    this.#bring(id);
    setText(this.#spoken, this.describe(id).replaceAll("\n", ", "));
  }

  /** Brings a bar into sight, its lane as well. */
  #bring(id: number): void {
    const { spans } = this.model;
    if (!spans.has(id)) return;
    this.layout.update(spans, this.model.generation);
    if (this.layout.topOf(id) < 0) {
      this.layout.isWhole = true;
      this.layout.update(spans, this.model.generation);
    }
    this.viewport.reveal(this.map.toDrawn(spans.startOf(id)), this.map.toDrawn(spans.endOf(id, this.model.now())));
    const [top, seen] = [this.layout.topOf(id), this.#canvas.clientHeight - AXIS];
    if (top < this.#scroller.scrollTop) this.#scroller.scrollTop = top;
    if (top + ROW > this.#scroller.scrollTop + seen) this.#scroller.scrollTop = top + ROW - seen;
    this.invalidate();
  }
}
