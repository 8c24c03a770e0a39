// List of changed files, each with its difference in git's format.

import { CHANGE_SIGNS } from "../constants";
import { difference } from "./difference";
import { h } from "./dom";
import { button, setAttribute } from "./element";

/** Difference of one file, from `FileDiff.to_dict` of the kernel. `diff` is null if it would be too long. */
export interface FileDiff {
  path: string;
  kind: string;
  was?: string | undefined;
  added: number | null;
  removed: number | null;
  diff: string | null;
}

const MOST_OPEN = 3; // up to this many files are open at first
const SIGNS: Record<string, string> = CHANGE_SIGNS;

/** Return a value as changed files; undefined if it is something else. */
export function fileDiffs(value: unknown): FileDiff[] | undefined {
  const isFileDiff = (one: unknown): one is FileDiff => typeof one === "object" && one !== null && "path" in one && "kind" in one && "diff" in one;
  return Array.isArray(value) && value.length > 0 && value.every(isFileDiff) ? value : undefined;
}

let isSplit = false; // the last choice on this page

/**
 * Show changed files, one line each. One switch shows all of them in one column or side by side. `createBefore` creates
 * an element in front of a line.
 */
export function fileList<F extends FileDiff>(files: readonly F[], createBefore?: (file: F) => HTMLElement): HTMLElement {
  const fileLines = files.map((file) => new FileLine(file, files.length <= MOST_OPEN));
  const layouts = ([["Unified", false], ["Split", true]] as const).map(([name, split]) => {
    const choose = (): void => {
      isSplit = split;
      for (const [other, hasTwo] of layouts) setAttribute(other, "aria-pressed", String(hasTwo === split));
      for (const line of fileLines) line.draw();
    };
    return [button(name, choose, { class: "small", "aria-pressed": String(split === isSplit) }), split] as const;
  });
  const choice = h("div", { class: "seg", role: "group", "aria-label": "Layout of the differences" }, ...layouts.map(([element]) => element));
  const hasDifferences = files.some(({ diff, added }) => diff !== null && added !== null);
  const rows = fileLines.map(({ element }, index) => {
    const file = files[index];
    return createBefore === undefined || file === undefined ? element : h("div", { class: "beside" }, createBefore(file), element);
  });
  return h("div", { class: "db-files" }, hasDifferences && h("div", { class: "columns" }, choice), ...rows);
}

/** Line of one file, which unfolds to its difference. */
class FileLine {
  readonly element: HTMLDetailsElement;

  constructor(private readonly file: FileDiff, isOpen: boolean) {
    const word = file.kind === "added" ? "new" : file.kind;
    const counts = file.added === null ? ["binary"] : [h("b", {}, `+${file.added}`), " ", h("i", {}, `−${file.removed ?? 0}`)];
    const oldName = (file.was ?? "") !== "" && h("span", { class: "soft" }, ` ← ${file.was ?? ""}`);
    const letter = h("span", { class: `letter ${file.kind}`, title: word }, SIGNS[file.kind] ?? "?");
    const summary = h("span", { class: "file" }, letter, h("code", {}, file.path), oldName, h("span", { class: "lines" }, ...counts));
    this.element = h("details", { open: isOpen }, h("summary", {}, summary));
    this.element.addEventListener("toggle", () => {
      if (this.element.children.length === 1) this.draw();
    });
    this.draw();
  }

  /** Draw the difference in the current layout. A folded one is created when a person unfolds it. */
  draw(): void {
    this.element.children[1]?.remove();
    if (!this.element.open) return;
    const { diff } = this.file;
    const tooLong = h("p", { class: "soft" }, "This difference is too long to show here. Run %dive diff to see it.");
    this.element.append(diff === null ? tooLong : difference(diff, isSplit, this.file.path));
  }
}
