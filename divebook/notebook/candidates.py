"""Ways to go on in a cell or line, and the cell that they are for; what all completion shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from divebook.dialects import OWN, Dialect


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to go on: what would stand in place of the word before the cursor, and what kind of thing it is."""

    text: str
    type: str


@dataclass(frozen=True, slots=True)
class Found:
    """How the word before the cursor may go on, best first."""

    fragment: str
    candidates: tuple[Candidate, ...] = ()


NOTHING = Found("")


def matching(fragment: str, candidates: Iterable[Candidate]) -> Found:
    """Keep the candidates that begin like the fragment, in any case of letters."""
    start = fragment.casefold()
    return Found(fragment, tuple(entry for entry in candidates if entry.text.lstrip().casefold().startswith(start)))


@dataclass(frozen=True, slots=True)
class CellWithCursor:
    """The body of a cell: the lines above the cursor's, that one's beginning and end, and the lines below it."""

    above: str
    head: str
    tail: str
    below: str
    body: str = "file"
    dialect: Dialect = OWN
