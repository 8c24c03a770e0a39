"""What a log comes to in one line: what it was given, what it cost, how long it worked, how far it came, why it ended.

A summary is small and plain, so that a store keeps it beside its list of executions, and made of the events up to one
of them: the rest of a log that grows is added to it with `Summing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from divebook.engine.lifecycle import STATUS_AFTER
from divebook.engine.records import NO_USAGE
from divebook.errors import UNFIT
from divebook.events import Event, catalog
from divebook.events.codec import decode, encode
from divebook.events.readable import readable
from divebook.history.course import PAUSED, WORKED, Course
from divebook.text.cuts import one_line
from divebook.text.redaction import Redactor, shared
from divebook.text.shown import plural

VERSION = 2
WIDTH = 200
"""Characters of what a line says at most."""
INPUTS = 3
"""Inputs that it names."""


class Summary(NamedTuple):
    """What one line says of an execution."""

    given: str = ""
    """Its inputs in words."""
    cost: int | None = None
    """Nanodollars; None where no model was asked."""
    worked_us: int = 0
    """How long it worked up to `since_us`."""
    waited_us: int = 0
    works: bool = False
    """Whether it works since then; else it waits, is paused, or is over."""
    since_us: int = 0
    last_us: int = 0
    """When the last event was recorded."""
    is_paused: bool = False
    step: str = ""
    """Where it stands, or stood when it ended."""
    done: int = 0
    """Of the items of that step, or of all steps where it has none."""
    total: int = 0
    """0 where it has none, or the log does not say."""
    error: str = ""
    """Why it failed, with the place."""
    failed: int = 0
    """How many items have failed beside that."""
    ended_by: str = ""
    """Who or what cancelled it."""

    def to_data(self) -> bytes:
        """Return it as bytes."""
        return encode([VERSION, *self])

    @classmethod
    def from_data(cls, data: bytes) -> Summary | None:
        """Return what `to_data` wrote; None if another version did."""
        try:
            version, *parts = decode(data)
            return cls(*parts) if version == VERSION and len(parts) == len(cls._fields) else None
        except UNFIT:
            return None


class Summing:
    """Follows a log, event by event.

    Examples
    --------
    >>> from divebook.events import Event, catalog
    >>> summing = Summing()
    >>> summing.take([Event("event_1", "exec_1", 1, 5_000_000, catalog.ExecutionStarted("w", {"rows": [1, 2]}))])
    >>> summing.summary().given, summing.sequence
    ('2 rows', 1)
    """

    def __init__(self) -> None:
        self.sequence = 0
        """The last event that is in it."""
        self._course, self._usage, self._asked_models = Course(), NO_USAGE, False
        self._given = self._step = self._error = self._ended_by = ""
        self._failed_item: int | None = None
        """The item that made a step fail, which the error names."""
        self._redactor = shared().fresh()
        self._inputs: Mapping[str, Any] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Let events have their effect."""
        for event in events:
            self._course.take(event)
            self._read(event, event.data)
            self.sequence = event.sequence

    def summary(self) -> Summary:
        """Return what they come to."""
        course = self._course
        at = next((told for told in course.progress if told.step == self._step), None)
        return Summary(
            given=self._given,
            cost=self._usage.cost if self._asked_models else None,
            worked_us=course.before(WORKED),
            waited_us=course.before("waited"),
            works=course.doing == WORKED and not course.is_over,
            since_us=course.since_us,
            last_us=course.last_us,
            is_paused=course.doing == PAUSED,
            step=one_line(self._step, WIDTH),
            done=0 if at is None else at.done,
            total=0 if at is None else at.total,
            error=self._error,
            failed=self._others_failed(),
            ended_by=self._ended_by,
        )

    def _others_failed(self) -> int:
        """Return how many items have failed, without the one that the error names."""
        named = bool(self._error) and self._failed_item is not None
        return max(0, sum(told.failed for told in self._course.progress) - named)  # old logs do not say that items fail

    def _read(self, event: Event, data: Any) -> None:
        kind = type(data)
        if kind in (catalog.OperationCompleted, catalog.OperationFailed):
            if data.usage:
                self._usage, self._asked_models = self._usage.plus(data.usage), True
        elif kind is catalog.StepStarted:
            self._step, self._failed_item = event.step, None
        elif kind is catalog.StepFailed:
            self._failed_item = data.iteration_index
        elif kind is catalog.ExecutionStarted:
            self._learn(data.inputs)
        elif kind in STATUS_AFTER:
            if kind is catalog.ExecutionForked:  # what its source consumed counts there
                self._usage, self._asked_models = NO_USAGE, False
                self._learn({**self._inputs, **(data.change or {}).get("inputs", {})})
            self._error = self._clean(data.error) if kind is catalog.ExecutionFailed else ""
            self._ended_by = (
                self._clean(data.reason.removeprefix("cancelled ")) if kind is catalog.ExecutionCancelled else ""
            )

    def _learn(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = inputs
        self._redactor.learn(inputs)
        self._given = self._clean(in_words(inputs, self._redactor))

    def _clean(self, text: str) -> str:
        return one_line(self._redactor.text(text), WIDTH)


def in_words(inputs: Mapping[str, Any], redactor: Redactor) -> str:
    """Return inputs as a few words: the sizes of collections, and what is short as it is.

    >>> in_words({"packages": ["a", "b"], "depth": 2, "note": None, "api_key": "s3cr3t"}, Redactor())
    '2 packages, depth 2, api_key [redacted]'
    """
    given = {name: value for name, value in inputs.items() if value not in (None, "")}
    told = [_in_words(name, value, redactor) for name, value in list(given.items())[:INPUTS]]
    return ", ".join([*told, *(["..."] if len(given) > INPUTS else [])])


def _in_words(name: str, value: Any, redactor: Redactor) -> str:
    if isinstance(value, list | tuple | dict):
        is_plural = name.endswith("s")
        return plural(len(value), name[:-1]) if is_plural else f"{name} with {plural(len(value), 'part')}"
    shown = redactor.value({name: value if isinstance(value, str) else readable(value)})
    return f"{name} {one_line(shown[name], 40)}"
