"""Schedules: computation of due times from cron expressions, and exactly one start of a workflow for each due time.

Due times are in the `Zone` of the schedule, by default in that of the machine.

For each schedule, the store records the last due time that was handled. A new schedule starts with the minute in which
it is first seen. No due time is handled twice, even if its execution is deleted. The start key contains the due time,
so that two workers start one execution.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import quote

from divebook.definitions.cron import wall_times, zone_called
from divebook.definitions.definition import Definitions
from divebook.definitions.resources import ScheduleDefinition
from divebook.definitions.table import nearest_position
from divebook.environments.environment import Environment
from divebook.errors import DefinitionError, DivebookError, Problem, StoreClosedError
from divebook.events.event import to_microseconds
from divebook.scripting import default_interpreter
from divebook.scripting.templates import fill_values
from divebook.stores.base import EventStore
from divebook.text.format import local_time
from divebook.text.redaction import logger


class Schedules:
    """Schedules in one set of definitions. At each due time of a schedule, its workflow is put into a queue."""

    def __init__(self, environment: Environment, definitions: Definitions, queue: str) -> None:
        self._environment = environment
        self._definitions = definitions
        self._queue = queue
        self._failed: dict[str, float] = {}
        """Monotonic time of the next retry for each schedule whose last start failed, by schedule name."""

    def require_sound(self, now: datetime) -> None:
        """Check that the workflow of each enabled schedule can be started. If not, raise `DefinitionError` with the
        line numbers of the schedules.
        """
        problems = []
        for index, schedule in enumerate(self._definitions.schedules):
            if not schedule.enabled:
                continue
            try:
                # The execution is created but not started, which checks the workflow and the inputs and records
                # nothing.
                due = latest_of(self._definitions, schedule, now)
                self._environment.create(due.workflow, due.inputs)
            except DivebookError as error:
                line, column = nearest_position(("Schedules", index), self._definitions.positions)
                message = str(error)
                # Some errors name their schedule already.
                if f"schedule {schedule.name!r}" not in message:
                    message = f"schedule {schedule.name!r}: {message}"
                problems.append(Problem(message, line, column))
        if problems:
            raise DefinitionError(problems, self._definitions.name or "")

    def enqueue_due(self, now: datetime, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Put the workflow of each schedule that is due into the queue. The error of one schedule is logged and does
        not affect the others.
        """
        for schedule in _active(self._definitions):
            # After a failure, the next attempt waits for `RETRY_AFTER`.
            if self._failed.get(schedule.name, 0.0) > monotonic():
                continue
            try:
                self._enqueue(latest_of(self._definitions, schedule, now), now)
            # A closed store is not the fault of one schedule, and no retry helps.
            except StoreClosedError:
                raise
            except DivebookError as error:
                self._failed[schedule.name] = monotonic() + RETRY_AFTER
                _log.warning("schedule %s: due runs could not be enqueued: %s", schedule.name, error)

    def _enqueue(self, due: Due, now: datetime) -> None:
        store = self._environment.store
        if not due.is_new(store, now.replace(second=0, microsecond=0)):
            return
        note = f"due {local_time(due.at)}"
        # The execution is enqueued before the due time is recorded as handled. If the process dies in between, the next
        # attempt finds the start key taken and starts nothing. In the other order, this due time would be lost.
        self._environment.enqueue(due.workflow, due.inputs, queue=self._queue, key=due.key, note=note)
        due.see_to(store)


# --- due times of a cron expression on the wall clock of a time zone -------------------------------------------------
#
# A cron expression describes times of a wall clock, which most zones move once or twice a year. The times are computed
# without a zone, and each is then converted to a moment in UTC:
#
# - A time that the clock shows twice, such as 02:30 when summer time ends, is due only the first time.
# - A time that the clock skips, such as 02:30 when summer time starts, is due when the clock is moved, at 03:00.
#
# So each time is due once a day in every zone, and later times are never due before earlier ones
# (`python -m tests.config.zones`). croniter computes times in UTC only: in a zone that moves its clock it returns
# repeated times twice, and computes past times with the present offset, which may be an hour off.


