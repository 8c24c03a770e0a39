// Panel with the state of an execution at a position, the changes by its last event, and that event.

import type { DetailEvent, PathView, StateView } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { dollars, duration, formatCount, plural } from "../shared/format";
import { truncate } from "../shared/values";
import { oneLine } from "../shared/text";
import { exactMoment, moment } from "../shared/times";
import { branchOf, eventName } from "../shared/words";
import { diff, type Row } from "./diff";
import { withoutEnvelope, envelopes } from "./envelope";
import { messageElements, type RequestMessages } from "./requestmessages";
import { frameOf, valueElement } from "./value";

const MOST_ROWS = 100; // per table
const MOST_PARTS = 5; // differences inside one value
const MOST_CELL = 400; // characters
const SIGNS: Record<Row["kind"], string> = { added: "+", removed: "−", changed: "≠" };

/** Parts of a state that are compared in the common table; others have tables of their own. */
const OTHER_PARTS = ["status", "pending", "error"] as const;
const NANOSECONDS = 1000; // per microsecond
const NANODOLLARS = 1e9; // per dollar: a log counts costs in nanodollars, so that sums are exact
const COUNTS: ReadonlySet<string> = new Set(["usage", "reserved", "held"]);
const inSeconds = (seconds: number): string => duration(seconds * 1e6);
const atMoment = (us: number): string => moment(us);
/** Texts of the numbers in events whose unit is not that of people, by field. */
const RECORDED_NUMBERS: Record<string, (value: number) => string> = {
  duration: (nanoseconds) => duration(nanoseconds / NANOSECONDS),
  delay: inSeconds,
  expires_at: atMoment,
  due: atMoment,
};
const TABS = ["State and change", "Messages", "Event"] as const;
type Cell = Node | string;
/** Explain the value that a variable has after an event. */
export type Why = (sequence: number, name: string) => void;
type Explain = (name: string) => HTMLElement;
type Values = Record<string, unknown>;

/** Panel with three tabs: the state compared with the one before it, the messages of the model, and the event. */
export class StatePanel {
  readonly element: HTMLElement;
  readonly #loading = h("p", { class: "loading", role: "status", hidden: true });
  readonly #bodies = TABS.map((name) => h("div", { class: "body", role: "tabpanel", "aria-label": name }));
  readonly #tabs = TABS.map((name, place) => button(name, () => { this.#showTab(place); }, { role: "tab" }));
  readonly #messagesAt: (sequence: number) => Promise<RequestMessages>;
  readonly #why: Why | undefined;
  #tab = 0;
  #sequence = 0;
  /** Sequence number whose messages are shown or requested. */
  #messagesSequence = -1;

  /** `why` explains a variable; without it there are no buttons for that. `above` is shown above the state. */
  constructor(messagesAt: (sequence: number) => Promise<RequestMessages>, why?: Why, above?: HTMLElement) {
    this.#messagesAt = messagesAt;
    this.#why = why;
    const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "State, messages and event" }, ...this.#tabs);
    tabs.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.stopPropagation(); // the replay would step
      this.#showTab((this.#tab + (event.key === "ArrowRight" ? 1 : TABS.length - 1)) % TABS.length);
      this.#tabs[this.#tab]?.focus();
    });
    this.element = h("div", { class: "panel" }, tabs, this.#loading, above, ...this.#bodies);
    this.#showTab(0);
  }

  /** Dim the panel, which shows another position, and name the event that is being loaded. */
  showLoading(sequence: number): void {
    setText(this.#loading, `loading event ${formatCount(sequence)}`);
    this.#setBusy(true);
  }

  /** Show an event (null before the first), the state after it, and the state before it (null if it is not loaded). */
  show(event: DetailEvent | null, before: StateView | null, state: StateView): void {
    this.#sequence = state.sequence;
    this.#fill(0, ...stateParts(before, state, this.#why));
    this.#fill(2, ...eventParts(event));
    this.#loadMessages();
    this.#setBusy(false);
  }

  /** Remove the dimming: the panel shows the current position. */
  clearLoading(): void {
    this.#setBusy(false);
  }

  #fill(place: number, ...parts: (Node | false)[]): void {
    this.#bodies[place]?.replaceChildren(...parts.filter((part) => part !== false));
  }

  #showTab(place: number): void {
    this.#tab = place;
    this.#tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === place));
      tab.tabIndex = at === place ? 0 : -1;
    });
    this.#bodies.forEach((body, at) => { body.hidden = at !== place; });
    this.#loadMessages();
  }

  /** Load the messages when their tab is open. */
  #loadMessages(): void {
    const sequence = this.#sequence;
    if (TABS[this.#tab] !== "Messages" || this.#messagesSequence === sequence) return;
    this.#messagesSequence = sequence;
    const show = (...parts: HTMLElement[]): void => {
      if (this.#messagesSequence === sequence) this.#fill(1, ...parts); // not if the position has changed
    };
    show(h("p", { class: "hint" }, "loading …"));
    this.#messagesAt(sequence).then(
      (answer) => { show(...messageElements(answer)); },
      (error: unknown) => { show(h("p", { class: "wrong" }, error instanceof Error ? error.message : String(error))); },
    );
  }

  #setBusy(isBusy: boolean): void {
    this.#loading.hidden = !isBusy;
    this.element.setAttribute("aria-busy", String(isBusy));
  }

  /** Show why the state cannot be loaded. */
  showError(text: string): void {
    this.#fill(0, h("p", { class: "wrong" }, truncate(text, 2000)));
    this.#fill(2);
    this.#setBusy(false);
  }
}

