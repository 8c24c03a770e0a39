// Theme colours for canvas drawings, read from the style sheet, and again after a theme change.

import { COLOUR_NAMES } from "../constants";

// Properties of the style sheet after `--db-`. The last two are in theme.css: a mixed colour, and the share of a fill in its tint.
const COLOURS = [...COLOUR_NAMES, "hover", "tint"];
const FORCED = "(forced-colors: active)";
// Milliseconds after which the colours are compared again. Style sheets may arrive after the theme change without an event.
const RECHECK_AFTER = [100, 400, 1_500, 4_000];

/** Return the current colours, keyed by the property name after `--db-`. */
export function paletteOf(element: Element): Record<string, string> {
  const style = getComputedStyle(element);
  const palette = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--db-${name}`).trim()]));
  return matchMedia(FORCED).matches ? resolveColours(palette, element) : palette;
}

/** Replace the names of system colours by their values. A canvas would take the names for those of another theme. */
function resolveColours(palette: Record<string, string>, element: Element): Record<string, string> {
  const probe = document.createElement("span");
  probe.hidden = true;
  probe.style.setProperty("forced-color-adjust", "none");
  element.append(probe);
  const resolved = Object.fromEntries(Object.entries(palette).map(([name, value]) => {
    probe.style.color = "";
    probe.style.color = value;
    return [name, probe.style.color === "" ? value : getComputedStyle(probe).color]; // the share of a tint is no colour
  }));
  probe.remove();
  return resolved;
}

/**
 * Call `onChange` when the theme turns dark or light, or when a style sheet with colours has loaded. Return a function that
 * stops this. Also keep the class `db-dark` of `root` up to date.
 */
export function onThemeChange(root: HTMLElement, onChange: () => void = () => undefined): () => void {
  const media = [matchMedia("(prefers-color-scheme: dark)"), matchMedia(FORCED)];
  let colours = "";
  let timers: ReturnType<typeof setTimeout>[] = [];
  const update = (isForced: boolean): void => {
    root.classList.toggle("db-dark", isDark(root));
    const currentColours = JSON.stringify(paletteOf(root));
    if (!isForced && currentColours === colours) return;
    colours = currentColours;
    onChange();
  };
  const updateNowAndLater = (): void => {
    timers.forEach(clearTimeout);
    timers = RECHECK_AFTER.map((wait) => setTimeout(update, wait, false));
    update(true);
  };
  const observer = new MutationObserver(updateNowAndLater);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class", "data-theme"] });
  media.forEach((one) => { one.addEventListener("change", updateNowAndLater); });
  const onLoad = ({ target }: Event): void => {
    if (target instanceof HTMLLinkElement) updateNowAndLater();
  };
  document.addEventListener("load", onLoad, true); // the theme's attribute may change before its style sheet has loaded
  updateNowAndLater();
  return () => {
    timers.forEach(clearTimeout);
    observer.disconnect();
    document.removeEventListener("load", onLoad, true);
    media.forEach((one) => { one.removeEventListener("change", updateNowAndLater); });
  };
}

/** Return true if the page behind an element is dark: by JupyterLab's theme, or by the nearest opaque background. */
export function isDark(element: Element): boolean {
  const theme = document.body.dataset["jpThemeLight"];
  if (theme !== undefined) return theme === "false";
  for (let ancestor: Element | null = element; ancestor !== null; ancestor = ancestor.parentElement) {
    const parts = getComputedStyle(ancestor).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [];
    const [red = 255, green = 255, blue = 255, alpha = parts.length === 3 ? 1 : 0] = parts;
    if (alpha > 0.5) return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}
