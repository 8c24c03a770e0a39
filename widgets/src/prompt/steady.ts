// Open cards keep their place in the window while the page above them grows or shrinks.

const CARD = "article.card.open";
const REACTION = 400; // milliseconds; changes that follow an action of a person so soon are meant, so nothing is scrolled
const ACTIONS = ["pointerdown", "keydown"] as const;

/**
 * Scroll back by the distance that a change of the page has moved the first open card in the window. A resize observer
 * reports the change before it is drawn, so a click never hits something that has just moved below the pointer. The
 * browser's own scroll anchoring does not help: it keeps the topmost element in place, and the change is below that.
 * Return a function that ends it.
 */
export function keepCardsInPlace(root: HTMLElement): () => void {
  let card: Element | undefined;
  let top = 0;
  let actedAt = -Infinity;
  let scroller: Element | null = null;

  const onResize = (): void => {
    if (scroller === null || !scroller.contains(root)) observeParents();
    const shift = card?.isConnected === true ? card.getBoundingClientRect().top - top : 0;
    if (Math.abs(shift) >= 1 && performance.now() - actedAt > REACTION) scroller?.scrollBy({ top: shift, behavior: "instant" });
    remember();
  };
  const observer = new ResizeObserver(onResize);

  /** Observe all elements between the view and the part of the page that scrolls. Each may contain what changes. */
  function observeParents(): void {
    let element: Element | null = root;
    for (; element !== null && !canScroll(element); element = element.parentElement) observer.observe(element);
    scroller = element;
  }

  /** Store the first open card in the window and its position. */
  function remember(): void {
    const place = scroller?.getBoundingClientRect();
    const isInWindow = (one: Element): boolean => {
      const box = one.getBoundingClientRect();
      return place !== undefined && box.height > 0 && box.bottom > place.top && box.top < place.bottom;
    };
    if (card === undefined || !card.isConnected || !isInWindow(card)) card = [...root.querySelectorAll(CARD)].find(isInWindow);
    top = card?.getBoundingClientRect().top ?? 0;
  }

  const onAction = ({ target }: Event): void => {
    if (!(target instanceof Element) || target.closest(CARD) === null) actedAt = performance.now();
  };
  observer.observe(root);
  document.addEventListener("scroll", remember, { capture: true, passive: true });
  for (const name of ACTIONS) document.addEventListener(name, onAction, { capture: true, passive: true });
  return () => {
    observer.disconnect();
    document.removeEventListener("scroll", remember, { capture: true });
    for (const name of ACTIONS) document.removeEventListener(name, onAction, { capture: true });
  };
}

/** Return whether an element scrolls its content now. */
function canScroll(element: Element): boolean {
  return element.scrollHeight > element.clientHeight && ["auto", "scroll"].includes(getComputedStyle(element).overflowY);
}
