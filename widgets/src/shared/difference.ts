// Parser and view of a difference in git's format, in one column or side by side.

import { h } from "./dom";
import { plural } from "./format";

/** A line with its sign, and its line numbers in the old and the new file. `soft` lines describe the lines after them. */
export interface DiffLine {
  kind: "same" | "came" | "went" | "soft";
  text: string;
  before: number | null;
  after: number | null;
}

type Pair = [DiffLine | null, DiffLine | null];

const MOST_ROWS = 400;
const PART = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;
const HEADS = ["diff ", "+++ ", "--- ", "new file", "deleted file", "rename ", "old mode", "new mode", "Binary ", "@@", "\\"];
const FILE_HEADS = HEADS.slice(0, 3);

/**
 * Parse a difference. Lines that name the file are left out if the difference has hunks.
 *
 * A hunk's head states how many old and new lines follow. The parser counts them down, because a removed line may look
 * like a head ("--- so").
 */
export function diffLines(text: string): DiffLine[] {
  const all = text.replace(/\n$/, "").split("\n");
  const hasParts = all.some((line) => PART.test(line));
  const lines: DiffLine[] = [];
  let before = 0;
  let after = 0;
  let leftBefore = 0;
  let leftAfter = 0;
  for (const line of all) {
    const isInside = leftBefore > 0 || leftAfter > 0;
    const part = isInside ? null : PART.exec(line);
    if (part !== null) {
      before = Number(part[1]);
      leftBefore = Number(part[2] ?? 1);
      after = Number(part[3]);
      leftAfter = Number(part[4] ?? 1);
      lines.push({ kind: "soft", text: line, before: null, after: null });
    } else if (!isInside && hasParts && FILE_HEADS.some((head) => line.startsWith(head))) continue;
    else {
      const kind = kindOf(line, isInside);
      const hasBefore = isInside && (kind === "went" || kind === "same");
      const hasAfter = isInside && (kind === "came" || kind === "same");
      lines.push({ kind, text: line, before: hasBefore ? before++ : null, after: hasAfter ? after++ : null });
      leftBefore -= Number(hasBefore);
      leftAfter -= Number(hasAfter);
    }
  }
  return lines;
}

function kindOf(line: string, isInside: boolean): DiffLine["kind"] {
  const isSoft = isInside ? line.startsWith("\\") : HEADS.some((head) => line.startsWith(head));
  if (isSoft) return "soft";
  if (line.startsWith("+")) return "came";
  return line.startsWith("-") ? "went" : "same";
}

/** Pair removed lines with the added lines that replace them. */
export function sideBySide(lines: readonly DiffLine[]): Pair[] {
  const pairs: Pair[] = [];
  let removed: DiffLine[] = [];
  let added: DiffLine[] = [];
  function flush(): void {
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1) pairs.push([removed[index] ?? null, added[index] ?? null]);
    removed = [];
    added = [];
  }
  for (const line of lines) {
    if (line.kind === "went") removed.push(line);
    else if (line.kind === "came") added.push(line);
    else {
      flush();
      pairs.push([line, line]);
    }
  }
  flush();
  return pairs;
}

/** Show the first rows of a difference, and a button for more. */
export function difference(text: string, isSplit: boolean): HTMLElement {
  const lines = diffLines(text);
  const rows = isSplit ? sideBySide(lines).map((pair) => (): HTMLElement => pairRow(pair)) : lines.map((line) => (): HTMLElement => row(line));
  const body = h("pre", { class: isSplit ? "difference split" : "difference", tabindex: 0 });
  let shownRows = 0;
  const more = h("button", { type: "button", class: "db-more", onclick: () => { show(); } });
  function show(): void {
    body.append(...rows.slice(shownRows, shownRows + MOST_ROWS).map((createRow) => createRow()));
    shownRows = Math.min(rows.length, shownRows + MOST_ROWS);
    more.hidden = shownRows === rows.length;
    more.textContent = `more (${plural(rows.length - shownRows, "line")})`;
  }
  show();
  return h("div", {}, body, more);
}

function row(line: DiffLine): HTMLElement {
  return h("span", { class: line.kind }, lineNumber(line.before), lineNumber(line.after), `${line.text}\n`);
}

function pairRow([removed, added]: Pair): HTMLElement {
  if (removed?.kind === "soft") return h("span", { class: "pair soft" }, `${removed.text}\n`);
  const half = (line: DiffLine | null, number: number | null): HTMLElement => {
    const code = h("span", { class: "code" }, `${line?.text ?? ""}\n`);
    return h("span", { class: line?.kind ?? "none" }, lineNumber(number), code);
  };
  return h("span", { class: "pair" }, half(removed, removed?.before ?? null), half(added, added?.after ?? null));
}

/** Create the number of a line. It is drawn by the style sheet, so that copied text does not contain it. */
function lineNumber(number: number | null): HTMLElement {
  return h("span", { class: "place", "data-place": number ?? "" });
}
