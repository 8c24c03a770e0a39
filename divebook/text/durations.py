"""Durations, as people write them (``30s``, ``1m30s``, ``1.5h``, ``30d``) and as they are shown to people."""

from __future__ import annotations

import re
from datetime import datetime

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h|d)")


def parse_duration(value: str | float) -> float:
    """Return seconds; of a number the fraction is cut off, a text needs units.

    Raises
    ------
    ValueError
        `value` is not a duration, or is negative.
    """
    if not isinstance(value, str):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{value!r} is not a duration")
        return float(int(value))
    parts = PART.findall(value.strip())
    if not parts or "".join(number + unit for number, unit in parts) != value.strip():
        raise ValueError(f"{value!r} is not a duration")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def seconds(value: float) -> str:
    """Return a duration in the unit that suits it.

    >>> seconds(0.0042), seconds(3.21), seconds(75), seconds(7300)
    ('4 ms', '3.2 s', '1 min 15 s', '2 h 01 min')
    """
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def between(started: datetime | None, ended: datetime | None) -> str:
    """Return how long something took, empty while that is unknown."""
    return "" if started is None or ended is None else seconds((ended - started).total_seconds())


def in_parts(whole: int) -> str:
    """Return whole seconds in days, hours, minutes and seconds, without those of which there are none.

    >>> in_parts(3600), in_parts(86_461), in_parts(0)
    ('1 h', '1 d 1 min 1 s', '0 s')
    """
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, whole = divmod(whole, size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts) or "0 s"
