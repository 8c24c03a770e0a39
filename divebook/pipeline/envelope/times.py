"""Moments as RFC 3339 text: UTC, microseconds, ``Z``."""

from __future__ import annotations

from datetime import UTC, datetime


def to_text(moment: datetime) -> str:
    """Return the written form of a moment; one without an offset counts as UTC."""
    return _in_utc(moment).isoformat(timespec="microseconds").replace("+00:00", "Z")


def to_moment(value: object) -> datetime | None:
    """Return the moment, aware and in UTC, that a text or a datetime stands for, or None if it stands for none."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return _in_utc(moment) if isinstance(moment, datetime) and moment.tzinfo else None
    except (ValueError, OverflowError):  # no date, or one before the year 1 once it is in UTC
        return None


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
