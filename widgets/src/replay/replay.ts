// Replay of a log: forward and back, automatically, to breakpoints, with the state at each position. It needs only the log.

import "./replay.css";
import type { DetailEvent, EventBlock, StateView } from "../protocol";
import { h, setText, type View } from "../shared/dom";
import { button, newId } from "../shared/element";
import { duration, plural } from "../shared/format";
import { keysList } from "../shared/keys";
import type { Position } from "../shared/model";
import { branchOf, eventName } from "../shared/words";
import { EventList } from "./events";
import { Filter } from "./filter";
import { changes, isError, isModelCall, isQuestion, Log, type Breakpoint, type Entry } from "./log";
import { Player } from "./player";
import type { SaidThen } from "./said";
import { StatePanel } from "./state";

const SPEEDS = [1, 5, 20, 100, 500];
const KEPT_MOMENTS = 64;
const MOST_ASKED = 3; // so that a slow answer holds up no jump, and playing asks for no more than is answered
const KEYS = "← →: one event back, on | Home End: to the beginning, to the end | Space: play, pause | B: next breakpoint";
const BY: [Breakpoint["by"], string][] = [["type", "type"], ["step", "step"], ["operation", "call"], ["variable", "variable"], ["path", "branch"], ["error", "error"]];

/** What stepping needs besides the events' short form; a request that cannot be met is rejected with the reason. */
export interface ReplayHost {
  stateAt: (sequence: number) => Promise<StateView>;
  eventAt: (sequence: number) => Promise<DetailEvent>;
  saidAt: (sequence: number) => Promise<SaidThen>;
}

/** An event, or none before the first, and the state after it; or why there is neither. */
interface Moment {
  sequence: number;
  event: DetailEvent | null;
  state: StateView | null;
  trouble: string;
}

/** Steps through a log until it is destroyed. */
export class Replay implements View {
  readonly element: HTMLElement;
  readonly #host: ReplayHost;
  readonly #player = new Player(new Log(), () => { this.#moved(); });
  readonly #list = new EventList(this.#player);
  readonly #panel: StatePanel;
  readonly #slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Position in the log", "data-keys": KEYS });
  readonly #place = h("output", { class: "place" });
  readonly #play = button("", () => { this.#toggle(); }, { class: "primary", "aria-label": "Play" });
  readonly #filter = new Filter(this.#player.log, (places) => { this.#list.only(places); });
  readonly #keys: ReturnType<typeof keysList>;
  readonly #changes = h("span", { class: "row", hidden: true });
  readonly #variable = h("select", { "aria-label": "Variable to go to" });
  readonly #told = h("span", { class: "hint", role: "status" });
  readonly #type = h("select", { "aria-label": "Type of event to jump to" });
  readonly #marks = h("ul", { class: "marks" });
  readonly #marksTitle = h("summary");
  /** What is known of positions, the latest used last. */
  readonly #known = new Map<number, Moment>();
  readonly #asked = new Set<number>();
  #shown: Moment | null = null;
  #before: Moment | undefined;
  readonly #stand: (at: Position) => void;

