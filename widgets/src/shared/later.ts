// Parts of a view that are loaded when a run first needs them, so that they are not part of every widget.

import type { BundleName, Sent } from "../protocol";
import type { StepWire } from "../replay/requests";
import type { Connection } from "./connection";
import { h, type View } from "./dom";
import type { Model } from "./model";

/** What a part may ask of the view around it. */
export interface Host extends Pick<Connection, "control" | "conversation" | "detail"> {
  /** The element of the whole view, whose theme its parts follow. */
  root: HTMLElement;
  /** Asks for all that was sent with a request; absent where nobody knows. */
  sent: ((id: number, receive: (answer: Sent) => void) => void) | undefined;
  /** Asks for the files that were changed by an event, or by now if they are others than in a version; answered once. */
  files: Connection["files"];
  /** Has changed files taken over into the folder that they are a copy of; absent where nobody can. */
  takeOver: Connection["takeOver"] | undefined;
  /** Asks for the variables, if they are others than in a version; answered once. */
  variables: Connection["variables"];
  /** Has the card of a question stand at a place in the part. */
  placeCard: (interruptId: string, place: HTMLElement) => void;
  /** Takes the cards back: their places go. */
  gatherCards: () => void;
  /** Opens the replay after an event; absent where there is none. */
  replay: ((sequence: number) => void) | undefined;
  /** What the kernel is asked by for a replay; absent where there is none. */
  wire?: StepWire;
}

/** What the bundle of a part exports. */
export interface Part {
  style: string;
  make: (model: Model, host: Host) => View;
}

/** Gets the module of a bundle. */
export type Load = (name: BundleName) => Promise<unknown>;

/** Makes a place for a part, which is loaded as soon as the model has something for it. */
export function later(model: Model, isNeeded: () => boolean, load: () => Promise<unknown>, host: Host): View {
  const element = h("div");
  let view: View | null = null;
  let state: "waiting" | "loading" | "gone" = "waiting";

  function take(module: unknown): void {
    if (state === "gone") return;
    const { style, make } = (module as { default: Part }).default;
    view = make(model, host);
    element.append(h("style", {}, style), view.element);
  }

  function look(): void {
    if (state !== "waiting" || !isNeeded()) return;
    state = "loading";
    load().then(take).catch((error: unknown) => {
      element.append(h("p", { class: "db-notice" }, `a part of this view cannot be loaded (${String(error)}); reload the page`));
    });
  }

  const undo = model.on(look);
  const destroy = (): void => {
    state = "gone";
    undo();
    view?.destroy();
  };
  look();
  return { element, destroy };
}

/** Returns the module whose text this is. */
export async function moduleOf(script: string): Promise<unknown> {
  const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  try {
    return await import(/* @vite-ignore */ address);
  } finally {
    URL.revokeObjectURL(address);
  }
}
