"""Words that two texts do not share, marked in HTML that is saved with a notebook: no style sheet, both themes."""

from __future__ import annotations

import html

from divebook.text.colours import LIGHT
from divebook.text.differences import ADDED, REMOVED, SAME, Sign
from divebook.text.shown import visible

RULE = f"1px solid {LIGHT['rule']}"
CELL = "padding:4px 10px 4px 0;text-align:left;vertical-align:top;overflow-wrap:anywhere;white-space:normal"
TEXT = "white-space:pre-wrap;overflow-wrap:anywhere"
BADGE = f"display:inline-block;border:{RULE};border-radius:3px;padding:0 5px;margin-right:6px;font-weight:bold"
FAINT = "opacity:.75"
_MARKS = {
    REMOVED: ("del", f"background:{LIGHT['removed-mark']};color:inherit;text-decoration:line-through"),
    ADDED: ("ins", f"background:{LIGHT['added-mark']};color:inherit;text-decoration:underline"),
}


def piece_of(sign: Sign, text: str) -> str:
    """Return words of a text, marked where only one of two texts has them; needs neither colours nor a style sheet."""
    if sign == SAME:
        return safe(text)
    element, style = _MARKS[sign]
    return f'<{element} style="{style}">{safe(text)}</{element}>'


def styled(style: str, text: str) -> str:
    """Return HTML in a style of its own."""
    return f'<span style="{style}">{text}</span>'


def safe(text: str) -> str:
    """Return a text as HTML."""
    return html.escape(visible(text))
