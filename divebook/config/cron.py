"""Due times of a cron expression on the wall clock of a time zone.

A cron expression names times of a wall clock, which is moved once or twice a year in most zones. The times are computed
without a zone, and each is then given its moment:

- A time that the clock shows twice, as 02:30 when summer time ends, is due the first time only.
- A time that the clock skips, as 02:30 when summer time begins, is due when the clock is moved, at 03:00.

So each time is due once a day in every zone, and later times are never due before earlier ones
(`python -m tests.config.zones`). croniter is asked for times of UTC only: in a zone that moves its clock it gives
repeated times twice, and from the offset of the present moment it computes past ones an hour off.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

FIELDS = 5
"""Minute, hour, day of month, month, day of week."""


def next_due(cron: str, zone: tzinfo | None, now: datetime) -> datetime:
    """Return the first due time after `now`, an aware time in the zone; None stands for the zone of the machine.

    Raises
    ------
    ValueError
        The expression is not one, or names no time.
    """
    due = next(due for due in _moments(cron, zone, _wall_time(now, zone), forwards=True) if due > now.astimezone(UTC))
    return due.astimezone(zone)


def latest_due(cron: str, zone: tzinfo | None, now: datetime) -> datetime:
    """Return the last due time up to `now`, itself included; else as `next_due`."""
    wall = _wall_time(now, zone)
    # When the clock shows a time again, later times have been due already: up to what it showed at its end before.
    first, second = (wall.replace(fold=fold) for fold in (0, 1))
    shown_before = _moment(second, zone) - _moment(first, zone) if wall.fold else timedelta()
    latest = wall + shown_before + timedelta(minutes=1)
    due = next(due for due in _moments(cron, zone, latest, forwards=False) if due <= now.astimezone(UTC))
    return due.astimezone(zone)


def machine_zone(now: datetime) -> tzinfo | None:
    """Return the zone of a time; None, for the machine's, if it has no more of that than the present offset."""
    return None if now.tzinfo is None or now.utcoffset() == now.astimezone().utcoffset() else now.tzinfo


def _moments(cron: str, zone: tzinfo | None, wall: datetime, *, forwards: bool) -> Iterator[datetime]:
    """Yield the due times after, or before, a time of the wall clock, in UTC.

    Two times of one zone are compared by their wall clock, without their fold, so they must not be compared.
    """
    from croniter import CroniterError, croniter

    _require_times(cron)
    try:
        times = croniter(cron, wall.replace(tzinfo=UTC, fold=0))
        while True:
            due = (times.get_next if forwards else times.get_prev)(datetime)
            yield _due_moment(due.replace(tzinfo=None, fold=0), zone)  # get_prev gives times of UTC a fold
    except CroniterError as error:
        raise ValueError(str(error)) from error


def _require_times(cron: str) -> None:
    """Raise ValueError for what croniter takes, and a schedule cannot keep.

    Due times have the precision of a minute, so that an expression has no field of seconds, nor one of years behind it.
    A time that is drawn by chance would be another one whenever it is asked for, and so be due again and again.
    """
    fields = cron.split()
    if len(fields) != FIELDS and not cron.strip().startswith("@"):
        raise ValueError(f"it has {len(fields)} fields")
    for drawn in (item for field in fields for item in field.split(",") if item[:1] in {"r", "R", "h", "H"}):
        raise ValueError(f"{drawn!r} stands for a time that is drawn by chance")


def _wall_time(moment: datetime, zone: tzinfo | None) -> datetime:
    """Return what a clock of the zone shows, without a zone; `fold` is 1 while it shows a time again."""
    if zone is None:
        return datetime.fromtimestamp(moment.timestamp())  # noqa: DTZ006 - the machine's, with its fold
    return moment.astimezone(zone).replace(tzinfo=None)


def _moment(wall: datetime, zone: tzinfo | None) -> datetime:
    return wall.replace(tzinfo=zone).astimezone(UTC)


def _due_moment(wall: datetime, zone: tzinfo | None) -> datetime:
    """Return when a time of the wall clock is due, in UTC."""
    moment = _moment(wall, zone)
    return moment if _wall_time(moment, zone) == wall else _moved_at(wall, zone)


def _moved_at(wall: datetime, zone: tzinfo | None) -> datetime:
    """Return when the clock skips a time: by Python's rules it lies between its moments with and without a fold."""
    before, after = sorted(_moment(wall.replace(fold=fold), zone) for fold in (0, 1))
    offset = _offset(before, zone)
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        before, after = (middle, after) if _offset(middle, zone) == offset else (before, middle)
    return after


def _offset(moment: datetime, zone: tzinfo | None) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()
