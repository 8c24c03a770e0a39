"""Time and identifiers for envelopes that are used alone: the one place of this package that asks the machine.

Whoever records or replays passes a clock and an id source of their own instead.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Returns the present, aware, UTC."""

IdSource = Callable[[str], str]
"""Returns a new identifier that begins with the given prefix and an underscore."""


def utc_now() -> datetime:
    """Return the machine's time."""
    return datetime.now(UTC)


def random_id(prefix: str) -> str:
    """Return the prefix, an underscore, and 64 random bits as 16 hexadecimal digits."""
    return f"{prefix}_{secrets.token_hex(8)}"
