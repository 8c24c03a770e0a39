// The picture of the timeline and what hands do with it: zoom, move, point, choose, by mouse, touch or keys.

import { h, setText, type View } from "../shared/dom";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";
import { onThemeChange, paletteOf } from "../shared/theme";
import { AXIS, draw, LABELS, momentAt, type Palette, rectangle, type Scene } from "./draw";
import { SIGNS, typeOf } from "./kinds";
import { Layout } from "./layout";
import { neighbour } from "./neighbours";
import type { Matches } from "./query";
import { idle, type Stretch, TimeMap } from "./timemap";
import { Viewport } from "./viewport";

const MOST_HIGH = 320;
const LEAST_HIGH = 64;
const FOLD_LEAST = 0.04; // of the whole
const FOLDED_TO = 0.012;
const GROW_EVERY = 100; // milliseconds

const HELP = "Arrow keys go from bar to bar, Enter opens one, Escape leaves it, plus and minus zoom, 0 shows all.";

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
    "aria-label": `Timeline. ${HELP}`,
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
  #palette: Palette = {};
  #requested = 0;
  #folding = false;
  #foldedAt = -1;
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
    this.#undo.push(
      onThemeChange(root, () => {
        this.#palette = {};
        this.invalidate();
      }),
      model.on((change) => { if (change !== "questions") this.invalidate(); }),
    );
    const resized = new ResizeObserver(() => { this.invalidate(); });
    resized.observe(this.element);
    this.#undo.push(() => { resized.disconnect(); });
    this.#timer = setInterval(() => { if (model.spans.running.size > 0 && !document.hidden) this.invalidate(); }, GROW_EVERY);
  }

  destroy(): void {
    clearInterval(this.#timer);
    cancelAnimationFrame(this.#requested);
    this.#undo.forEach((undo) => { undo(); });
  }

  /** Folds idle time, or shows it at its full length. */
  fold(folding: boolean): void {
    this.#folding = folding;
    this.#foldedAt = -1;
    this.viewport.fit();
    this.invalidate();
  }

  /** Asks for a new picture with the next frame. */
  invalidate(): void {
    if (this.#requested === 0) this.#requested = requestAnimationFrame(() => { this.#paint(); });
  }

  #paint(): void {
    this.#requested = 0;
    if (this.element.clientWidth === 0) return;
    const started = performance.now();
    this.layout.update(this.model.spans, this.model.generation);
    this.#updateMap();
    this.viewport.extend(this.map.toDrawn(this.model.now()));
    const scene = this.#fitCanvas();
    const context = this.#canvas.getContext("2d");
    if (context === null) return;
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const spans = draw(context, scene);
    this.cost = { milliseconds: performance.now() - started, spans };
    this.afterDraw();
  }

  #fitCanvas(): Scene {
    const width = this.element.clientWidth;
    const wanted = this.layout.height + AXIS;
    const height = Math.max(LEAST_HIGH, Math.min(MOST_HIGH, wanted));
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

  scene(width = this.element.clientWidth, height = this.#canvas.clientHeight): Scene {
    if (Object.keys(this.#palette).length === 0) this.#palette = paletteOf(this.element);
    const { model, layout, map, viewport, focused } = this;
    const palette = this.#palette;
    const isMeant = (id: number): boolean => this.matches.has(id);
    const [spans, now, scroll, selected] = [model.spans, model.now(), this.#scroller.scrollTop, model.selected];
    return { spans, layout, isMeant, map, viewport, width, height, scroll, now, palette, focused, selected };
  }

  #updateMap(): void {
    const { spans } = this.model;
    if (!this.#folding) {
      if (this.map.gaps.length > 0) this.map = new TimeMap();
      return;
    }
    if (spans.version === this.#foldedAt) return;
    this.#foldedAt = spans.version;
    const whole = Math.max(1, this.model.now());
    const gaps = idle(this.#busy(), whole * FOLD_LEAST);
    const kept = whole - gaps.reduce((sum, [from, to]) => sum + to - from, 0);
    this.map = new TimeMap(gaps, Math.max(1, kept * FOLDED_TO));
  }

  /** When calls ran, and the moments at which steps and items began and ended. */
  #busy(): Stretch[] {
    const { spans } = this.model;
    const now = this.model.now();
    const found: Stretch[] = [[0, 0], [now, now]];
    spans.within(-Infinity, Infinity, (id) => {
      const [start, end] = [spans.startOf(id), spans.endOf(id, now)];
      if (spans.text(id, "kind") === "operation") found.push([start, end]);
      else found.push([start, start], [end, end]);
    });
    return found.sort((a, b) => a[0] - b[0]);
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
    return Math.min(1, Math.max(0, (event.offsetX - LABELS) / (this.#canvas.clientWidth - LABELS)));
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
    const moved = (by / (this.#canvas.clientWidth - LABELS)) * (to - from);
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
    if (x < LABELS || y < AXIS) return null;
    const scene = this.scene();
    const at = this.layout.at(y - AXIS + scene.scroll);
    if (at === null) return null;
    let best: number | null = null;
    let nearest = 4;
    this.model.spans.within(momentAt(scene, x - 4), momentAt(scene, x + 4), (id) => {
      if (this.layout.lane[id] !== at.lane || this.layout.row[id] !== at.row || !this.matches.has(id)) return;
      const [left, , width] = rectangle(scene, id);
      const distance = Math.max(left - x, x - left - width, 0);
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
      `path ${spans.text(id, "path")}`,
      spans.number(id, "attempts") > 1 ? `${spans.number(id, "attempts")} attempts` : "",
      spans.number(id, "tokens") > 0 ? `${spans.number(id, "tokens").toLocaleString("en")} tokens` : "",
      spans.text(id, "note"),
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
    else if (key === "0" || key === "f") viewport.fit();
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
    const next = neighbour(this.model.spans, this.layout, (id) => this.matches.has(id), this.focused ?? this.model.selected, key);
    if (next === undefined) return false;
    if (next !== null) this.focus(next);
    return true;
  }

  /** Moves the keyboard's mark to a bar, brings it into sight and says what it is. */
  focus(id: number | null): void {
    if (id === this.focused) return;
    this.focused = id;
    this.invalidate();
    if (id === null) return;
    const { spans } = this.model;
    this.viewport.reveal(this.map.toDrawn(spans.startOf(id)), this.map.toDrawn(spans.endOf(id, this.model.now())));
    const [top, seen] = [this.layout.topOf(id), this.#canvas.clientHeight - AXIS];
    if (top < this.#scroller.scrollTop) this.#scroller.scrollTop = top;
    if (top + 30 > this.#scroller.scrollTop + seen) this.#scroller.scrollTop = top + 30 - seen;
    setText(this.#spoken, this.describe(id).replaceAll("\n", ", "));
  }
}
