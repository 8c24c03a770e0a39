// Parser and view of a difference in git's format, in one column or side by side.

import { h } from "./dom";
import { plural } from "./format";
import { syntaxOf, type Token } from "./syntax";

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

/**
 * Return the range of the changed words in each line that replaces another one, as start and end. A line that has less
 * than a third in common with its partner is another line, and has no range.
 */
export function changedRanges(lines: readonly DiffLine[]): Map<DiffLine, [number, number]> {
  const ranges = new Map<DiffLine, [number, number]>();
  for (const [one, other] of sideBySide(lines)) {
    if (one?.kind !== "went" || other?.kind !== "came") continue;
    const before = one.text.slice(1).split(WORDS);
    const after = other.text.slice(1).split(WORDS);
    const shorter = Math.min(before.length, after.length);
    let head = 0;
    while (head < shorter && before[head] === after[head]) head += 1;
    let tail = 0;
    while (tail < shorter - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
    const length = (words: readonly string[]): number => words.join("").length;
    const common = length(before.slice(0, head)) + length(before.slice(before.length - tail));
    if (3 * common < Math.max(one.text.length, other.text.length)) continue;
    for (const [line, words] of [[one, before], [other, after]] as const) {
      const start = 1 + length(words.slice(0, head));
      ranges.set(line, [start, start + length(words.slice(head, words.length - tail))]);
    }
  }
  return ranges;
}

const WORDS = /(\W)/;

/** Show the first rows of a difference, and a button for more. The path of the file decides about the syntax colours. */
export function difference(text: string, isSplit: boolean, path = ""): HTMLElement {
  const lines = diffLines(text);
  const ranges = changedRanges(lines);
  const syntax = syntaxOf(path);
  const code = (line: DiffLine): Child[] => codeOf(line, ranges.get(line), syntax);
  const rows = isSplit ? sideBySide(lines).map((pair) => (): HTMLElement => pairRow(pair, code)) : lines.map((line) => (): HTMLElement => row(line, code));
  const body = h("pre", { class: isSplit ? "difference split" : "difference", tabindex: 0 });
  let shownRows = 0;
  const more = h("button", { type: "button", class: "db-more", onclick: () => { show(); } });
  function show(): void {
    body.append(...rows.slice(shownRows, shownRows + MOST_ROWS).map((createRow) => createRow()));
    shownRows = Math.min(rows.length, shownRows + MOST_ROWS);
    more.hidden = shownRows === rows.length;
    more.textContent = `Show ${plural(rows.length - shownRows, "more line")}`;
  }
  show();
  return h("div", {}, body, more);
}

type Child = HTMLElement | string;

/** Return a line with its sign: tokens in their colours, and the changed words marked. */
function codeOf(line: DiffLine, range: [number, number] | undefined, syntax: ((text: string) => Token[]) | undefined): Child[] {
  if (line.kind === "soft" || (range === undefined && syntax === undefined)) return [`${line.text}\n`];
  const tokens: Token[] = [{ kind: "", text: line.text.slice(0, 1) }, ...(syntax?.(line.text.slice(1)) ?? [{ kind: "" as const, text: line.text.slice(1) }])];
  const parts: Child[] = [];
  const [start, end] = range ?? [0, 0];
  let place = 0;
  for (const { kind, text } of tokens) {
    // A token is cut where the changed words begin and end.
    for (const [from, to, isChanged] of [[0, start, false], [start, end, true], [end, Infinity, false]] as const) {
      const piece = text.slice(Math.max(0, from - place), Math.max(0, to - place));
      if (piece === "") continue;
      const names = [kind === "" ? "" : `s-${kind}`, isChanged ? "words" : ""].filter(Boolean).join(" ");
      parts.push(names === "" ? piece : h("span", { class: names }, piece));
    }
    place += text.length;
  }
  return [...parts, "\n"];
}

function row(line: DiffLine, code: (line: DiffLine) => Child[]): HTMLElement {
  return h("span", { class: line.kind }, lineNumber(line.before), lineNumber(line.after), ...code(line));
}

function pairRow([removed, added]: Pair, code: (line: DiffLine) => Child[]): HTMLElement {
  if (removed?.kind === "soft") return h("span", { class: "pair soft" }, `${removed.text}\n`);
  const half = (line: DiffLine | null, number: number | null): HTMLElement =>
    h("span", { class: line?.kind ?? "none" }, lineNumber(number), h("span", { class: "code" }, ...(line === null ? ["\n"] : code(line))));
  return h("span", { class: "pair" }, half(removed, removed?.before ?? null), half(added, added?.after ?? null));
}

/** Create the number of a line. It is drawn by the style sheet, so that copied text does not contain it. */
function lineNumber(number: number | null): HTMLElement {
  return h("span", { class: "place", "data-place": number ?? "" });
}
