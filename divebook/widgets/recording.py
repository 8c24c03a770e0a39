"""Recording of a run in a saved notebook: its events, or a sample of them, and the state after each event.

Only the first state is stored completely. Each later state is stored as the difference to the previous state. For this
a state is divided into cells: one cell for each variable, output, path and question, and one for each other part. An
event then needs no more space than its changes. For example, the event ``step_completed`` that stores ``n = 3`` is
recorded as ``["paths", "main", {...}], ["variables", "n", 3]``. `RecordedPositions` applies the changes up to an event,
as ``widgets/src/lab`` does in the browser.

Texts are redacted before they are cut, because half a secret would not be recognized.
"""

from __future__ import annotations

import base64
import binascii
import json
import operator
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, pairwise, repeat
from typing import Any, NoReturn, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

from divebook.definitions.definition import hidden_in
from divebook.engine.evolve import evolve
from divebook.engine.state import ExecutionState
from divebook.errors import SavedRunError
from divebook.events import Event
from divebook.events.catalog import FAILED
from divebook.events.upcast import RENAMED_STATUSES, RENAMED_TYPES, present_status
from divebook.projections.failures import ItemNames
from divebook.projections.spans import Span, item_name
from divebook.projections.summary import ReadLog, badge_of
from divebook.questions import InterruptStatus
from divebook.questions.question import became
from divebook.replay.replayer import MODEL_CALLS
from divebook.runtime.run import Run
from divebook.text.format import size
from divebook.text.redaction import Redactor, cut, one_line, shared
from divebook.widgets.parts import FailureTracker, newest_conversations, parts_up_to, shortened
from divebook.widgets.protocol import (
    EVENT_NUMBERS,
    EVENT_TEXTS,
    SPAN_NUMBERS,
    SPAN_TEXTS,
    ConversationPart,
    DetailEvent,
    EventBlock,
    FailureReport,
    Header,
    PackedRun,
    PathView,
    PendingView,
    Recording,
    StateView,
    Welcome,
    checked,
)
from divebook.widgets.source import (
    MAX_ANSWER,
    Budget,
    Labels,
    SpendingTracker,
    graph_of,
    header_of,
    is_short,
    labels_of,
    question_of,
    result_preview,
    shown,
    with_activity,
)
from divebook.widgets.source import block_of as spans_block
from divebook.widgets.stepping import (
    EventLabel,
    EventLabels,
    block_of,
    path_cell,
    path_view,
    pending_view,
    shown_paths,
)
from divebook.widgets.variables_and_files import FilesReader, Setters, VariableReader, shorter, within

# --- reconstruction of states from a recording -----------------------------------------------------------------------


Cell: TypeAlias = tuple[str, str]
"""Key of a cell: the part of the state and the name in it, as in ``("variables", "n")``. The name is ``""`` for a part
that is a single cell.
"""
Change: TypeAlias = list[Any]
"""Change of a cell: its part, its name and its new value. The value is omitted if the cell is removed."""
TABLES = ("inputs", "outputs", "variables")


def cells_after(cells: Mapping[Cell, Any], changes: Iterable[Iterable[Change]]) -> dict[Cell, Any]:
    """Apply the changes that further events make to the recorded state of an execution, and return the new state. A
    recorded state is a dictionary of cells: one for each variable, path and so on.

    A cell is one part of a state, such as one variable.
    """
    present = dict(cells)
    for change in (change for event in changes for change in event):
        # ["variables", "n", 3] sets a cell, ["variables", "n"] removes it.
        part, name, *value = change
        if value:
            present[part, name] = value[0]
        else:
            present.pop((part, name), None)
    return present


def merged_changes(changes: Iterable[Iterable[Change]]) -> list[Change]:
    """Merge the changes that several events make to the recorded state of an execution. The result is a shorter list of
    changes that leads to the same state.

    The result also leaves the cells in the same order. If a cell is removed and then set again, both changes remain,
    because the new cell must be at the end.
    """
    # Set n = 1, set n = 2 -> set n = 2. Remove n, set n = 3 -> both. Set n = 1, remove n -> remove n.
    latest: dict[Cell, list[Change]] = {}
    for change in (change for event in changes for change in event):
        part, name, *value = change
        if value:
            # A removal before this change has two parts, a change that sets the cell has three.
            removals = [earlier for earlier in latest.get((part, name), ()) if len(earlier) < len(change)]
            latest[part, name] = [*removals, change]
        else:
            # Removed from the dictionary and added again, so that a later value of the cell stands at the end, as in
            # the state itself.
            latest.pop((part, name), None)
            latest[part, name] = [change]
    return [change for changed in latest.values() for change in changed]


def view_of_cells(sequence: int, cells: Mapping[Cell, Any]) -> StateView:
    """Convert the recorded state of an execution to the form that views show. The recorded state is a dictionary of
    cells, one for each variable, path and so on.
    """
    # Dictionaries keep their order, so that tables and paths have the order of their cells.
    tables = {table: {name: value for (part, name), value in cells.items() if part == table} for table in TABLES}
    return StateView(
        sequence=sequence,
        status=cells["status", ""],
        inputs=tables["inputs"],
        outputs=tables["outputs"],
        variables=tables["variables"],
        paths=[value for (part, _), value in cells.items() if part == "paths"],
        usage=cells["usage", ""],
        pending=[value for (part, _), value in cells.items() if part == "pending"],
        error=cells["error", ""],
    )


