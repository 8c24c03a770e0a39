// State of an execution at a position, the changes up to it, and the event itself.

import type { DetailEvent, PathView, StateView } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { shown, valueText } from "../shared/values";
import { oneLine } from "../shared/text";
import { exactMoment } from "../shared/times";
import { branchOf, eventName } from "../shared/words";
import { diff, type Row } from "./diff";
import { besides, envelopes } from "./envelope";
import { messages, type SaidThen } from "./said";

const [MOST_ROWS, MOST_PARTS] = [100, 5];
const MOST_CELL = 400;
const SIGNS: Record<Row["kind"], string> = { added: "+", removed: "−", changed: "≠" };

/** Parts of a state that are compared besides those that stand in a table of their own. */
const REST = ["status", "pending", "usage", "error"] as const;
const TABS = ["State and change", "Messages", "Event"] as const;
type Cell = Node | string;
type Values = Record<string, unknown>;

/** Shows a state beside what stood before it, what the model saw then, and the event between. */
export class StatePanel {
  readonly element: HTMLElement;
  readonly #loading = h("p", { class: "loading", role: "status", hidden: true });
  readonly #bodies = TABS.map((name) => h("div", { class: "body", role: "tabpanel", "aria-label": name }));
  readonly #tabs = TABS.map((name, place) => button(name, () => { this.#choose(place); }, { role: "tab" }));
  readonly #saidAt: (sequence: number) => Promise<SaidThen>;
  #chosen = 0;
  #sequence = 0;
  /** The position whose messages are shown. */
  #told = -1;

  constructor(saidAt: (sequence: number) => Promise<SaidThen>) {
    this.#saidAt = saidAt;
    const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "What to show of the position" }, ...this.#tabs);
    tabs.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.stopPropagation(); // the replay would step
      this.#choose((this.#chosen + (event.key === "ArrowRight" ? 1 : TABS.length - 1)) % TABS.length);
      this.#tabs[this.#chosen]?.focus();
    });
    this.element = h("div", { class: "panel" }, tabs, this.#loading, ...this.#bodies);
    this.#choose(0);
  }

  /** Dims what is shown, which is of another position, and says which one is being loaded. */
  wait(sequence: number): void {
    setText(this.#loading, `loading event ${sequence.toLocaleString("en")}`);
    this.#setBusy(true);
  }

  /** Shows an event (none stands before the first), the state after it, and the one before it, where that is known. */
  show(event: DetailEvent | null, before: StateView | null, state: StateView): void {
    this.#sequence = state.sequence;
    this.#fill(0, ...stateParts(before, state));
    this.#fill(2, ...eventParts(event));
    this.#tellMessages();
    this.#setBusy(false);
  }

  /** Shows clearly what is shown: it is of the present position. */
  ready(): void {
    this.#setBusy(false);
  }

  #fill(place: number, ...parts: (Node | false)[]): void {
    this.#bodies[place]?.replaceChildren(...parts.filter((part) => part !== false));
  }

  #choose(place: number): void {
    this.#chosen = place;
    this.#tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === place));
      tab.tabIndex = at === place ? 0 : -1;
    });
    this.#bodies.forEach((body, at) => { body.hidden = at !== place; });
    this.#tellMessages();
  }

  /** Asks what was said, once somebody looks there. */
  #tellMessages(): void {
    const sequence = this.#sequence;
    if (TABS[this.#chosen] !== "Messages" || this.#told === sequence) return;
    this.#told = sequence;
    const show = (...parts: HTMLElement[]): void => { if (this.#told === sequence) this.#fill(1, ...parts); };
    show(h("p", { class: "hint" }, "loading …"));
    this.#saidAt(sequence).then(
      (said) => { show(...messages(said)); },
      (error: unknown) => { show(h("p", { class: "wrong" }, error instanceof Error ? error.message : String(error))); },
    );
  }

  #setBusy(isBusy: boolean): void {
    this.#loading.hidden = !isBusy;
    this.element.setAttribute("aria-busy", String(isBusy));
  }

  showTrouble(text: string): void {
    this.#fill(0, h("p", { class: "wrong" }, shown(text, 2000)));
    this.#fill(2);
    this.#setBusy(false);
  }
}

function eventParts(event: DetailEvent | null): HTMLElement[] {
  if (event === null) return [h("p", { class: "hint" }, "Before the first event.")];
  return [h("p", {}, h("strong", {}, `Event ${event.sequence.toLocaleString("en")}: ${eventName(event.event_type)}`)), h("p", { class: "hint" }, exactMoment(event.recorded_us)), pre(event.data)];
}

