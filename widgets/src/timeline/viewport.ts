// Visible range of drawn time: zoomed about a point, moved, and following new events.

const SMALLEST = 100; // microseconds across the whole width
const MARGIN = 0.02;

export class Viewport {
  from = 0;
  to = 1;
  /** Whether all is seen, and the right edge moves with the present. */
  fitted = true;
  #end = 1;

  /** Sets where time ends; what follows it moves along. */
  extend(end: number): void {
    const followed = !this.fitted && this.follows;
    const moved = end - this.#end;
    this.#end = Math.max(end, 1);
    if (this.fitted) this.fit();
    else if (followed && moved > 0) this.pan(moved);
    else this.#clamp();
  }

  fit(): void {
    this.fitted = true;
    this.from = 0;
    this.to = this.#end * (1 + MARGIN);
  }

  /** Whether the right edge moves with the present. */
  get follows(): boolean {
    return this.fitted || this.to >= this.#end * (1 - 1e-9);
  }

  /** Goes to the present, and along with it. */
  follow(): void {
    this.pan(this.#end * (1 + MARGIN) - this.to);
  }

  /** Makes what is seen `factor` times as long, while the point at `anchor` (0 left, 1 right) stays. */
  zoom(factor: number, anchor = 0.5): void {
    const point = this.from + (this.to - this.from) * anchor;
    const length = Math.max(SMALLEST, (this.to - this.from) * factor);
    this.show(point - length * anchor, point + length * (1 - anchor));
  }

  /** Moves by an amount of drawn time. */
  pan(by: number): void {
    this.show(this.from + by, this.to + by);
  }

  show(from: number, to: number): void {
    this.fitted = false;
    this.from = from;
    this.to = Math.max(to, from + SMALLEST);
    this.#clamp();
  }

  /** Moves so far that a stretch is seen, with some room. */
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

  #clamp(): void {
    const whole = this.#end * (1 + MARGIN);
    const length = this.to - this.from;
    if (length >= whole) {
      this.fit();
      return;
    }
    if (this.from < 0) [this.from, this.to] = [0, length];
    if (this.to > whole) [this.from, this.to] = [whole - length, whole];
  }
}