class RecordedPositions:
    """Reader of a recording that returns the state after any recorded event, for the replay in a view."""

    def __init__(self, recording: Recording, store: str = "") -> None:
        self._recording = recording
        self._store = store
        # ``changes[n]`` leads from the state before row n to the state after it.
        self._changes = recording["changes"]
        self._sequences = recording["events"]["sequence"]
        self._base = _cells_of_view(recording["base"])

    @property
    def total(self) -> int:
        """Sequence number of the last event in the recording."""
        return self._sequences[-1] if self._sequences else 0

    def event_at(self, sequence: int) -> DetailEvent:
        """Return the event with the number `sequence`. Raises `IndexError` if the recording does not contain it."""
        row = self._row(sequence)
        block = self._recording["events"]
        return DetailEvent(
            sequence=sequence,
            event_type=block["names"][block["type"][row]],
            recorded_us=block["origin_us"] + block["time"][row],
            data=self._recording["data"][row],
        )

    def block(self, after: int = 0, stop: int | None = None) -> EventBlock:
        """Return the recorded events after sequence number `after`, up to and including `stop`."""
        block = self._recording["events"]
        last = self.total if stop is None else stop
        # The numbers ascend, which `_check_sizes` has verified for files.
        rows = slice(bisect_right(self._sequences, after), bisect_right(self._sequences, last))
        return EventBlock(
            first=after + 1,
            sequence=self._sequences[rows],
            origin_us=block["origin_us"],
            names=block["names"],
            time=block["time"][rows],
            type=block["type"][rows],
            path=block["path"][rows],
            step=block["step"][rows],
            text=block["text"][rows],
            kind=block["kind"][rows],
            item=block["item"][rows],
        )

    def said_at(self, sequence: int) -> tuple[int, list[ConversationPart]]:
        """Find the latest model request before or at an event. Return the number of the event that started the request,
        and the messages of the request. Return 0 and no messages if there was no request yet.

        Raises `IndexError` if the recording does not contain the messages.
        """
        spans = self._recording["spans"]
        # `state_at` raises an error for a position that the recording does not have.
        until = self.state_at(sequence)["sequence"]
        kinds = [spans["names"][place] for place in spans["type"]]
        rows = [row for row, kind in enumerate(kinds) if kind in MODEL_CALLS and spans["sequence"][row] <= until]
        if not rows:
            return 0, []
        row = max(rows, key=lambda row: spans["sequence"][row])
        sequence_of_request = spans["sequence"][row]
        request = spans["id"][row]
        for conversation in self._recording["conversations"]:
            if any(entry["id"] == request for entry in conversation["requests"]):
                break
        else:
            raise IndexError(
                f"the messages of event {sequence_of_request:,} are not in the part of the run that the notebook "
                "contains"
            )
        # The first event of the span starts the request. A later one up to `sequence` means that it had ended.
        ended = [number for number in self._recording["members"][row][1:] if number <= sequence]
        return sequence_of_request, parts_up_to(conversation, request, is_answered=bool(ended))

    def why_at(self, sequence: int, name: str) -> NoReturn:
        """Raise `IndexError`: a recording may lack events, so that the causes of a value are unknown."""
        raise IndexError(
            f"the causes of {name} at event {sequence:,} are unknown, because the notebook may not contain the "
            "whole log"
        )

    def welcome(self, view: str) -> Welcome:
        """Return the message with the data of the timeline and the graph that a view shows beside the replay."""
        recording = self._recording
        return Welcome(
            type="welcome",
            view=view,
            feed="",
            since=0,
            last=self.total,
            origin_us=recording["events"]["origin_us"],
            total=recording["total"],
            spans=recording["spans"],
            header=recording["header"],
            failures=recording["failures"],
            questions=recording["questions"],
            graph=recording["graph"],
            streamed=[],
        )

    def _row(self, sequence: int) -> int:
        # Binary search, since the recording of a long run has thousands of rows.
        row = bisect_left(self._sequences, sequence)
        if row < len(self._sequences) and self._sequences[row] == sequence:
            return row
        where = f"; its log was in {self._store}" if self._store else ""
        count = f"{len(self._sequences):,} events of this run"
        raise IndexError(f"event {sequence:,} is not in the notebook, which contains {count}{where}")

    def state_at(self, sequence: int) -> StateView:
        """Return the state of the run after a recorded event, or before the first one. Raises `IndexError` if the
        recording does not contain the event.
        """
        # The position before the first event has no row, but a state: the base.
        is_before = bool(self._sequences) and sequence == self._sequences[0] - 1
        count = 0 if is_before else self._row(sequence) + 1
        return view_of_cells(sequence, cells_after(self._base, self._changes[:count]))


def _cells_of_view(view: StateView) -> dict[Cell, Any]:
    cells: dict[Cell, Any] = {
        ("status", ""): view["status"],
        ("error", ""): view["error"],
        ("usage", ""): view["usage"],
    }
    tables = {"inputs": view["inputs"], "outputs": view["outputs"], "variables": view["variables"]}
    cells |= {(table, name): value for table, values in tables.items() for name, value in values.items()}
    cells |= {("paths", path["id"]): path for path in view["paths"]}
    return cells | {("pending", question["interrupt_id"]): question for question in view["pending"]}


# --- sampling of a long run ------------------------------------------------------------------------------------------
#
# A notebook keeps a sample of a long run, with all failures and questions. The log is divided into units of events that
# belong together (an item with its calls, a step, a question). The units are ordered so that each prefix is a sample:
# first the events that frame the run, then questions, failures, and all other units spread over the run. `_spread`
# orders the places 0-7 as 0 4 2 6 1 5 3 7, so that the first two cover both halves and the first four all quarters
# (`tests/widgets/test_sample.py`).


