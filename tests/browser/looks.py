"""How a part of a page looks: pictures in both themes and two widths, and what a machine can find wrong in it."""

import json

from tests.browser.server import ROOT

AXE = ROOT / "widgets" / "node_modules" / "axe-core" / "axe.min.js"
THEMES = ("Light", "Dark")
WIDTHS = {"narrow": 700, "wide": 1400}
HIGH = 1000
"""Pixels of a window; it grows with what is in it."""

HELPERS = """
window.looks ??= (() => {
  const hidden = (node) => !node.checkVisibility({ visibilityProperty: true }) || node.closest(".db-hidden") !== null;
  const scrolls = (node) => ["auto", "scroll"].includes(getComputedStyle(node).overflowX);
  const scroller = (node, root) => {
    for (let at = node; at !== root; at = at.parentElement) if (scrolls(at) && at !== node) return at;
    return null;
  };
  const name = (node) =>
    `<${node.localName} class="${node.getAttribute("class") ?? ""}"> ${node.textContent.trim().slice(0, 60)}`;
  const hasText = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim() !== "");

  // What is worth scrolling.
  const tables = ".db-list, .divebook-graph > .scroll, .causegraph, :has(> .dataframe), :has(> * > .dataframe)";
  const tells = "[title], [aria-expanded]"; // where the pointer rests on it, or once it is unfolded

  // What stands out of its place, is cut off without a sign, or has to be scrolled sideways though it is no table.
  function misfits(root) {
    const found = [];
    const edge = root.getBoundingClientRect();
    if (root.scrollWidth > root.clientWidth + 1) found.push(`wider than its place: ${name(root)}`);
    for (const node of root.querySelectorAll("*:not(svg *)")) {
      if (hidden(node)) continue;
      const box = node.getBoundingClientRect();
      const style = getComputedStyle(node);
      const out = Math.max(box.right - edge.right, edge.left - box.left);
      if (out > 1 && box.width > 0 && scroller(node, root) === null) found.push(`stands out by ${out}: ${name(node)}`);
      const wider = node.scrollWidth > node.clientWidth + 1 && style.display !== "inline";
      if (wider && scrolls(node) && !node.matches(tables)) found.push(`is scrolled sideways: ${name(node)}`);
      if (!hasText(node) || !["hidden", "clip"].includes(style.overflowX)) continue;
      if (wider && style.textOverflow !== "ellipsis") found.push(`is cut off: ${name(node)}`);
      if (wider && node.closest(tells) === null) found.push(`is cut off, and told nowhere: ${name(node)}`);
      if (node.scrollHeight > node.clientHeight + 2) found.push(`is cut off below: ${name(node)}`);
    }
    for (const text of root.querySelectorAll("svg .step text")) {
      const box = text.closest(".step").querySelector(".box").getBoundingClientRect();
      const own = text.getBoundingClientRect();
      if (own.width > 0 && own.right > box.right) found.push(`stands out of its step: ${name(text)}`);
    }
    return found;
  }
  const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))));
  return { misfits, drawn };
})();
"""

SERIOUS = """
(root) => axe.run(root).then(({ violations }) => violations.flatMap(({ id, impact, nodes }) =>
  ["serious", "critical"].includes(impact)
    ? nodes.map(({ html, failureSummary: why }) => `${impact}: ${id}: ${html.slice(0, 160)}: ${why.slice(0, 400)}`)
    : []))
"""


class Looks:
    """Looks at parts of pages in every theme and width; what is wrong is gathered, so that all pictures are taken."""

    def __init__(self):
        self.faults = []
        self._axe = AXE.read_text(encoding="utf-8")

    def at(self, lab, name, target):
        """Look at a part of the page."""
        lab.page.evaluate(f"window.axe === undefined && (0, eval)({json.dumps(self._axe)})")
        lab.page.evaluate(HELPERS)
        themes = THEMES
        for width, pixels in WIDTHS.items():
            self._fit(lab, target, pixels)
            self._add(f"{name}-{width}", target.evaluate("(root) => looks.misfits(root)"))
            for theme in themes:
                lab.be(theme)
                lab.page.evaluate("looks.drawn()")
                lab.shot(f"{name}-{theme.lower()}-{width}", target)
                if width == "wide":
                    self._add(f"{name}-{theme.lower()}", target.evaluate(SERIOUS))
            themes = themes[::-1]  # a change of theme takes long: there are two, and the last picture is a light one

    def _fit(self, lab, target, width):
        """Make the window so high that the whole part is seen."""
        lab.page.set_viewport_size({"width": width, "height": HIGH})
        lab.page.evaluate("looks.drawn()")
        high = round(target.bounding_box()["height"]) + 400
        if high > HIGH:
            lab.page.set_viewport_size({"width": width, "height": high})
        target.scroll_into_view_if_needed()

    def _add(self, name, faults):
        self.faults += [f"{name}: {fault}" for fault in faults]