  /** `stand` is told where it stands, each time; `picture` is shown below the controls. */
  constructor(host: ReplayHost, stand: (at: Position) => void = () => undefined, picture?: HTMLElement) {
    this.#host = host;
    this.#stand = stand;
    this.#panel = new StatePanel((sequence) => host.saidAt(sequence));
    const body = h("div", { class: "body" }, h("div", { class: "side" }, this.#filter.element, this.#list.element, this.#breakpoints()), this.#panel.element);
    this.element = h("section", { class: "divebook divebook-replay", "aria-label": "Replay" });
    this.#keys = keysList(this.element);
    this.element.append(this.#controls(), this.#slider, this.#ways(), this.#keys.element, ...(picture === undefined ? [] : [picture]), body);
    this.element.addEventListener("keydown", (event) => { this.#key(event); });
    this.#slider.addEventListener("input", () => { this.#goTo(Number(this.#slider.value)); });
    this.#moved();
  }

  /** Takes over events, the first ones or those that follow. */
  take(block: EventBlock): void {
    if (!this.#player.log.take(block)) return;
    this.#fillTypes();
    this.#filter.fill();
    this.#list.only(this.#filter.places());
    this.#moved();
  }

  /** Goes to an event, or to the nearest before it that is known. */
  go(sequence: number): void {
    this.#goTo(this.#player.log.placeOf(sequence));
  }

  /** Where it stands. */
  get at(): Position {
    const { position, log } = this.#player;
    const { time = 0, step = "" } = log.at(position) ?? {};
    return { sequence: log.sequenceAt(position), time, step };
  }

  #goTo(place: number): void {
    this.#player.step(place - this.#player.position);
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
    const speed = h("select", { "aria-label": "Speed" }, ...SPEEDS.map((each) => h("option", { value: each }, `${plural(each, "event")}/s`)));
    speed.value = String(player.speed);
    speed.addEventListener("change", () => { player.speed = Number(speed.value); });
    const seekType = (direction: 1 | -1): void => { player.seek(direction, ({ type }) => type === this.#type.value); };
    return h(
      "div",
      { class: "row controls", role: "toolbar", "aria-label": "Replay controls" },
      tool("|◀", "To the beginning (Home)", () => { this.#goTo(0); }),
      tool("◀", "One event back (←)", () => { player.step(-1); }),
      this.#play,
      tool("▶", "One event forward (→)", () => { player.step(1); }),
      tool("▶|", "To the end (End)", () => { this.#goTo(player.log.length); }),
      speed,
      h("span", { class: "row jump" }, tool("‹", "Previous event of this type", () => { seekType(-1); }), this.#type, tool("›", "Next event of this type", () => { seekType(1); })),
      tool("‹●", "Previous breakpoint", () => { player.seekBreakpoint(-1); }),
      tool("●›", "Next breakpoint (b)", () => { player.seekBreakpoint(1); }),
      this.#place,
      this.#keys.button,
    );
  }

  #ways(): HTMLElement {
    const way = (name: string, key: string, fits: (entry: Entry) => boolean): HTMLElement =>
      button(name, () => { this.#seek(1, fits, name); }, { class: "small", "aria-keyshortcuts": key, "aria-label": `Go to the ${name}`, title: `Go to the ${name} (${key})` });
    const set = (entry: Entry): boolean => changes(entry, this.#variable.value);
    const change = (name: string, key: string, direction: 1 | -1): HTMLElement =>
      button(name, () => { this.#seek(direction, set, `${name} of ${this.#variable.value}`); }, { class: "small", "aria-keyshortcuts": key, "aria-label": `Go to the ${name} of the variable`, title: `Go to the ${name} of the variable (${key})` });
    return h(
      "div",
      { class: "row ways", role: "group", "aria-label": "Go to" },
      h("span", { class: "hint" }, "Go to"),
      way("next error", "E", isError),
      way("next question", "Q", isQuestion),
      way("next model call", "M", isModelCall),
      this.#ofVariable(change("last change", "C", -1), change("next change", "V", 1)),
      this.#told,
    );
  }

  /** Where a variable changed; out of the way while the log has none. */
  #ofVariable(...changes: HTMLElement[]): HTMLElement {
    this.#changes.append(this.#variable, ...changes);
    return this.#changes;
  }

  /** Goes to the nearest event that fits, or says that there is none. */
  #seek(direction: 1 | -1, fits: (entry: Entry) => boolean, name: string): void {
    const isFound = this.#player.seek(direction, fits);
    setText(this.#told, isFound ? "" : `There is no ${name} ${direction > 0 ? "after" : "before"} this event.`);
  }

  #breakpoints(): HTMLElement {
    const [by, value] = [h("select", { "aria-label": "Break by" }), h("select", { "aria-label": "Break at" })];
    by.append(...BY.map(([key, label]) => h("option", { value: key }, label)));
    const kind = (): Breakpoint["by"] => by.value as Breakpoint["by"];
    const fill = (): void => { value.replaceChildren(...this.#player.log.values(kind()).map((each) => h("option", { value: each }, nameOf(kind(), each)))); };
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
    const remove = button("✕", () => { this.#player.toggle(mark.by, mark.value); }, { class: "small", "aria-label": `Remove the breakpoint at ${markText(mark)}` });
    return h("li", { class: "row" }, h("label", {}, box, ` ${markText(mark)}`), remove);
  }

  #fillTypes(): void {
    const chosen = this.#type.value;
    this.#type.replaceChildren(...this.#player.log.values("type").map((type) => h("option", { value: type }, eventName(type))));
    if (chosen !== "") this.#type.value = chosen;
    const [variable, variables] = [this.#variable.value, this.#player.log.values("variable")];
    this.#variable.replaceChildren(...variables.map((name) => h("option", { value: name }, name)));
    if (variables.includes(variable)) this.#variable.value = variable;
    this.#changes.hidden = variables.length === 0;
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
    this.#slider.setAttribute("aria-valuetext", entry === undefined ? "before the first event" : `event ${entry.sequence}, ${eventName(entry.type)} ${entry.step}`);
    setText(this.#place, `event ${log.sequenceAt(position).toLocaleString("en")} of ${log.last.toLocaleString("en")}${entry === undefined ? "" : ` · ${duration(entry.time)}`}`);
    setText(this.#play, isPlaying ? "Pause" : "Play");
    this.#play.setAttribute("aria-label", isPlaying ? "Pause" : "Play");
    setText(this.#marksTitle, `Breakpoints (${breakpoints.length})`);
    this.#marks.replaceChildren(...breakpoints.map((mark) => this.#mark(mark)));
    this.#list.update();
    this.#stand(this.at);
    this.#look();
  }

  /** Shows the present position: at once if it is known, else dimmed until it is, never what came for another one. */
  #look(): void {
    const sequence = this.#player.log.sequenceAt(this.#player.position);
    const known = this.#shown?.sequence === sequence ? this.#shown : this.#known.get(sequence);
    if (known === undefined) this.#panel.wait(sequence);
    else this.#show(known);
    const before = this.#player.log.sequenceAt(this.#player.position - 1);
    if (known === undefined) this.#fetch(sequence);
    else if (before < sequence && known.state !== null && !this.#known.has(before)) this.#fetch(before); // what is compared
  }

  #fetch(sequence: number): void {
    if (this.#asked.has(sequence) || this.#asked.size >= MOST_ASKED) return;
    this.#asked.add(sequence);
    void this.#ask(sequence).then((moment) => {
      this.#asked.delete(sequence);
      this.#keep(moment);
      this.#look();
    });
  }

  async #ask(sequence: number): Promise<Moment> {
    try {
      const isBefore = sequence < Math.max(1, this.#player.log.sequenceAt(1)); // also while no event is known
      const [state, event] = await Promise.all([this.#host.stateAt(sequence), isBefore ? null : this.#host.eventAt(sequence)]);
      return { sequence, event, state, trouble: "" };
    } catch (error) {
      return { sequence, event: null, state: null, trouble: error instanceof Error ? error.message : String(error) };
    }
  }

  #keep(moment: Moment): void {
    this.#known.delete(moment.sequence);
    this.#known.set(moment.sequence, moment);
    const oldest = this.#known.keys().next();
    if (this.#known.size > KEPT_MOMENTS && oldest.done !== true) this.#known.delete(oldest.value);
  }

  #show(moment: Moment): void {
    const place = this.#player.position;
    const before = place > 0 ? this.#known.get(this.#player.log.sequenceAt(place - 1)) : undefined;
    if (moment.state === null) {
      this.#panel.showTrouble(moment.trouble);
      this.#known.delete(moment.sequence); // it is asked for again when somebody comes back
    } else if (this.#shown !== moment || this.#before !== before) {
      this.#panel.show(moment.event, before?.state ?? null, moment.state);
      this.#keep(moment);
    } else {
      this.#panel.ready();
    }
    [this.#shown, this.#before] = [moment, before];
  }

  #key(event: KeyboardEvent): void {
    const player = this.#player;
    const { target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target instanceof Element && target.closest("select, input:not([type=range]), summary, pre, .db-keys") !== null) return;
    if (event.key === " " && target instanceof HTMLButtonElement) return;
    const page = Math.max(1, Math.round(player.log.length / 20));
    const acts: Record<string, () => void> = {
      ArrowRight: () => { player.step(1); },
      ArrowDown: () => { player.step(1); },
      ArrowLeft: () => { player.step(-1); },
      ArrowUp: () => { player.step(-1); },
      PageDown: () => { player.step(page); },
      PageUp: () => { player.step(-page); },
      Home: () => { this.#goTo(0); },
      End: () => { this.#goTo(player.log.length); },
      " ": () => { this.#toggle(); },
      b: () => { player.seekBreakpoint(1); },
    };
    const act = acts[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  }
}

/** Names what a breakpoint stops at, as the list of events does. */
function nameOf(by: Breakpoint["by"], value: string): string {
  if (by === "type") return eventName(value);
  if (by === "error") return "any error";
  if (by === "operation") return value.replaceAll("_", " ");
  return by === "path" ? branchOf(value) || value : value;
}

function markText({ by, value }: Breakpoint): string {
  if (by === "error") return nameOf(by, value);
  return `${BY.find(([key]) => key === by)?.[1] ?? by}: ${nameOf(by, value)}`;
}
