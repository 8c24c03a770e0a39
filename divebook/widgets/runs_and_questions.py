"""Feeds of the lists that views show: the open questions of a store, and the list of its executions.

The first page of the list needs only a few records. The feed reads the other records in later frames, and then the
summaries of logs, as far as the order or the weekly cost needs them. The rows of the list come from
`divebook.projections.summary`, which reads each log only once.
"""

from __future__ import annotations

import re
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from divebook.engine.lifecycle import INTERRUPTED, PAUSED
from divebook.environments.environment import Environment
from divebook.environments.starts import CELL
from divebook.errors import ExecutionNotFoundError, nearest
from divebook.events import Event, catalog
from divebook.events.catalog import (
    BOOK,
    CANCELLED,
    COMPLETED,
    ENQUEUED,
    FAILED,
    RUNNING,
    UNCOUNTED,
    WAITING,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    InterruptExpired,
    InterruptRaised,
    InterruptResolved,
)
from divebook.events.event import to_microseconds
from divebook.projections.run_columns import cell_text, columns_in
from divebook.projections.summary import Overview, RunLine, badge_of, badged
from divebook.questions.bounds import dollars
from divebook.questions.question import CANCELLED as KINDS_CANCELLED
from divebook.questions.question import PENDING, InterruptStatus, address_of, became
from divebook.runtime.run import Run, asked_questions
from divebook.stores import EventStore, ExecutionRecord
from divebook.text.redaction import one_line
from divebook.widgets.protocol import (
    Asked,
    Command,
    Inbox,
    InboxDelta,
    QuestionView,
    RunsColumn,
    RunsPage,
    RunsQuery,
    RunView,
    StatusCount,
)
from divebook.widgets.publisher import Publisher
from divebook.widgets.source import question_of

# --- the feed of questions -------------------------------------------------------------------------------------------
#
# New events of this process wake the publisher. Events of other processes are found at its heartbeat. Only new events
# are read, and only of executions whose log has grown.


MAX_OPEN = 100
"""Maximum number of open questions that are shown, the oldest questions."""
MAX_SETTLED = 50
"""Maximum number of answered, expired or withdrawn questions that are shown, the latest questions."""
# The events after which a shown question may look different. The end of an execution withdraws its questions.
_QUESTION_EVENTS = (
    InterruptRaised,
    InterruptResolved,
    InterruptExpired,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionCancelled,
)


