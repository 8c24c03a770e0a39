// Visible range of drawn time, with zoom, panning and following of new events.

const LEAST_RANGE = 100; // microseconds across the whole width
const MARGIN = 0.02; // room after the present, as a share of all time

/** Visible range. All times are drawn times (`timemap.ts`). */
export class Viewport {
  from = 0;
  to = 1;
  /** True if the whole run is visible, and the right edge moves with the present. */
  isFitted = true;
  #end = 1;

  /** Set the end of time. A range that follows the present moves with it. */
  extend(end: number): void {
    const isFollowing = !this.isFitted && this.isFollowing; // read before the end moves
    const growth = end - this.#end;
    this.#end = Math.max(end, 1);
    if (this.isFitted) this.fit();
    else if (isFollowing && growth > 0) this.pan(growth);
    else this.#clamp();
  }

  /** Show the whole run. */
  fit(): void {
    this.isFitted = true;
    this.from = 0;
    this.to = this.#end * (1 + MARGIN);
  }

  /** True if the right edge moves with the present. */
  get isFollowing(): boolean {
    return this.isFitted || this.to >= this.#end * (1 - 1e-9);
  }

  /** Move to the present and follow it. */
  follow(): void {
    this.pan(this.#end * (1 + MARGIN) - this.to);
  }

  /** Make the visible range `factor` times as long. The point at `anchor` (0 left, 1 right) stays. */
  zoom(factor: number, anchor = 0.5): void {
    const point = this.from + (this.to - this.from) * anchor;
    const length = Math.max(LEAST_RANGE, (this.to - this.from) * factor);
    this.show(point - length * anchor, point + length * (1 - anchor));
  }

  /** Move by an amount of drawn time. */
  pan(distance: number): void {
    this.show(this.from + distance, this.to + distance);
  }

  /** Show a range of drawn time. */
  show(from: number, to: number): void {
    this.isFitted = false;
    this.from = from;
    this.to = Math.max(to, from + LEAST_RANGE);
    this.#clamp();
  }

  /** Center a period that is not fully visible; show the start of one that is longer than the range. */
  reveal(from: number, to: number): void {
    const length = this.to - this.from;
    if (from >= this.from && to <= this.to) return;
    if (to - from > length) {
      if (to < this.from || from > this.to) this.show(from - length * 0.1, from + length * 0.9);
      return;
    }
    const middle = (from + to) / 2;
    this.show(middle - length / 2, middle + length / 2);
  }

  /** Keep the range between zero and the end of time. */
  #clamp(): void {
    const totalTime = this.#end * (1 + MARGIN);
    const length = this.to - this.from;
    if (length >= totalTime) {
      this.fit();
      return;
    }
    if (this.from < 0) {
      this.from = 0;
      this.to = length;
    }
    if (this.to > totalTime) {
      this.from = totalTime - length;
      this.to = totalTime;
    }
  }
}
