// Position in a log, moved by steps, by searching, or automatically until a breakpoint.

import { stopsAt, type Breakpoint, type Entry, type Log } from "./log";

const TICK_MS = 1000 / 30;

/** Position in a log. `onMove` is called after each change. */
export class Player {
  readonly log: Log;
  breakpoints: Breakpoint[] = [];
  /** Events per second. */
  speed = 5;
  #position = 0;
  #timer: ReturnType<typeof setInterval> | undefined;
  /** Number of events to play, as a fraction: at a low speed, most ticks play none. */
  #due = 0;
  readonly #onMove: () => void;

  constructor(log: Log, onMove: () => void) {
    this.log = log;
    this.#onMove = onMove;
  }

  get position(): number {
    return this.#position;
  }

  get isPlaying(): boolean {
    return this.#timer !== undefined;
  }

  /** Go to a position, counted from 1; 0 is before the first event. */
  go(place: number): void {
    const position = Math.round(Math.min(this.log.length, Math.max(0, place)));
    if (position === this.#position) return;
    this.#position = position;
    this.#onMove();
  }

  /** Stop playing and move by a number of events. */
  step(by: number): void {
    this.pause();
    this.go(this.#position + by);
  }

  /** Go to the nearest matching event. Return false and do not move if there is none. */
  seek(direction: 1 | -1, isMatch: (entry: Entry) => boolean): boolean {
    this.pause();
    const place = this.log.find(this.#position, direction, isMatch);
    if (place === undefined) return false;
    this.go(place);
    return true;
  }

  /** Go to the next event with a breakpoint. */
  seekBreakpoint(direction: 1 | -1): boolean {
    return this.seek(direction, (entry) => stopsAt(this.breakpoints, entry));
  }

  /** Play from the current position; from the beginning if that is the end. */
  play(): void {
    if (this.isPlaying) return;
    if (this.#position >= this.log.length) this.go(0);
    this.#due = 0;
    this.#timer = setInterval(() => { this.#tick(); }, TICK_MS);
    this.#onMove();
  }

  pause(): void {
    if (!this.isPlaying) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#onMove();
  }

  /** Add a breakpoint, or remove an equal one. */
  toggle(by: Breakpoint["by"], value: string): void {
    const others = this.breakpoints.filter((one) => one.by !== by || one.value !== value);
    this.breakpoints = others.length < this.breakpoints.length ? others : [...others, { by, value, isOn: true }];
    this.#onMove();
  }

  /** Advance by the events that are due, but not past a breakpoint. */
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