T = TypeVar("T")
Unit: TypeAlias = Sequence[int]
"""Sequence numbers of events that a sample includes either all or not at all."""
ALL = "all"
SPARE = 50
"""A sample is complete when fewer than this number of events could still be added."""

FRAMING, QUESTION, FAILURE, OTHER = range(4)
MAX_MEMBERS = 20
"""Maximum number of events of one span in a sample: the first event and the last events. A call may be restarted a
thousand times.
"""
_FRAMING = ("execution_", "signal_", "approval_", "path_failed")
_QUESTION = "interrupt_"
_FAILURE = "_failed"


def members(span: Span) -> list[int]:
    """Return the numbers of the events by which a sample of the log represents a span (step, item or call). These are
    the first event and the newest ones, at most `MAX_MEMBERS` in total.
    """
    sequences = span.sequences
    return [*sequences] if len(sequences) <= MAX_MEMBERS else [*sequences[:1], *sequences[1 - MAX_MEMBERS :]]


@dataclass(frozen=True, slots=True)
class Sample:
    """Selection of events from a long log for a saved notebook.

    The selection is a list of units, ordered so that each beginning of the list is a good sample of the log.
    """

    units: Sequence[tuple[int, Unit]]
    """Units, each with its rank: `FRAMING`, `QUESTION`, `FAILURE` or `OTHER`."""
    total: int
    """Number of events in the log."""

    def cut(self, limit: int, among: Container[int] | None = None) -> list[int]:
        """Select a sample of the log with at most `limit` events. Return the sequence numbers of its events in
        ascending order. If the whole log is not longer than the limit, all events are selected.

        If `among` is given, the result contains only events in `among`, the events of a larger sample.
        """
        if self.total <= limit:
            return [*range(1, self.total + 1)]
        chosen: set[int] = set()
        for _, unit in self.units:
            # The units of a smaller sample must be part of the larger one, from which the recording's data were made.
            if among is not None and not all(number in among for number in unit):
                continue
            # Units can share events, so only the new ones count. A unit that is too large is skipped, since smaller
            # ones may fit.
            new_numbers = [number for number in unit if number not in chosen]
            if len(chosen) + len(new_numbers) <= limit:
                chosen.update(new_numbers)
            elif limit - len(chosen) < SPARE:
                break
        return sorted(chosen)

    def description(self, sequences: Iterable[int]) -> str:
        """Return a text for people about a sample of a log: its number of events, and how many of the failures and
        questions it contains. Return an empty text if it contains all events.
        """
        present = set(sequences)
        if len(present) == self.total:
            return ""
        # A unit counts as included only if all its events are.
        failures, questions = (self._share(rank, present) for rank in (FAILURE, QUESTION))
        sample = f"Sample of {len(present):,} of {self.total:,} events, with"
        if failures == questions == ALL:
            return f"{sample} {ALL} failures and questions"
        return f"{sample} {failures} failures and {questions} questions"

    def _share(self, rank: int, present: set[int]) -> str:
        is_complete = [present.issuperset(unit) for kind, unit in self.units if kind == rank]
        return ALL if all(is_complete) else f"{sum(is_complete):,} of {len(is_complete):,}"


def sample_of(log: Sequence[Event], spans: Sequence[Span]) -> Sample:
    """Split a log into units, which are groups of events that are only useful together, such as the start and the end
    of a call. Order the units by importance, so that samples of any size can be selected from them.
    """
    # The order of the keys is the order of importance.
    units: dict[int, list[Unit]] = {FRAMING: [], QUESTION: [*_questions(log)], FAILURE: [], OTHER: []}
    # The first and the last event show the beginning and the end of the run, whatever their types.
    units[FRAMING] = [[event.sequence] for event in (*log[:1], *log[-1:])]
    kinds = [(event.event_type, event.sequence) for event in log]
    units[FRAMING] += [[sequence] for kind, sequence in kinds if kind.startswith(_FRAMING)]
    failures = {sequence for kind, sequence in kinds if kind.endswith(_FAILURE)}
    for together in _together(spans):
        unit = sorted({number for span in together for number in members(span)})
        failed = any(span.status == FAILED for span in together) or not failures.isdisjoint(unit)
        units[FAILURE if failed else OTHER].append(unit)
    # Within each group, the units are spread over the run, so that a cut at any place leaves an even sample.
    return Sample([(rank, unit) for rank, units_of_rank in units.items() for unit in _spread(units_of_rank)], len(log))


def some_of(spans: Sequence[Span], most: int) -> list[int]:
    """Select at most `most` spans (steps, items and calls) for a timeline, and return their indexes. Steps and failures
    are selected first. The remaining ones are spread evenly over the whole run.

    Spans that belong together, such as an item and its calls, are either all included or not at all.
    """
    if len(spans) <= most:
        return [*range(len(spans))]
    ranked: tuple[list[Sequence[Span]], list[Sequence[Span]]] = [], []
    for unit in _together(spans):
        # ranked[False] has the units with a step or a failure, ranked[True] all others.
        ranked[not any(span.kind == "step" or span.status == FAILED for span in unit)].append(unit)
    places: list[int] = []
    for unit in chain.from_iterable(map(_spread, ranked)):
        # A unit that does not fit is skipped, since a smaller one may fit.
        if len(places) + len(unit) <= most:
            places.extend(span.index for span in unit)
    return sorted(places)


