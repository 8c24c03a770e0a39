// A difference as git writes it, read line by line, and shown in one column or side by side.

import { h } from "./dom";
import { plural } from "./format";

/** A line, its sign included, with its numbers in the file before and after; `soft` tells about what follows. */
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
const NAMING = HEADS.slice(0, 3);

/** Reads a difference; lines that name the file are left out where it has parts. */
export function diffLines(text: string): DiffLine[] {
  const all = text.replace(/\n$/, "").split("\n");
  const hasParts = all.some((line) => PART.test(line));
  const lines: DiffLine[] = [];
  let [before, after, leftBefore, leftAfter] = [0, 0, 0, 0];
  for (const line of all) {
    const isInside = leftBefore > 0 || leftAfter > 0; // a line that has gone may begin as a head does: "--- so"
    const part = isInside ? null : PART.exec(line);
    if (part !== null) {
      [before, leftBefore, after, leftAfter] = [Number(part[1]), Number(part[2] ?? 1), Number(part[3]), Number(part[4] ?? 1)];
      lines.push({ kind: "soft", text: line, before: null, after: null });
    } else if (!isInside && hasParts && NAMING.some((head) => line.startsWith(head))) continue;
    else {
      const kind = kindOf(line, isInside);
      const [hasBefore, hasAfter] = [isInside && (kind === "went" || kind === "same"), isInside && (kind === "came" || kind === "same")];
      lines.push({ kind, text: line, before: hasBefore ? before++ : null, after: hasAfter ? after++ : null });
      leftBefore -= Number(hasBefore);
      leftAfter -= Number(hasAfter);
    }
  }
  return lines;
}

function kindOf(line: string, isInside: boolean): DiffLine["kind"] {
  if (isInside ? line.startsWith("\\") : HEADS.some((head) => line.startsWith(head))) return "soft";
  return line.startsWith("+") ? "came" : line.startsWith("-") ? "went" : "same";
}

/** Puts what has gone beside what came in its place. */
export function sideBySide(lines: readonly DiffLine[]): Pair[] {
  const pairs: Pair[] = [];
  let [gone, come]: [DiffLine[], DiffLine[]] = [[], []];
  function settle(): void {
    for (let place = 0; place < Math.max(gone.length, come.length); place += 1) pairs.push([gone[place] ?? null, come[place] ?? null]);
    [gone, come] = [[], []];
  }
  for (const line of lines) {
    if (line.kind === "went") gone.push(line);
    else if (line.kind === "came") come.push(line);
    else {
      settle();
      pairs.push([line, line]);
    }
  }
  settle();
  return pairs;
}

/** Shows a difference: its beginning, and a button for more of it. */
export function difference(text: string, isSplit: boolean): HTMLElement {
  const lines = diffLines(text);
  const rows = isSplit ? sideBySide(lines).map((pair) => (): HTMLElement => pairRow(pair)) : lines.map((line) => (): HTMLElement => row(line));
  const body = h("pre", { class: isSplit ? "difference split" : "difference", tabindex: 0 });
  let shown = 0;
  const more = h("button", { type: "button", class: "db-more", onclick: () => { show(); } });
  function show(): void {
    body.append(...rows.slice(shown, shown + MOST_ROWS).map((make) => make()));
    shown = Math.min(rows.length, shown + MOST_ROWS);
    more.hidden = shown === rows.length;
    more.textContent = `more (${plural(rows.length - shown, "line")})`;
  }
  show();
  return h("div", {}, body, more);
}

function row(line: DiffLine): HTMLElement {
  return h("span", { class: line.kind }, place(line.before), place(line.after), `${line.text}\n`);
}

function pairRow([gone, come]: Pair): HTMLElement {
  if (gone?.kind === "soft") return h("span", { class: "pair soft" }, `${gone.text}\n`);
  const half = (line: DiffLine | null, number: number | null): HTMLElement => h("span", { class: line?.kind ?? "none" }, place(number), h("span", { class: "code" }, `${line?.text ?? ""}\n`));
  return h("span", { class: "pair" }, half(gone, gone?.before ?? null), half(come, come?.after ?? null));
}

/** A line's number, which is no part of what is copied. */
function place(number: number | null): HTMLElement {
  return h("span", { class: "place", "data-place": number ?? "" });
}