def next_due(cron: str, zone: tzinfo | None, now: datetime) -> datetime:
    """Return the first due time of a cron expression after `now`, as a time with a zone.

    The zone None is that of the machine.

    Raises
    ------
    ValueError
        The expression is not valid, or never matches.
    """
    now_utc = now.astimezone(UTC)
    # While the clock shows an hour for the second time, its next wall times were due the first time already.
    later = (due for due in _moments(cron, zone, _wall_time(now, zone), forwards=True) if due > now_utc)
    return next(later).astimezone(zone)


def latest_due(cron: str, zone: tzinfo | None, now: datetime) -> datetime:
    """Return the last due time of a cron expression up to and including `now`, as a time with a zone."""
    wall = _wall_time(now, zone)
    # While the clock shows an hour for the second time, later wall times of that hour were due the first time already.
    repeated = timedelta()
    if wall.fold:
        repeated = _moment(wall.replace(fold=1), zone) - _moment(wall.replace(fold=0), zone)
    # `get_prev` returns times before its start, and `now` itself counts.
    start = wall + repeated + timedelta(minutes=1)
    now_utc = now.astimezone(UTC)
    earlier = (due for due in _moments(cron, zone, start, forwards=False) if due <= now_utc)
    return next(earlier).astimezone(zone)


def machine_zone(now: datetime) -> tzinfo | None:
    """Return the time zone in which to compute the due times of schedules that state no zone: the zone of `now`. Return
    None, which stands for the machine's zone, if `now` has no zone or the same UTC offset as the machine.
    """
    if now.tzinfo is None or now.utcoffset() == now.astimezone().utcoffset():
        return None
    return now.tzinfo


def _moments(cron: str, zone: tzinfo | None, wall: datetime, *, forwards: bool) -> Iterator[datetime]:
    """Yield the due times of a cron expression after the wall-clock time `wall`, ascending. If `forwards` is false,
    yield those before it, descending. All yielded times are in UTC.
    """
    # The times are in UTC, since Python compares two times of one zone by their wall clock, ignoring the fold.
    return (_due_moment(time, zone) for time in wall_times(cron, wall, forwards=forwards))


def _wall_time(moment: datetime, zone: tzinfo | None) -> datetime:
    """Return the time that the clocks of a zone show at a moment, as a datetime without a zone.

    `fold` is 1 if the clock shows this time for the second time.
    """
    if zone is None:
        return datetime.fromtimestamp(moment.timestamp())  # noqa: DTZ006 - the machine's, with its fold
    return moment.astimezone(zone).replace(tzinfo=None)


def _moment(wall: datetime, zone: tzinfo | None) -> datetime:
    """Return the moment, in UTC, at which the clocks of a zone show the time `wall`."""
    return wall.replace(tzinfo=zone).astimezone(UTC)


def _due_moment(wall: datetime, zone: tzinfo | None) -> datetime:
    """Return the moment, in UTC, of a due time that is stated as wall-clock time. If a clock change skips that time,
    return the moment of the change.
    """
    moment = _moment(wall, zone)
    return moment if _wall_time(moment, zone) == wall else _clock_change(wall, zone)


def _clock_change(wall: datetime, zone: tzinfo | None) -> datetime:
    """Return the moment of the clock change (such as the begin of summer time) that skips a wall-clock time, to the
    second.

    By Python's rules the change lies between the moments of the wall time with fold 1 and with fold 0.
    """
    before, after = sorted(_moment(wall.replace(fold=fold), zone) for fold in (0, 1))
    offset = _offset(before, zone)
    # Bisection finds the change: up to it, the zone has the offset that it had at `before`.
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if _offset(middle, zone) == offset:
            before = middle
        else:
            after = middle
    return after


def _offset(moment: datetime, zone: tzinfo | None) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()


