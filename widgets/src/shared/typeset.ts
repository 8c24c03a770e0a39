// Formulas in texts of models. The extension of JupyterLab typesets them with the page's own typesetter; elsewhere they stay text.

/** Event of an element whose formulas are to be typeset. */
export const FORMULAS_EVENT = "divebook:formulas";

/** Commands that add links, scripts, styles or classes. A formula with one of them stays text. */
const UNSAFE = /\\(?:href|url|class|cssId|style|html\w*|data|require|unicode|includegraphics|def|newcommand|let)\b/;

/** Have the formulas inside an element typeset, if the page can do that. */
export function typeset(element: HTMLElement): void {
  for (const formula of element.querySelectorAll(".formula")) {
    if (UNSAFE.test(formula.textContent)) formula.classList.add("mathjax_ignore", "tex2jax_ignore");
  }
  if (element.querySelector(".formula") === null) return;
  // The element may be attached to the page a moment later, so that the event would not reach the document.
  requestAnimationFrame(() => { element.dispatchEvent(new CustomEvent(FORMULAS_EVENT, { bubbles: true, composed: true })); });
}
