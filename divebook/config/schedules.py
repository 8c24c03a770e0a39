"""Schedules: when what is due, and how each due time starts its workflow once.

Due times are those of the schedule's `Zone`, by default of the machine (`divebook.config.schedules`).

The store keeps up to when the due times of each schedule are seen to: a new one begins with the minute in which it is
seen first, and none is due again when its execution is deleted. The start key of the due time keeps two workers apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from divebook.environment.environment import Environment
from divebook.errors import DefinitionError, DivebookError, Problem, SetupError, StoreClosedError, did_you_mean
from divebook.events.event import to_microseconds
from divebook.scripting import default_interpreter
from divebook.scripting.templates import fill_values
from divebook.store.base import EventStore
from divebook.text.format import local_time
from divebook.text.redaction import logger
from divebook.workflow.definition import Definitions
from divebook.workflow.resources import ScheduleDefinition
from divebook.workflow.table import nearest_position

# Due times of a cron expression on the wall clock of a time zone.
#
# A cron expression names times of a wall clock, which is moved once or twice a year in most zones. The times are
# computed without a zone, and each is then given its moment:
#
# - A time that the clock shows twice, as 02:30 when summer time ends, is due the first time only.
# - A time that the clock skips, as 02:30 when summer time begins, is due when the clock is moved, at 03:00.
#
# So each time is due once a day in every zone, and later times are never due before earlier ones
# (`python -m tests.config.zones`). croniter is asked for times of UTC only: in a zone that moves its clock it gives
# repeated times twice, and from the offset of the present moment it computes past ones an hour off.


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
    for drawn in (item for part in fields for item in part.split(",") if item[:1] in {"r", "R", "h", "H"}):
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


AGAIN = 60.0
"""Seconds after which a due time is tried again that could not be enqueued."""
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Due:
    """A time at which a schedule starts its workflow."""

    definition: str
    schedule: str
    workflow: str
    at: datetime
    """Aware, in the zone of the schedule."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Its `Inputs` as they are written."""

    @property
    def id(self) -> str:
        """Which schedule it is: two definitions may each have one of that name."""
        return "/".join(
            ("schedule", *(quote(part, safe="") for part in (self.definition, self.workflow, self.schedule)))
        )

    @property
    def key(self) -> str:
        """The start key: a second start for this due time gets the execution that exists."""
        return f"{self.id}/{self.at.astimezone(UTC).strftime('%Y-%m-%dT%H:%MZ')}"

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the execution: ``schedule.due`` is the due time in ISO 8601, ``schedule.name`` its name.

        Raises
        ------
        ScriptError, TemplateError
            An expression fails.
        """
        names = {"schedule": {"name": self.schedule, "due": self.at.isoformat()}}
        return fill_values(self.given, names, default_interpreter())

    def is_new(self, store: EventStore, first: datetime) -> bool:
        """Return whether nobody has seen to it; `first` is from when on a schedule counts that is new itself."""
        return to_microseconds(self.at) > store.seen_to(self.id, to_microseconds(first) - 1)

    def see_to(self, store: EventStore) -> None:
        """Note that it is seen to, and all before it."""
        store.see_to(self.id, to_microseconds(self.at))


def _moment_of(due: Due) -> datetime:
    return due.at.astimezone(UTC)  # times of one zone would be compared without their offsets


def coming(definitions: Definitions, now: datetime) -> list[Due]:
    """Return the next due time of every schedule that is in force, the nearest first."""
    return sorted((_due(definitions, one, now, next_due) for one in _active(definitions)), key=_moment_of)


def latest(definitions: Definitions, now: datetime) -> list[Due]:
    """Return the latest due time of every schedule, `now` included; those missed before it are never made up for."""
    return sorted((latest_of(definitions, one, now) for one in _active(definitions)), key=_moment_of)


def latest_of(definitions: Definitions, schedule: ScheduleDefinition, now: datetime) -> Due:
    """Return the latest due time of one schedule."""
    return _due(definitions, schedule, now, latest_due)


def _active(definitions: Definitions) -> list[ScheduleDefinition]:
    return [schedule for schedule in definitions.schedules if schedule.enabled]


def _due(
    definitions: Definitions,
    schedule: ScheduleDefinition,
    now: datetime,
    due: Callable[[str, tzinfo | None, datetime], datetime],
) -> Due:
    if not schedule.cron or not schedule.workflow:
        missing = "Cron" if not schedule.cron else "Workflow"
        raise SetupError(f"schedule {schedule.name!r} has no {missing}; add it, or Enabled: false")
    zone = machine_zone(now) if schedule.zone is None else _zone(schedule, schedule.zone)
    try:
        at = due(schedule.cron, zone, now)
    except ValueError as error:
        hint = "write five fields: minute, hour, day of month, month, day of week"
        raise SetupError(f"schedule {schedule.name!r}: Cron {schedule.cron!r} is wrong ({error}); {hint}") from error
    return Due(definitions.name, schedule.name, schedule.workflow, at, schedule.inputs)


def _zone(schedule: ScheduleDefinition, name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a malformed name, or that of a folder
        hint = did_you_mean(name, available_timezones()) or "write a name of the tz database such as Europe/Berlin"
        raise SetupError(f"schedule {schedule.name!r}: Zone {name!r} is not a time zone; {hint}") from None


class Schedules:
    """The schedules of definitions, whose workflows are put into a queue when they are due."""

    def __init__(self, environment: Environment, definitions: Definitions, queue: str) -> None:
        self._environment = environment
        self._definitions = definitions
        self._queue = queue
        self._failed: dict[str, float] = {}
        """Schedules whose latest due time could not be enqueued, and when that is tried again."""

    def require_sound(self, now: datetime) -> None:
        """Raise `DefinitionError`, with its lines, unless each can be enqueued when it is due."""
        problems = []
        for index, schedule in enumerate(self._definitions.schedules):
            if not schedule.enabled:
                continue
            try:
                due = latest_of(self._definitions, schedule, now)
                self._environment.create(due.workflow, due.inputs)
            except DivebookError as error:
                line, column = nearest_position(("Schedules", index), self._definitions.positions)
                said = (
                    str(error)
                    if f"schedule {schedule.name!r}" in str(error)
                    else f"schedule {schedule.name!r}: {error}"
                )
                problems.append(Problem(said, line, column))
        if problems:
            raise DefinitionError(problems, self._definitions.name or "<definition>")

    def enqueue_due(self, now: datetime, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Enqueue what is due and nobody has seen to; what one schedule meets holds up no other."""
        for schedule in _active(self._definitions):
            if self._failed.get(schedule.name, 0.0) > monotonic():
                continue
            try:
                self._enqueue(latest_of(self._definitions, schedule, now), now)
            except StoreClosedError:
                raise
            except DivebookError as error:
                self._failed[schedule.name] = monotonic() + AGAIN
                _log.warning("schedule %s: what is due could not be enqueued: %s", schedule.name, error)

    def _enqueue(self, due: Due, now: datetime) -> None:
        store = self._environment.store
        if not due.is_new(store, now.replace(second=0, microsecond=0)):
            return
        note = f"due {local_time(due.at)}"
        self._environment.enqueue(due.workflow, due.inputs, queue=self._queue, key=due.key, note=note)
        due.see_to(store)
