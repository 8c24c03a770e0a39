"""One thing that is wrong, or doubtful, in a definition text, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["error", "warning"]
Place = tuple[str | int, ...]
"""Keys and positions that lead to a value, from the top: ``("Workflows", 0, "Steps", 2, "Next")``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or doubtful, in a definition.

    `line` and `column` count from 1 in the cell or file; 0 means that the definition did not come from text.
    """

    message: str
    line: int = 0
    column: int = 0
    key: str | None = None
    severity: Severity = "error"
    hint: str | None = None
    place: Place = ()

    def describe(self, source_name: str = "<definition>") -> str:
        """Return the problem as one line: ``cell:3:5: unknown key 'Promt' (did you mean 'Prompt'?)``."""
        where = f"{source_name}:{self.line}:{self.column}" if self.line else f"{source_name}{self._spot()}"
        note = "warning: " if self.severity == "warning" else ""
        return f"{where}: {note}{self.message}" + (f" ({self.hint})" if self.hint else "")

    def below(self, *place: str | int) -> Problem:
        """Return the problem as seen from further up: `place` leads to where it was."""
        return replace(self, place=(*place, *self.place))

    def at(self, line: int, column: int) -> Problem:
        """Return the problem with its position in a text."""
        return replace(self, line=line, column=column)

    def _spot(self) -> str:
        spot = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place).lstrip(".")
        return f" at {spot}" if spot else ""


def nearest_position(place: Place, positions: Mapping[Place, tuple[int, int]]) -> tuple[int, int]:
    """Return line and column of a place, or of the nearest one above it that is known; (0, 0) if none is."""
    for length in range(len(place), -1, -1):
        if place[:length] in positions:
            return positions[place[:length]]
    return (0, 0)
