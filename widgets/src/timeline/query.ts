// Search of spans by words, type and step. Each distinct text is tested once, no matter how many spans have it.

import type { Spans } from "../shared/spans";
import { kindOf } from "./kinds";

/** Conditions of a search. */
export interface SearchConditions {
  /** Words that must all occur in the texts of a span. */
  words: string;
  /** Keys of the hidden types. */
  hidden: ReadonlySet<string>;
  step: string | null;
}

export const NO_CONDITIONS: SearchConditions = { words: "", hidden: new Set(), step: null };
const SEARCH_COLUMNS = ["step", "path", "type", "label", "item", "given", "came", "status", "note"] as const;
const MOST_WORDS = 30; // bits of a number

/** Loaded spans that match a search. */
export class Matches {
  conditions: SearchConditions = NO_CONDITIONS;
  /** Ids in order of beginning. */
  ids: Int32Array = new Int32Array(0);
  /** Number of updates. */
  version = 0;
  #words: readonly string[] = [];
  /** Words in each text as bits, by the index of the text in `Spans.names`. Texts that were not tested yet are missing. */
  #wordsInText: number[] = [];
  #mask = new Uint8Array(0);
  #checkedTotal = 0;
  #spansVersion = -1;

  get isAll(): boolean {
    return this.conditions.words === "" && this.conditions.hidden.size === 0 && this.conditions.step === null;
  }

  /** Set the conditions. */
  setConditions(conditions: SearchConditions): void {
    this.conditions = conditions;
    this.#words = conditions.words.toLowerCase().split(/\s+/).filter(Boolean).slice(0, MOST_WORDS);
    this.#wordsInText = [];
    this.#spansVersion = -1;
  }

  /** Search again if spans have changed. With many spans this takes too long for every frame. */
  update(spans: Spans): void {
    if (spans.version === this.#spansVersion) return;
    this.#spansVersion = spans.version;
    this.version++;
    if (this.#mask.length < spans.total) this.#mask = new Uint8Array(spans.total * 2);
    const ids = new Int32Array(spans.total);
    const isAll = this.isAll;
    let count = 0;
    const check = (id: number): void => {
      const isMatch = isAll || this.#isMatch(spans, id);
      this.#mask[id] = isMatch ? 1 : 0;
      if (isMatch) ids[count++] = id;
    };
    spans.early.forEach(check);
    for (let id = spans.floor; id < spans.total; id++) {
      if (spans.has(id)) check(id);
    }
    this.ids = ids.subarray(0, count);
    this.#checkedTotal = spans.total;
  }

  /** Return true if a span meets all conditions. */
  #isMatch(spans: Spans, id: number): boolean {
    const { step, hidden } = this.conditions;
    if (step !== null && spans.text(id, "step") !== step) return false;
    if (hidden.size > 0 && hidden.has(kindOf(spans, id).key)) return false;
    const all = (1 << this.#words.length) - 1;
    let bits = 0;
    for (const column of SEARCH_COLUMNS) {
      if (bits === all) return true;
      bits |= this.#wordsIn(spans.names, spans.number(id, column));
    }
    return bits === all;
  }

  /** Return the words in a text as bits. */
  #wordsIn(names: readonly string[], textIndex: number): number {
    const cached = this.#wordsInText[textIndex];
    if (cached !== undefined) return cached;
    const text = (names[textIndex] ?? "").toLowerCase();
    let bits = 0;
    this.#words.forEach((word, index) => {
      if (text.includes(word)) bits |= 1 << index;
    });
    this.#wordsInText[textIndex] = bits;
    return bits;
  }

  /** Return true if a span matches. Spans that arrived after the last update match. */
  has(id: number): boolean {
    return this.isAll || id >= this.#checkedTotal || this.#mask[id] === 1;
  }
}
