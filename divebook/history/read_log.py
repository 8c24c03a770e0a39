"""A log with what is read off it, each once for all who show it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Self

from divebook.events import Event
from divebook.history.course import Course, course_of
from divebook.history.span import Span
from divebook.history.spans import spans_of
from divebook.history.spread import Spreads
from divebook.workflow.pipeline_steps import hidden_steps


class ReadLog(tuple[Event, ...]):  # noqa: SLOT001 - it keeps what was read off it
    """The events of an execution, with their spans and their course.

    Report, failures and saved form of one run are made of one of these: a fold of a long log takes as long as all the
    rest (`tests/notebook/test_failed.py`).
    """

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Return events as a log; the same if they are one."""
        return events if isinstance(events, cls) else cls(events)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Its stretches of time, for reading only."""
        return tuple(spans_of(self))

    @cached_property
    def shown_spans(self) -> tuple[Span, ...]:
        """Its stretches of time without the steps that people do not see, for reading only."""
        has_hidden = any(hidden_steps(event.data) for event in self if not event.step)
        return tuple(spans_of(self, for_people=True)) if has_hidden else self.spans

    @cached_property
    def course(self) -> Course:
        """How it went on, for reading only."""
        return course_of(self)

    @cached_property
    def spreads(self) -> Spreads:
        """What the rows and items of its steps gave, for reading only."""
        spreads = Spreads()
        for event in self:
            spreads.take(event)
        return spreads