def _questions(log: Iterable[Event]) -> Iterable[Unit]:
    # All events of one question (raised, answered) form a unit.
    sequences: dict[str, list[int]] = {}
    for event in log:
        if event.event_type.startswith(_QUESTION):
            sequences.setdefault(str(getattr(event.data, "interrupt_id", "")), []).append(event.sequence)
    return sequences.values()


def _together(spans: Iterable[Span]) -> Iterator[Sequence[Span]]:
    """Yield groups of spans that belong together: an item with its calls, an agent turn with its calls, any other span
    alone.
    """
    groups: dict[object, list[Span]] = {}
    for span in spans:
        if span.iteration is not None:
            # Calls of an item have the item's number too, so that they have the same key.
            key: object = (span.path, span.step, span.visit, span.iteration)
        else:
            # The key of a turn is its own index, which is the `holder` of its calls. The tuples above cannot be equal
            # to an integer.
            key = span.holder if span.holder >= 0 else span.index
        groups.setdefault(key, []).append(span)
    return iter(groups.values())


def _spread(things: Sequence[T]) -> Iterator[T]:
    """Yield the elements of a sequence in another order, in which each beginning of the result is a sample that is
    spread evenly over the sequence.

    The order is that of the indexes with reversed bits: 0 4 2 6 1 5 3 7.
    """
    # The number of bits that the largest index needs. Reversed numbers beyond the last index are skipped.
    bits = max(len(things) - 1, 0).bit_length()
    places = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits)) if bits else range(len(things))
    return (things[place] for place in places if place < len(things))


MAX_EVENTS = 5000
"""Maximum number of events of a run that is saved completely. Opening a notebook with more events is slow."""
SAMPLED = 2500


