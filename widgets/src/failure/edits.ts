// Edits around the lines of a failure since they ran, found by comparison with the current cell.

import type { SourceLine } from "../protocol";

/** A line as it ran and is gone, as it is now, or both. */
export interface EditedLine {
  kind: "same" | "removed" | "added";
  number: number;
  text: string;
}

const [MAX_LINE_LENGTH, MAX_ADDED_LINES] = [200, 20];
const REDACTED = "[redacted";

/** Compares lines as they ran with a cell as it is now; returns null where they stand there as they were. */
export function editsSince(recordedLines: readonly SourceLine[], cell: string): EditedLine[] | null {
  const now = cell.split("\n").map((line) => line.trimEnd().slice(0, MAX_LINE_LENGTH));
  const [start, end, above, below] = bestPlacement(recordedLines, now);
  const addedLines = now.slice(start + above, end - below);
  const removedLines = recordedLines.slice(above, recordedLines.length - below);
  if (addedLines.length + removedLines.length === 0) return null;
  const same = (first: number, last: number, from: number): EditedLine[] => recordedLines.slice(first, last).map(({ text }, place) => ({ kind: "same", number: from + place + 1, text }));
  return [
    ...same(0, above, start),
    ...removedLines.map(({ number, text }): EditedLine => ({ kind: "removed", number, text })),
    ...addedLines.map((text, place): EditedLine => ({ kind: "added", number: start + above + place + 1, text })),
    ...same(recordedLines.length - below, recordedLines.length, end - below),
  ];
}

/** Returns where in the cell the lines are most alike: from where to where, and how many are the same above and below. */
function bestPlacement(recordedLines: readonly SourceLine[], now: readonly string[]): [number, number, number, number] {
  let [best, bestScore]: [[number, number, number, number], number] = [[0, 0, 0, 0], 0];
  const origin = (recordedLines[0]?.number ?? 1) - 1;
  for (let start = 0; start < now.length; start += 1) {
    const above = countWhile(recordedLines.length, (place) => isSame(recordedLines[place], now[start + place]));
    for (let end = start + above; end <= Math.min(now.length, start + recordedLines.length + MAX_ADDED_LINES); end += 1) {
      const below = countWhile(Math.min(recordedLines.length, end - start) - above, (place) => isSame(recordedLines[recordedLines.length - 1 - place], now[end - 1 - place]));
      const score = (above + below) * 1_000 - Math.abs(end - start - recordedLines.length) - Math.min(1, Math.abs(start - origin) / 1_000);
      if (above + below > 0 && score > bestScore) [best, bestScore] = [[start, end, above, below], score];
    }
  }
  return best;
}

function countWhile(most: number, predicate: (place: number) => boolean): number {
  let count = 0;
  while (count < most && predicate(count)) count += 1;
  return count;
}

/** Lines with something that is kept secret are taken for the same: the cell says more than the log. */
function isSame(recordedLines: SourceLine | undefined, now: string | undefined): boolean {
  return recordedLines !== undefined && now !== undefined && (recordedLines.text.trimEnd() === now || recordedLines.text.includes(REDACTED));
}