function stateParts(before: StateView | null, state: StateView): (Node | false)[] {
  const facts = [state.status, ...Object.entries(state.usage).map(([name, value]) => `${value.toLocaleString("en")} ${name.replaceAll("_", " ")}`)];
  const after = `After event ${state.sequence.toLocaleString("en")}`;
  const was = before === null ? "Before" : state.sequence - before.sequence === 1 ? `Before event ${state.sequence.toLocaleString("en")}` : `After event ${before.sequence.toLocaleString("en")}`;
  const rest = before === null ? [] : REST.flatMap((part) => diff(before[part], state[part], part));
  const values = (name: string, old: Values | undefined, now: Values): HTMLElement => table(["", name, was, after], valueRows(old, now));
  const envelope = envelopes(before, state);
  return [
    h("p", {}, h("strong", {}, `State after event ${state.sequence.toLocaleString("en")}`), ` · ${facts.join(" · ")}`),
    state.error !== "" && h("p", { class: "wrong" }, shown(state.error, 2000)),
    ...state.pending.map(({ question, path, step }) => h("p", {}, `? ${oneLine(question, 300)} (${oneLine([branchOf(path), step].filter((part) => part !== "").join(" › "), 100)})`)),
    values("Envelope", envelope.was, envelope.now),
    values("Variable", before === null ? undefined : besides(before.variables), besides(state.variables)),
    values("Output", before?.outputs, state.outputs),
    table(["", "Branch", "Status", "Step", "Phase"], pathRows(before?.paths, state.paths)),
    table(["", "Also changed", was, after], rest.map(changeRow)),
    before !== null && before.variables !== state.variables && isSame(before, state) && h("p", { class: "hint" }, "This event changes nothing here."),
    Object.keys(state.inputs).length > 0 && h("details", {}, h("summary", {}, "Inputs"), table(["Input", "Value"], Object.entries(state.inputs).map(([name, value]) => [oneLine(name, 200), cell(value)]))),
  ];
}

function isSame(before: StateView, after: StateView): boolean {
  return (["variables", "outputs", "paths", ...REST] as const).every((part) => diff(before[part], after[part]).length === 0);
}

/** Returns a row for each value, with that before it where it is another, and below it what differs inside of it. */
function valueRows(before: Record<string, unknown> | undefined, after: Record<string, unknown>): Cell[][] {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after)])].sort();
  return names.flatMap((name) => {
    const changes = before === undefined ? [] : diff(nameless(before, name), nameless(after, name));
    const [first] = changes;
    if (first === undefined) return [["", oneLine(name, 200), before === undefined ? "" : h("span", { class: "hint" }, "same"), cell(after[name])]];
    const kind = name in (before ?? {}) ? (name in after ? "changed" : "removed") : "added";
    const whole = changeRow({ path: name, kind, before: before?.[name], after: after[name] });
    const isWhole = first.path === "value";
    return isWhole ? [whole] : [whole, ...changes.slice(0, MOST_PARTS).map((one) => changeRow({ ...one, path: one.path.replace("value.", "· ") }))];
  });
}

function nameless(values: Record<string, unknown>, name: string): Record<string, unknown> {
  return name in values ? { value: values[name] } : {};
}

function changeRow({ path, kind, before, after }: Row): Cell[] {
  const mark = (name: "removed" | "added", value: unknown): Cell => h("div", { class: `was ${name}` }, cell(value));
  return [h("span", { class: kind, role: "img", "aria-label": kind, title: kind }, SIGNS[kind]), oneLine(path, 200), kind === "added" ? "" : mark("removed", before), kind === "removed" ? "" : mark("added", after)];
}

function pathRows(before: PathView[] | undefined, after: PathView[]): Cell[][] {
  return after.map((path) => {
    const old = before?.find(({ id }) => id === path.id);
    const kind = before === undefined ? null : old === undefined ? "added" : diff(facts(old), facts(path)).length > 0 ? "changed" : null;
    const now = facts(path);
    const parts = now.map((text, place): Cell => {
      const was = old === undefined ? undefined : facts(old)[place];
      return was === undefined || was === text ? text : h("span", {}, was === "" ? "" : h("span", { class: "was removed" }, was), was === "" ? "" : " → ", h("span", { class: "was added" }, text === "" ? "none" : text));
    });
    return [kind === null ? "" : h("span", { class: kind, role: "img", "aria-label": kind, title: kind }, SIGNS[kind]), branchOf(path.id) || path.id, ...parts];
  });
}

function facts({ status, step, visits, phase }: PathView): string[] {
  return [status, visits > 1 ? `${step} ×${visits}` : step, phase.replaceAll("_", " ")];
}

function table(heads: string[], rows: (Node | string)[][]): HTMLElement {
  const head = h("tr", {}, ...heads.map((name) => (name === "" ? h("td", { class: "marker" }) : h("th", { scope: "col" }, name))));
  const body = rows.slice(0, MOST_ROWS).map((cells) => h("tr", {}, ...cells.map((one) => h("td", {}, typeof one === "string" ? oneLine(one, MOST_CELL) : one))));
  const more = rows.length > MOST_ROWS && h("tr", {}, h("td", { colspan: heads.length }, `and ${rows.length - MOST_ROWS} more`));
  return rows.length === 0 ? h("div", { hidden: true }) : h("table", {}, h("thead", {}, head), h("tbody", {}, ...body, more));
}

/** Shows a value on one line, the longer ones to be unfolded. */
function cell(value: unknown): HTMLElement {
  const text = valueText(value, MOST_CELL);
  if (text.length <= 80 && !text.includes("\n")) return h("code", {}, text);
  const whole = h("details", { class: "value" }, h("summary", {}, h("code", {}, oneLine(text, 80))));
  whole.addEventListener("toggle", () => { if (whole.childElementCount === 1) whole.append(pre(value)); });
  return whole;
}

function pre(value: unknown): HTMLElement {
  return h("pre", { tabindex: 0, role: "group", "aria-label": "Value" }, valueText(value, 20_000, 2));
}
