"""A provenance as HTML that unfolds without a script, and as a flow chart in Mermaid's language."""

from __future__ import annotations

import html
from collections.abc import Sequence

from divebook.replay.traced import Traced
from divebook.replay.why_text import MOST_LINES, Teller, lines
from divebook.text.colours import LIGHT
from divebook.text.shown import AS_TEXT

OPEN, ALL_OPEN = 2, 30
"""Lines are unfolded so far down, and all of them up to this many."""
MOST_NODES = 80
_LINE = f"margin:2px 0 2px 1.2em;padding-left:.6em;border-left:1px solid {LIGHT['rule']}"
_SHAPES = {"input": ("([", "])"), "choice": ("{{", "}}"), "caught": ("{{", "}}")}


def html_of(why: Traced) -> str:
    """Return nested parts that a page unfolds; inline styles only, and no colour of its own."""
    found = [*lines(why, MOST_LINES * 4)]
    style = "max-width:1000px;color:inherit;font-size:13px;line-height:1.5"
    return f'<div class="{AS_TEXT}" style="{style}">{_part(found, 0, OPEN if found[ALL_OPEN:] else len(found))}</div>'


def _part(found: Sequence[tuple[int, str]], depth: int, unfolded: int) -> str:
    """Return the lines of one depth, each with those below it."""
    places = [place for place, (deep, _) in enumerate(found) if deep == depth]
    parts = []
    for place, end in zip(places, [*places[1:], len(found)], strict=True):
        told = html.escape(found[place][1])
        below = found[place + 1 : end]
        if below:
            state = " open" if depth < unfolded else ""
            head = f'<summary style="cursor:pointer;display:list-item">{told}</summary>'
            body = _part(below, depth + 1, unfolded)
            parts.append(f"<details{state}>{head}<div style='{_LINE}'>{body}</div></details>")
        else:
            parts.append(f"<div>{told}</div>")
    return "".join(parts)


def mermaid(why: Traced) -> str:
    """Return a flow chart from causes to effects; dotted lines come from choices, and of many values the nearest."""
    teller = Teller(why)
    shown = [*why.depths][:MOST_NODES]
    drawn = ["flowchart LR"]
    for number in shown:
        origin = why.origin(number)
        begin, end = _SHAPES.get(origin.kind, ("[", "]"))
        drawn.append(f'  n{number}{begin}"{_quoted(teller.head(origin))}"{end}')
    for number in shown:
        origin = why.origin(number)
        drawn += [f"  n{cause} --> n{number}" for cause in origin.reads if cause in shown]
        drawn += [f"  n{cause} -.-> n{number}" for cause in origin.because if cause in shown]
    if len(why.depths) > len(shown):
        drawn.append(f'  more["... {len(why.depths) - len(shown):,} more"]')
    return "\n".join(drawn)


def _quoted(text: str) -> str:
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
