// Parts of a view that are loaded when a run first needs them, so that not every widget contains them.

import type { BundleName, Sent } from "../protocol";
import type { StepWire } from "../replay/requests";
import type { Connection } from "./connection";
import { h, type View } from "./dom";
import type { Model } from "./model";

/** Services that a view offers to its parts. */
export interface Host extends Pick<Connection, "control" | "conversation" | "detail"> {
  /** The element of the whole view, whose theme its parts follow. */
  root: HTMLElement;
  /** Request the full content of a model request; undefined if it is not available. */
  sent: ((id: number, receive: (answer: Sent) => void) => void) | undefined;
  /** Request the files that changed between two events, or until now if they differ from a version. Answered once. */
  files: Connection["files"];
  /** Copy changed files into the source folder of a workspace; undefined if that is not possible. */
  takeOver: Connection["takeOver"] | undefined;
  /** Request the variables if they differ from a version. Answered once. */
  variables: Connection["variables"];
  /** Move the card of a question to an element of the part. */
  placeCard: (interruptId: string, place: HTMLElement) => void;
  /** Take the cards back, before the part removes their elements. */
  gatherCards: () => void;
  /** Open the replay after an event; undefined if there is no replay. */
  replay: ((sequence: number) => void) | undefined;
  /** Transport for the requests of a replay; undefined if there is no replay. */
  wire?: StepWire;
}

/** Export of the bundle of a part. */
export interface Part {
  style: string;
  make: (model: Model, host: Host) => View;
}

/** Load the module of a bundle. */
export type Load = (name: BundleName) => Promise<unknown>;

/** Create a placeholder for a part. The part is loaded as soon as the model has data for it. */
export function lazyPart(model: Model, isNeeded: () => boolean, load: () => Promise<unknown>, host: Host): View {
  const element = h("div");
  let view: View | null = null;
  let state: "waiting" | "loading" | "gone" = "waiting";

  function insert(module: unknown): void {
    if (state === "gone") return;
    const { style, make } = (module as { default: Part }).default;
    view = make(model, host);
    element.append(h("style", {}, style), view.element);
  }

  /** Start loading the bundle once. A view that is destroyed in the meantime ignores it. */
  function loadIfNeeded(): void {
    if (state !== "waiting" || !isNeeded()) return;
    state = "loading";
    load().then(insert).catch((error: unknown) => {
      element.append(h("p", { class: "db-notice" }, `a part of this view cannot be loaded (${String(error)}); reload the page`));
    });
  }

  const undo = model.on(loadIfNeeded);
  const destroy = (): void => {
    state = "gone";
    undo();
    view?.destroy();
  };
  loadIfNeeded();
  return { element, destroy };
}

/** Return the module with this source text. */
export async function moduleOf(script: string): Promise<unknown> {
  const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  try {
    return await import(/* @vite-ignore */ address);
  } finally {
    URL.revokeObjectURL(address);
  }
}
