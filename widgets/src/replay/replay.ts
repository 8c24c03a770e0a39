// A log stepped through: forward and back, by itself, to breakpoints; with the state at each position. It needs the log only.

import "./replay.css";
import type { DetailEvent, EventBlock, StateView } from "../protocol";
import { h, setText, type View } from "../shared/dom";
import { button, newId, ownKeys } from "../shared/element";
import { EventList } from "./events";
import { Log, type Breakpoint } from "./log";
import { Player } from "./player";
import { StatePanel } from "./state";

const SPEEDS = [1, 5, 20, 100, 500];
const KEPT_STATES = 64;
const BY: [Breakpoint["by"], string][] = [["type", "type"], ["step", "step"], ["path", "path"]];

/** What stepping needs besides the events' short form; a request that cannot be met is rejected with the reason. */
export interface ReplayHost {
  stateAt: (sequence: number) => Promise<StateView>;
  eventAt: (sequence: number) => Promise<DetailEvent>;
}

/** Steps through a log until it is destroyed. */
export class Replay implements View {
  readonly element: HTMLElement;
  readonly #host: ReplayHost;
  readonly #player = new Player(new Log(), () => { this.#moved(); });
  readonly #list = new EventList(this.#player);
  readonly #panel = new StatePanel();
  readonly #slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Position in the log" });
  readonly #place = h("output", { class: "place" });
  readonly #play = button("", () => { this.#toggle(); }, { class: "primary", "aria-label": "Play" });
  readonly #type = h("select", { "aria-label": "Type of event to jump to" });
  readonly #marks = h("ul", { class: "marks" });
  readonly #marksTitle = h("summary");
  readonly #states = new Map<number, StateView>();
  #shown: StateView | null = null;
  #isAsking = false;

