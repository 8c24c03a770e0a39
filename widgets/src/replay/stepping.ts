// Collapsible replay inside another view, created when a person opens it or goes to an event.

import { h, type View } from "../shared/dom";
import type { Position } from "../shared/model";
import { Replay, type ReplayHost } from "./replay";

/** Data source of a replay. */
export interface ReplaySource extends ReplayHost {
  /** Add all events to a replay. */
  fill: (replay: Replay) => Promise<void>;
  close: () => void;
}

/**
 * Create the section. `createSource` creates the data source when it is first needed. `onPosition` is called with each
 * position, and with null while the section is closed.
 */
export function replaySection(createSource: () => ReplaySource, onPosition: (at: Position | null) => void): View & { go: (sequence: number) => void } {
  const element = h("details", { class: "db-table db-stepping" }, h("summary", {}, "Replay"));
  let current: { replay: Replay; host: ReplaySource } | null = null;
  let target: number | null = null; // target of `go` until all events are loaded

  /** Create the replay once, and load its events. */
  function create(): void {
    if (current !== null) return;
    const host = createSource();
    const replay = new Replay(host, (at) => { if (element.open) onPosition(at); });
    current = { replay, host };
    element.append(replay.element);
    const goToTarget = (): void => {
      replay.go(target ?? Infinity);
      target = null;
    };
    host.fill(replay).then(goToTarget, (error: unknown) => { replay.showError(String(error)); });
  }

  function go(sequence: number): void {
    target = sequence;
    create();
    current?.replay.go(sequence);
    element.open = true;
    element.scrollIntoView({ block: "start" });
  }

  element.addEventListener("toggle", () => {
    create();
    onPosition(element.open && current !== null ? current.replay.at : null);
  });
  const destroy = (): void => {
    current?.replay.destroy();
    current?.host.close();
    element.remove();
  };
  return { element, go, destroy };
}
