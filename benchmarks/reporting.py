"""What long runs print: JSON lines, each with what it is about and how far that is."""

from __future__ import annotations

import json
from typing import Protocol


class Say(Protocol):
    """Prints one JSON line."""

    def __call__(self, what: str, **details: object) -> None:
        """Print what it is, and details of it."""


def lines_of(program: str) -> Say:
    """Return what prints the lines of a program, which begin with its name."""

    def say(what: str, **details: object) -> None:
        print(json.dumps({program: what, **details}), flush=True)

    return say