class CleanRun:
    """The events and states of a run, read and redacted once, from which recordings of several sizes can be made.

    The redactor first learns the secrets of the selected events and of the variables. From a log with more than `whole`
    events, a sample of `sampled` events is selected.
    """

    def __init__(
        self,
        execution: Run,
        log: Sequence[Event],
        redactor: Redactor,
        *,
        whole: int = MAX_EVENTS,
        sampled: int = SAMPLED,
    ) -> None:
        self._redactor = redactor
        # Times of spans and events are stored relative to the first event.
        self._origin = log[0].recorded_at if log else 0
        # Secrets of inputs and variables first, because they may occur in any later text.
        redactor.learn(shown({**execution.state.inputs, **execution.state.variables}))
        # One `ReadLog` for the sample, the spans and the numbers of the header.
        read = ReadLog.of(log)
        self._sample = sample_of(log, read.shown_spans)
        # Only the selected events are redacted and kept. Smaller recordings select from them again.
        self._selected = self._sample.cut(len(log) if len(log) <= whole else sampled)
        self._rows = {sequence: row for row, sequence in enumerate(self._selected)}
        # Sequence numbers count from 1 without gaps, so that event n is ``log[n - 1]``.
        self._events = [log[sequence - 1] for sequence in self._selected]
        self._data = self._clean_data(self._events)
        labels = EventLabels()
        # Kind and item have no text of a person, a model or a program.
        self._event_labels = [
            label if not label.text else EventLabel(label.kind, label.item, redactor.text(label.text))
            for label in map(labels.of, self._events, self._data)
        ]
        names = ItemNames.of_workflow(execution.workflow)
        self._place_of = names.place_of
        # Copies, because `_labelled` changes them and `read` is shared with the report. A span without its first event
        # has no data for its labels.
        kept_spans = [replace(span) for span in read.shown_spans if span.sequences[0] in self._rows]
        # Conversations first: they need the recorded parameters, which `_labelled` replaces by redacted data.
        self._conversations = [
            redactor.value(conversation)
            for conversation in newest_conversations(kept_spans, MAX_CONVERSATIONS, execution.state.question_id)
        ]
        self._total = len(read.shown_spans)
        self._spans = [self._labelled(span) for span in kept_spans]
        # Failures are computed from all spans, since the sample may lack some.
        clean = {span.index: span for span in kept_spans}
        spans = [clean.get(span.index, span) for span in read.shown_spans]
        # The first list of changes contains every cell of the first state.
        base, *self._changes = self._changes_of(_states(execution.id, log, self._rows))
        self._base = cells_after({}, [base])
        spending = SpendingTracker()
        failing = FailureTracker(names)
        # Numbers of the header count the whole log, not the sample.
        for event in read:
            spending.on_event(event)
        for span in spans:
            spending.take(span)
            failing.take(span)
        self._failures: FailureReport = redactor.value(failing.report(spans))
        read.spreads.count()
        header = with_activity(
            failing.of(spending.of(header_of(execution, badge_of(execution.internals.record)))),
            read.activity,
            read.spreads,
        )
        error = redactor.text(header["error"])
        progress = redactor.value(header["progress"])
        # A saved run has no process, and accepts no commands.
        self._header: Header = {**header, "live": False, "commands": [], "dashboards": []}
        self._header |= {"error": error, "progress": progress}
        questions = execution.state.interrupts.values()
        hidden = hidden_in(execution.workflow)
        self._questions = [
            redactor.value(shown(question_of(question, execution.workflow.name, hidden))) for question in questions
        ]
        self._variables = VariableReader(execution.workflow, redactor).of(execution.state, Setters(log))
        self._workspaces = FilesReader(execution, redactor).of()
        self._graph = redactor.value(graph_of(execution.workflow))

    @property
    def length(self) -> int:
        """Number of events from which recordings of this run are made. For a long run this is a sample of the log."""
        return len(self._selected)

    def recording(self, *, events: int, texts: int) -> Recording:
        """Return a recording of the run with at most `events` events, in which texts are cut to at most `texts`
        characters.
        """
        # A smaller number of events leads to a sample of the present sample.
        sequences = self._sample.cut(events, self._rows) if events < self.length else self._selected
        present = frozenset(sequences)
        rows = [self._rows[sequence] for sequence in sequences]
        spans = [labelled for labelled in self._spans if labelled[0].sequences[0] in present]
        indices = {span.index for span, _ in spans}

        def limited(value: Any) -> Any:
            budget = texts * VALUE_PER_TEXT
            return value if is_short(value, budget) else Budget(budget, texts).shortened(value)

        return Recording(
            header=self._header,
            failures=limited(self._failures),
            # The latest questions are the most useful ones. Their number is limited like that of the events.
            questions=[limited(question) for question in self._questions[-events:]],
            graph=self._graph,
            total=self._total,
            spans=spans_block(spans, self._origin),
            sample=self._sample.description(sequences),
            # Conversations of spans that this sample lacks could not be opened.
            conversations=[
                shortened(conversation, texts) for conversation in self._conversations if conversation["id"] in indices
            ],
            members=[[number for number in members(span) if number in present] for span, _ in spans],
            variables=shorter(self._variables, texts * VALUE_PER_TEXT),
            workspaces=within(self._workspaces, texts * VALUE_PER_TEXT),
            events=block_of(
                [self._events[row] for row in rows],
                [self._event_labels[row] for row in rows],
                self._origin,
                sequences[0],
            ),
            data=[limited(self._data[row]) for row in rows],
            # The base is the state before the first event, position 0.
            base=view_of_cells(0, {cell: limited(value) for cell, value in self._base.items()}),
            changes=[[[*change[:2], *map(limited, change[2:])] for change in event] for event in self._merged(rows)],
        )

    def _merged(self, rows: Sequence[int]) -> Iterator[list[Change]]:
        """Yield one list of state changes for each of the selected events. The list also contains the changes by the
        omitted events before it, so that the state after each selected event is correct.
        """
        # -1 is the row before the first one: its changes up to the first selected row must be merged too.
        for before, row in pairwise([-1, *rows]):
            yield self._changes[row] if row == before + 1 else merged_changes(self._changes[before + 1 : row + 1])

    def _clean_data(self, events: Iterable[Event]) -> list[dict[str, Any]]:
        """Return the data of some events with secrets replaced.

        The redactor learns the secrets of all events before it redacts the first event.
        """
        # A plain copy: redaction must not change the events of the log.
        raw = shown([event.data.to_data() for event in events])
        for data in raw:
            self._redactor.learn({name: data[name] for name in data if name not in MADE_BY_THE_ENGINE})
        under = self._redactor.under
        return [{k: part if k in MADE_BY_THE_ENGINE else under(k, part) for k, part in data.items()} for data in raw]

    def _labelled(self, span: Span) -> tuple[Span, Labels]:
        """Replace the secrets in a span (step, item or call). Return the span with its labels, the short texts that
        views show for it.

        The labels are made from the redacted data of its events.
        """
        item = self._redactor.text(item_name(span, self._place_of))
        data = self._data[self._rows[span.sequences[0]]]
        span.error, span.reason = (text and self._redactor.text(text) for text in (span.error, span.reason))
        span.item = data.get("item")
        span.parameters = data.get("parameters")
        # Only operations have results. The last event is that of the end, unless the operation was still running.
        ended = self._rows.get(span.sequences[-1]) if span.kind == "operation" else None
        result = "" if ended is None else result_preview(span.type, self._data[ended].get("result"))
        return span, labels_of(span, self._place_of)._replace(item=item, result=result)

    # --- states as cells -------------------------------------------------------------------------------------------

    def _changes_of(self, states: Iterable[ExecutionState]) -> Iterator[list[Change]]:
        """Yield the list of changes that leads from each state of a run to the next one. The first list contains the
        complete first state.

        Fields that are the same object as before the event are skipped.
        """
        # Each part of the state as cells by name, as it was after the previous event.
        cells_by_part: dict[str, dict[str, Any]] = {part: {} for part in _MADE_OF}
        before: Iterable[Any] = repeat(cells_by_part)  # unlike any field
        for state in states:
            changes: list[Change] = []
            now = _FIELDS_OF(state)
            # `strict=False`, because the first comparison is with an endless iterator, to which no field is identical.
            differing = {name for name, old, new in zip(_FIELDS, before, now, strict=False) if old is not new}
            before = now
            for part, fields in _MADE_OF.items():
                # A part is made again only if one of its fields is another object. States share unchanged fields.
                if differing.isdisjoint(fields):
                    continue
                cells = cells_by_part[part]
                present = _cells(part, state)
                cells_by_part[part] = present
                changes += [[part, name] for name in cells if name not in present]
                changes += [
                    # Only changed cells are redacted.
                    [part, name, self._clean(part, name, source)]
                    for name, source in present.items()
                    if name not in cells or _differs(part, cells[name], source)
                ]
            yield changes

    def _clean(self, part: str, name: str, source: Any) -> Any:
        text = self._redactor.text
        match part:
            case "status":
                return source
            case "error":
                return text(source)
            case "usage":
                return source.to_dict()
            case "paths":
                return path_view(source, text, self._values)
            case "pending":
                return pending_view(source, text)
        return self._redactor.under(name, shown(source))

    def _values(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._redactor.under(name, shown(value)) for name, value in variables.items()}


