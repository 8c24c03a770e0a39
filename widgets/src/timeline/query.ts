// Search of spans: by words, by type, by step. Each text is tested once, however many spans have it.

import type { Spans } from "../shared/spans";
import { typeOf } from "./kinds";

export interface Wanted {
  /** All of these words, somewhere in what a span says of itself. */
  words: string;
  /** Keys of the types that are left out. */
  hidden: ReadonlySet<string>;
  step: string | null;
}

export const EVERYTHING: Wanted = { words: "", hidden: new Set(), step: null };
const SEARCHED = ["step", "path", "type", "label", "item", "given", "came", "status", "note"] as const;
const MOST_WORDS = 30;

/** Which spans are meant, as far as they are here. */
export class Matches {
  wanted: Wanted = EVERYTHING;
  /** The ids, in order of beginning. */
  ids: Int32Array = new Int32Array(0);
  /** Counts the times at which this was looked at again. */
  version = 0;
  #words: readonly string[] = [];
  /** By text: which of the words are in it, as bits; those that were not looked at are missing. */
  #seen: number[] = [];
  #mask = new Uint8Array(0);
  #looked = 0;
  #version = -1;

  get isAll(): boolean {
    return this.wanted.words === "" && this.wanted.hidden.size === 0 && this.wanted.step === null;
  }

  want(wanted: Wanted): void {
    this.wanted = wanted;
    this.#words = wanted.words.toLowerCase().split(/\s+/).filter(Boolean).slice(0, MOST_WORDS);
    this.#seen = [];
    this.#version = -1;
  }

  /** Looks again if spans have changed; with many of them it takes too long for every frame. */
  update(spans: Spans): void {
    if (spans.version === this.#version) return;
    this.#version = spans.version;
    this.version++;
    if (this.#mask.length < spans.total) this.#mask = new Uint8Array(spans.total * 2);
    const [ids, isAll] = [new Int32Array(spans.total), this.isAll];
    let count = 0;
    const look = (id: number): void => {
      const meant = isAll || this.#isMeant(spans, id);
      this.#mask[id] = meant ? 1 : 0;
      if (meant) ids[count++] = id;
    };
    spans.early.forEach(look);
    for (let id = spans.floor; id < spans.total; id++) if (spans.has(id)) look(id);
    this.ids = ids.subarray(0, count);
    this.#looked = spans.total;
  }

  #isMeant(spans: Spans, id: number): boolean {
    const { step, hidden } = this.wanted;
    if (step !== null && spans.text(id, "step") !== step) return false;
    if (hidden.size > 0 && hidden.has(typeOf(spans, id).key)) return false;
    const all = (1 << this.#words.length) - 1;
    let found = 0;
    for (const column of SEARCHED) {
      if (found === all) return true;
      found |= this.#wordsIn(spans.names, spans.number(id, column));
    }
    return found === all;
  }

  #wordsIn(names: readonly string[], place: number): number {
    const known = this.#seen[place];
    if (known !== undefined) return known;
    const text = (names[place] ?? "").toLowerCase();
    const found = this.#words.reduce((bits, word, bit) => (text.includes(word) ? bits | (1 << bit) : bits), 0);
    this.#seen[place] = found;
    return found;
  }

  /** Tells whether a span is meant; one that came since the last look is. */
  has(id: number): boolean {
    return this.isAll || id >= this.#looked || this.#mask[id] === 1;
  }
}
