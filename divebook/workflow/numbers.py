"""What counts as a number where a definition needs one: ``True`` is none, nor is a text such as ``"30s"``."""

from __future__ import annotations

import math
from typing import TypeGuard


def is_count(value: object, *, least: int = 1) -> bool:
    """Return whether a value is an integer of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_amount(value: object, *, above_zero: bool = False) -> TypeGuard[int | float]:
    """Return whether a value is a finite number from 0, or above it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return value > 0 if above_zero else value >= 0