"""Number of events in the sample of a longer run."""
MAX_CONVERSATIONS = 20
"""Maximum number of conversations that are saved, the newest conversations."""
VALUE_PER_TEXT = 5
"""Maximum size of a value, as a multiple of the maximum size of a text."""
WHOLE: Mapping[str, Any] = {"status": str, "error": str, "usage": dict[str, int]}
"""Parts of a state that are one cell, with their types. Every state has them."""
PARTS: Mapping[str, Any] = {**WHOLE, **dict.fromkeys(TABLES, Any), "paths": PathView, "pending": PendingView}
"""All parts of a state. The type is that of the part, or of one entry if the part has names."""
_MADE_OF = {part: (part,) for part in (*WHOLE, *TABLES)} | {
    "paths": ("paths", "variables"),
    "pending": ("interrupts",),
}
"""The fields of `ExecutionState` on which each part depends."""
_FIELDS = tuple(sorted({field for fields in _MADE_OF.values() for field in fields}))
_FIELDS_OF = operator.attrgetter(*_FIELDS)
MADE_BY_THE_ENGINE = frozenset(
    ["operation_id", "operation_type", "parameters_hash", "iteration_index", "duration", "usage", "reserved", "visit"]
)
"""Fields of events with ids and numbers, never with text of a person, a model or a program.

They contain no secrets. Not searching them for secrets halves the cost of saving a long run
(`test_saving_a_long_run_makes_few_calls...`).
"""


def _states(execution_id: str, log: Iterable[Event], sequences: Container[int]) -> Iterator[ExecutionState]:
    """Yield states of an execution: first the state before its first event, then the state after each event whose
    number is in `sequences`.
    """
    state = ExecutionState(execution_id)
    yield state
    for event in log:
        state = evolve(state, event)
        if event.sequence in sequences:
            yield state


def _cells(part: str, state: ExecutionState) -> dict[str, Any]:
    """Split one part of an execution's state into cells, and return them by name. The part ``variables``, for example,
    has one cell for each variable. Secrets are not replaced yet.
    """
    match part:
        case "status" | "usage":
            return {"": getattr(state, part)}
        case "error":
            return {"": state.error or ""}
        case "paths":
            return {path.id: path_cell(path, state.variables) for path in shown_paths(state)}
        case "pending":
            return {question.id: question for question in state.pending_interrupts()}
    return dict(sorted(getattr(state, part).items()))


def _differs(part: str, before: Any, now: Any) -> bool:
    # Recorded values never change, and comparing large tables is slow. Small parts are compared by value, since their
    # cells are new objects each time.
    return before is not now if part in TABLES else bool(before != now)


# --- packing and unpacking of recordings -----------------------------------------------------------------------------
#
# A notebook may come from an untrusted sender. Unpacking checks all types and sizes before it uses anything, imports
# nothing, and creates only plain data.


MIME = "application/vnd.divebook.run+json"
FORMAT = 2
"""Format number of a recording that is a sample."""
WHOLE_FORMAT = 1
"""Format number of a complete recording. Older versions of divebook, which know no samples, can read it."""
MAX_BYTES = 256_000
"""Maximum size in bytes of the data of one run in a notebook."""
MAX_UNPACKED = 32_000_000
TEXTS = (20_000, 2_000, 300)
"""Maximum sizes of texts, tried one after the other until the recording fits. If none fits, the number of events is
reduced.
"""
LEAST_EVENTS = 10
MAX_FIRST = 5_000_000
"""Largest valid sequence number in a recording."""
NAME = 200


def saved_run(
    execution: Run,
    log: Sequence[Event] | None = None,
    known_secrets: Iterable[str] = (),
    *,
    next_step: str = "",
    max_bytes: int = MAX_BYTES,
) -> PackedRun:
    """Return the data of a run, at most `max_bytes`, that a notebook stores for a replay without kernel and store.

    Secrets are removed by `divebook.text.redaction`. If the data is too large, it is reduced in this order: long texts
    are cut (to 20,000, 2,000, then 300 characters), then only a sample of the events is stored, then only the ids and
    the URL of the store.
    """
    # A fresh redactor: what is saved must not depend on which other runs this process has shown.
    redactor = shared().fresh(known_secrets)
    events = execution.history() if log is None else log
    # The data without a recording are the result if no size fits.
    saved = without_recording(execution, redactor, next_step)
    run = CleanRun(execution, events, redactor)
    before = None
    for texts, count in attempts(run.length):
        recording = run.recording(events=count, texts=texts)
        if recording == before:  # no text was so long: what was too large still is
            continue
        packed = pack(recording)
        before = recording
        # The other fields are short. Five texts of `NAME` characters are reserved for them.
        if packed is not None and len(packed) + NAME * 5 <= max_bytes:
            # Versions that know no samples refuse the newer format number instead of showing a wrong run.
            form = FORMAT if recording["sample"] else WHOLE_FORMAT
            first = recording["events"]["first"]
            return {**saved, "format": form, "first": first, "texts": texts, "recording": packed}
    return saved


def attempts(events: int, texts: Sequence[int] = TEXTS) -> Iterator[tuple[int, int]]:
    """Yield the limits with which a caller tries one after the other to make a recording, until the result is small
    enough. Each is a pair: the maximum length of a text, and the maximum number of events.
    """
    # First shorter texts with all events, then half of the events, a quarter, and so on.
    for longest in texts:
        yield longest, events
    while events > LEAST_EVENTS:
        events //= 2
        yield texts[-1], events


