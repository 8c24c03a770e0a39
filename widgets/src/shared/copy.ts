// A button that copies a text, also on pages without https.

import { h, setText } from "./dom";
import { button } from "./element";

const SAID_FOR = 1_500; // milliseconds

/** Makes a button that copies a text and says so. */
export function copyButton(text: () => string, attributes: Record<string, string> = {}, label = "Copy"): HTMLButtonElement {
  const pressed: HTMLButtonElement = button(label, () => { void copy(text(), pressed, label); }, attributes);
  return pressed;
}

async function copy(text: string, pressed: HTMLButtonElement, label: string): Promise<void> {
  const clipboard = (navigator as { clipboard?: Clipboard }).clipboard; // missing on pages without https
  if (clipboard === undefined) copyBySelection(text, pressed);
  else await clipboard.writeText(text);
  setText(pressed, "Copied");
  setTimeout(() => { setText(pressed, label); }, SAID_FOR);
}

function copyBySelection(text: string, near: HTMLElement): void {
  const area = h("textarea", { class: "db-hidden", "aria-hidden": "true" });
  area.value = text;
  near.after(area);
  area.select();
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- the only way on pages without https
  document.execCommand("copy");
  area.remove();
  near.focus();
}