function eventParts(event: DetailEvent | null): HTMLElement[] {
  if (event === null) return [h("p", { class: "hint" }, "Before the first event.")];
  const title = `Event ${formatCount(event.sequence)}: ${eventName(event.event_type)}`;
  const recorded = Object.entries(event.data).filter(([name, value]) => value !== null && !name.endsWith("_hash"));
  const rows = recorded.map(([name, value]): Cell[] => [name.replaceAll("_", " "), recordedCell(name, value)]);
  return [h("p", {}, h("strong", {}, title)), h("p", { class: "hint" }, exactMoment(event.recorded_us)), table(["Field", "Value"], rows)];
}

/** Create the element of a field of an event, in the units of people. */
function recordedCell(name: string, value: unknown): Cell {
  if (typeof value === "number") return RECORDED_NUMBERS[name]?.(value) ?? valueElement(value);
  return COUNTS.has(name) && isCounts(value) ? Object.entries(value).map(usageText).join(", ") : valueElement(value);
}

function isCounts(value: unknown): value is Record<string, number> {
  return typeof value === "object" && value !== null && Object.values(value).every((count) => typeof count === "number");
}

/** Create the tables of the tab with the state. Without a state before, they show values only. */
function stateParts(before: StateView | null, state: StateView, why: Why | undefined): (Node | false)[] {
  const statusFacts = [state.status, ...Object.entries(state.usage).filter(([, count]) => count !== 0).map(usageText)];
  const after = `After event ${formatCount(state.sequence)}`;
  const oldHead = headBefore(before, state);
  const otherChanges = before === null ? [] : [
    ...OTHER_PARTS.flatMap((part) => diff(before[part], state[part], part)),
    ...diff(usageOf(before), usageOf(state), ""),
  ];
  const values = (name: string, old: Values | undefined, now: Values, explain?: Explain): HTMLElement => {
    const heads = ["", name, oldHead, after, ...(explain === undefined ? [] : [""])];
    return table(heads, valueRows(old, now, explain));
  };
  const explain = why === undefined ? undefined : (prefix: string): Explain => (name) =>
    button("why", () => { why(state.sequence, prefix + name); }, { class: "quiet small", "aria-label": `Why ${name} has this value` });
  const envelope = envelopes(before, state);
  const inputs = Object.entries(state.inputs);
  const inputRows = inputs.map(([name, value]): Cell[] => [oneLine(name, 200), valueElement(value)]);
  return [
    h("p", {}, h("strong", {}, `State after event ${formatCount(state.sequence)}`), ` · ${statusFacts.join(" · ")}`),
    state.error !== "" && h("p", { class: "wrong" }, truncate(state.error, 2000)),
    ...state.pending.map(({ question, path, step }) => {
      const where = [branchOf(path), step].filter((part) => part !== "").join(" › ");
      return h("p", {}, `? ${oneLine(question, 300)} (${oneLine(where, 100)})`);
    }),
    values("Envelope", envelope.was, envelope.now),
    values("Variable", before === null ? undefined : withoutEnvelope(before.variables), withoutEnvelope(state.variables), explain?.("")),
    values("Output", before?.outputs, state.outputs),
    table(["", "Branch", "Status", "Step", "Phase"], pathRows(before?.paths, state.paths)),
    table(["", "Other changes", oldHead, after], otherChanges.map(changeRow)),
    before !== null && before.variables !== state.variables && isSame(before, state) && h("p", { class: "hint" }, "This event does not change the state."),
    inputs.length > 0 && h("details", {}, h("summary", {}, `Inputs (${inputs.length})`), table(["Input", "Value"], inputRows)),
  ];
}

/** Return one kind of consumption as text, such as "12 requests" or "$0.05". */
function usageText([name, value]: [string, number]): string {
  return name === "cost" ? dollars(value / NANODOLLARS) : plural(value, name.replaceAll("_", " ").replace(/s$/, ""));
}

/** Return the consumption by what was consumed, in the units of people. */
function usageOf({ usage }: StateView): Values {
  return Object.fromEntries(Object.entries(usage).map(([name, value]) => [name.replaceAll("_", " "), name === "cost" ? dollars(value / NANODOLLARS) : formatCount(value)]));
}

