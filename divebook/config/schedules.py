"""Schedules: when what is due, and the key by which each due time starts its workflow once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from divebook.errors import SetupError
from divebook.workflow.definition import Definitions, ScheduleDefinition


@dataclass(frozen=True, slots=True)
class Due:
    """A time at which a schedule starts its workflow."""

    schedule: str
    workflow: str
    at: datetime

    @property
    def key(self) -> str:
        """The start key: a second start for this due time gets the execution that exists."""
        return f"schedule/{self.schedule}/{self.at.astimezone(UTC).strftime('%Y-%m-%dT%H:%MZ')}"


def coming(definitions: Definitions, now: datetime) -> list[Due]:
    """Return the next due time of every schedule that is in force, the nearest first."""
    return sorted(_due(definitions.schedules, now, following=True), key=lambda due: due.at)


def latest(definitions: Definitions, now: datetime) -> list[Due]:
    """Return the latest due time of every schedule, `now` included; those missed before it are never made up for."""
    return sorted(_due(definitions.schedules, now, following=False), key=lambda due: due.at)


def _due(schedules: Iterable[ScheduleDefinition], now: datetime, *, following: bool) -> Iterator[Due]:
    from croniter import CroniterBadCronError, CroniterBadDateError, croniter

    after = now.replace(second=0, microsecond=0) + timedelta(minutes=1)  # what is due in this minute is due now
    for schedule in schedules:
        if not schedule.enabled:
            continue
        if not schedule.cron or not schedule.workflow:
            missing = "Cron" if not schedule.cron else "Workflow"
            raise SetupError(f"schedule {schedule.name!r} has no {missing}; add it, or Enabled: false")
        try:
            times = croniter(schedule.cron, now if following else after)
            at = times.get_next(datetime) if following else times.get_prev(datetime)
        except (CroniterBadCronError, CroniterBadDateError) as error:
            hint = "write five fields: minute, hour, day of month, month, day of week"
            raise SetupError(
                f"schedule {schedule.name!r}: Cron {schedule.cron!r} is wrong ({error}); {hint}"
            ) from error
        yield Due(schedule.name, schedule.workflow, at)
