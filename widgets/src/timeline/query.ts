// Which spans are meant: by words, by type, by step. Each span is looked at once, and again only if it changed.

import type { Spans } from "../shared/spans";
import { typeOf } from "./kinds";

export interface Wanted {
  /** All of these words, somewhere in name, path, type, label or error. */
  words: string;
  /** Keys of the types that are left out. */
  hidden: ReadonlySet<string>;
  step: string | null;
}

export const EVERYTHING: Wanted = { words: "", hidden: new Set(), step: null };

/** Returns whether a span is meant. */
export function matches(spans: Spans, id: number, wanted: Wanted): boolean {
  if (wanted.step !== null && spans.text(id, "step") !== wanted.step) return false;
  if (wanted.hidden.has(typeOf(spans, id).key)) return false;
  if (wanted.words === "") return true;
  const text = [
    spans.nameOf(id),
    spans.text(id, "path"),
    spans.text(id, "type"),
    spans.text(id, "label"),
    spans.text(id, "status"),
    spans.text(id, "note"),
  ];
  const searched = text.join(" ").toLowerCase();
  return wanted.words.toLowerCase().split(/\s+/).every((word) => searched.includes(word));
}

/** Which spans are meant, as far as they are here. */
export class Matches {
  wanted: Wanted = EVERYTHING;
  /** The ids, in order of beginning. */
  ids: Int32Array = new Int32Array(0);
  #mask = new Uint8Array(0);
  #looked = 0;
  #version = -1;

  get isAll(): boolean {
    return this.wanted.words === "" && this.wanted.hidden.size === 0 && this.wanted.step === null;
  }

  want(wanted: Wanted): void {
    this.wanted = wanted;
    this.#version = -1;
  }

  /** Looks again if spans have changed; with many of them it takes too long for every frame. */
  update(spans: Spans): void {
    if (spans.version === this.#version) return;
    this.#version = spans.version;
    if (this.#mask.length < spans.total) this.#mask = new Uint8Array(spans.total * 2);
    const [ids, isAll] = [new Int32Array(spans.total), this.isAll];
    let count = 0;
    const look = (id: number): void => {
      const meant = isAll || matches(spans, id, this.wanted);
      this.#mask[id] = meant ? 1 : 0;
      if (meant) ids[count++] = id;
    };
    spans.early.forEach(look);
    for (let id = spans.floor; id < spans.total; id++) look(id);
    this.ids = ids.subarray(0, count);
    this.#looked = spans.total;
  }

  /** Tells whether a span is meant; one that came since the last look is. */
  has(id: number): boolean {
    return this.isAll || id >= this.#looked || this.#mask[id] === 1;
  }
}
