// Edits around the lines of a failure since they ran, found by comparison with the current cell.

import type { SourceLine } from "../protocol";

/** A line as it ran and is gone, as it is now, or both. */
export interface Compared {
  kind: "same" | "removed" | "added";
  number: number;
  text: string;
}

const [MOST_WIDTH, MOST_ADDED] = [200, 20];
const HIDDEN = "[redacted";

/** Compares lines as they ran with a cell as it is now; returns null where they stand there as they were. */
export function edited(ran: readonly SourceLine[], cell: string): Compared[] | null {
  const now = cell.split("\n").map((line) => line.trimEnd().slice(0, MOST_WIDTH));
  const [start, end, above, below] = placed(ran, now);
  const fresh = now.slice(start + above, end - below);
  const gone = ran.slice(above, ran.length - below);
  if (fresh.length + gone.length === 0) return null;
  const same = (first: number, last: number, from: number): Compared[] => ran.slice(first, last).map(({ text }, place) => ({ kind: "same", number: from + place + 1, text }));
  return [
    ...same(0, above, start),
    ...gone.map(({ number, text }): Compared => ({ kind: "removed", number, text })),
    ...fresh.map((text, place): Compared => ({ kind: "added", number: start + above + place + 1, text })),
    ...same(ran.length - below, ran.length, end - below),
  ];
}

/** Returns where in the cell the lines are most alike: from where to where, and how many are the same above and below. */
function placed(ran: readonly SourceLine[], now: readonly string[]): [number, number, number, number] {
  let [best, rank]: [[number, number, number, number], number] = [[0, 0, 0, 0], 0];
  const origin = (ran[0]?.number ?? 1) - 1;
  for (let start = 0; start < now.length; start += 1) {
    const above = alike(ran.length, (place) => isSame(ran[place], now[start + place]));
    for (let end = start + above; end <= Math.min(now.length, start + ran.length + MOST_ADDED); end += 1) {
      const below = alike(Math.min(ran.length, end - start) - above, (place) => isSame(ran[ran.length - 1 - place], now[end - 1 - place]));
      const found = (above + below) * 1_000 - Math.abs(end - start - ran.length) - Math.min(1, Math.abs(start - origin) / 1_000);
      if (above + below > 0 && found > rank) [best, rank] = [[start, end, above, below], found];
    }
  }
  return best;
}

function alike(most: number, isAlike: (place: number) => boolean): number {
  let count = 0;
  while (count < most && isAlike(count)) count += 1;
  return count;
}

/** Lines with something that is kept secret are taken for the same: the cell says more than the log. */
function isSame(ran: SourceLine | undefined, now: string | undefined): boolean {
  return ran !== undefined && now !== undefined && (ran.text.trimEnd() === now || ran.text.includes(HIDDEN));
}
