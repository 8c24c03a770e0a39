"""What surrounds the calls that are carried out: who traces them says it here, from above.

A library that traces its own work, such as a client of HTTP, asks what it is a part of. It finds that in the context of
the call, in whatever thread of this process that is made (`tests/telemetry`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

Surround: TypeAlias = Callable[[str, int], AbstractContextManager[object]]
"""An execution's id, and the number of the event with which a call began, to what is entered while it is made."""


class SurroundedCalls:
    """Holds what calls are made in; None while nobody wants to know."""

    def __init__(self) -> None:
        self.surround: Surround | None = None