class InboxFeed:
    """The open and the latest closed questions of all executions in one store, and the changes since the last frame
    (message with changes).

    The feed needs no definitions of workflows.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        # Executions that have asked and not ended, by id. Their logs are read on from the last known event.
        self._followed: dict[str, Run] = {}
        self._behind = True
        # `_last` is the number of the last frame, `_hidden` the number of open questions that it left out.
        self._last = self._hidden = 0
        self._is_over = False
        self._questions: dict[str, Asked] = {}
        # The entries of the last frame, with which the next one is compared.
        self._sent: dict[str, Asked] = {}

    # --- what happens ----------------------------------------------------------------------------------------------

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when a question of this process is asked, is answered, expires or is withdrawn.

        Return a function that ends the subscription.
        """

        # Called on the engine's thread. It only sets a flag, so that the engine does not wait for a read.
        def on_events(_execution_id: str, events: Sequence[Event]) -> None:
            if any(isinstance(event.data, _QUESTION_EVENTS) for event in events):
                self.request_refresh()
                wake()

        return self.environment.store.subscribe(on_events)

    def request_refresh(self) -> None:
        """Request that the next frame (message with changes) reads the store; can be called from any thread.

        Another process may have appended events.
        """
        self._behind = True

    @property
    def has_news(self) -> bool:
        """True if the next frame (message with changes) is likely to contain changes."""
        return self._behind

    # --- frames ----------------------------------------------------------------------------------------------------

    @property
    def shown(self) -> list[Asked]:
        """The questions in the last frame, which views show: the oldest open questions, and the latest closed ones."""
        return list(self._sent.values())

    @property
    def is_over(self) -> bool:
        """True if all executions with questions had ended when the last frame (message with changes) was made. Then
        none of the shown questions can be answered any more.
        """
        return self._is_over

    def frame(self) -> InboxDelta | None:
        """Return a message with the changes of the questions since the last frame; None if nothing changed."""
        if self._behind:
            # Reset before the read: a notification during it requests another one.
            self._behind = False
            self._read()
        shown, hidden = self._shown()
        changed = [entry for name, entry in shown.items() if self._sent.get(name) != entry]
        # An ended execution is no longer in `_followed`, so that its questions cannot be answered any more.
        is_over = not any(entry["execution_id"] in self._followed for entry in self._questions.values())
        # The end of the last execution changes no entry, but it must be sent as a frame
        # (`tests/widgets/test_inbox.py::test_the_end_of_the_last_one_who_asked_is_told_by_a_frame_of_its_own`).
        if not changed and (hidden, is_over) == (self._hidden, self._is_over):
            return None
        self._is_over = is_over
        after = self._last
        self._last = self._last + 1
        self._hidden = hidden
        self._sent = shown
        return InboxDelta(type="asked", after=after, last=self._last, now_us=_now_us(), hidden=hidden, asked=changed)

    def welcome(self, view: str, _since: int) -> Inbox:
        """Return the message with all shown questions for a view that has just started."""
        entries = list(self._sent.values())
        return Inbox(type="inbox", view=view, last=self._last, now_us=_now_us(), hidden=self._hidden, asked=entries)

    def _read(self) -> None:
        for execution in list(self._followed.values()):
            # An execution that was deleted or has ended reaches `_leave` below. Others skip it.
            with suppress(ExecutionNotFoundError):  # it was deleted
                self._take(execution.refresh())
                if not execution.state.is_over:
                    continue
            self._leave(execution)
        # The store knows which executions ask, so that the logs of all others are never read.
        for execution_id, _ in self.environment.store.asking():
            if execution_id not in self._followed:
                self._followed[execution_id] = self.environment.run_of(execution_id)
                self._take(self._followed[execution_id])

    def _leave(self, execution: Run) -> None:
        """Stop reading an execution that has ended. Its open questions are shown as withdrawn, because they can no
        longer be answered.
        """
        del self._followed[execution.id]
        # An entry is replaced and not changed, since frames compare it with the one that views have.
        for name, entry in self._questions.items():
            if entry["execution_id"] == execution.id and _is_open(entry):
                withdrawn = QuestionView(**entry["question"])
                withdrawn["status"] = InterruptStatus.CANCELLED
                withdrawn["became"] = became(KINDS_CANCELLED, None)
                self._questions[name] = Asked(**{**entry, "question": withdrawn})

    def _take(self, execution: Run) -> None:
        record = self.environment.store.record(execution.id)
        badge = badge_of(record)
        trial_of = badge if record.origin in UNCOUNTED else ""
        workflow = badged(one_line(execution.workflow.name, 120), badge)
        for question in asked_questions(execution):
            address = address_of(execution.id, question)  # copies of an execution ask under the same ids
            # A question that was settled before this feed started is not shown.
            if not question.is_open and address not in self._questions:
                continue
            question_view = question_of(question._replace(id=address), execution.workflow.name)
            cell = str((execution.state.identity.get(CELL) or {}).get("cell") or "")
            self._questions[address] = Asked(
                execution_id=execution.id, workflow=workflow, question=question_view, cell=cell, trial_of=trial_of
            )

    def _shown(self) -> tuple[dict[str, Asked], int]:
        """Return the questions that views show, by id, and the number of further open questions.

        Of the questions that are no longer open, only the latest `MAX_SETTLED` are kept.
        """
        open_ = sorted(filter(_is_open, self._questions.values()), key=order_of_entry)
        settled = [entry for entry in self._questions.values() if not _is_open(entry)][-MAX_SETTLED:]
        # Old settled questions are forgotten, so that the memory of a long session does not grow.
        self._questions = dict(_by_name([*settled, *open_]))
        return dict(_by_name([*settled, *open_[:MAX_OPEN]])), max(0, len(open_) - MAX_OPEN)


def order_of_entry(entry: Asked) -> tuple[int, str]:
    """Return the sort key of a question in the form that views show: the same as `Question.order`."""
    return entry["question"]["raised_us"], entry["question"]["interrupt_id"]


