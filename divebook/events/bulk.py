"""Python's search for garbage, while many small values are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 4096
"""Parts of one list from which on it pays."""


@contextmanager
def collector_resting() -> Iterator[None]:
    """Let Python look for circles later: plain data make many small values, and none that would hold each other.

    It would look through all that the kernel holds several times meanwhile, which takes longer than making them
    (`benchmarks/values.py`). Where two threads do so at a time, it comes back with the first of them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
