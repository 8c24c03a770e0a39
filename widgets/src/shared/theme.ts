// The page's colours for what is painted: read from the style sheet, and again when the theme changes.

const NAMES = ["step", "item", "turn", "model", "tool", "action", "script", "other", "failed", "cancelled", "running"];
const PLAIN = ["paper", "ink", "soft", "line", "hover", "dim", "focus", "hatch", "wait", "outline", "bad", "accent", "tint"];
const LATER = [100, 400, 1_500, 4_000]; // milliseconds after which colours have come that nothing tells of
const COLOURS = [...PLAIN, ...NAMES, ...NAMES.map((name) => `${name}-text`)];

/** Returns the colours as they are now, by the names of their properties after `--db-`. */
export function paletteOf(element: Element): Record<string, string> {
  const style = getComputedStyle(element);
  return Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--db-${name}`).trim()]));
}

/** Calls `changed` when the page turns dark or light, or a style sheet with colours has come, until what is returned is called. */
export function onThemeChange(root: HTMLElement, changed: () => void = () => undefined): () => void {
  const media = matchMedia("(prefers-color-scheme: dark)");
  let [known, timers]: [string, ReturnType<typeof setTimeout>[]] = ["", []];
  const see = (isSure: boolean): void => {
    root.classList.toggle("db-dark", isDark(root));
    const present = JSON.stringify(paletteOf(root));
    if (!isSure && present === known) return;
    known = present;
    changed();
  };
  const look = (): void => {
    timers.forEach(clearTimeout);
    timers = LATER.map((wait) => setTimeout(see, wait, false));
    see(true);
  };
  const observer = new MutationObserver(look);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class", "data-theme"] });
  media.addEventListener("change", look);
  const arrived = ({ target }: Event): void => { if (target instanceof HTMLLinkElement) look(); };
  document.addEventListener("load", arrived, true); // a theme's name may be there before its colours
  look();
  return () => {
    timers.forEach(clearTimeout);
    observer.disconnect();
    document.removeEventListener("load", arrived, true);
    media.removeEventListener("change", look);
  };
}

/** Tells whether the page behind an element is dark, by the colour it is painted with. */
export function isDark(element: Element): boolean {
  const theme = document.body.dataset["jpThemeLight"];
  if (theme !== undefined) return theme === "false";
  for (let at: Element | null = element; at !== null; at = at.parentElement) {
    const parts = getComputedStyle(at).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [];
    const [red = 255, green = 255, blue = 255, alpha = parts.length === 3 ? 1 : 0] = parts;
    if (alpha > 0.5) return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}
