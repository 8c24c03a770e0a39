// Parts of a view that come when a run first needs them, so that they do not travel with every other.

import type { BundleName, Sent } from "../protocol";
import type { Connection } from "./connection";
import { h, type View } from "./dom";
import type { Model } from "./model";

/** What a part may ask of the view around it. */
export interface Host extends Pick<Connection, "conversation"> {
  /** Asks for all that was sent with a request; absent where nobody knows. */
  sent: ((id: number, receive: (answer: Sent) => void) => void) | undefined;
  /** Has the card of a question stand at a place in the part. */
  placeCard: (interruptId: string, place: HTMLElement) => void;
  /** Takes the cards back: their places go. */
  gatherCards: () => void;
  /** Shows a span in the timeline. */
  reveal: (id: number) => void;
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
