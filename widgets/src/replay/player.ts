// Position in a log that moves: by steps, to a search result, or automatically at a speed until a breakpoint.

import { stopsAt, type Breakpoint, type Entry, type Log } from "./log";

const TICK_MS = 1000 / 30;

/** A position in a log; `moved` is called after each change. */
export class Player {
  readonly log: Log;
  breakpoints: Breakpoint[] = [];
  /** Events per second. */
  speed = 5;
  #position = 0;
  #timer: ReturnType<typeof setInterval> | undefined;
  #due = 0;
  readonly #moved: () => void;

  constructor(log: Log, moved: () => void) {
    this.log = log;
    this.#moved = moved;
  }

  get position(): number {
    return this.#position;
  }

  get isPlaying(): boolean {
    return this.#timer !== undefined;
  }

  /** Goes to the event at a place of the log; 0 is before the first. */
  go(place: number): void {
    const position = Math.round(Math.min(this.log.length, Math.max(0, place)));
    if (position === this.#position) return;
    this.#position = position;
    this.#moved();
  }

  step(by: number): void {
    this.pause();
    this.go(this.#position + by);
  }

  /** Goes to the nearest event that fits; stays and returns false if there is none. */
  seek(direction: 1 | -1, fits: (entry: Entry) => boolean): boolean {
    this.pause();
    const found = this.log.find(this.#position, direction, fits);
    if (found !== undefined) this.go(found);
    return found !== undefined;
  }

  /** Goes to the next event at which a breakpoint stands. */
  seekBreakpoint(direction: 1 | -1): boolean {
    return this.seek(direction, (entry) => stopsAt(this.breakpoints, entry));
  }

  /** Plays on from the present position, or from the beginning if that is the end. */
  play(): void {
    if (this.isPlaying) return;
    if (this.#position >= this.log.length) this.go(0);
    this.#due = 0;
    this.#timer = setInterval(() => { this.#tick(); }, TICK_MS);
    this.#moved();
  }

  pause(): void {
    if (!this.isPlaying) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#moved();
  }

  /** Adds a breakpoint, or takes it away if there is one like it. */
  toggle(by: Breakpoint["by"], value: string): void {
    const others = this.breakpoints.filter((one) => one.by !== by || one.value !== value);
    this.breakpoints = others.length < this.breakpoints.length ? others : [...others, { by, value, isOn: true }];
    this.#moved();
  }

  #tick(): void {
    this.#due += (this.speed * TICK_MS) / 1000;
    const steps = Math.floor(this.#due);
    this.#due -= steps;
    if (steps === 0) return;
    const target = Math.min(this.log.length, this.#position + steps);
    const stop = this.log.find(this.#position, 1, (entry) => entry.place > target || stopsAt(this.breakpoints, entry));
    const isStop = stop !== undefined && stop <= target;
    this.go(isStop ? stop : target);
    if (isStop || this.#position >= this.log.length) this.pause();
  }
}
