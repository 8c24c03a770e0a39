// Collapsible replay inside another view, created when a person opens it or goes to an event.

import { h, type View } from "../shared/dom";
import type { Header } from "../protocol";
import type { Position } from "../shared/model";
import { Replay, type ReplayHost } from "./replay";

/** Data source of a replay. */
export interface ReplaySource extends ReplayHost {
  /** Add all events to a replay. */
  fill: (replay: Replay) => Promise<void>;
  close: () => void;
}

/** The section, which opens to go to an event. `follow` goes to an event only while it is open, without scrolling. */
export interface ReplaySection extends View {
  go: (sequence: number) => void;
  follow: (sequence: number) => void;
}

/**
 * Create the section. `createSource` creates the data source when it is first needed. `onPosition` is called with each
 * position, and with null while the section is closed. `isSaved` is true for a saved run without a kernel.
 */
export function replaySection(createSource: () => ReplaySource, onPosition: (at: Position | null) => void, run: () => Header | null, isSaved = false): ReplaySection {
  const element = h("details", { class: "db-table db-stepping" }, h("summary", {}, "Replay"));
  let current: { replay: Replay; host: ReplaySource } | null = null;

  /** Create the replay once, and load its events. */
  function create(): void {
    if (current !== null) return;
    const host = createSource();
    const replay = new Replay(host, (at) => { if (element.open) onPosition(at); });
    current = { replay, host };
    element.append(replay.element);
    const header = run();
    if (header !== null) replay.showRun(header, false, isSaved);
    replay.go(Infinity);
    host.fill(replay).catch((error: unknown) => { replay.showError(String(error)); });
  }

  function go(sequence: number): void {
    create();
    current?.replay.go(sequence);
    element.open = true;
    element.scrollIntoView({ block: "start" });
  }

  const follow = (sequence: number): void => {
    if (element.open) current?.replay.go(sequence);
  };

  element.addEventListener("toggle", () => {
    create();
    onPosition(element.open && current !== null ? current.replay.at : null);
  });
  const destroy = (): void => {
    current?.replay.destroy();
    current?.host.close();
    element.remove();
  };
  return { element, go, follow, destroy };
}
