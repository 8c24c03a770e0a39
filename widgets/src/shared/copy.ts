// Button that copies text to the clipboard, also on pages without https.

import { h, setText } from "./dom";
import { button } from "./element";

const CONFIRMATION_MS = 1_500; // milliseconds

/** Create a button that copies a text and confirms it in its label. */
export function copyButton(text: () => string, attributes: Record<string, string> = {}, label = "Copy"): HTMLButtonElement {
  const element: HTMLButtonElement = button(label, () => { void copy(text(), element, label); }, attributes);
  return element;
}

async function copy(text: string, element: HTMLButtonElement, label: string): Promise<void> {
  const clipboard = (navigator as { clipboard?: Clipboard }).clipboard; // missing on pages without https
  if (clipboard === undefined) copyBySelection(text, element);
  else await clipboard.writeText(text);
  setText(element, "Copied");
  setTimeout(() => { setText(element, label); }, CONFIRMATION_MS);
}

/** Copy through a hidden text area next to the button, because the clipboard API needs https. */
function copyBySelection(text: string, copyButtonElement: HTMLElement): void {
  const area = h("textarea", { class: "db-hidden", "aria-hidden": "true" });
  area.value = text;
  copyButtonElement.after(area);
  area.select();
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- the only way on pages without https
  document.execCommand("copy");
  area.remove();
  copyButtonElement.focus();
}