def without_recording(execution: Run, redactor: Redactor, next_step: str) -> PackedRun:
    """Return the data of a run that a notebook stores, with an empty recording: only id, workflow, status and store."""
    return PackedRun(
        format=WHOLE_FORMAT,
        execution_id=execution.id,
        workflow=one_line(redactor.text(execution.workflow.name), NAME),
        status=execution.status,
        store=one_line(redactor.text(execution.store.location), 2 * NAME),
        next=next_step,
        total=execution.state.last_sequence,
        first=0,
        texts=0,
        recording="",
    )


def pack(recording: Recording) -> str | None:
    """Return a recording as compressed text; None if it is so large that `unpack` would refuse it."""
    # NaN is not valid JSON, and browsers refuse it.
    raw = json.dumps(recording, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    return None if len(raw) > MAX_UNPACKED else base64.b64encode(zlib.compress(raw, 7)).decode("ascii")


# --- from a notebook -----------------------------------------------------------------------------------------------


def read_saved(data: Any) -> tuple[PackedRun, Recording]:
    """Validate the data of a run that was read from a notebook. Return it, and the unpacked recording that it contains.

    Raises
    ------
    SavedRunError
        It is damaged, made by hand, from a newer divebook, or has no recording.
    """
    saved = checked_run(data)
    if not saved["recording"]:
        where = one_line(saved["store"], 2 * NAME)
        raise SavedRunError(f"run {saved['execution_id'][:60]} was too large to be saved; its log is in {where}")
    return saved, checked_recording(unpack(saved["recording"]))


def checked_run(data: Any) -> PackedRun:
    """Validate the data of a run that was read from a notebook, except the packed recording in it. Raises
    `SavedRunError`.
    """
    # Checked before everything else, so that the error of a newer file is not about a missing field.
    if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise SavedRunError(
            f"the data of the run has format {data['format']}, but this version of divebook reads format {FORMAT}; "
            "upgrade divebook"
        )
    saved = cast("PackedRun", checked(data, PackedRun))
    return {**saved, "status": present_status(saved["status"])}


def checked_recording(data: Any) -> Recording:
    """Convert an unpacked recording, if it is from an older version, to the current format, and validate it. Raises
    `SavedRunError`.
    """
    recording = cast("Recording", checked(_upgraded(data), Recording))
    _check_sizes(recording)
    return recording


def unpack(text: str) -> Any:
    """Return the data that `pack` compressed, without validating it. Raises `SavedRunError` if it is damaged or too
    large.
    """
    try:
        engine = zlib.decompressobj()
        raw = engine.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED)
        # Limited before it is parsed: a small text can unpack to gigabytes. ``eof`` is False if the end is missing.
        if engine.unconsumed_tail or not engine.eof:
            raise SavedRunError(f"the data of the run is incomplete, or larger than {size(MAX_UNPACKED)} when unpacked")
        return json.loads(raw)
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise SavedRunError(f"the data of the run cannot be unpacked: {error}") from None


DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "Recording": {
        "conversations": [],
        "variables": [],
        "workspaces": [],
        "failures": {"total": 0, "kept": "", "shown": []},
        "sample": "",
    },
    "Header": {
        "badge": "",
        "waits": "",
        "workspaces": 0,
        "tool_calls": 0,
        "spenders": [],
        "failed": 0,
        "ways": [],
        "dashboards": [],
        "doing": "stopped",
        "since_us": None,
        "worked_us": 0,
        "waited_us": 0,
        "paused_us": 0,
        "stretches": [],
        "progress": [],
    },
    "StepProgress": {"spread": [], "failed_open": 0},
    "FailureView": {"means": ""},
    "WorkspaceView": {"left_out": [], "points": []},
    "FileView": {"protected": False},
    "QuestionView": {
        "data": {},
        "schema": None,
        "expires_us": None,
        "required": True,
        "answered_us": None,
        "fallback": "",
        "alike": "",
    },
    "Conversation": {"type": "conversation", "view": ""},
}
"""Fields that recordings of older versions lack, with their values, by type. ``widgets/src/checks.ts`` has them too."""


def _upgraded(data: Any) -> Any:
    """Convert a recording from an older version of divebook to the current format. The data is not validated yet.

    Each missing field gets its default (`DEFAULTS`), or a value that is computed from other fields.
    """
    # The values of older files are not trusted: each level is checked before it is changed.
    if isinstance(data, dict):
        _number_events(data)
        spans = data.get("spans")
        if isinstance(spans, dict) and isinstance(spans.get("id"), list):
            # A column that is missing is filled with the index of the empty text, 0, or with -1 for "no turn".
            spans.setdefault("within", [-1] * len(spans["id"]))
            for name in ("item", "given", "came"):
                spans.setdefault(name, [0] * len(spans["id"]))
        events = data.get("events")
        if isinstance(events, dict) and isinstance(events.get("type"), list):
            for name in ("kind", "item"):
                events.setdefault(name, [0] * len(events["type"]))
        questions = data.get("questions")
        for question in questions if isinstance(questions, list) else ():
            if isinstance(question, dict):
                _upgrade_question(question)
        _rename_statuses(data)
        _rename_event_types(events)
    _add_defaults(data, Recording)
    return data