  constructor(host: ReplayHost) {
    this.#host = host;
    const body = h("div", { class: "body" }, h("div", { class: "side" }, this.#list.element, this.#breakpoints()), this.#panel.element);
    this.element = h("section", { class: "divebook divebook-replay", "aria-label": "Replay" }, this.#controls(), this.#slider, body);
    ownKeys(this.element);
    this.element.addEventListener("keydown", (event) => { this.#key(event); });
    this.#slider.addEventListener("input", () => { this.#player.step(Number(this.#slider.value) - this.#player.position); });
    this.#moved();
  }

  /** Takes over events, the first ones or those that follow. */
  take(block: EventBlock): void {
    if (!this.#player.log.take(block)) return;
    this.#fillTypes();
    this.#moved();
  }

  /** Goes to an event. */
  go(sequence: number): void {
    this.#player.step(sequence - this.#player.position);
  }

  /** Shows why events are missing. */
  tell(trouble: string): void {
    this.#panel.showTrouble(trouble);
  }

  destroy(): void {
    this.#player.pause();
    this.#list.destroy();
    this.element.remove();
  }

  #controls(): HTMLElement {
    const player = this.#player;
    const tool = (sign: string, name: string, act: () => void): HTMLElement => button(sign, act, { "aria-label": name, title: name });
    const speed = h("select", { "aria-label": "Speed" }, ...SPEEDS.map((each) => h("option", { value: each }, `${each} event${each === 1 ? "" : "s"}/s`)));
    speed.value = String(player.speed);
    speed.addEventListener("change", () => { player.speed = Number(speed.value); });
    const seekType = (direction: 1 | -1): void => { player.seek(direction, ({ type }) => type === this.#type.value); };
    return h(
      "div",
      { class: "row controls", role: "toolbar", "aria-label": "Stepping" },
      tool("|◀", "To the beginning (Home)", () => { this.go(0); }),
      tool("◀", "One event back (←)", () => { player.step(-1); }),
      this.#play,
      tool("▶", "One event forward (→)", () => { player.step(1); }),
      tool("▶|", "To the end (End)", () => { this.go(player.log.length); }),
      speed,
      h("span", { class: "row jump" }, tool("‹", "Previous event of this type", () => { seekType(-1); }), this.#type, tool("›", "Next event of this type", () => { seekType(1); })),
      tool("‹●", "Previous breakpoint", () => { player.seekBreakpoint(-1); }),
      tool("●›", "Next breakpoint (b)", () => { player.seekBreakpoint(1); }),
      this.#place,
    );
  }

  #breakpoints(): HTMLElement {
    const [by, value] = [h("select", { "aria-label": "Break by" }), h("select", { "aria-label": "Break at" })];
    by.append(...BY.map(([key, label]) => h("option", { value: key }, label)));
    const kind = (): Breakpoint["by"] => by.value as Breakpoint["by"];
    const fill = (): void => { value.replaceChildren(...this.#player.log.values(kind()).map((each) => h("option", { value: each }, each))); };
    by.addEventListener("change", fill);
    const add = button("Add", () => { if (value.value !== "") this.#player.toggle(kind(), value.value); }, { class: "small" });
    const whole = h("details", { class: "breakpoints" }, this.#marksTitle, h("div", { class: "row" }, by, value, add), this.#marks);
    whole.addEventListener("toggle", fill);
    return whole;
  }

  #mark(mark: Breakpoint): HTMLElement {
    const box = h("input", { type: "checkbox", id: newId() });
    box.checked = mark.isOn;
    box.addEventListener("change", () => {
      mark.isOn = box.checked;
      this.#list.update();
    });
    const remove = button("✕", () => { this.#player.toggle(mark.by, mark.value); }, { class: "small", "aria-label": `Remove the breakpoint at ${mark.by} ${mark.value}` });
    return h("li", { class: "row" }, h("label", {}, box, ` ${mark.by}: ${mark.value}`), remove);
  }

  #fillTypes(): void {
    const chosen = this.#type.value;
    this.#type.replaceChildren(...this.#player.log.values("type").map((type) => h("option", { value: type }, type)));
    if (chosen !== "") this.#type.value = chosen;
  }

  #toggle(): void {
    if (this.#player.isPlaying) this.#player.pause();
    else this.#player.play();
  }

  #moved(): void {
    const { position, log, isPlaying, breakpoints } = this.#player;
    this.#slider.max = String(log.length);
    this.#slider.value = String(position);
    const entry = log.at(position);
    this.#slider.setAttribute("aria-valuetext", entry === undefined ? "before the first event" : `event ${position}, ${entry.type} ${entry.step}`);
    setText(this.#place, `${position.toLocaleString("en")} of ${log.length.toLocaleString("en")} events${entry === undefined ? "" : ` · ${(entry.time / 1e6).toFixed(2)} s`}`);
    setText(this.#play, isPlaying ? "Pause" : "Play");
    this.#play.setAttribute("aria-label", isPlaying ? "Pause" : "Play");
    setText(this.#marksTitle, `Breakpoints (${breakpoints.length})`);
    this.#marks.replaceChildren(...breakpoints.map((mark) => this.#mark(mark)));
    this.#list.update();
    void this.#look();
  }

  /** Asks for the state of the present position; while an answer is under way only the latest position counts. */
  async #look(): Promise<void> {
    if (this.#isAsking) return;
    this.#isAsking = true;
    let sequence = -1;
    while (sequence !== this.#player.position) {
      sequence = this.#player.position;
      await this.#show(sequence);
    }
    this.#isAsking = false;
  }

  async #show(sequence: number): Promise<void> {
    if (this.#shown?.sequence === sequence) return;
    try {
      const [state, event] = await Promise.all([this.#state(sequence), sequence === 0 ? null : this.#host.eventAt(sequence)]);
      this.#panel.showEvent(event);
      this.#panel.showChanges(this.#shown, state);
      this.#panel.showState(state);
      this.#shown = state;
    } catch (error) {
      this.#panel.showTrouble(error instanceof Error ? error.message : String(error));
    }
  }

  async #state(sequence: number): Promise<StateView> {
    const state = this.#states.get(sequence) ?? (await this.#host.stateAt(sequence));
    this.#states.delete(sequence);
    this.#states.set(sequence, state);
    const oldest = this.#states.keys().next();
    if (this.#states.size > KEPT_STATES && oldest.done !== true) this.#states.delete(oldest.value);
    return state;
  }

  #key(event: KeyboardEvent): void {
    const player = this.#player;
    const { target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target instanceof Element && target.closest("select, input:not([type=range]), summary, pre") !== null) return;
    if (event.key === " " && target instanceof HTMLButtonElement) return;
    const page = Math.max(1, Math.round(player.log.length / 20));
    const acts: Record<string, () => void> = {
      ArrowRight: () => { player.step(1); },
      ArrowDown: () => { player.step(1); },
      ArrowLeft: () => { player.step(-1); },
      ArrowUp: () => { player.step(-1); },
      PageDown: () => { player.step(page); },
      PageUp: () => { player.step(-page); },
      Home: () => { this.go(0); },
      End: () => { this.go(player.log.length); },
      " ": () => { this.#toggle(); },
      b: () => { player.seekBreakpoint(1); },
    };
    const act = acts[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  }
}
