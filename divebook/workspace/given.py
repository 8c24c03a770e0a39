"""What is given to workspaces as several things: one text is not several, though Python takes its letters for that."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def several(given: Iterable[T], what: str) -> tuple[T, ...]:
    """Return what was given as a tuple.

    Raises
    ------
    TypeError
        It is one text or path: ``packages="pytest"`` would have installed ``p``, ``y``, ``t``, ...
    """
    if isinstance(given, str | bytes | os.PathLike):
        raise TypeError(f"{what} must be a list, not one text: write [{str(given)!r}]")
    return tuple(given)