def _rename_statuses(data: dict[str, Any]) -> None:
    """Replace the former name of a status at the end of a run, in the header and in the states."""
    header = data.get("header")
    if not isinstance(header, dict):
        return
    former = header.get("status")
    # Only final statuses were renamed, so that the header tells whether any state has a former name. The other
    # recordings, which are nearly all, are not searched.
    if not isinstance(former, str) or former not in RENAMED_STATUSES:
        return
    status = present_status(former)
    header["status"] = status
    base = data.get("base")
    if isinstance(base, dict) and base.get("status") == former:
        base["status"] = status
    rows = data.get("changes")
    for changes in rows if isinstance(rows, list) else ():
        # A change of the status is ["status", "", "picture"].
        if isinstance(changes, list):
            changes[:] = [["status", "", status] if change == ["status", "", former] else change for change in changes]


def _rename_event_types(events: Any) -> None:
    """Replace the former names of event types in the columns of a recording's events."""
    names = events.get("names") if isinstance(events, dict) else None
    types = events.get("type") if isinstance(events, dict) else None
    if not isinstance(names, list) or not isinstance(types, list):
        return
    # A step may have the same name, so the present name is added to the list, and only the types refer to it.
    for former, present in RENAMED_TYPES.items():
        if former in names:
            place = names.index(former)
            events["type"] = types = [len(names) if number == place else number for number in types]
            names.append(present)


def _add_defaults(data: Any, kind: Any) -> None:
    """Add the defaults of missing fields to data of the type `kind`, and to all data inside it."""
    # Only TypedDicts have defaults, so that long lists of numbers and texts are not walked through. Data that does not
    # have its type is left as it is: `checked` refuses it afterwards.
    inner = get_args(kind)
    if get_origin(kind) is list and isinstance(data, list) and is_typeddict(inner[0]):
        for part in data:
            _add_defaults(part, inner[0])
    elif is_typeddict(kind) and isinstance(data, dict):
        for name, value in DEFAULTS.get(kind.__name__, {}).items():
            if name not in data:
                data[name] = deepcopy(value)
        for name, field in get_type_hints(kind).items():
            _add_defaults(data.get(name), field)


def _upgrade_question(question: dict[str, Any]) -> None:
    if question.get("status") == "completed":
        question["status"] = InterruptStatus.RESOLVED.value
    if "became" not in question:
        question["became"] = cut(became(str(question.get("status")), question.get("response")), MAX_ANSWER)


def _number_events(data: dict[str, Any]) -> None:
    """Add sequence numbers to the events of a recording from an older version of divebook, which stored only the number
    of the first event. The numbers of the other events follow without gaps.
    """
    events = data.get("events")
    if not isinstance(events, dict) or "sequence" in events:
        return
    first = events.get("first")
    kinds = events.get("type")
    if isinstance(first, int) and isinstance(kinds, list) and first <= MAX_FIRST:
        events["sequence"] = [*range(first, first + len(kinds))]
        sample = f"The last {len(kinds):,} of {first - 1 + len(kinds):,} events"
        data.setdefault("sample", sample if first > 1 else "")


def _check_sizes(recording: Recording) -> None:
    """Raise `SavedRunError` unless all columns of a recording have equal lengths, and all indexes and sequence numbers
    are valid.
    """
    spans = recording["spans"]
    events = recording["events"]
    count = len(spans["id"])
    rows = len(events["type"])
    lengths = {len(cast("Any", spans)[name]) == count for name in (*SPAN_TEXTS, *SPAN_NUMBERS)}
    lengths |= {len(cast("Any", events)[name]) == rows for name in (*EVENT_TEXTS, *EVENT_NUMBERS)}
    lengths |= {len(recording["members"]) == count, len(recording["data"]) == rows == len(recording["changes"])}
    if lengths != {True}:
        raise SavedRunError("the columns in the data of the run have different lengths")
    # These columns contain indexes into `names`. An index beyond the end would fail later, while a page is shown.
    places = (place for name in SPAN_TEXTS for place in cast("Any", spans)[name])
    is_sound = all(0 <= place < len(spans["names"]) for place in places)
    places_in_events = (place for name in EVENT_TEXTS for place in cast("Any", events)[name])
    is_sound &= all(0 <= place < len(events["names"]) for place in places_in_events)
    # Numbers ascend and stay below the limit, which `bisect` relies on.
    is_sound &= all(0 < one < other for one, other in pairwise([*events["sequence"], MAX_FIRST]))
    is_sound &= all(0 <= one < other for one, other in pairwise([*spans["id"], recording["total"]]))
    if not is_sound:
        raise SavedRunError("parts of the data of the run contradict each other")
    for change in (change for event in recording["changes"] for change in event):
        _check_change(change)


def _check_change(change: list[Any]) -> None:
    """Raise `SavedRunError` if a recorded change of the state is invalid: it changes a part that a state cannot have,
    or removes a part that every state must have.
    """
    # Two parts remove a cell, three set it.
    if len(change) not in (2, 3) or not all(isinstance(part, str) for part in change[:2]):
        raise SavedRunError("a state change in the data of the run has the wrong form")
    (part, name) = change[:2]
    value = change[2:]
    if part in WHOLE and (name or not value):
        raise SavedRunError(f"a state change in the data of the run removes {part}, which every state must have")
    kind = PARTS.get(part)
    if kind is None:
        raise SavedRunError(
            f"a state change in the data of the run has the part {one_line(part, 40)!r}, which states do not have"
        )
    for new in value:
        checked(new, kind)
