// How an execution stood at a position, what changed on the way there, and the event itself.

import type { DetailEvent, StateView } from "../protocol";
import { h, setText } from "../shared/dom";
import { shown, valueText } from "../shared/values";
import { oneLine } from "../shared/text";
import { exactMoment } from "../shared/times";
import { branchOf, eventName } from "../shared/words";
import { diff, type Row } from "./diff";

const MOST_ROWS = 100;
const MOST_CELL = 400;
const SIGNS: Record<Row["kind"], string> = { added: "+", removed: "−", changed: "≠" };

/** Parts of a state that are compared, in the order in which they are shown. */
const COMPARED = ["status", "variables", "outputs", "paths", "pending", "usage", "error"] as const;

/** Shows a state, its difference from another, and an event. */
export class StatePanel {
  readonly element: HTMLElement;
  readonly #loading = h("p", { class: "loading", role: "status", hidden: true });
  readonly #event = section("Event", true);
  readonly #changes = section("Changes", true);
  readonly #state = section("State", true);

  constructor() {
    this.element = h("div", { class: "panel" }, this.#loading, this.#event.element, this.#changes.element, this.#state.element);
  }

  /** Dims what is shown, which is of another position, and says which one is being loaded. */
  wait(sequence: number): void {
    setText(this.#loading, `loading event ${sequence.toLocaleString("en")}`);
    this.#setBusy(true);
  }

  /** Shows an event (none stands before the first), the state after it, and what changed since another state. */
  show(event: DetailEvent | null, before: StateView | null, state: StateView): void {
    this.#showEvent(event);
    this.#showChanges(before, state);
    this.#showState(state);
    this.#setBusy(false);
  }

  /** Shows clearly what is shown: it is of the present position. */
  ready(): void {
    this.#setBusy(false);
  }

  #setBusy(isBusy: boolean): void {
    this.#loading.hidden = !isBusy;
    this.element.setAttribute("aria-busy", String(isBusy));
  }

  #showEvent(event: DetailEvent | null): void {
    if (event === null) {
      this.#event.fill("Event", h("p", { class: "hint" }, "Before the first event."));
      return;
    }
    this.#event.fill(`Event ${event.sequence.toLocaleString("en")}: ${eventName(event.event_type)}`, h("p", { class: "hint" }, exactMoment(event.recorded_us)), pre(event.data));
  }

  #showState(state: StateView): void {
    const facts = [state.status, ...Object.entries(state.usage).map(([name, value]) => `${value.toLocaleString("en")} ${name.replaceAll("_", " ")}`)];
    this.#state.fill(
      `State after event ${state.sequence.toLocaleString("en")}`,
      h("p", {}, facts.join(" · ")),
      state.error !== "" && h("p", { class: "wrong" }, shown(state.error, 2000)),
      ...state.pending.map(({ question, path, step }) => h("p", {}, `? ${oneLine(question, 300)} (${oneLine([branchOf(path), step].filter((part) => part !== "").join(" › "), 100)})`)),
      table(["Variable", "Value"], Object.entries(state.variables).map(([name, value]) => [name, cell(value)])),
      table(["Branch", "Status", "Step", "Phase"], state.paths.map(({ id, status, step, visits, phase }) => [branchOf(id) || id, status, visits > 1 ? `${step} ×${visits}` : step, phase.replaceAll("_", " ")])),
      Object.keys(state.outputs).length > 0 && table(["Output", "Value"], Object.entries(state.outputs).map(([name, value]) => [name, cell(value)])),
    );
  }

  #showChanges(before: StateView | null, after: StateView): void {
    const rows = before === null ? [] : COMPARED.flatMap((part) => diff(before[part], after[part], part));
    const title = before === null ? "Changes" : `Changes since event ${before.sequence.toLocaleString("en")}`;
    const body = rows.slice(0, MOST_ROWS).map(({ path, kind, before: old, after: now }) => [
      h("span", { class: kind, role: "img", "aria-label": kind, title: kind }, SIGNS[kind]),
      oneLine(path, 200),
      kind === "added" ? "" : cell(old),
      kind === "removed" ? "" : cell(now),
    ]);
    const more = rows.length > MOST_ROWS && h("p", { class: "hint" }, `and ${rows.length - MOST_ROWS} more`);
    this.#changes.fill(title, rows.length === 0 ? h("p", { class: "hint" }, "None.") : table(["", "Where", "Before", "After"], body), more);
  }

  showTrouble(text: string): void {
    this.#state.fill("State", h("p", { class: "wrong" }, shown(text, 2000)));
    this.#changes.fill("Changes");
    this.#event.fill("Event");
    this.#setBusy(false);
  }
}

function section(title: string, open: boolean): { element: HTMLElement; fill: (title: string, ...parts: (Node | false)[]) => void } {
  const summary = h("summary", {}, title);
  const body = h("div");
  const fill = (words: string, ...parts: (Node | false)[]): void => {
    setText(summary, words);
    body.replaceChildren(...parts.filter((part) => part !== false));
  };
  return { element: h("details", { open }, summary, body), fill };
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
