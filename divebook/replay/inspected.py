"""What a run waited for and spent, read off its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from divebook.events import Event, catalog
from divebook.history.critical_path import PathPart, Spent, critical_path
from divebook.history.framed import FramedLog
from divebook.history.read_log import ReadLog


class Retried(NamedTuple):
    """An attempt that failed and was followed by another."""

    sequence: int
    """The event that says so."""
    path: str
    step: str
    item: int | None
    call: str | None
    """The call that was made again, where a step makes several."""
    attempt: int
    error: str
    delay: float
    """Seconds until the next one."""


def _failure(data: catalog.StepRetried) -> tuple[int, str, float]:
    return data.attempt, data.error, data.delay


class Inspected(FramedLog):
    """A log with what its run waited for and spent."""

    def __init__(self, log: Sequence[Event]) -> None:
        self.log = ReadLog.of(log)

    def _log(self) -> ReadLog:
        return self.log

    @cached_property
    def parts(self) -> list[PathPart]:
        """What its end waited for, oldest first; together as long as the run (`divebook.history.critical_path`)."""
        return critical_path(self.log)

    @property
    def duration_us(self) -> int:
        """How long it took, in microseconds; of one that goes on up to its last event."""
        return sum(part.took_us for part in self.parts)

    @cached_property
    def spent(self) -> dict[Spent, int]:
        """What the time of the critical path went into, in microseconds, the most first."""
        counted: Counter[Spent] = Counter()
        for part in self.parts:
            counted[part.spent] += part.took_us
        return dict(counted.most_common())

    @cached_property
    def retried(self) -> list[Retried]:
        """The attempts that failed and were followed by others."""
        return [
            Retried(
                event.sequence,
                event.path,
                event.step,
                data.iteration_index,
                data.key,
                data.attempt,
                data.error,
                data.delay,
            )
            for event in self.log
            if isinstance(data := event.data, catalog.StepRetried)
        ]
