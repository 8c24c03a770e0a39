"""Executions in one line each, as every list of them shows it: the row of the store, and what its log comes to.

What a log comes to is read once and kept in the store, so that a list of thousands reads no logs; of those that go on
only what is new is read. A list that cannot wait says how long it has: what is not there by then comes the next time.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.lifecycle import TERMINAL
from divebook.errors import ExecutionNotFoundError, ReadOnlyStoreError, StoreError
from divebook.events.catalog import BADGED, CANCELLED, COMPLETED, FAILED, LEFT_ALONE, RUNNING, UNCOUNTED, WAITING
from divebook.events.event import to_datetime
from divebook.history.summary import Summary, Summing
from divebook.store import EventStore, ExecutionRecord
from divebook.store.summaries import StoredSummary
from divebook.text.cuts import one_line
from divebook.text.shown import plural, price
from divebook.text.times import local_time

PAUSED = "paused"
FOR_EVER = float("inf")
_PAGE = 50


def newest_run(store: EventStore) -> ExecutionRecord | None:
    """Return the newest execution that is no what-if and no trial of another one; None if there is none.

    They are made to look at a run, which stays the one that people mean.
    """
    pages = (store.records(limit=_PAGE, offset=offset) for offset in itertools.count(0, _PAGE))
    records = itertools.chain.from_iterable(itertools.takewhile(bool, pages))
    return next((record for record in records if record.origin not in LEFT_ALONE), None)


def badge_of(record: ExecutionRecord) -> str:
    """Return what an execution is where it is no run of its own: ``what-if``, ``trial`` or ``fork``; else nothing."""
    return record.origin if record.origin in BADGED else ""


def badged(name: str, badge: str) -> str:
    """Return the name of a workflow with a badge beside it, if there is one.

    >>> badged("roses", "trial"), badged("roses", "")
    ('roses (trial)', 'roses')
    """
    return f"{name} ({badge})" if badge else name


@dataclass(frozen=True, slots=True)
class RunLine:
    """An execution as a list shows it."""

    record: ExecutionRecord
    summary: Summary | None
    """None where its log cannot be read, or was not yet."""
    questions: int = 0
    """How many wait for an answer."""
    is_left: bool = False
    """Whether it had not come to rest when its process ended."""

    @property
    def id(self) -> str:
        """``exec_...``."""
        return self.record.execution_id

    @property
    def badge(self) -> str:
        """What it is where it is no run of its own: ``what-if``, ``trial`` or ``fork``; else nothing."""
        return badge_of(self.record)

    def named(self, width: int) -> str:
        """Return the name of its workflow, cut to a width, with its badge."""
        return badged(one_line(self.record.workflow_name, width), self.badge)

    @property
    def is_counted(self) -> bool:
        """Whether totals count it."""
        return self.record.origin not in UNCOUNTED

    @property
    def status(self) -> str:
        """The status for people: what nothing drives, or somebody has paused, is ``paused``."""
        status = self.record.status
        is_paused = self.is_left or (status == WAITING and self.summary is not None and self.summary.is_paused)
        return PAUSED if is_paused else status

    @property
    def error(self) -> str:
        """Why it failed, with the place."""
        told = "" if self.summary is None else self.summary.error
        return told if self.record.status == FAILED else ""

    @property
    def about(self) -> str:
        """What it is about: its error, that its kernel has stopped, its note, or its inputs."""
        if self.error or self.summary is None:
            more = 0 if self.summary is None else self.summary.failed
            return f"{self.error} and {more:,} more" if self.error and more else self.error
        if self.is_left:
            return f"The kernel stopped at {local_time(to_datetime(self.summary.last_us))}"
        return self.record.note or self.summary.given

    @property
    def stand(self) -> str:
        """How far it has come, and what is kept; how many items have failed; who cancelled it."""
        summary = self.summary
        if summary is not None and self.record.status == COMPLETED and summary.failed:
            return f"{plural(summary.failed, 'item')} failed"
        if summary is None or self.record.status not in (RUNNING, WAITING, FAILED, CANCELLED):
            return ""
        if self.questions:
            return plural(self.questions, "question")
        is_going_on = self.status in (RUNNING, WAITING)
        items = f"{summary.done:,} of {summary.total:,}" if summary.total else ""
        if is_going_on:
            return items or (f"at step {summary.step}" if summary.step else "")
        if self.record.status == CANCELLED and summary.ended_by:
            return summary.ended_by
        kept = f"{items} kept" if items else ""
        at = f"at step {summary.step}" if self.status == PAUSED and summary.step else ""
        return ", ".join(filter(None, [at, kept]))

    @property
    def way_on(self) -> str:
        """Where it goes on once it is taken up: ``picks up at step a (2 of 4 items kept)``."""
        summary = self.summary
        if summary is None or not summary.step:
            return "picks up where it was left"
        kept = f" ({summary.done:,} of {summary.total:,} items kept)" if summary.total else ""
        return f"picks up at step {summary.step}{kept}"

    @property
    def cost(self) -> int | None:
        """Nanodollars; None where no model was asked, or it is not known yet."""
        return None if self.summary is None else self.summary.cost

    @property
    def price(self) -> str:
        """What it cost as people read it; empty where no model was asked."""
        return "" if self.cost is None else price(self.cost / NANODOLLARS)

    def worked_us(self, now_us: int) -> int | None:
        """Return how long it has worked up to now, in microseconds."""
        if self.summary is None:
            return None
        goes_on = self.status == RUNNING and self.summary.works
        until = now_us if goes_on else self.summary.last_us if self.summary.works else self.summary.since_us
        return self.summary.worked_us + (max(0, until - self.summary.since_us) if self.summary.works else 0)


class Overview:
    """Makes the lines of a store's executions, and knows what it has read."""

    def __init__(self, store: EventStore, clock: Callable[[], float] = time.monotonic) -> None:
        self.store, self._clock = store, clock
        self._known: dict[str, tuple[int, Summary]] = {}
        """With the last event that is in each."""
        self._following: dict[str, Summing] = {}
        """Those that have not ended."""

    def lines(self, records: Sequence[ExecutionRecord], patience: float = FOR_EVER) -> list[RunLine]:
        """Return a line for each record; `patience` says how many seconds logs may be read for."""
        return self._lines(records, self.summaries(records, patience))

    def known_lines(self, records: Sequence[ExecutionRecord]) -> list[RunLine]:
        """Return a line for each record, with what is known of its log by now."""
        return self._lines(records, {name: summary for name, (_, summary) in self._known.items()})

    def moving(self) -> tuple[list[tuple[str, str]], set[str]]:
        """Return what lines say that no record does: the open questions, and which executions nothing drives."""
        left = {record.execution_id for record in self.store.orphans() if record.status == RUNNING}
        return self.store.asking(), left

    def _lines(self, records: Sequence[ExecutionRecord], summaries: Mapping[str, Summary]) -> list[RunLine]:
        asking, left = self.moving()
        asked = Counter(execution_id for execution_id, _ in asking)
        return [
            RunLine(record, summaries.get(name := record.execution_id), asked[name], name in left) for record in records
        ]

    def summaries(self, records: Sequence[ExecutionRecord], patience: float = FOR_EVER) -> Mapping[str, Summary]:
        """Return what the logs of executions come to, as far as that can be read in so many seconds."""
        self._recall([record for record in records if not self._is_known(record)])
        until, read = self._clock() + patience, {}
        for record in records:
            if not self._is_known(record) and self._clock() < until and self._read(record):
                read[record.execution_id] = record
        self._keep(read.values())
        return {name: self._known[name][1] for record in records if (name := record.execution_id) in self._known}

    def _is_known(self, record: ExecutionRecord) -> bool:
        known = self._known.get(record.execution_id)
        return known is not None and known[0] >= record.last_sequence

    def _recall(self, records: Sequence[ExecutionRecord]) -> None:
        """Take over what the store has kept."""
        for name, (sequence, data) in self.store.summaries([record.execution_id for record in records]).items():
            summary = Summary.from_data(data)
            if summary is not None:
                self._known[name] = (sequence, summary)

    def _read(self, record: ExecutionRecord) -> bool:
        """Read what is new in a log; return whether that is worth keeping: it has come to rest."""
        name = record.execution_id
        summing = self._following.get(name) or Summing()
        try:
            summing.take(self.store.history(name, after=summing.sequence))
        except ExecutionNotFoundError:  # it was deleted
            return False
        except StoreError:  # damaged, or encrypted: its row says what is known
            self._known[name] = (record.last_sequence, Summary())
            return False
        self._known[name] = (summing.sequence, summing.summary())
        if record.status in TERMINAL:
            self._following.pop(name, None)
        else:
            self._following[name] = summing
        return record.status != RUNNING

    def _keep(self, records: Iterable[ExecutionRecord]) -> None:
        kept = {record.execution_id: self._known[record.execution_id] for record in records}
        if kept:
            try:
                self.store.put_summaries(
                    {name: StoredSummary(sequence, summary.to_data()) for name, (sequence, summary) in kept.items()}
                )
            except ReadOnlyStoreError:  # then they are read again in the next process
                return
