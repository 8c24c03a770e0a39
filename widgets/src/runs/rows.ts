// Rows of the list: one for each run, which keeps its element while its text is unchanged.

import type { Micros, RunsPage, RunView } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { price } from "../shared/format";
import { oneLine } from "../shared/text";
import type { Asked, Command } from "./channel";
import { clockOf, dayOf } from "../shared/times";
import { signOf, workedOf } from "./words";

const TICK = 1_000;

/** What a row asks of the view around it. */
export interface Acts {
  act: (command: Command, run: RunView) => void;
  choose: (run: RunView, isChosen: boolean) => void;
  chooseAll: (isChosen: boolean) => void;
  sort: (by: Asked["by"]) => void;
  toQuestions: () => void;
}

interface Row {
  run: RunView;
  said: string;
  element: HTMLTableRowElement;
  worked: HTMLElement;
  box: HTMLInputElement;
}

/** The table of runs. */
export class Rows {
  readonly element: HTMLElement;
  readonly #acts: Acts;
  readonly #body = h("tbody");
  readonly #all = h("input", { type: "checkbox", "aria-label": "Choose all that are shown", onchange: () => { this.#acts.chooseAll(this.#all.checked); } });
  readonly #sorts: [Asked["by"], HTMLTableCellElement][];
  #rows = new Map<string, Row>();
  #now: () => Micros = () => 0;
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(acts: Acts) {
    this.#acts = acts;
    const sorted = (by: Asked["by"], name: string, kind = ""): HTMLTableCellElement => h("th", { class: kind, scope: "col" }, button(name, () => { acts.sort(by); }));
    this.#sorts = [["began", sorted("began", "Began", "when")], ["worked", sorted("worked", "Worked", "num wide")], ["cost", sorted("cost", "Cost", "num")]];
    const head = h("tr", {}, h("th", {}, this.#all), h("th", { scope: "col" }, "Run"), h("th", { scope: "col" }, "Status"), ...this.#sorts.map(([, cell]) => cell), h("th", {}, h("span", { class: "db-hidden" }, "Actions")));
    const table = h("table", {}, h("thead", {}, head), this.#body);
    this.element = h("div", { class: "scroll", role: "region", "aria-label": "List of runs", "data-keys": "↑ ↓: run to run | Space: choose | Enter: open", onkeydown: (event: KeyboardEvent) => { this.#walk(event); } }, table);
    this.#timer = setInterval(() => { this.#tick(); }, TICK);
  }

  /** Shows a page. */
  update(page: RunsPage, chosen: ReadonlySet<string>, now: () => Micros): void {
    this.#now = now;
    const focused = this.#focused();
    const rows = page.runs.map((run) => this.#row(run, now()));
    const elements = rows.map(({ element }) => element);
    if (elements.length !== this.#body.children.length || elements.some((element, place) => element !== this.#body.children[place])) this.#body.replaceChildren(...elements);
    this.#rows = new Map(rows.map((row) => [row.run.execution_id, row]));
    for (const [by, cell] of this.#sorts) {
      if (by === page.query.by) cell.setAttribute("aria-sort", "descending");
      else cell.removeAttribute("aria-sort");
    }
    this.mark(chosen);
    this.#refocus(focused);
    this.#tick();
  }

  /** Shows which are chosen. */
  mark(chosen: ReadonlySet<string>): void {
    for (const [id, { element, box }] of this.#rows) {
      box.checked = chosen.has(id);
      element.classList.toggle("chosen", box.checked);
    }
    const count = [...this.#rows.keys()].filter((id) => chosen.has(id)).length;
    this.#all.checked = count > 0 && count === this.#rows.size;
    this.#all.indeterminate = count > 0 && count < this.#rows.size;
  }

  destroy(): void {
    clearInterval(this.#timer);
  }

  #row(run: RunView, now: Micros): Row {
    const known = this.#rows.get(run.execution_id);
    const said = JSON.stringify([run, dayOf(run.began_us, now)]);
    if (known?.said === said) return known;
    const name = oneLine(run.workflow, 80);
    const worked = h("td", { class: "num wide" });
    const box = h("input", { type: "checkbox", "data-part": "box", "aria-label": `Choose ${name}, ${clockOf(run.began_us)} ${dayOf(run.began_us, now)}`, onchange: () => { this.#acts.choose(run, box.checked); } });
    const element = h("tr", { "data-run": run.execution_id, class: run.is_open ? "open" : "" },
      h("td", {}, box),
      this.#named(run, name),
      this.#stands(run),
      h("td", { class: "when" }, clockOf(run.began_us), h("div", { class: "soft small" }, dayOf(run.began_us, now))),
      worked,
      h("td", { class: "num" }, price(run.cost)),
      h("td", { class: "acts" }, h("span", { class: "bs" }, ...this.#buttons(run, name))),
    );
    return { run, said, element, worked, box };
  }

  #named(run: RunView, name: string): HTMLElement {
    const badge = run.badge === "" ? [] : [" ", h("span", { class: "badge" }, oneLine(run.badge, 20))];
    const tags = run.tags.flatMap((tag) => [" ", h("span", { class: "tag" }, oneLine(tag, 40))]);
    const link = h("a", { class: "name", role: "link", tabindex: 0, "data-part": "name", title: run.execution_id, onclick: () => { this.#acts.act(run.is_open ? "close" : "open", run); } }, name);
    const about = h("div", { class: run.is_error ? "small error" : "small soft" }, oneLine(run.about, 200));
    return h("td", { class: "what" }, link, ...badge, ...tags, about);
  }

  #stands(run: RunView): HTMLElement {
    const status = h("span", { class: `st ${run.status}` }, h("span", { "aria-hidden": "true" }, `${signOf(run.status)} `), run.status);
    return h("td", { class: "stands" }, status, h("div", { class: "small soft" }, ...this.#how(run)));
  }

  #how(run: RunView): (Node | string)[] {
    if (run.questions > 0) return [button(run.stand, () => { this.#acts.toQuestions(); }, { class: "quiet link", "data-part": "ask" })];
    if (run.total === 0 || run.status !== "running") return [oneLine(run.stand, 120)];
    const done = h("span");
    done.style.width = `${Math.round((100 * run.done) / run.total)}%`;
    return [h("span", { class: "meter", role: "img", "aria-label": run.stand }, done), run.stand];
  }

  #buttons(run: RunView, name: string): HTMLElement[] {
    const does = (command: Command, label: string): HTMLElement => button(label, () => { this.#acts.act(command, run); }, { "data-part": command, "aria-label": `${label.replace(" …", "")} ${name}` });
    const made = [run.is_open ? does("close", "Close") : does("open", "Open")];
    if (run.commands.includes("resume")) made.push(does("resume", "Resume"));
    if (run.commands.includes("cancel")) made.push(does("cancel", "Cancel …"));
    return made;
  }

  #tick(): void {
    for (const { run, worked } of this.#rows.values()) setText(worked, workedOf(run, this.#now()));
  }

  #focused(): [string, string] | undefined {
    const at = document.activeElement;
    const row = at?.closest<HTMLElement>("tr[data-run]");
    return at instanceof HTMLElement && row && this.#body.contains(row) ? [row.dataset["run"] ?? "", at.dataset["part"] ?? ""] : undefined;
  }

  #refocus(focused: [string, string] | undefined): void {
    if (focused === undefined || this.#focused() !== undefined) return;
    const element = this.#rows.get(focused[0])?.element;
    const part = element?.querySelector<HTMLElement>(`[data-part="${focused[1]}"]`) ?? element?.querySelector<HTMLElement>(".name");
    part?.focus();
  }

  /** Arrow keys go from one run to the next. */
  #walk(event: KeyboardEvent): void {
    const row = (event.target as Element).closest<HTMLElement>("tr[data-run]");
    if (row === null) return;
    const names = [...this.#body.querySelectorAll<HTMLElement>(".name")];
    const index = [...this.#body.children].indexOf(row);
    const next = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: names.length - 1 }[event.key];
    const isName = (event.target as HTMLElement).dataset["part"] === "name";
    if (next !== undefined) names[next]?.focus();
    else if (isName && event.key === " ") row.querySelector<HTMLElement>("[data-part=box]")?.click();
    else if (isName && event.key === "Enter") names[index]?.click();
    else return;
    event.preventDefault();
  }
}
