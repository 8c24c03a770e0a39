"""Durations as people write them: ``30s``, ``1m30s``, ``1.5h``, or a number of seconds."""

from __future__ import annotations

import re

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")


def parse_duration(value: str | float) -> float:
    """Return seconds; of a number the fraction is cut off, a text needs units.

    Raises
    ------
    ValueError
        `value` is no duration, or negative.
    """
    if not isinstance(value, str):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{value!r} is not a duration")
        return float(int(value))
    parts = PART.findall(value.strip())
    if not parts or "".join(number + unit for number, unit in parts) != value.strip():
        raise ValueError(f"{value!r} is not a duration")
    return sum(float(number) * UNITS[unit] for number, unit in parts)
