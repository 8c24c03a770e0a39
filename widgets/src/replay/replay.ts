// Replay of an event log: controls, event list and state panel. It moves through the log by steps, by playing, or by
// searching.

import "./replay.css";
import { STATUS_SIGNS } from "../constants";
import type { DetailEvent, EventBlock, Header, StateView } from "../protocol";
import { h, setText, type View } from "../shared/dom";
import { button, newId } from "../shared/element";
import { formatCount, plural } from "../shared/format";
import { keysList } from "../shared/keys";
import type { Position } from "../shared/model";
import { oneLine } from "../shared/text";
import { moment } from "../shared/times";
import { branchOf, eventName } from "../shared/words";
import { EventList, nameOf, placeOf, textOf, timeOf } from "./events";
import { Filter } from "./filter";
import { ForkForm, type Mode } from "./fork";
import { changes, isError, isModelCall, isQuestion, Log, stopsAt, type Breakpoint, type Entry } from "./log";
import { Player } from "./player";
import type { RequestMessages } from "./requestmessages";
import { StatePanel } from "./state";
import { WhyPanel, type WhyAt } from "./why";

const SPEEDS = [1, 5, 20, 100, 500];
const CACHE_SIZE = 64; // cached positions
const MOST_REQUESTS = 3; // open requests: a slow answer delays no jump, and playing does not request more than is answered
const KEYS = "← →: previous or next event | Home End: start or end of the log | Space: play or pause | B: add or remove a breakpoint at this event";
const BREAKPOINT_KINDS: [Breakpoint["by"], string][] = [["type", "type"], ["step", "step"], ["operation", "call"], ["variable", "variable"], ["path", "branch"], ["error", "error"]];

/** Data source for positions and events. A request that fails is rejected with the reason. */
export interface ReplayHost {
  stateAt: (sequence: number) => Promise<StateView>;
  eventAt: (sequence: number) => Promise<DetailEvent>;
  messagesAt: (sequence: number) => Promise<RequestMessages>;
  /** Causes of a value; undefined if the source does not have the whole log. */
  whyAt?: WhyAt;
}

/** An event (null before the first) with the state after it, or the reason why they cannot be loaded (`error`). */
interface Moment {
  sequence: number;
  event: DetailEvent | null;
  state: StateView | null;
  error: string;
}

/**
 * View that steps through a log.
 *
 * States are loaded on demand and cached by sequence number. `#showPosition` shows the current position if it is cached and
 * requests it otherwise; every answer calls `#showPosition` again. An answer for a position that was left in the meantime is
 * only cached.
 */
