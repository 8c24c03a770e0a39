// Replay as a part of a view: folded, and created when a person unfolds it or goes to an event.

import { h, type View } from "../shared/dom";
import type { Position } from "../shared/model";
import { Replay, type ReplayHost } from "./replay";

/** What a replay is made of. */
export interface Filled extends ReplayHost {
  /** Gives a replay all events that there are. */
  fill: (replay: Replay) => Promise<void>;
  close: () => void;
}

/** Makes the fold; `begin` is called once it is needed, `stand` with where it stands, null while nobody looks. */
export function stepping(begin: () => Filled, stand: (at: Position | null) => void): View & { go: (sequence: number) => void } {
  const element = h("details", { class: "db-table db-stepping" }, h("summary", {}, "Replay"));
  let made: { replay: Replay; host: Filled } | null = null;
  let wanted: number | null = null; // until all events are here

  function make(): void {
    if (made !== null) return;
    const host = begin();
    const replay = new Replay(host, (at) => { if (element.open) stand(at); });
    made = { replay, host };
    element.append(replay.element);
    const arrive = (): void => {
      replay.go(wanted ?? Infinity);
      wanted = null;
    };
    host.fill(replay).then(arrive, (error: unknown) => { replay.tell(String(error)); });
  }

  function go(sequence: number): void {
    wanted = sequence;
    make();
    made?.replay.go(sequence);
    element.open = true;
    element.scrollIntoView({ block: "start" });
  }

  element.addEventListener("toggle", () => {
    make();
    stand(element.open && made !== null ? made.replay.at : null);
  });
  const destroy = (): void => {
    made?.replay.destroy();
    made?.host.close();
    element.remove();
  };
  return { element, go, destroy };
}
