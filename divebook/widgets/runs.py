"""The executions of a store as the browser lists them: which fit what is asked for, each in one line.

The first page needs a few records; the others are read between the frames, and what their logs come to after that, as
far as an order or a sum needs it. Lines are those of `divebook.execution.overview`, which reads no log twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from divebook.engine.bounds import NANODOLLARS
from divebook.environment import Environment
from divebook.events import Event, catalog
from divebook.events.catalog import CANCELLED, COMPLETED, ENQUEUED, FAILED, RUNNING, WAITING
from divebook.events.event import to_microseconds
from divebook.execution.overview import PAUSED, Overview, RunLine
from divebook.text.cuts import one_line
from divebook.widgets.gathered import NO_FILTERS, Gathered
from divebook.widgets.protocol.runs import RunsPage, RunsQuery, RunView, StatusCount
from divebook.widgets.protocol.views import Command
from divebook.widgets.sifting import as_code, fits, is_within, near, rank

EVERYTHING = RunsQuery(type="list", view="", text="", workflow="", tag="", status="", days=0, by="began", limit=50)
MOST_SHOWN = 1_000
MOST_NAMES = 200
PATIENCE = 0.05
"""Seconds for which logs are read for one frame."""
AT_ONCE = 500
"""Executions whose summaries are looked up for one frame, beside those that are shown."""
WEEK = 7
RESTS = 10
"""How many times as long as a frame took there is none after it, unless somebody asks."""
ORDER = (RUNNING, WAITING, ENQUEUED, FAILED, PAUSED, COMPLETED, CANCELLED)
COMMANDS: Mapping[str, list[Command]] = {
    RUNNING: ["cancel"],
    WAITING: ["cancel"],
    ENQUEUED: ["cancel"],
    PAUSED: ["resume", "cancel"],
    FAILED: ["resume"],
    CANCELLED: ["resume"],
}
_TELLING = (
    catalog.ExecutionStarted,
    catalog.ExecutionResumed,
    catalog.ExecutionPaused,
    catalog.ExecutionEnqueued,
    catalog.ExecutionCompleted,
    catalog.ExecutionFailed,
    catalog.ExecutionCancelled,
    catalog.InterruptRaised,
    catalog.InterruptResolved,
    catalog.InterruptExpired,
)


def _nothing() -> None:
    return


class RunsFeed:
    """The list of the executions of one store that a widget shows."""

    def __init__(
        self,
        environment: Environment,
        query: RunsQuery = EVERYTHING,
        kind: Mapping[str, Any] = NO_FILTERS,
        *,
        store: str | None = None,
        now: Callable[[], int] = lambda: time.time_ns() // 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.environment, self._query, self._store, self._now = environment, query, store, now
        self._gathered, self._overview = Gathered(environment.store, kind), Overview(environment.store)
        self._clock = clock
        self._behind, self._is_asked = True, False
        self._basis: tuple[object, ...] | None = None
        self._told: RunsPage | None = None
        self._last, self._rests_until = 0, 0.0
        self._wake: Callable[[], None] = _nothing
        self.opened: str | None = None
        """The execution that is shown below the list."""

    # --- what happens ----------------------------------------------------------------------------------------------

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when an execution of this process begins, ends or asks; call what is returned to stop it."""
        self._wake = wake

        def hear(execution_id: str, events: Sequence[Event]) -> None:
            if not events:  # it was deleted
                self.look_at([execution_id])
            elif any(isinstance(event.data, _TELLING) for event in events):
                self.look_again()
                wake()

        return self.environment.store.subscribe(hear)

    def look_again(self) -> None:
        """Look into the store at the next frame; any thread."""
        self._behind = True

    def look_at(self, execution_ids: Iterable[str]) -> None:
        """Look at these at the next frame, whatever has become of them; any thread."""
        self._gathered.forget(execution_ids)
        self.look_again()
        self._wake()

    def ask(self, query: RunsQuery) -> None:
        """Show what fits another query from now on; any thread."""
        self._query = RunsQuery(**{**query, "view": "", "limit": min(query["limit"], MOST_SHOWN)})
        self._is_asked = True
        self._wake()

    @property
    def has_news(self) -> bool:
        """Whether the next frame is likely to tell something."""
        return self._is_asked or (self._behind and self._clock() >= self._rests_until)

    # --- frames ----------------------------------------------------------------------------------------------------

    def frame(self) -> RunsPage | None:
        """Return the list if it is another than the last one."""
        began = self._clock()
        self._behind = self._is_asked = False
        self._gathered.look()
        basis = (self._gathered.version, self._query, self.opened, *self._overview.moving())
        if basis == self._basis:
            return None
        told, is_done = self._page()
        self._basis = basis if is_done else None
        self._rests_until = self._clock() + RESTS * (self._clock() - began)
        if not self._gathered.is_whole or (self._query["by"] != "began" and not is_done):
            self._is_asked = True  # there is more to read, and somebody waits for it
            self._wake()
        if told == self._told:
            return None
        self._told, self._last = told, self._last + 1
        return self.welcome("", 0)

    def welcome(self, view: str, _since: int) -> RunsPage:
        """Return the list for one view."""
        told = self._told or self._page()[0]
        return RunsPage(**{**told, "view": view, "last": self._last, "now_us": self._now()})

    def _page(self) -> tuple[RunsPage, bool]:
        """Return the list, and whether all is known that it needs."""
        query, now_us, records = self._query, self._now(), self._gathered.records
        lines = self._overview.known_lines(records)
        week = [line for line in lines if is_within(line.record, WEEK, now_us)]
        lacking = [line.record for line in (week if query["by"] == "began" else lines) if line.summary is None]
        self._overview.summaries(lacking[:AT_ONCE], PATIENCE)
        fitting = [line for line in lines if fits(line, query, now_us)]
        chosen = [line for line in fitting if query["status"] in ("", line.status)]
        chosen.sort(key=lambda line: rank(line, query, now_us), reverse=True)
        shown = self._overview.lines([line.record for line in chosen[: query["limit"]]], PATIENCE)
        costs = [] if lacking else [line.cost for line in week if line.cost is not None and line.is_counted]
        page = RunsPage(
            type="runs",
            view="",
            last=0,
            now_us=0,
            query=query,
            total=len(lines),
            is_whole=self._gathered.is_whole,
            matching=len(chosen),
            running=sum(line.status == RUNNING for line in lines),
            week_cost=sum(costs) / NANODOLLARS if costs else None,
            counts=_counted(line.status for line in fitting),
            workflows=sorted({one_line(record.workflow_name, 120) for record in records})[:MOST_NAMES],
            tags=sorted({tag for record in records for tag in record.tags})[:MOST_NAMES],
            runs=[self._view(line) for line in shown],
            near="" if chosen or not query["text"] else near(lines, query),
            frame=as_code(query, self._store),
        )
        return page, not lacking and all(line.summary for line in shown)

    def _view(self, line: RunLine) -> RunView:
        record, summary = line.record, line.summary
        works = summary is not None and summary.works and line.status == RUNNING
        return RunView(
            execution_id=line.id,
            workflow=one_line(record.workflow_name, 120),
            badge=line.badge,
            tags=list(record.tags),
            status=line.status,
            about=line.about,
            is_error=bool(line.error),
            stand=line.stand,
            done=summary.done if summary is not None and works else 0,
            total=summary.total if summary is not None and works else 0,
            questions=line.questions,
            began_us=to_microseconds(record.created_at),
            worked_us=None if summary is None else summary.worked_us if works else line.worked_us(0),
            since_us=summary.since_us if summary is not None and works else 0,
            cost=None if line.cost is None else line.cost / NANODOLLARS,
            commands=COMMANDS.get(line.status, []),
            is_open=line.id == self.opened,
        )


def _counted(statuses: Iterable[str]) -> list[StatusCount]:
    counts = Counter(statuses)
    names = [*(name for name in ORDER if name in counts), *sorted(counts.keys() - {*ORDER})]
    return [StatusCount(status=name, count=counts[name]) for name in names]
