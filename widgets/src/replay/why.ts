// Causes of a value, as an indented chain from the value back to its inputs, or as a graph. Each line leads to its event.

import type { WhyLine } from "../protocol";
import { h } from "../shared/dom";
import { button } from "../shared/element";
import { formatCount } from "../shared/format";
import { oneLine } from "../shared/text";
import { kindBadge } from "./badge";
import { causeGraph } from "./whygraph";

const MOST_DEPTH = 12; // levels that are indented
const SIGNS: Record<string, [string, string]> = { input: ["→", "input"], choice: ["?", "choice"], caught: ["✕", "failure"], again: ["↑", "shown above"] };

type Display = "List" | "Graph";
/** The display that a person chose last in this page. */
let display: Display = "List";

/** Return the causes of a value after an event. */
export type WhyAt = (sequence: number, name: string) => Promise<WhyLine[]>;

/** Panel that explains one value at a time. It is hidden until it is first used. */
export class WhyPanel {
  readonly element = h("section", { class: "why", "aria-label": "Causes of a value", tabindex: -1, hidden: true });
  readonly #whyAt: WhyAt;
  readonly #go: (sequence: number) => void;
  #opener: Element | null = null;
  #key = "";

  /** `go` is called with the event of a line. */
  constructor(whyAt: WhyAt, go: (sequence: number) => void) {
    this.#whyAt = whyAt;
    this.#go = go;
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.#close();
    });
  }

  /** Explain the value that a variable had after an event. The panel takes the focus unless nobody has asked for it here. */
  explain(sequence: number, name: string, takesFocus = true): void {
    this.#opener = document.activeElement;
    const key = `${sequence} ${name}`;
    this.#key = key;
    this.element.hidden = false;
    this.#show(h("strong", {}, `Why is ${oneLine(name, 60)} …`), h("p", { class: "hint", role: "status" }, "loading the causes"));
    if (takesFocus) this.element.focus({ preventScroll: true });
    const isCurrent = (): boolean => this.#key === key;
    this.#whyAt(sequence, name).then(
      (lines) => { if (isCurrent()) this.#showLines(sequence, name, lines); },
      (error: unknown) => { if (isCurrent()) this.#show(titleOf(sequence, name), h("p", { class: "wrong" }, error instanceof Error ? error.message : String(error))); },
    );
  }

  #showLines(sequence: number, name: string, lines: WhyLine[]): void {
    const body = h("div", {});
    const draw = (): void => {
      const badge = (line: WhyLine): HTMLElement => badgeOf(line);
      if (display === "Graph") body.replaceChildren(causeGraph(lines, badge, (event) => { this.#go(event); }));
      else body.replaceChildren(h("ol", { class: "causes" }, ...lines.map((line) => this.#row(line))));
      for (const choice of choices) choice.setAttribute("aria-pressed", String(choice.textContent === display));
    };
    const choices = (["List", "Graph"] as const).map((each) => button(each, () => { display = each; draw(); }, { class: "small" }));
    draw();
    const seg = h("div", { class: "seg display", role: "group", "aria-label": "Display of the causes" }, ...choices);
    this.#show(titleOf(sequence, name, lines[0]?.value), ...(lines.length > 1 ? [seg] : []), body);
    this.element.parentElement?.scrollTo({ top: 0 }); // it is at the top of the panel
  }

  #row(line: WhyLine): HTMLElement {
    const { depth, sequence, kind, name, value, text } = line;
    const badge = badgeOf(line);
    const subject = name === "" ? [] : [h("strong", {}, name), value === "" ? "" : " = ", h("code", { dir: "auto" }, value), " "];
    const step = sequence === 0 ? h("span") : button("Go", () => { this.#go(sequence); }, { class: "quiet small", "aria-label": `Go to event ${formatCount(sequence)}` });
    const event = h("span", { class: "number" }, sequence === 0 ? "" : formatCount(sequence));
    return h("li", { style: `--depth: ${Math.min(depth, MOST_DEPTH)}`, "data-kind": kind }, event, h("span", { class: "cause" }, badge, h("span", {}, ...subject, h("span", { class: "hint" }, text))), step);
  }

  #show(title: HTMLElement, ...content: HTMLElement[]): void {
    const close = button("✕", () => { this.#close(); }, { class: "quiet small", "aria-label": "Close (Escape)", title: "Close (Escape)" });
    this.element.replaceChildren(h("div", { class: "row head" }, title, close), ...content);
  }

  #close(): void {
    this.#key = "";
    this.element.hidden = true;
    if (this.#opener instanceof HTMLElement && this.#opener.isConnected) this.#opener.focus();
  }
}

/** Return the sign of a line: that of its kind, or of the kind of its call. */
function badgeOf({ kind, operation }: WhyLine): HTMLElement {
  const [sign, label] = SIGNS[kind] ?? ["", ""];
  return sign === "" ? kindBadge(operation) : h("span", { class: "sign", role: "img", "aria-label": label, title: label }, sign);
}

function titleOf(sequence: number, name: string, value = ""): HTMLElement {
  const isShort = value !== "" && value.length <= 60;
  return h("strong", { class: "title" }, "Why is ", h("code", {}, oneLine(name, 60)), isShort ? " = " : "", isShort ? h("code", {}, value) : "", ` after event ${formatCount(sequence)}?`);
}
