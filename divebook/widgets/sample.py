"""Which events of a long run a notebook keeps: a sample of the whole run, with all failures and questions.

The log is taken apart into units that belong together (an item with its calls, a step, a question). They are put into
an order of which each beginning is a sample: what frames the run, questions and failures first, then all others spread
over the run (`tests/widgets/test_sample.py`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias, TypeVar

from divebook.events import Event
from divebook.events.catalog import FAILED
from divebook.history.spans import Span

T = TypeVar("T")
Unit: TypeAlias = Sequence[int]
"""Sequence numbers of events that are kept together."""
ALL = "all"
SPARE = 50
"""So near the limit nothing more is looked for."""

FRAMING, QUESTION, FAILURE, OTHER = range(4)
MAX_MEMBERS = 20
"""Events of one span that are kept, the first and the last ones: a call may be begun a thousand times."""
_FRAMING = ("execution_", "signal_", "approval_", "path_failed")
_QUESTION, _FAILURE = "interrupt_", "_failed"


def members(span: Span) -> list[int]:
    """Return the events of a span that are kept with it."""
    found = span.sequences
    return [*found] if len(found) <= MAX_MEMBERS else [*found[:1], *found[1 - MAX_MEMBERS :]]


@dataclass(frozen=True, slots=True)
class Sample:
    """Events in an order of which each beginning is a sample."""

    units: Sequence[tuple[int, Unit]]
    """With what each is: `FRAMING`, `QUESTION`, `FAILURE` or `OTHER`."""
    total: int
    """How many events the log has."""

    def cut(self, limit: int, among: Container[int] | None = None) -> list[int]:
        """Return the sequence numbers of at most so many events, in their order; all if they are no more.

        `among` holds those of a larger sample, of which this one is to be a part.
        """
        if self.total <= limit:
            return [*range(1, self.total + 1)]
        kept: set[int] = set()
        for _, unit in self.units:
            if among is not None and not all(number in among for number in unit):
                continue
            fresh = [number for number in unit if number not in kept]
            if len(kept) + len(fresh) <= limit:
                kept.update(fresh)
            elif limit - len(kept) < SPARE:
                break
        return sorted(kept)

    def said(self, kept: Iterable[int]) -> str:
        """Return in words what was kept; empty if that is all."""
        present = set(kept)
        if len(present) == self.total:
            return ""
        failures, questions = (self._share(rank, present) for rank in (FAILURE, QUESTION))
        told = f"Sample of {len(present):,} of {self.total:,} events, with"
        if failures == questions == ALL:
            return f"{told} {ALL} failures and questions"
        return f"{told} {failures} failures and {questions} questions"

    def _share(self, rank: int, present: set[int]) -> str:
        found = [present.issuperset(unit) for kind, unit in self.units if kind == rank]
        return ALL if all(found) else f"{sum(found):,} of {len(found):,}"


def sample_of(log: Sequence[Event], spans: Sequence[Span]) -> Sample:
    """Return how a log, of which these are the spans, is to be sampled."""
    units: dict[int, list[Unit]] = {FRAMING: [], QUESTION: [*_questions(log)], FAILURE: [], OTHER: []}
    units[FRAMING] = [[event.sequence] for event in (*log[:1], *log[-1:])]
    kinds = [(event.event_type, event.sequence) for event in log]
    units[FRAMING] += [[sequence] for kind, sequence in kinds if kind.startswith(_FRAMING)]
    failures = {sequence for kind, sequence in kinds if kind.endswith(_FAILURE)}
    for together in _together(spans):
        unit = sorted({number for span in together for number in members(span)})
        failed = any(span.status == FAILED for span in together) or not failures.isdisjoint(unit)
        units[FAILURE if failed else OTHER].append(unit)
    return Sample([(rank, unit) for rank, found in units.items() for unit in _spread(found)], len(log))


def some_of(spans: Sequence[Span], most: int) -> list[int]:
    """Return the places of at most so many spans: steps and what failed first, the others spread over the run.

    What belongs together, as an item and its calls, is kept together.
    """
    if len(spans) <= most:
        return [*range(len(spans))]
    ranked: tuple[list[Sequence[Span]], list[Sequence[Span]]] = [], []
    for unit in _together(spans):
        ranked[not any(span.kind == "step" or span.status == FAILED for span in unit)].append(unit)
    kept: list[int] = []
    for unit in chain.from_iterable(map(_spread, ranked)):
        if len(kept) + len(unit) <= most:
            kept.extend(span.index for span in unit)
    return sorted(kept)


def _questions(log: Iterable[Event]) -> Iterable[Unit]:
    asked: dict[str, list[int]] = {}
    for event in log:
        if event.event_type.startswith(_QUESTION):
            asked.setdefault(str(getattr(event.data, "interrupt_id", "")), []).append(event.sequence)
    return asked.values()


def _together(spans: Iterable[Span]) -> Iterator[Sequence[Span]]:
    """Yield what belongs together: an item with its calls, a turn with what it holds, and each other span alone."""
    groups: dict[object, list[Span]] = {}
    for span in spans:
        if span.iteration is not None:
            key: object = (span.path, span.step, span.visit, span.iteration)
        else:
            key = span.holder if span.holder >= 0 else span.index
        groups.setdefault(key, []).append(span)
    return iter(groups.values())


def _spread(things: Sequence[T]) -> Iterator[T]:
    """Yield things in an order of which each beginning is spread evenly over them: by their places' bits reversed."""
    bits = max(len(things) - 1, 0).bit_length()
    places = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits)) if bits else range(len(things))
    return (things[place] for place in places if place < len(things))