def _is_open(entry: Asked) -> bool:
    return entry["question"]["status"] == PENDING


def _by_name(entries: Sequence[Asked]) -> Iterator[tuple[str, Asked]]:
    return ((one["question"]["interrupt_id"], one) for one in entries)


def _now_us() -> int:
    return time.time_ns() // 1000


_publishers: weakref.WeakValueDictionary[int, Publisher[InboxFeed]] = weakref.WeakValueDictionary()


def inbox_publisher_of(environment: Environment) -> Publisher[InboxFeed]:
    """Return the publisher that sends the questions of an environment's executions to views. All views of the
    environment share it.
    """
    publisher = _publishers.get(id(environment))  # it holds the environment, so that no other one gets this id
    if publisher is None:
        publisher = _publishers[id(environment)] = Publisher(InboxFeed(environment))
    return publisher


# --- the cache of records --------------------------------------------------------------------------------------------
#
# Records are read page by page. The cache stays up to date without reading all of them again, because only three kinds
# of records can change: new executions, executions that have not ended, and those that ended since the last look.
#
# Example with pages of 50 and then 1,000, and 2,500 records: the first frame reads records 0-49, so that the view
# appears at once. The second frame reads 50-1049, the third 1050-2049 and the fourth the rest, which is shorter than a
# page, so that the cache is complete. From then on each frame reads the executions that have not ended, those that
# ended since the last frame, and the newest page. If the whole newest page is unknown, more may be behind it, and the
# pages are read again.


PAGE = 50
"""Number of records that the first frame reads. Each later frame reads the newest page of this size again."""
MORE = 1_000
"""Number of older records that each later frame reads."""
NO_FILTERS: Mapping[str, Any] = MappingProxyType({})


class RecordCache:
    """Cache of the records of all executions in a store. A record is a row with the summary data of one execution.

    Parameters
    ----------
    kind
        Filter by ``origin``, ``parent``, ``notebook`` or ``cell``.
    """

    def __init__(self, store: EventStore, kind: Mapping[str, Any] = NO_FILTERS) -> None:
        self.store = store
        self._kind = kind
        self.is_whole = False
        """True if all records of the store were read."""
        self.version = 0
        """Version number of the cache, which increases with each changed record."""
        self._records: dict[str, ExecutionRecord] = {}
        self._stale: set[str] = set()
        """Ids of executions whose records must be read again."""
        self._read = 0

    @property
    def records(self) -> list[ExecutionRecord]:
        """The records of executions that were read so far, in no particular order."""
        return list(self._records.values())

    def forget(self, execution_ids: Iterable[str]) -> None:
        """Mark the cached records of these executions as out of date, so that the next call of `look` reads them again.
        Can be called from any thread.
        """
        self._stale |= {*execution_ids}

    def look(self) -> None:
        """Update the cache from the store: read the records that may have changed, and the next page of older
        records.
        """
        # Executions that have not ended can change in another process, so their records are read each time.
        unended = {record.execution_id: record for record in self.store.unended() if self._fits(record)}
        stale = self._stale - unended.keys()
        # Those that run now are read again in the next frame, which shows how they ended.
        self._stale = {*unended}
        records = {name: self._record(name) for name in stale} | unended
        if self._read or self.is_whole:  # it was empty: test_what_begins_and_ends_between_two_looks_is_found
            records |= self._newest()
        if not self.is_whole:
            records |= self._next_page()
        for name, record in records.items():
            self._take(name, record)

    def _newest(self) -> dict[str, ExecutionRecord]:
        """Read the newest page of records from the store, which contains new executions.

        If all records of the page are new, the page behind it may contain new records too. Reading then restarts at the
        second page.
        """
        # Executions that began since the last look are on the newest page, unless there were more than a page of them.
        newest = self._page(PAGE, 0)
        if len(newest) == PAGE and newest.keys().isdisjoint(self._records):
            self._read = PAGE
            self.is_whole = False
        return newest

    def _next_page(self) -> dict[str, ExecutionRecord]:
        limit = MORE if self._read else PAGE
        page = self._page(limit, self._read)
        self._read = self._read + len(page)
        self.is_whole = len(page) < limit
        return page

    def _page(self, limit: int, offset: int) -> dict[str, ExecutionRecord]:
        page = self.store.records(limit=limit, offset=offset, **self._kind)
        return {record.execution_id: record for record in page}

    def _record(self, execution_id: str) -> ExecutionRecord | None:
        try:
            record = self.store.record(execution_id)
        except ExecutionNotFoundError:  # it was deleted
            return None
        return record if self._fits(record) else None

    def _fits(self, record: ExecutionRecord) -> bool:
        # Conversations are stored as logs of the origin ``book``, which are not runs.
        return record.origin != BOOK and all(getattr(record, name) == value for name, value in self._kind.items())

    def _take(self, name: str, record: ExecutionRecord | None) -> None:
        # For an unknown id without a record, both sides are None.
        if self._records.get(name) == record:
            return
        self.version += 1
        if record is None:
            del self._records[name]
        else:
            self._records[name] = record


