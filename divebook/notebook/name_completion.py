"""What can be written in the code of a ``%%dive`` cell, as inside ``${...}``: variables, inputs, the item of a loop."""

from __future__ import annotations

import re
from collections.abc import Iterator

from divebook.errors import Place
from divebook.notebook.candidates import Candidate, CellWithCursor, Found, matching
from divebook.notebook.outline import Outline

_OPENED = re.compile(r"\$[{(][^{}]*$")
"""An expression that is not closed before the cursor."""
_NAME = re.compile(r"(?:[A-Za-z_][\w.]*)?$")
_CODE = frozenset({"Script", "Condition", "Dynamic"})
"""Keys whose texts are code as a whole."""


def names_at(document: CellWithCursor) -> Found | None:
    """Return how the name before the cursor may go on; None where the cursor is in no code of a workflow."""
    place = _place(document)
    if place is None or "Steps" not in place or not (place[-1] in _CODE or _OPENED.search(document.head)):
        return None
    name = _NAME.search(document.head)
    outline = Outline("\n".join((document.above, document.head + document.tail, document.below)))
    return matching(name[0] if name else "", _names(outline, place))


def _place(document: CellWithCursor) -> Place | None:
    """Return the place of the text that the cursor is in."""
    outline = Outline(document.above)
    block = outline.block_text(document.head)
    if block is not None:
        return block
    spot = outline.spot(document.head)
    return spot.place if spot is not None and spot.after_key else None


def _names(outline: Outline, place: Place) -> Iterator[Candidate]:
    workflow = place[: place.index("Steps")]
    step = place[: len(workflow) + 2]
    for where, text in outline.values.items():
        if where[: len(workflow)] != workflow:
            continue
        match where[len(workflow) :]:
            case ("Steps", int(), *_, "Store"):
                yield Candidate(f"state.{text}", "variable")
            case ("Steps", int(), "Each", "As") if where[: len(step)] == step:
                yield Candidate(text, "item")
            case ("Inputs", int(), "Name"):
                yield Candidate(f"inputs.{text}", "input")
