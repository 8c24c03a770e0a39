"""Dotted paths: ``env.processing_history.0.status`` goes through attributes, keys and list positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

MISSING: Final[Any] = "<nothing there>"
"""Stands for what a path does not lead to; compared by identity."""


def read(whole: Any, path: str) -> Any:
    """Return what stands at a path, or `MISSING`."""
    for name in path.split("."):
        whole = _part(whole, name)
        if whole is MISSING:
            return MISSING
    return whole


def assign(whole: Any, path: str, value: Any) -> None:
    """Put a value at a path whose last part only may be new."""
    *place, name = path.split(".")
    target = read(whole, ".".join(place)) if place else whole
    if target is MISSING:
        raise LookupError(f"nothing stands at {'.'.join(place)}")
    if isinstance(target, Mapping):
        target[name] = value  # type: ignore[index]  # a case assigns only where that is possible
    elif isinstance(target, list):
        target[int(name)] = value
    else:
        setattr(target, name, value)


def _part(whole: Any, name: str) -> Any:
    if isinstance(whole, Mapping):
        return whole.get(name, MISSING)
    if isinstance(whole, Sequence) and not isinstance(whole, str) and name.isdecimal():
        return whole[int(name)] if int(name) < len(whole) else MISSING
    return getattr(whole, name, MISSING)