# --- filters of the list ---------------------------------------------------------------------------------------------


DAY_US = 86_400_000_000
_WORD = re.compile(r"\w{3,}")


def fits(line: RunLine, query: RunsQuery, now_us: int) -> bool:
    """Return whether an execution matches all filters of a list query except the filter for the status."""
    record = line.record
    # Each filter accepts everything if it is empty.
    return (
        query["workflow"] in ("", record.workflow_name)
        and query["tag"] in ("", *record.tags)
        and (not query["days"] or is_within(record, query["days"], now_us))
        # All words must occur, in any order.
        and all(word in text_of(line) for word in query["text"].lower().split())
    )


def is_within(record: ExecutionRecord, days: int, now_us: int) -> bool:
    """Return whether an execution started in the last `days` days."""
    return to_microseconds(record.created_at) >= now_us - days * DAY_US


def text_of(line: RunLine) -> str:
    """Return the text in which a person's search words are looked for, in lower case. It contains the name, id, tags,
    note, error and inputs of an execution.
    """
    record = line.record
    summary = line.summary
    parts = (record.workflow_name, record.execution_id, *record.tags, record.note, record.error)
    return " ".join(filter(None, (*parts, summary and summary.inputs, line.about))).lower()


def near(lines: Iterable[RunLine], query: RunsQuery) -> str:
    """Return a suggestion for a search that has found no executions: the most similar word in their texts. Return an
    empty text if no word is similar.
    """
    words = {word for line in lines for word in _WORD.findall(text_of(line))}
    return nearest(query["text"].lower().strip(), words) or ""


def rank(line: RunLine, query: RunsQuery, now_us: int) -> tuple[float, int]:
    """Return the key by which an execution is sorted in the list of executions: its start, cost or working time, as
    `query` demands. The list starts with the highest key.
    """
    began = to_microseconds(line.record.created_at)
    if query["by"] == "cost":
        # Unknown costs sort last. Among equal values, the newest execution comes first.
        return (-1.0 if line.cost is None else line.cost, began)
    if query["by"] == "worked":
        worked = line.worked_us(now_us)
        return (-1.0 if worked is None else worked, began)
    return (0.0, began)


def as_code(query: RunsQuery, store: str | None) -> str:
    """Return Python code that loads the executions of a list query as a DataFrame, so that a person can continue with
    it in a cell.

    >>> as_code({"type": "list", "view": "", "text": "", "workflow": "label", "tag": "", "status": "failed",
    ...          "days": 0, "by": "started", "limit": 50}, None)
    "divebook.runs(status='failed', workflow='label').frame()"
    """
    filters = {"status": query["status"], "workflow": query["workflow"], "tag": query["tag"], "store": store}
    arguments = ", ".join(f"{name}={value!r}" for name, value in filters.items() if value)
    return f"divebook.runs({arguments}).frame()"


EVERYTHING = RunsQuery(type="list", view="", text="", workflow="", tag="", status="", days=0, by="started", limit=50)


