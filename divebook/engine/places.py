"""Where the log holds the large values of a state: a checkpoint names those events instead of copying them."""

from __future__ import annotations

from typing import Any, TypeVar

from immutables import Map

from divebook.events.recorded import ATOMS

K = TypeVar("K")

SMALL = 64
"""Characters of a text that is as soon copied as found again."""


def is_large(value: Any) -> bool:
    """Return whether a value is to be looked up in the log."""
    kind = type(value)
    return len(value) > SMALL if kind is str else kind not in ATOMS and bool(value)


def placed(places: Map[K, int], key: K, value: Any, sequence: int) -> Map[K, int]:
    """Return the places of large values by key, once an event has set one of the values."""
    if is_large(value):
        return places.set(key, sequence)
    return places.delete(key) if places and key in places else places


def moved(places: Map[K, int], others: Map[K, int], keys: Map[K, Any]) -> Map[K, int]:
    """Return the places once the values under some keys are those of others."""
    for key in keys if places else ():
        if key in places and key not in others:
            places = places.delete(key)
    return places.update(others) if others else places