RETRY_AFTER = 60.0
"""Seconds until a failed start of a due workflow is retried."""
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Due:
    """One due time of a schedule, at which an execution of the schedule's workflow is to start."""

    definition: str
    schedule: str
    workflow: str
    at: datetime
    """Due time, as an aware time in the zone of the schedule."""
    input_expressions: Mapping[str, Any] = field(default_factory=dict)
    """`Inputs` of the schedule, in which expressions are not evaluated yet."""

    @property
    def id(self) -> str:
        """Id of the schedule in the store. It contains the name of the definitions, since two sets of definitions may
        use the same schedule name.
        """
        parts = [quote(part, safe="") for part in (self.definition, self.workflow, self.schedule)]
        return "/".join(["schedule", *parts])

    @property
    def key(self) -> str:
        """Start key of the execution for this due time. A second start with the same key does not start another
        execution but returns the existing one.
        """
        return f"{self.id}/{self.at.astimezone(UTC).strftime('%Y-%m-%dT%H:%MZ')}"

    @property
    def inputs(self) -> dict[str, Any]:
        """Inputs of the workflow for this due time. Their expressions are evaluated, and may use ``schedule.due`` and
        ``schedule.name``.

        Raises
        ------
        ScriptError, TemplateError
            An expression fails.
        """
        names = {"schedule": {"name": self.schedule, "due": self.at.isoformat()}}
        return fill_values(self.input_expressions, names, default_interpreter())

    def is_new(self, store: EventStore, first: datetime) -> bool:
        """Return True if this due time is not recorded as handled in the store, so that its workflow is to be started.

        For a new schedule, due times before `first` count as handled.
        """
        # The recorded time is one microsecond before `first`, so that a due time at `first` is new.
        return to_microseconds(self.at) > store.seen_to(self.id, to_microseconds(first) - 1)

    def see_to(self, store: EventStore) -> None:
        """Record in the store that this due time and all earlier ones of the schedule have been handled, so that they
        start nothing more.
        """
        store.see_to(self.id, to_microseconds(self.at))


def _moment_of(due: Due) -> datetime:
    return due.at.astimezone(UTC)  # Python compares times of one zone without their offsets


def coming(definitions: Definitions, now: datetime) -> list[Due]:
    """Return the next due time of each enabled schedule, sorted by time."""
    due_times = [_due(definitions, schedule, now, next_due) for schedule in _active(definitions)]
    return sorted(due_times, key=_moment_of)


def latest(definitions: Definitions, now: datetime) -> list[Due]:
    """Return the latest due time up to `now` of each enabled schedule, sorted by time."""
    due_times = [latest_of(definitions, schedule, now) for schedule in _active(definitions)]
    return sorted(due_times, key=_moment_of)


def latest_of(definitions: Definitions, schedule: ScheduleDefinition, now: datetime) -> Due:
    """Return the latest due time up to `now` of one schedule."""
    return _due(definitions, schedule, now, latest_due)


def _active(definitions: Definitions) -> list[ScheduleDefinition]:
    return [schedule for schedule in definitions.schedules if schedule.enabled]


def _due(
    definitions: Definitions,
    schedule: ScheduleDefinition,
    now: datetime,
    due: Callable[[str, tzinfo | None, datetime], datetime],
) -> Due:
    """Return the due time of a schedule that is next after, or the latest before, `now`, depending on `due`: the
    function that computes it from the cron expression, zone and `now`. Raise `DefinitionError` for a schedule of the
    dialect ``dive`` that is not valid; others are checked where they are made.
    """
    schedule.require_due_times()
    assert schedule.cron is not None and schedule.workflow is not None  # noqa: PT018, S101 - just checked
    zone = machine_zone(now) if schedule.zone is None else zone_called(schedule.zone, schedule.title)
    at = due(schedule.cron, zone, now)
    return Due(definitions.name, schedule.name, schedule.workflow, at, schedule.inputs)
