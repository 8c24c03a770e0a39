"""Schedules: when what is due, and how each due time starts its workflow once.

The store keeps up to when the due times of each schedule are seen to: a new one begins with the minute in which it is
seen first, and none is due again when its execution is deleted. The start key of the due time keeps two workers apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from divebook.environment import Environment
from divebook.errors import DefinitionError, DivebookError, Problem, SetupError, StoreClosedError
from divebook.events.event import to_microseconds
from divebook.store.base import EventStore
from divebook.text.logs import logger
from divebook.text.times import local_time
from divebook.workflow.definition import Definitions, ScheduleDefinition
from divebook.workflow.located import nearest_position

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

    def is_new(self, store: EventStore, first: datetime) -> bool:
        """Return whether nobody has seen to it; `first` is from when on a schedule counts that is new itself."""
        return to_microseconds(self.at) > store.seen_to(self.id, to_microseconds(first) - 1)

    def see_to(self, store: EventStore) -> None:
        """Note that it is seen to, and all before it."""
        store.see_to(self.id, to_microseconds(self.at))


def coming(definitions: Definitions, now: datetime) -> list[Due]:
    """Return the next due time of every schedule that is in force, the nearest first."""
    return sorted((_due(definitions, one, now, following=True) for one in _active(definitions)), key=lambda due: due.at)


def latest(definitions: Definitions, now: datetime) -> list[Due]:
    """Return the latest due time of every schedule, `now` included; those missed before it are never made up for."""
    return sorted((latest_of(definitions, one, now) for one in _active(definitions)), key=lambda due: due.at)


def latest_of(definitions: Definitions, schedule: ScheduleDefinition, now: datetime) -> Due:
    """Return the latest due time of one schedule."""
    return _due(definitions, schedule, now, following=False)


def _active(definitions: Definitions) -> list[ScheduleDefinition]:
    return [schedule for schedule in definitions.schedules if schedule.enabled]


def _due(definitions: Definitions, schedule: ScheduleDefinition, now: datetime, *, following: bool) -> Due:
    from croniter import CroniterBadCronError, CroniterBadDateError, croniter

    after = now.replace(second=0, microsecond=0) + timedelta(minutes=1)  # what is due in this minute is due now
    if not schedule.cron or not schedule.workflow:
        missing = "Cron" if not schedule.cron else "Workflow"
        raise SetupError(f"schedule {schedule.name!r} has no {missing}; add it, or Enabled: false")
    try:
        times = croniter(schedule.cron, now if following else after)
        at = times.get_next(datetime) if following else times.get_prev(datetime)
    except (CroniterBadCronError, CroniterBadDateError) as error:
        hint = "write five fields: minute, hour, day of month, month, day of week"
        raise SetupError(f"schedule {schedule.name!r}: Cron {schedule.cron!r} is wrong ({error}); {hint}") from error
    return Due(definitions.name, schedule.name, schedule.workflow, at)


class Schedules:
    """The schedules of definitions, whose workflows are put into a queue when they are due."""

    def __init__(self, environment: Environment, definitions: Definitions, queue: str) -> None:
        self._environment, self._definitions, self._queue = environment, definitions, queue
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
                self._environment.create(due.workflow)
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
        self._environment.enqueue(due.workflow, queue=self._queue, key=due.key, note=note)
        due.see_to(store)