/** Return the head of the column with earlier values. */
function headBefore(before: StateView | null, state: StateView): string {
  if (before === null) return "Before";
  if (state.sequence - before.sequence === 1) return `Before event ${formatCount(state.sequence)}`;
  return `After event ${formatCount(before.sequence)}`;
}

function isSame(before: StateView, after: StateView): boolean {
  return (["variables", "outputs", "paths", "usage", ...OTHER_PARTS] as const).every((part) => diff(before[part], after[part]).length === 0);
}

/** Return a row for each value, with its earlier value if it differs, followed by rows for the differences inside it. */
function valueRows(before: Record<string, unknown> | undefined, after: Record<string, unknown>, explain?: Explain): Cell[][] {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after)])].sort();
  return names.flatMap((name) => {
    const changes = before === undefined ? [] : diff(singleValue(before, name), singleValue(after, name));
    const [first] = changes;
    const why = explain === undefined ? [] : [name in after ? explain(name) : ""];
    if (first === undefined) {
      const earlier = before === undefined ? "" : h("span", { class: "hint" }, "same");
      return [["", oneLine(name, 200), earlier, valueElement(after[name]), ...why]];
    }
    let kind: Row["kind"] = "changed";
    if (!(name in (before ?? {}))) kind = "added";
    else if (!(name in after)) kind = "removed";
    const whole = [...changeRow({ path: name, kind, before: before?.[name], after: after[name] }), ...why];
    // Of a frame only the first rows are known; other values have parts to compare if they are lists or mappings of the same kind.
    const isWhole = first.path === "value" || frameOf(after[name]) !== undefined || frameOf(before?.[name]) !== undefined;
    if (isWhole) return [whole];
    const filler = explain === undefined ? [] : [""];
    return [whole, ...changes.slice(0, MOST_PARTS).map((one) => [...changeRow({ ...one, path: one.path.replace("value.", "· ") }), ...filler])];
  });
}

/** Return one value under a fixed name, so that the paths of differences inside it can be recognized. */
function singleValue(values: Record<string, unknown>, name: string): Record<string, unknown> {
  return name in values ? { value: values[name] } : {};
}

function changeRow({ path, kind, before, after }: Row): Cell[] {
  const mark = (name: "removed" | "added", value: unknown): Cell => h("div", { class: `was ${name}` }, valueElement(value));
  const oldCell = kind === "added" ? "" : mark("removed", before);
  const newCell = kind === "removed" ? "" : mark("added", after);
  return [signOf(kind), oneLine(path, 200), oldCell, newCell];
}

function signOf(kind: Row["kind"]): HTMLElement {
  return h("span", { class: kind, role: "img", "aria-label": kind, title: kind }, SIGNS[kind]);
}

/** Return a row for each path, with old and new texts where they differ. */
function pathRows(before: PathView[] | undefined, after: PathView[]): Cell[][] {
  return after.map((path) => {
    const old = before?.find(({ id }) => id === path.id);
    let kind: Row["kind"] | null = null;
    if (before !== undefined && old === undefined) kind = "added";
    else if (old !== undefined && diff(facts(old), facts(path)).length > 0) kind = "changed";
    const now = facts(path);
    const parts = now.map((text, place): Cell => {
      const oldText = old === undefined ? undefined : facts(old)[place];
      if (oldText === undefined || oldText === text) return text;
      const newText = h("span", { class: "was added" }, text === "" ? "none" : text);
      return oldText === "" ? h("span", {}, newText) : h("span", {}, h("span", { class: "was removed" }, oldText), " → ", newText);
    });
    return [kind === null ? "" : signOf(kind), branchOf(path.id) || path.id, ...parts];
  });
}

function facts({ status, step, visits, phase }: PathView): string[] {
  return [status, visits > 1 ? `${step} ×${visits}` : step, phase.replaceAll("_", " ")];
}

function table(heads: string[], rows: (Node | string)[][]): HTMLElement {
  const head = h("tr", {}, ...heads.map((name, place) => (name === "" ? h("td", { class: place === 0 ? "marker" : "action" }) : h("th", { scope: "col" }, name))));
  const cellOf = (one: Node | string): HTMLElement => h("td", {}, typeof one === "string" ? oneLine(one, MOST_CELL) : one);
  const body = rows.slice(0, MOST_ROWS).map((cells) => h("tr", {}, ...cells.map(cellOf)));
  const more = rows.length > MOST_ROWS && h("tr", {}, h("td", { colspan: heads.length }, `and ${rows.length - MOST_ROWS} more`));
  return rows.length === 0 ? h("div", { hidden: true }) : h("table", {}, h("thead", {}, head), h("tbody", {}, ...body, more));
}
