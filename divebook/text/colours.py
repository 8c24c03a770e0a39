"""Colours of live views, images and saved pages. No other file contains a colour.

``python widgets/generate.py`` generates ``widgets/src/shared/colours.css`` from this table, and its names in
``widgets/src/constants.ts``. Kinds and statuses use the colour-blind safe palette of Okabe and Ito. It is the same in
light and dark themes, so that an image in a saved notebook looks like the live view. A letter, a sign or a line always
repeats the information of a colour. The contrast between text and background is at least 4.5, and that of edges at
least 3 (`tests/text/test_colours.py`).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Colour(NamedTuple):
    """Pair of CSS colours: one for light pages and one for dark pages."""

    light: str
    dark: str
    follows: str = ""
    """CSS property of JupyterLab's theme that takes precedence over both values; empty for none."""


_DARK_TEXT = "#16181c"
_LIGHT_TEXT = "#ffffff"


def _fill(colour: str, text: str = _DARK_TEXT) -> tuple[Colour, Colour]:
    # A fill is the same in both themes. The two exceptions, ``item`` and ``turn``, are written out below.
    return Colour(colour, colour), Colour(text, text)


_FILLS: Final = {
    "step": _fill("#0072b2", _LIGHT_TEXT),
    "item": (Colour("#cdd5df", "#56616e"), Colour(_DARK_TEXT, _LIGHT_TEXT)),
    "turn": (Colour("#b7c6e6", "#4a5d85"), Colour(_DARK_TEXT, _LIGHT_TEXT)),
    "model": _fill("#cc79a7"),
    "tool": _fill("#f0e442"),
    "action": _fill("#009e73"),
    "script": _fill("#56b4e9"),
    "other": _fill("#a6e0c8"),
    "running": _fill("#e69f00"),
    "failed": _fill("#b42318", _LIGHT_TEXT),
    "cancelled": _fill("#667080", _LIGHT_TEXT),
    "primary": _fill("#0069a6", _LIGHT_TEXT),
}
"""Fill and text colours of bars, by kind or status of the bar, and of the filled (primary) button."""

COLOURS: Final[dict[str, Colour]] = {
    "paper": Colour("#ffffff", "#1b1e22", "--jp-layout-color1"),
    "ink": Colour("#1b1f24", "#eceef0"),
    "soft": Colour("#57606a", "#b3bac3"),
    "line": Colour("#d8dbdf", "#3d434a", "--jp-border-color2"),
    "edge": Colour("#868e98", "#8b939d"),
    "accent": Colour("#0b62a0", "#85c8f5"),
    "bad": Colour("#b42318", "#ffa397"),
    "bad-wash": Colour("#fdf3f1", "#2f2220"),
    "bad-line": Colour("#efb9b1", "#7c443c"),
    "warn": Colour("#855000", "#f2c266"),
    "warn-wash": Colour("#fff7e5", "#332a18"),
    "warn-line": Colour("#e8c477", "#6f5a2a"),
    "added": Colour("#0b5a94", "#93cdf7"),
    "added-wash": Colour("#e6f2fb", "#172c3d"),
    "removed": Colour("#8a4200", "#f6b877"),
    "removed-wash": Colour("#fdf0e3", "#38281a"),
    "added-mark": Colour("rgba(86,180,233,.35)", "rgba(86,180,233,.35)"),
    "removed-mark": Colour("rgba(230,159,0,.35)", "rgba(230,159,0,.35)"),
    "code-string": Colour("#6b2fa0", "#d3b2ff"),
    "code-number": Colour("#00594a", "#7fdcc0"),
    "code-keyword": Colour("#0b3d91", "#9cc4ff"),
    "wait": Colour("#8a929c", "#9aa3ad"),
    "outline": Colour("#00000033", "#ffffff55"),
    "shade": Colour("#16304f", "#ffffff"),
    "dim": Colour("#e6e8eb", "#33393f"),
    "focus": Colour("#1b1f24", "#ffffff"),
    "hatch": Colour("#ffffffbf", "#ffffffbf"),
    "rule": Colour("rgba(128,128,128,.35)", "rgba(128,128,128,.35)"),
    # The fills and their text colours share the table, so that one loop writes all CSS variables: ``step``,
    # ``step-text``.
    **{name: fill for name, (fill, _) in _FILLS.items()},
    **{f"{name}-text": text for name, (_, text) in _FILLS.items()},
}
"""Backgrounds, text colours and fills by name. ``NAME-wash`` and ``NAME-line`` are the background and the border of a
card, ``NAME`` alone is the colour of its text. ``shade`` is mixed into the background of raised or hovered elements.
``wait`` is the hatch of waiting time. ``rule`` and the ``-mark`` colours are for pages with an unknown theme."""
NAMES: Final = tuple(COLOURS)
"""Names of all colours. The front end reads their values from the style sheet."""
FILLS: Final = tuple(_FILLS)
"""Names of the colours that have a text colour of their own."""
STATUS_SIGNS: Final = {
    "completed": "✓",
    "failed": "✕",
    "cancelled": "◼",
    "running": "▸",
    "waiting": "…",
    "pending": "…",
    "enqueued": "…",
    "paused": "‖",
    "interrupted": "‖",
}
"""Signs that repeat the information of a colour, by status of a run, a step or an operation."""
LIGHT: Final = {name: colour.light for name, colour in COLOURS.items()}
"""CSS colours of images, which are light cards on every page."""
