// Edits of a cell since it failed: comparison of the recorded lines around the failure with the current cell.

import type { SourceLine } from "../protocol";

/** A recorded line that was removed, a line that was added, or a line that is unchanged. */
export interface EditedLine {
  kind: "same" | "removed" | "added";
  number: number;
  text: string;
}

const MAX_LINE_LENGTH = 200; // characters; the log records lines up to this length
const MAX_ADDED_LINES = 20;
const REDACTED = "[redacted";

/** Compare recorded lines with the current cell. Return null if they are unchanged. */
export function editsSince(recordedLines: readonly SourceLine[], cell: string): EditedLine[] | null {
  const now = cell.split("\n").map((line) => line.trimEnd().slice(0, MAX_LINE_LENGTH));
  const [start, end, above, below] = bestPlacement(recordedLines, now);
  const addedLines = now.slice(start + above, end - below);
  const removedLines = recordedLines.slice(above, recordedLines.length - below);
  if (addedLines.length + removedLines.length === 0) return null;
  const same = (first: number, last: number, from: number): EditedLine[] => {
    const lines = recordedLines.slice(first, last);
    return lines.map(({ text }, place) => ({ kind: "same", number: from + place + 1, text }));
  };
  return [
    ...same(0, above, start),
    ...removedLines.map(({ number, text }): EditedLine => ({ kind: "removed", number, text })),
    ...addedLines.map((text, place): EditedLine => ({ kind: "added", number: start + above + place + 1, text })),
    ...same(recordedLines.length - below, recordedLines.length, end - below),
  ];
}

/**
 * Return the range of the cell that is most similar to the recorded lines: start, end, and the numbers of equal lines
 * at its top and bottom.
 * Every possible range is scored. The number of equal lines decides; among equal scores, the range with the most
 * similar length wins, and then the one closest to the original place.
 */
function bestPlacement(recordedLines: readonly SourceLine[], now: readonly string[]): [number, number, number, number] {
  let best: [number, number, number, number] = [0, 0, 0, 0];
  let bestScore = 0;
  const count = recordedLines.length;
  const origin = (recordedLines[0]?.number ?? 1) - 1;
  for (let start = 0; start < now.length; start += 1) {
    const above = countWhile(count, (place) => isSame(recordedLines[place], now[start + place]));
    for (let end = start + above; end <= Math.min(now.length, start + count + MAX_ADDED_LINES); end += 1) {
      const below = countWhile(Math.min(count, end - start) - above, (place) => isSame(recordedLines[count - 1 - place], now[end - 1 - place]));
      const score = (above + below) * 1_000 - Math.abs(end - start - count) - Math.min(1, Math.abs(start - origin) / 1_000);
      if (above + below > 0 && score > bestScore) {
        best = [start, end, above, below];
        bestScore = score;
      }
    }
  }
  return best;
}

/** Return the number of consecutive places, counted from 0, for which the predicate holds, up to a limit. */
function countWhile(most: number, predicate: (place: number) => boolean): number {
  let count = 0;
  while (count < most && predicate(count)) count += 1;
  return count;
}

/** Return whether a recorded line equals a current one. Redacted lines count as equal, because the log does not contain their text. */
function isSame(recordedLine: SourceLine | undefined, now: string | undefined): boolean {
  if (recordedLine === undefined || now === undefined) return false;
  return recordedLine.text.trimEnd() === now || recordedLine.text.includes(REDACTED);
}