export class Replay implements View {
  readonly element: HTMLElement;
  readonly #host: ReplayHost;
  readonly #player = new Player(new Log(), () => { this.#onMove(); });
  readonly #list = new EventList(this.#player);
  readonly #panel: StatePanel;
  readonly #slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Position in the log", "data-keys": KEYS });
  readonly #place = h("output", { class: "place" });
  readonly #play = button("", () => { this.#toggle(); }, { class: "primary", "aria-label": "Play" });
  readonly #filter = new Filter(this.#player.log, (places) => { this.#list.showOnly(places); });
  readonly #keys: ReturnType<typeof keysList>;
  readonly #changes = h("span", { class: "row", hidden: true });
  readonly #variable = h("select", { "aria-label": "Variable whose changes to find" });
  readonly #message = h("span", { class: "hint", role: "status" });
  readonly #head = h("div", { class: "head row" });
  readonly #forkButtons: Record<Mode, HTMLButtonElement> = {
    fork: button("Fork from here", () => { this.#toggleFork("fork"); }, { hidden: true, "aria-expanded": "false" }),
    "what-if": button("What-if from here", () => { this.#toggleFork("what-if"); }, { hidden: true, "aria-expanded": "false" }),
  };

  readonly #loading = h("div", { class: "row filling", role: "status" });
  #why: WhyPanel | undefined;
  #fork: ForkForm | undefined;
  /** Mode in which the form was opened last. */
  #forkMode: Mode = "fork";
  /** Number of events of the whole log, some of which may still be loading. */
  #total = 0;
  #isComplete = false;
  /** Event to go to as soon as it is loaded: `go` names it, and any other move cancels it. */
  #target: number | null = null;
  readonly #breakpointList = h("ul", { class: "marks" });
  readonly #breakpointTitle = h("summary");
  /** Cache of positions, the most recently used last. */
  readonly #cache = new Map<number, Moment>();
  /** Sequence numbers of open requests. */
  readonly #requests = new Set<number>();
  #shown: Moment | null = null;
  /** State with which the shown one was compared. */
  #shownBefore: Moment | undefined;
  readonly #onPosition: (at: Position) => void;

  /** `onPosition` is called with each new position. `overview` is shown below the controls. */
  constructor(host: ReplayHost, onPosition: (at: Position) => void = () => undefined, overview?: HTMLElement) {
    this.#host = host;
    this.#onPosition = onPosition;
    const { whyAt } = host;
    const why = whyAt === undefined ? undefined : new WhyPanel(whyAt, (sequence) => { this.go(sequence); });
    this.#why = why;
    this.#panel = new StatePanel((sequence) => host.messagesAt(sequence), why === undefined ? undefined : (sequence, name) => { why.explain(sequence, name); }, why?.element);
    const body = h("div", { class: "body" }, h("div", { class: "side" }, this.#filter.element, this.#list.element, this.#breakpoints()), this.#panel.element);
    this.element = h("section", { class: "divebook divebook-replay", "aria-label": "Replay" });
    this.#keys = keysList(this.element);
    this.#head.append(h("span", { class: "actions row" }, this.#forkButtons["what-if"], this.#forkButtons.fork, this.#keys.button));
    this.element.append(this.#head, this.#controls(), this.#loading, this.#goToButtons(), this.#keys.element, ...(overview === undefined ? [] : [overview]), body);
    this.element.addEventListener("keydown", (event) => { this.#key(event); });
    this.#slider.addEventListener("input", () => { this.#slideTo(Number(this.#slider.value)); });
    this.#update();
  }

  /** Add the next events of a log with `total` events. */
  add(block: EventBlock, total = 0): void {
    this.#total = Math.max(this.#total, total);
    if (!this.#player.log.add(block)) return;
    this.#fillVariables();
    this.#filter.fill();
    this.#list.showOnly(this.#filter.places());
    this.#showProgress();
    this.#update();
    this.#goToTarget();
  }

  /** Take note that all events are loaded. */
  complete(): void {
    this.#isComplete = true;
    this.#showProgress();
    this.#update();
    this.#goToTarget();
  }

  /** Go to an event, or to the nearest event before it. An event that is not loaded yet is shown as soon as it is. */
  go(sequence: number): void {
    this.element.classList.remove("folded");
    this.#target = sequence;
    this.#goToTarget();
  }

  /** Show the run, with its name and status if no other view does (`isWhole`), and offer to fork it. `isSaved`: without a kernel. */
  showRun(run: Header, isWhole: boolean, isSaved = false): void {
    if (this.#fork !== undefined) return;
    const prompts = async (): Promise<Record<string, string>> => promptsOf(await this.#host.eventAt(1));
    const stateAt = async (sequence: number): Promise<StateView> => this.#cache.get(sequence)?.state ?? this.#host.stateAt(sequence);
    const source = { run, stateAt, prompts, isSaved };
    this.#fork = new ForkForm(this.#player.log, source, () => { this.#onForkClosed(); });
    for (const each of Object.values(this.#forkButtons)) each.hidden = false;
    this.element.append(this.#fork.element);
    if (!isWhole) return;
    const sign = (STATUS_SIGNS as Record<string, string>)[run.status] ?? "";
    const status = h("span", { class: "status", "data-status": run.status }, `${sign} ${run.status}`.trim());
    const when = h("span", { class: "hint" }, run.started_us === null ? "" : moment(run.started_us));
    this.#head.prepend(h("h2", { title: run.execution_id }, oneLine(run.workflow, 120)), status, when, h("span", { class: "tag", title: "A replay only reads the log. It makes no calls." }, "replay · makes no calls"));
  }

  /** Show only the causes of a value, and fold the rest until a person goes to an event. */
  explainFirst(sequence: number, name: string): void {
    this.element.classList.add("folded");
    const open = button("Open the replay", () => { this.go(sequence); }, { class: "small open" });
    this.#head.querySelector(".actions")?.prepend(open);
    this.#why?.explain(sequence, name, false);
  }

  /** Go to the target if it is loaded, or as near to it as possible if everything is loaded. */
  #goToTarget(): void {
    const target = this.#target;
    const { log } = this.#player;
    if (target === null || (target > log.last && !this.#isComplete)) return;
    this.#goTo(log.placeOf(target));
    this.#target = null;
  }

  /** Handle a position of the slider, which includes events that are not loaded yet. */
  #slideTo(place: number): void {
    if (place > this.#player.log.length && !this.#isComplete) this.go(place);
    else this.#goTo(place);
  }

  /** Show how much of the log is loaded. */
  #showProgress(): void {
    const { length } = this.#player.log;
    this.#loading.hidden = this.#isComplete || this.#total === 0;
    if (this.#loading.hidden) return;
    const bar = h("progress", { max: this.#total, value: length, "aria-label": "Loaded events" });
    this.#loading.replaceChildren(bar, h("span", {}, `${formatCount(length)} of ${formatCount(this.#total)} events loaded`));
  }

  /** Open the form in a mode, or close it if it is open in this mode. */
  #toggleFork(mode: Mode): void {
    const fork = this.#fork;
    if (fork === undefined) return;
    this.#forkMode = mode;
    if (fork.mode === mode) fork.element.hidden = true;
    else fork.open(this.#player.position, this.#stateHere(), mode);
    this.#showExpanded();
  }

  #onForkClosed(): void {
    this.#showExpanded();
    this.#forkButtons[this.#forkMode].focus();
  }

  #showExpanded(): void {
    for (const [mode, each] of Object.entries(this.#forkButtons)) each.setAttribute("aria-expanded", String(this.#fork?.mode === mode));
  }

  #stateHere(): StateView | null {
    return this.#cache.get(this.#player.log.sequenceAt(this.#player.position))?.state ?? null;
  }

  /** Current position. */
  get at(): Position {
    const { position, log } = this.#player;
    const { time = 0, step = "" } = log.at(position) ?? {};
    return { sequence: log.sequenceAt(position), time, step };
  }

  #goTo(place: number): void {
    this.#player.step(place - this.#player.position);
  }

  /** Show why events cannot be loaded. */
  showError(error: string): void {
    this.#panel.showError(error);
  }

  destroy(): void {
    this.#player.pause();
    this.#list.destroy();
    this.element.remove();
  }

  #controls(): HTMLElement {
    const player = this.#player;
    const tool = (sign: string, name: string, action: () => void): HTMLElement => button(sign, action, { "aria-label": name, title: name });
    const speed = h("select", { "aria-label": "Speed" }, ...SPEEDS.map((each) => h("option", { value: each }, `${plural(each, "event")}/s`)));
    speed.value = String(player.speed);
    speed.addEventListener("change", () => { player.speed = Number(speed.value); });
    const moves = h(
      "span",
      { class: "seg" },
      tool("|◀", "Go to the start (Home)", () => { this.#goTo(0); }),
      tool("◀", "Previous event (←)", () => { player.step(-1); }),
      this.#play,
      tool("▶", "Next event (→)", () => { player.step(1); }),
      tool("▶|", "Go to the end (End)", () => { this.go(Infinity); }),
    );
    return h("div", { class: "row controls", role: "toolbar", "aria-label": "Replay controls" }, moves, this.#slider, this.#place, speed);
  }

  /** Create the buttons that go to the next error, question, model call or change of a variable. */
  #goToButtons(): HTMLElement {
    const keyButton = (name: string, key: string, label: string, action: () => void): HTMLElement =>
      button(name, action, { class: "small", "aria-keyshortcuts": key, "aria-label": label, title: `${label} (${key})` });
    const goToButton = (name: string, key: string, isMatch: (entry: Entry) => boolean, label: string): HTMLElement =>
      keyButton(label, key, `Go to the next ${name}`, () => { this.#seekOrReport(1, isMatch, name); });
    const isBreakpoint = (entry: Entry): boolean => stopsAt(this.#player.breakpoints, entry);
    const breakpointButton = (name: string, label: string, key: string, direction: 1 | -1): HTMLElement =>
      keyButton(name, key, label, () => { this.#seekOrReport(direction, isBreakpoint, "breakpoint"); });
    const setsVariable = (entry: Entry): boolean => changes(entry, this.#variable.value);
    const changeButton = (name: string, key: string, direction: 1 | -1): HTMLElement => {
      const seek = (): void => { this.#seekOrReport(direction, setsVariable, `change of ${this.#variable.value}`); };
      return keyButton(name, key, `Go to the ${name} of the variable`, seek);
    };
    return h(
      "div",
      { class: "row ways", role: "group", "aria-label": "Go to" },
      h("span", { class: "hint" }, "Go to"),
      goToButton("error", "E", isError, "✕ next error"),
      goToButton("question", "Q", isQuestion, "? next question"),
      goToButton("model call", "M", isModelCall, "next model call"),
      this.#variableGroup(changeButton("previous change", "C", -1), changeButton("next change", "V", 1)),
      h("span", { class: "seg" }, breakpointButton("‹ ●", "Go to the previous breakpoint", "[", -1), breakpointButton("● ›", "Go to the next breakpoint", "]", 1)),
      this.#message,
    );
  }

  /** Create the group of buttons for a variable, which is hidden while the log has no variables. */
  #variableGroup(...changes: HTMLElement[]): HTMLElement {
    this.#changes.append(this.#variable, ...changes);
    return this.#changes;
  }

  /** Go to the nearest matching event, or state that there is none. */
  #seekOrReport(direction: 1 | -1, isMatch: (entry: Entry) => boolean, name: string): void {
    const isFound = this.#player.seek(direction, isMatch);
    setText(this.#message, isFound ? "" : `There is no ${name} ${direction > 0 ? "after" : "before"} this event.`);
  }

  /** Create the section with the breakpoints and the form for a new one. */
  #breakpoints(): HTMLElement {
    const by = h("select", { "aria-label": "Type of breakpoint" });
    const value = h("select", { "aria-label": "Value of breakpoint" });
    by.append(...BREAKPOINT_KINDS.map(([key, label]) => h("option", { value: key }, label)));
    const kind = (): Breakpoint["by"] => by.value as Breakpoint["by"];
    const fill = (): void => {
      const options = this.#player.log.values(kind()).map((each) => h("option", { value: each }, valueName(kind(), each)));
      value.replaceChildren(...options);
    };
    by.addEventListener("change", fill);
    const add = button("Add", () => {
      if (value.value !== "") this.#player.toggle(kind(), value.value);
    }, { class: "small" });
    const section = h("details", { class: "breakpoints" }, this.#breakpointTitle, h("div", { class: "row" }, by, value, add), this.#breakpointList);
    section.addEventListener("toggle", fill);
    return section;
  }

  /** Set or remove a breakpoint at the current event. */
  #toggleBreakpoint(): void {
    const { position, log } = this.#player;
    if (position > 0) this.#player.toggle("event", String(log.sequenceAt(position)));
  }

  #breakpointRow(breakpoint: Breakpoint): HTMLElement {
    const box = h("input", { type: "checkbox", id: newId() });
    box.checked = breakpoint.isOn;
    box.addEventListener("change", () => {
      breakpoint.isOn = box.checked;
      this.#list.update();
    });
    const text = breakpointText(breakpoint);
    const onRemove = (): void => { this.#player.toggle(breakpoint.by, breakpoint.value); };
    const remove = button("✕", onRemove, { class: "small", "aria-label": `Remove the breakpoint at ${text}` });
    return h("li", { class: "row" }, h("label", {}, box, ` ${text}`), remove);
  }

  /** Set the options for variables, and keep the choice. */
  #fillVariables(): void {
    const variable = this.#variable.value;
    const variables = this.#player.log.values("variable");
    this.#variable.replaceChildren(...variables.map((name) => h("option", { value: name }, name)));
    if (variables.includes(variable)) this.#variable.value = variable;
    this.#changes.hidden = variables.length === 0;
  }

  #toggle(): void {
    if (this.#player.isPlaying) this.#player.pause();
    else this.#player.play();
  }

  /** Handle a move. It cancels a target that is not loaded yet. */
  #onMove(): void {
    this.#target = null;
    this.#update();
  }

  /** Show the current position in all parts. */
  #update(): void {
    const { position, log, isPlaying, breakpoints } = this.#player;
    const length = this.#isComplete ? log.length : Math.max(log.length, this.#total);
    this.#slider.max = String(length);
    this.#slider.value = String(this.#target === null ? position : Math.min(this.#target, length));
    const entry = log.at(position);
    const valueText = entry === undefined ? "before the first event" : `event ${entry.sequence}, ${oneLine(`${nameOf(entry)} ${placeOf(entry)} ${textOf(entry)}`, 200)}`;
    this.#slider.setAttribute("aria-valuetext", valueText);
    const time = entry === undefined ? "" : ` · ${timeOf(entry)}`;
    setText(this.#place, `event ${formatCount(log.sequenceAt(position))} of ${formatCount(Math.max(log.last, this.#total))}${time}`);
    setText(this.#play, isPlaying ? "Pause" : "Play");
    this.#play.setAttribute("aria-label", isPlaying ? "Pause" : "Play");
    setText(this.#breakpointTitle, `Breakpoints (${breakpoints.length})`);
    this.#breakpointList.replaceChildren(...breakpoints.map((breakpoint) => this.#breakpointRow(breakpoint)));
    this.#list.update();
    this.#onPosition(this.at);
    this.#showPosition();
  }

  /**
   * Show the current position: at once if it is cached, otherwise dimmed until it is loaded. Then load the position before
   * it.
   */
  #showPosition(): void {
    const sequence = this.#player.log.sequenceAt(this.#player.position);
    const moment = this.#shown?.sequence === sequence ? this.#shown : this.#cache.get(sequence);
    if (moment === undefined) {
      this.#panel.showLoading(sequence);
      this.#fetch(sequence);
      return;
    }
    const { state } = moment;
    this.#show(moment);
    const before = this.#player.log.sequenceAt(this.#player.position - 1);
    if (before < sequence && state !== null && !this.#cache.has(before)) this.#fetch(before); // for the comparison
  }

  /** Load a position into the cache, unless it is being loaded or too many requests are open. */
  #fetch(sequence: number): void {
    if (this.#requests.has(sequence) || this.#requests.size >= MOST_REQUESTS) return;
    this.#requests.add(sequence);
    void this.#load(sequence).then((moment) => {
      this.#requests.delete(sequence);
      this.#addToCache(moment);
      this.#showPosition();
    });
  }

  /** Return a position, or the reason why it cannot be loaded. */
  async #load(sequence: number): Promise<Moment> {
    try {
      const isBefore = sequence < Math.max(1, this.#player.log.sequenceAt(1)); // true also while no event is loaded
      const [state, event] = await Promise.all([this.#host.stateAt(sequence), isBefore ? null : this.#host.eventAt(sequence)]);
      return { sequence, event, state, error: "" };
    } catch (error) {
      return { sequence, event: null, state: null, error: error instanceof Error ? error.message : String(error) };
    }
  }

  /** Add a position to the cache as the most recently used one, and drop the oldest. */
  #addToCache(moment: Moment): void {
    this.#cache.delete(moment.sequence);
    this.#cache.set(moment.sequence, moment);
    const oldest = this.#cache.keys().next();
    if (this.#cache.size > CACHE_SIZE && oldest.done !== true) this.#cache.delete(oldest.value);
  }

  /** Show a position, compared with the one before it if that is cached. An unchanged position is not drawn again. */
  #show(moment: Moment): void {
    const place = this.#player.position;
    const before = place > 0 ? this.#cache.get(this.#player.log.sequenceAt(place - 1)) : undefined;
    if (moment.state === null) {
      this.#panel.showError(moment.error);
      this.#cache.delete(moment.sequence); // the next visit requests it again
    } else if (this.#shown !== moment || this.#shownBefore !== before) {
      this.#panel.show(moment.event, before?.state ?? null, moment.state);
      this.#addToCache(moment);
    } else {
      this.#panel.clearLoading();
    }
    this.#shown = moment;
    this.#shownBefore = before;
    this.#fork?.update(place, moment.state);
  }

  /** Handle a key, unless the focused element uses it itself. */
  #key(event: KeyboardEvent): void {
    const player = this.#player;
    const { target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target instanceof Element && target.closest("select, input:not([type=range]), textarea, summary, pre, .db-keys") !== null) return;
    if (event.key === " " && target instanceof HTMLButtonElement) return;
    const page = Math.max(1, Math.round(player.log.length / 20));
    const actions: Record<string, () => void> = {
      ArrowRight: () => { player.step(1); },
      ArrowDown: () => { player.step(1); },
      ArrowLeft: () => { player.step(-1); },
      ArrowUp: () => { player.step(-1); },
      PageDown: () => { player.step(page); },
      PageUp: () => { player.step(-page); },
      Home: () => { this.#goTo(0); },
      End: () => { this.go(Infinity); },
      " ": () => { this.#toggle(); },
      b: () => { this.#toggleBreakpoint(); },
    };
    const action = actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  }
}

/** Return the display name of a breakpoint's value, as in the list of events. */
function valueName(by: Breakpoint["by"], value: string): string {
  if (by === "type") return eventName(value);
  if (by === "error") return "any error";
  if (by === "operation") return value.replaceAll("_", " ");
  return by === "path" ? branchOf(value) || value : value;
}

function breakpointText({ by, value }: Breakpoint): string {
  if (by === "error") return valueName(by, value);
  return `${BREAKPOINT_KINDS.find(([key]) => key === by)?.[1] ?? by}: ${valueName(by, value)}`;
}

/** Return the prompts of the steps in the definition that an event contains, by step. */
function promptsOf({ data }: DetailEvent): Record<string, string> {
  const { steps } = (data["definition"] ?? {}) as { steps?: { name: string; prompt?: unknown }[] };
  return Object.fromEntries((steps ?? []).flatMap(({ name, prompt }): [string, string][] => (typeof prompt === "string" ? [[name, prompt]] : [])));
}
