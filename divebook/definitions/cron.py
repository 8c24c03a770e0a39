"""Cron expressions of schedules: check of their form, and the wall-clock times that they describe, without a zone.

`divebook.config.schedules` converts the times to moments in the time zone of a schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from divebook.errors import DefinitionError, Problem, did_you_mean
from divebook.text.format import plural

FIELDS = 5
"""Number of fields of a cron expression: minute, hour, day of month, month, day of week."""
_MINUTE = "[0-5]?[0-9]"
_HOUR = "([01]?[0-9]|2[0-3])"


def _list_of(number: str) -> str:
    """Return the regular expression of a field: numbers, ranges or all, each perhaps with a step."""
    item = rf"([*?]|{number}(-{number})?)(/[0-9]+)?"
    return f"{item}(,{item})*"


PATTERN = rf"^\s*(@\w+|{_list_of(_MINUTE)}\s+{_list_of(_HOUR)}(\s+\S+){{3}})\s*$"
"""Regular expression of the texts that have five fields, of which minute and hour are in their ranges, or are an alias
such as ``@daily``.
"""
_FIRST = datetime(2000, 1, 1)  # noqa: DTZ001 - a time of a wall clock
"""Time from which the check of an expression searches a due time. Any day serves, because the calendar repeats."""


def wall_times(cron: str, start: datetime, *, forwards: bool) -> Iterator[datetime]:
    """Yield the times after `start` that a cron expression describes, ascending. If `forwards` is False, yield those
    before it, descending. All times are those of a wall clock, without a zone.

    Raises
    ------
    ValueError
        The expression is not valid, or never matches.
    """
    from croniter import CroniterBadDateError, CroniterError, croniter

    _require_times(cron)
    try:
        # croniter computes in UTC, whose clock is never moved.
        times = croniter(cron, start.replace(tzinfo=UTC, fold=0))
        while True:
            due = (times.get_next if forwards else times.get_prev)(datetime)
            yield due.replace(tzinfo=None, fold=0)  # get_prev sets a fold even in UTC
    except CroniterBadDateError as error:
        raise ValueError("no date matches the expression") from error
    except CroniterError as error:
        raise ValueError(str(error)) from error


def _require_times(cron: str) -> None:
    """Raise ValueError for a cron expression that schedules may not use, such as one with seconds or random times. The
    library croniter, which reads the expressions, accepts more of them.

    Due times have the precision of a minute, so fields for seconds and for years are refused. A random
    time would be different in each computation, and therefore be due again and again.
    """
    fields = cron.split()
    # An alias such as "@daily" is a single field.
    if len(fields) != FIELDS and not cron.strip().startswith("@"):
        raise ValueError(f"the expression has {plural(len(fields), 'field')}")
    for part in fields:
        for item in part.split(","):
            # croniter replaces "R" and "H" by random and by hashed values.
            if item[:1] in {"r", "R", "h", "H"}:
                raise ValueError(f"{item!r} stands for a random time")


def require_cron(cron: str, owner: str) -> None:
    """Raise `DefinitionError` unless a cron expression is valid and matches at some time. `owner` names the schedule in
    the error, such as "schedule 'nightly'".
    """
    try:
        next(wall_times(cron, _FIRST, forwards=True))
    except ValueError as error:
        message = f"{owner}: Cron {cron!r} is not a valid cron expression: {error}"
        hint = "write five fields: minute, hour, day of month, month, day of week"
        raise DefinitionError([Problem(message, key="Cron", hint=hint)]) from error


def zone_called(name: str, owner: str) -> ZoneInfo:
    """Return the time zone with a name of the tz database. Raise `DefinitionError` for any other name. `owner` names
    the schedule in the error.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # an unknown or malformed name, or the name of a folder
        hint = did_you_mean(name, available_timezones()) or "write a name of the tz database such as Europe/Berlin"
        message = f"{owner}: Zone {name!r} is not a time zone"
        raise DefinitionError([Problem(message, key="Zone", hint=hint)]) from None
