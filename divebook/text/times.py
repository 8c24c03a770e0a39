"""Times as people read them, on their own clock, and as programs read them."""

from __future__ import annotations

from datetime import datetime


def local_time(moment: datetime | None) -> str:
    """Return a time as people read it, on their own clock, with its zone; empty for none.

    >>> from datetime import UTC
    >>> local_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)).count(":"), local_time(None)
    (2, '')
    """
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def local_zone(moment: datetime) -> str:
    """Return the zone of the reader's clock at a moment."""
    return f"{moment.astimezone():%Z}"


def local_clock(moment: datetime) -> str:
    """Return the time of day to the millisecond, on the reader's clock."""
    return f"{moment.astimezone():%H:%M:%S.%f}"[:-3]


def json_time(moment: datetime | None) -> str | None:
    """Return a time in UTC as it is written in JSON.

    >>> from datetime import UTC
    >>> json_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05.000Z'
    """
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
