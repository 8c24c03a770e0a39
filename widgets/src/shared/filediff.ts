// Files that have changed, each with its difference as git writes it, to be unfolded.

import { difference } from "./difference";
import { h } from "./dom";

/** How one file differs, as `FileDiff.to_dict` of the kernel tells it; no `diff` where it would be too long. */
export interface FileDiff {
  path: string;
  kind: string;
  was?: string | undefined;
  added: number | null;
  removed: number | null;
  diff: string | null;
}

const FEW = 3; // files whose differences stand open
const SIGNS: Record<string, [string, string]> = { added: ["A", "new"], changed: ["M", "changed"], deleted: ["D", "deleted"], renamed: ["R", "renamed"] };

/** Returns the changed files that a value tells of; undefined if it is something else. */
export function fileDiffs(value: unknown): FileDiff[] | undefined {
  const isOne = (one: unknown): one is FileDiff => typeof one === "object" && one !== null && "path" in one && "kind" in one && "diff" in one;
  return Array.isArray(value) && value.length > 0 && value.every(isOne) ? value : undefined;
}

let isSplit = false; // as somebody has chosen last on this page

/** Shows changed files, a line each, with one choice for all: one column, or side by side; `beside` makes what stands before a line. */
export function fileList<F extends FileDiff>(files: readonly F[], beside?: (file: F) => HTMLElement): HTMLElement {
  const shown = files.map((file) => new ShownFile(file, files.length <= FEW));
  const choose = (): void => {
    isSplit = !isSplit;
    choice.setAttribute("aria-pressed", String(isSplit));
    for (const one of shown) one.draw();
  };
  const choice = h("button", { type: "button", class: "db-button", "aria-pressed": String(isSplit), onclick: choose }, "Side by side");
  const hasDifferences = files.some(({ diff, added }) => diff !== null && added !== null);
  return h("div", { class: "db-files" }, ...shown.map(({ element }, place) => {
    const file = files[place];
    return beside === undefined || file === undefined ? element : h("div", { class: "beside" }, beside(file), element);
  }), hasDifferences && h("p", { class: "columns" }, choice));
}

/** One file: a line, which unfolds to its difference. */
class ShownFile {
  readonly element: HTMLDetailsElement;

  constructor(private readonly file: FileDiff, isOpen: boolean) {
    const [sign, word] = SIGNS[file.kind] ?? ["?", file.kind];
    const lines = file.added === null ? ["binary"] : [h("b", {}, `+${file.added}`), " ", h("i", {}, `−${file.removed ?? 0}`)];
    const was = (file.was ?? "") !== "" && h("span", { class: "soft" }, ` ← ${file.was ?? ""}`);
    const parts = [h("span", { class: `letter ${file.kind}`, title: word }, sign), h("code", {}, file.path), was, h("span", { class: "lines" }, ...lines)];
    this.element = h("details", { open: isOpen }, h("summary", {}, h("span", { class: "file" }, ...parts)));
    this.element.addEventListener("toggle", () => { if (this.element.children.length === 1) this.draw(); });
    this.draw();
  }

  /** Shows its difference as it is chosen; one that is folded is made when somebody unfolds it. */
  draw(): void {
    this.element.children[1]?.remove();
    if (this.element.open) this.element.append(this.file.diff === null ? h("p", { class: "soft" }, "Too long to be shown here: %dive diff shows it.") : difference(this.file.diff, isSplit));
  }
}
