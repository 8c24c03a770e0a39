"""How surely an execution's events are on the disk when the store says that they are written."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast, get_args

from divebook.errors import NotFoundError

Durability: TypeAlias = Literal["full", "relaxed"]

FULL: Durability = "full"
"""What is written survives a power failure."""
RELAXED: Durability = "relaxed"
"""It survives the death of the process; a power failure may take the latest events, but leaves no log half written."""
_KNOWN: tuple[str, ...] = get_args(Durability)


def durability_called(name: str | None) -> Durability | None:
    """Return the durability of that name, None for None.

    Raises
    ------
    NotFoundError
        There is no such durability.
    """
    if name is not None and name not in _KNOWN:
        raise NotFoundError("durability", name, _KNOWN)
    return cast("Durability | None", name)