class RunsFeed:
    """The list of the executions in one store, with a person's filters and order, and a new page whenever it has
    changed.
    """

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
        self.environment = environment
        self._query = query
        self._store = store
        self._now = now
        self._cache = RecordCache(environment.store, kind)
        self._overview = Overview(environment.store)
        self._clock = clock
        self._behind = True
        self._is_requested = False
        # The data from which the last page was made. None if that page was incomplete.
        self._basis: tuple[object, ...] | None = None
        # The last page without the fields that change with time, with which the next one is compared.
        self._sent: RunsPage | None = None
        self._last = 0
        # Monotonic time until which the feed does not read by itself.
        self._rests_until = 0.0
        self._wake: Callable[[], None] = _nothing
        self.opened: str | None = None
        """Id of the execution that is shown below the list; None if there is none."""

    # --- what happens ----------------------------------------------------------------------------------------------

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when an execution of this process starts or ends, or when a question is asked or answered.

        Return a function that ends the subscription.
        """
        self._wake = wake

        def on_events(execution_id: str, events: Sequence[Event]) -> None:
            if not events:  # it was deleted
                self.refresh([execution_id])
            elif any(isinstance(event.data, _LIST_EVENTS) for event in events):
                self.request_refresh()
                wake()

        return self.environment.store.subscribe(on_events)

    def request_refresh(self) -> None:
        """Request that the next frame (message with changes) reads the store; can be called from any thread."""
        self._behind = True

    def refresh(self, execution_ids: Iterable[str]) -> None:
        """Read the rows of these executions again before the view is updated the next time. Can be called from any
        thread.
        """
        self._cache.forget(execution_ids)
        self.request_refresh()
        self._wake()

    def ask(self, query: RunsQuery) -> None:
        """Set the filters and the order that a person chose for the list; can be called from any thread."""
        # The page goes to all views, so it names none. The limit is bounded, since the message must stay small.
        self._query = RunsQuery(**{**query, "view": "", "limit": min(query["limit"], MOST_SHOWN)})
        self._is_requested = True
        self._wake()

    @property
    def has_news(self) -> bool:
        """True if the next frame (message with changes) is likely to contain changes."""
        # A person who has changed a filter does not wait for the end of the pause.
        return self._is_requested or (self._behind and self._clock() >= self._rests_until)

    # --- frames ----------------------------------------------------------------------------------------------------

    def frame(self) -> RunsPage | None:
        """Return a message with the list of executions if the list has changed since the last frame, else None.

        The list is made again only if the records, the query, the opened execution, the open questions or the running
        executions have changed. If records or summaries are still missing, the feed wakes the publisher for the next
        frame.
        """
        began = self._clock()
        # Reset before the read: a notification during it requests another frame.
        self._behind = self._is_requested = False
        self._cache.look()
        # Open questions and orphans are read from the store too, because they change without a change of any record.
        basis = (self._cache.version, self._query, self.opened, *self._overview.moving(self._cache.records))
        if basis == self._basis:
            return None
        page, is_done = self._page()
        # With a basis of None, the next frame is made again and reads more summaries.
        self._basis = basis if is_done else None
        # A list that is slow to make is made less often: at most a tenth of the time is spent on it.
        self._rests_until = self._clock() + RESTS * (self._clock() - began)
        if not self._cache.is_whole or (self._query["by"] != "started" and not is_done):
            # There is more to read, and a person waits for it.
            self._is_requested = True
            self._wake()
        if page == self._sent:
            return None
        # The page has neither number nor time yet, so equal contents are equal pages.
        self._sent = page
        self._last = self._last + 1
        return self.welcome("", 0)

    def welcome(self, view: str, _since: int) -> RunsPage:
        """Return the message with the current list of executions for a view that has just started."""
        # A view that starts before the first frame must not wait for it.
        page = self._sent or self._page()[0]
        return RunsPage(**{**page, "view": view, "last": self._last, "now_us": self._now()})

    def _page(self) -> tuple[RunsPage, bool]:
        """Return the message with the current list of executions. The second value is True if the summaries of all
        executions in the list could be read in time.

        All rows are filtered and sorted with the summaries in the cache. The summaries of the shown rows, and of all
        rows that the order or the weekly cost needs, are then read for at most `PATIENCE` seconds.
        """
        query = self._query
        now_us = self._now()
        # No log is read here: the lines of all executions are made with the summaries that are in the cache.
        records = self._cache.records
        lines = self._overview.known_lines(records)
        week = [line for line in lines if is_within(line.record, WEEK, now_us)]
        # An order by cost or working time needs the summaries of all rows, the weekly cost only those of the last week.
        needed = week if query["by"] == "started" else lines
        unread = [line.record for line in needed if line.summary is None]
        self._overview.summaries(unread[:AT_ONCE], PATIENCE)
        # The counts of all statuses ignore the filter for the status, so that a person sees the other ones.
        matching = [line for line in lines if fits(line, query, now_us)]
        chosen = [line for line in matching if query["status"] in ("", line.status)]
        chosen.sort(key=lambda line: rank(line, query, now_us), reverse=True)
        # The shown rows are read in any case. This page may therefore show costs that its order did not know yet.
        shown = self._overview.lines([line.record for line in chosen[: query["limit"]]], PATIENCE)
        # Without all summaries the sum would be too small, so it stays empty.
        costs = [] if unread else [line.cost for line in week if line.cost is not None and line.is_counted]
        page = RunsPage(
            type="runs",
            view="",
            last=0,
            now_us=0,
            query=query,
            total=len(lines),
            is_whole=self._cache.is_whole,
            matching=len(chosen),
            running=sum(line.status == RUNNING for line in lines),
            week_cost=dollars(sum(costs)) if costs else None,
            counts=_counted(line.status for line in matching),
            workflows=sorted({one_line(record.workflow_name, 120) for record in records})[:MOST_NAMES],
            tags=sorted({tag for record in records for tag in record.tags})[:MOST_NAMES],
            # Words are compared only if the search has found nothing.
            columns=[
                RunsColumn(title=column.title, by=column.order, is_number=column.is_number)
                for column in columns_in("browser")
            ],
            runs=[self._view(line) for line in shown],
            near="" if chosen or not query["text"] else near(lines, query),
            frame=as_code(query, self._store),
        )
        return page, not unread and all(line.summary for line in shown)

    def _view(self, line: RunLine) -> RunView:
        """Convert one execution of the list to the form that views show.

        Progress and the start of the current work are included only for a running execution. The page then counts the
        working time.
        """
        record = line.record
        summary = line.summary
        done = total = since_us = 0
        if summary is None:
            worked_us = None
        elif summary.works and line.status == RUNNING:
            done = summary.done
            total = summary.total
            since_us = summary.since_us
            # While the run works, the page adds the time since `since_us` itself, so that no message is needed each
            # second.
            worked_us = summary.worked_us
        else:
            # The argument only matters for a run that works, and this one does not.
            worked_us = line.worked_us(0)
        return RunView(
            execution_id=line.id,
            workflow=one_line(record.workflow_name, 120),
            badge=line.badge,
            tags=list(record.tags),
            status=line.status,
            about=line.about,
            is_error=bool(line.error),
            stand=line.stand,
            done=done,
            total=total,
            questions=line.questions,
            began_us=to_microseconds(record.created_at),
            worked_us=worked_us,
            since_us=since_us,
            commands=COMMANDS.get(line.status, []),
            is_open=line.id == self.opened,
            cells=[cell_text(column, line) for column in columns_in("browser")],
        )


MOST_SHOWN = 1_000
MOST_NAMES = 200
PATIENCE = 0.05
"""Maximum number of seconds in which one frame reads logs."""
AT_ONCE = 500
"""Maximum number of executions whose summaries are read for one frame, in addition to the shown executions."""
WEEK = 7
RESTS = 10
"""Pause after a frame, as a multiple of the time that the frame took. A request of a view ends the pause."""
ORDER = (RUNNING, WAITING, ENQUEUED, FAILED, INTERRUPTED, PAUSED, COMPLETED, CANCELLED)
COMMANDS: Mapping[str, list[Command]] = {
    RUNNING: ["cancel"],
    WAITING: ["cancel"],
    ENQUEUED: ["cancel"],
    PAUSED: ["resume", "cancel"],
    INTERRUPTED: ["resume", "cancel"],
    FAILED: ["resume"],
    CANCELLED: ["resume"],
}
_LIST_EVENTS = (
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


def _counted(statuses: Iterable[str]) -> list[StatusCount]:
    # Known statuses have a fixed order, others follow alphabetically.
    counts = Counter(statuses)
    names = [*(name for name in ORDER if name in counts), *sorted(counts.keys() - {*ORDER})]
    return [StatusCount(status=name, count=counts[name]) for name in names]
