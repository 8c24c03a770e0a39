"""A run as it is saved in a notebook: a sample of its events, and each state as a difference to the one before.

A state is taken apart into cells (one for each variable, output, path, question, and one for each other part), so that
an event costs no more than what it changed. `divebook.widgets.recording` puts them together
again, as ``widgets/src/lab`` does in the browser. Which events are kept says `divebook.widgets.recording`.
Everything passes the redactor before it is cut, so that no half of a secret is left.
"""

from __future__ import annotations

import base64
import binascii
import json
import operator
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, repeat
from typing import Any, TypeAlias, TypeVar, cast

from divebook.engine.evolve import evolve
from divebook.engine.state import ExecutionState
from divebook.errors import SavedRunError
from divebook.events import Event
from divebook.events.catalog import FAILED
from divebook.projections.failures import ItemNames
from divebook.projections.spans import Span, item_name
from divebook.projections.summary import ReadLog
from divebook.questions import InterruptStatus
from divebook.questions.question import became
from divebook.replay.replayer import MODEL_CALLS
from divebook.runtime.execution import Execution
from divebook.text.format import size
from divebook.text.redaction import Redactor, cut, one_line, shared
from divebook.widgets.checking import checked
from divebook.widgets.parts import Failing, newest_conversations, said_up_to, shortened
from divebook.widgets.protocol import (
    ConversationPart,
    DetailEvent,
    EventBlock,
    FailureReport,
    Header,
    PackedRun,
    PathView,
    PendingView,
    Recording,
    SpanBlock,
    StateView,
    Welcome,
)
from divebook.widgets.source import (
    MAX_ANSWER,
    Budget,
    Labels,
    Spending,
    came_of,
    graph_of,
    header_of,
    is_short,
    labels_of,
    paced,
    question_of,
    shown,
)
from divebook.widgets.source import block_of as spans_block
from divebook.widgets.stepping import block_of, path_cell, path_view, pending_view, shown_paths, summary_of
from divebook.widgets.variables_and_files import FilesReader, Setters, VariableReader, shorter, within
from divebook.workflow.definition import hidden_in

# A recording put together again: the state after each of its events, as `positions` has it of a log.


Cell: TypeAlias = tuple[str, str]
"""A part of a state, and a name in it: ``("variables", "n")``; parts that are whole have the name ``""``."""
Change: TypeAlias = list[Any]
"""A part, a name and the value that is there now; without a value the cell is gone."""
TABLES = ("inputs", "outputs", "variables")


def applied(cells: Mapping[Cell, Any], changes: Iterable[Iterable[Change]]) -> dict[Cell, Any]:
    """Return cells once some events have changed them."""
    present = dict(cells)
    for change in (change for event in changes for change in event):
        part, name, *value = change
        if value:
            present[part, name] = value[0]
        else:
            present.pop((part, name), None)
    return present


def merged(changes: Iterable[Iterable[Change]]) -> list[Change]:
    """Return as one what several events changed, in an order that leaves the same cells in the same order."""
    latest: dict[Cell, list[Change]] = {}
    for change in (change for event in changes for change in event):
        part, name, *value = change
        if value:
            gone = [known for known in latest.get((part, name), ()) if len(known) < len(change)]
            latest[part, name] = [*gone, change]
        else:
            latest.pop((part, name), None)
            latest[part, name] = [change]
    return [change for changed in latest.values() for change in changed]


def view_of_cells(sequence: int, cells: Mapping[Cell, Any]) -> StateView:
    """Return the state that cells make."""
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
    """Answers what was so at each position of a recording, as `divebook.widgets.stepping.SteppedLog` does of a log."""

    def __init__(self, recording: Recording, store: str = "") -> None:
        self._recording = recording
        self._store = store
        self._changes = recording["changes"]
        self._sequences = recording["events"]["sequence"]
        self._base = _taken_apart(recording["base"])

    @property
    def total(self) -> int:
        """Sequence number of the last event that is here."""
        return self._sequences[-1] if self._sequences else 0

    def event_at(self, sequence: int) -> DetailEvent:
        """Return one event. Raises `IndexError`."""
        row = self._row(sequence)
        block = self._recording["events"]
        return DetailEvent(
            sequence=sequence,
            event_type=block["names"][block["type"][row]],
            recorded_us=block["origin_us"] + block["time"][row],
            data=self._recording["data"][row],
        )

    def block(self, after: int = 0, stop: int | None = None) -> EventBlock:
        """Return the events that follow `after`, up to and with `stop`, as far as they are here."""
        block = self._recording["events"]
        last = self.total if stop is None else stop
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
        )

    def said_at(self, sequence: int) -> tuple[int, list[ConversationPart]]:
        """Return what the model asked last was sent and had answered by then, after the event that asked it.

        Raises `IndexError` where the notebook does not hold it.
        """
        spans = self._recording["spans"]
        until = self.state_at(sequence)["sequence"]
        kinds = [spans["names"][place] for place in spans["type"]]
        begun = [row for row, kind in enumerate(kinds) if kind in MODEL_CALLS and spans["sequence"][row] <= until]
        if not begun:
            return 0, []
        row = max(begun, key=lambda row: spans["sequence"][row])
        asked = spans["sequence"][row]
        request = spans["id"][row]
        said = next(
            (one for one in self._recording["conversations"] if any(r["id"] == request for r in one["requests"])), None
        )
        if said is None:
            raise IndexError(f"what was said with event {asked:,} is not among what the notebook holds of this run")
        ended = [number for number in self._recording["members"][row][1:] if number <= sequence]
        return asked, said_up_to(said, request, is_answered=bool(ended))

    def welcome(self, view: str) -> Welcome:
        """Return what the timeline and the graph beside a replay show of it."""
        recording = self._recording
        return Welcome(
            type="welcome",
            view=view,
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
        row = bisect_left(self._sequences, sequence)
        if row < len(self._sequences) and self._sequences[row] == sequence:
            return row
        where = f"; its log was in {self._store}" if self._store else ""
        held = f"{len(self._sequences):,} events of this run that the notebook holds"
        raise IndexError(f"event {sequence:,} is none of the {held}{where}")

    def state_at(self, sequence: int) -> StateView:
        """Return the state after an event that is here, or before the first one. Raises `IndexError`."""
        is_before = bool(self._sequences) and sequence == self._sequences[0] - 1
        count = 0 if is_before else self._row(sequence) + 1
        return view_of_cells(sequence, applied(self._base, self._changes[:count]))


def _taken_apart(view: StateView) -> dict[Cell, Any]:
    cells: dict[Cell, Any] = {
        ("status", ""): view["status"],
        ("error", ""): view["error"],
        ("usage", ""): view["usage"],
    }
    tables = {"inputs": view["inputs"], "outputs": view["outputs"], "variables": view["variables"]}
    cells |= {(table, name): value for table, values in tables.items() for name, value in values.items()}
    cells |= {("paths", path["id"]): path for path in view["paths"]}
    return cells | {("pending", asked["interrupt_id"]): asked for asked in view["pending"]}


# Which events of a long run a notebook keeps: a sample of the whole run, with all failures and questions.
#
# The log is taken apart into units that belong together (an item with its calls, a step, a question). They are put into
# an order of which each beginning is a sample: what frames the run, questions and failures first, then all others
# spread over the run (`tests/widgets/test_sample.py`).


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
_QUESTION = "interrupt_"
_FAILURE = "_failed"


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


MAX_EVENTS, SAMPLED = 5000, 2500
"""Runs of more events than the first are saved as a sample of the second: more makes opening a notebook slow."""
MAX_CONVERSATIONS = 20
"""Turns and single requests whose messages are saved, the newest."""
VALUE_PER_TEXT = 5
"""How much longer than one text a value may be in all."""
WHOLE: Mapping[str, Any] = {"status": str, "error": str, "usage": dict[str, int]}
"""Parts that every state has, with what they are."""
PARTS: Mapping[str, Any] = {**WHOLE, **dict.fromkeys(TABLES, Any), "paths": PathView, "pending": PendingView}
"""All parts of states, with what they, or what stands in them under a name, are."""
_MADE_OF = {part: (part,) for part in (*WHOLE, *TABLES)} | {
    "paths": ("paths", "variables"),
    "pending": ("interrupts",),
}
"""The fields of a state that each part shows."""
_FIELDS = tuple(sorted({field for fields in _MADE_OF.values() for field in fields}))
_FIELDS_OF = operator.attrgetter(*_FIELDS)
MADE_BY_THE_ENGINE = frozenset(
    ["operation_id", "operation_type", "parameters_hash", "iteration_index", "duration", "usage", "reserved", "visit"]
)
"""Fields of events with ids and numbers, never with what a person, a model or a program said: no secret is there, and
not to look there halves what saving a long run costs (`test_saving_a_long_run_makes_few_calls...`)."""


class CleanRun:
    """A run, read and cleaned of secrets once, of which recordings of several sizes are cut.

    The redactor learns the secrets of the kept events, and of its variables, first. Of a log of more than `whole`
    events a sample of `sampled` is kept.
    """

    def __init__(
        self,
        execution: Execution,
        log: Sequence[Event],
        redactor: Redactor,
        *,
        whole: int = MAX_EVENTS,
        sampled: int = SAMPLED,
    ) -> None:
        self._redactor = redactor
        self._origin = log[0].recorded_at if log else 0
        redactor.learn(shown({**execution.state.inputs, **execution.state.variables}))
        read = ReadLog.of(log)
        self._sample = sample_of(log, read.shown_spans)
        self._kept = self._sample.cut(len(log) if len(log) <= whole else sampled)
        self._rows = {sequence: row for row, sequence in enumerate(self._kept)}
        self._events = [log[sequence - 1] for sequence in self._kept]
        self._data = self._clean_data(self._events)
        self._texts = [redactor.text(summary_of(event)) for event in self._events]
        names = ItemNames.of_workflow(execution.workflow)
        self._place_of = names.place_of
        kept_spans = [replace(span) for span in read.shown_spans if span.sequences[0] in self._rows]
        self._conversations = [
            redactor.value(said)
            for said in newest_conversations(kept_spans, MAX_CONVERSATIONS, execution.state.question_id)
        ]
        self._total = len(read.shown_spans)
        self._spans = [self._labelled(span) for span in kept_spans]
        clean = {span.index: span for span in kept_spans}
        spans = [clean.get(span.index, span) for span in read.shown_spans]
        base, *self._changes = self._changes_of(_states(execution.id, log, self._rows))
        self._base = applied({}, [base])
        spending = Spending()
        failing = Failing(names)
        for event in read:
            spending.hear(event)
        for span in spans:
            spending.take(span)
            failing.take(span)
        self._failures: FailureReport = redactor.value(failing.report(spans))
        read.spreads.count()
        header = paced(failing.of(spending.of(header_of(execution))), read.activity, read.spreads)
        error = redactor.text(header["error"])
        progress = redactor.value(header["progress"])
        self._header: Header = {**header, "live": False, "commands": [], "dashboards": []}
        self._header |= {"error": error, "progress": progress}
        asked = execution.state.interrupts.values()
        hidden = hidden_in(execution.workflow)
        self._questions = [redactor.value(shown(question_of(question, hidden))) for question in asked]
        self._variables = VariableReader(execution.workflow, redactor).of(execution.state, Setters(log))
        self._workspaces = FilesReader(execution, redactor).of()
        self._graph = redactor.value(graph_of(execution.workflow))

    @property
    def length(self) -> int:
        """How many events it has."""
        return len(self._kept)

    def recording(self, *, events: int, texts: int) -> Recording:
        """Return a sample of at most so many `events`, with texts of at most `texts` characters."""
        kept = self._sample.cut(events, self._rows) if events < self.length else self._kept
        present = frozenset(kept)
        rows = [self._rows[sequence] for sequence in kept]
        spans = [found for found in self._spans if found[0].sequences[0] in present]
        indices = {span.index for span, _ in spans}

        def limited(value: Any) -> Any:
            budget = texts * VALUE_PER_TEXT
            return value if is_short(value, budget) else Budget(budget, texts).shortened(value)

        return Recording(
            header=self._header,
            failures=limited(self._failures),
            questions=[limited(asked) for asked in self._questions[-events:]],
            graph=self._graph,
            total=self._total,
            spans=spans_block(spans, self._origin),
            sample=self._sample.said(kept),
            conversations=[shortened(said, texts) for said in self._conversations if said["id"] in indices],
            members=[[number for number in members(span) if number in present] for span, _ in spans],
            variables=shorter(self._variables, texts * VALUE_PER_TEXT),
            workspaces=within(self._workspaces, texts * VALUE_PER_TEXT),
            events=block_of(
                [self._events[row] for row in rows], [self._texts[row] for row in rows], self._origin, kept[0]
            ),
            data=[limited(self._data[row]) for row in rows],
            base=view_of_cells(0, {cell: limited(value) for cell, value in self._base.items()}),
            changes=[[[*told[:2], *map(limited, told[2:])] for told in event] for event in self._merged(rows)],
        )

    def _merged(self, rows: Sequence[int]) -> Iterator[list[Change]]:
        """Yield what changed from one of these events to the next."""
        for before, row in pairwise([-1, *rows]):
            yield self._changes[row] if row == before + 1 else merged(self._changes[before + 1 : row + 1])

    def _clean_data(self, events: Iterable[Event]) -> list[dict[str, Any]]:
        """Return what events hold, without secrets: those of all of them are known before the first is cleaned."""
        raw = shown([event.data.to_data() for event in events])
        for data in raw:
            self._redactor.learn({name: data[name] for name in data if name not in MADE_BY_THE_ENGINE})
        under = self._redactor.under
        return [{k: part if k in MADE_BY_THE_ENGINE else under(k, part) for k, part in data.items()} for data in raw]

    def _labelled(self, span: Span) -> tuple[Span, Labels]:
        """Take the secrets out of a span, and return its names too; what its first event holds is clean already."""
        item = self._redactor.text(item_name(span, self._place_of))
        data = self._data[self._rows[span.sequences[0]]]
        span.error, span.reason = (text and self._redactor.text(text) for text in (span.error, span.reason))
        span.item, span.parameters = data.get("item"), data.get("parameters")
        ended = self._rows.get(span.sequences[-1]) if span.kind == "operation" else None
        came = "" if ended is None else came_of(span.type, self._data[ended].get("result"))
        return span, labels_of(span, self._place_of)._replace(item=item, came=came)

    # --- states as cells -------------------------------------------------------------------------------------------

    def _changes_of(self, states: Iterable[ExecutionState]) -> Iterator[list[Change]]:
        """Yield the whole first state, and what each event changed; parts that are the same objects are passed over."""
        known: dict[str, dict[str, Any]] = {part: {} for part in _MADE_OF}
        before: Iterable[Any] = repeat(known)  # unlike any field
        for state in states:
            changes: list[Change] = []
            now = _FIELDS_OF(state)
            differing = {name for name, old, new in zip(_FIELDS, before, now, strict=False) if old is not new}
            before = now
            for part, fields in _MADE_OF.items():
                if differing.isdisjoint(fields):
                    continue
                cells = known[part]
                present = _cells(part, state)
                known[part] = present
                changes += [[part, name] for name in cells if name not in present]
                changes += [
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


def _states(execution_id: str, log: Iterable[Event], kept: Container[int]) -> Iterator[ExecutionState]:
    """Yield the state before the first event, and after each of the kept ones."""
    state = ExecutionState(execution_id)
    yield state
    for event in log:
        state = evolve(state, event)
        if event.sequence in kept:
            yield state


def _cells(part: str, state: ExecutionState) -> dict[str, Any]:
    """Return the cells of one part with what they are made of, secrets and all."""
    match part:
        case "status" | "usage":
            return {"": getattr(state, part)}
        case "error":
            return {"": state.error or ""}
        case "paths":
            return {path.id: path_cell(path, state.variables) for path in shown_paths(state)}
        case "pending":
            return {asked.interrupt_id: asked for asked in state.pending_interrupts()}
    return dict(sorted(getattr(state, part).items()))


def _differs(part: str, before: Any, now: Any) -> bool:
    return before is not now if part in TABLES else bool(before != now)


# Recordings as a saved notebook holds them: packed within a size, and unpacked with nothing taken on trust.
#
# What is in a notebook was written by its sender: unpacking checks every type and size before anything is used, imports
# nothing, and makes nothing but plain data.


MIME = "application/vnd.divebook.run+json"
FORMAT, WHOLE_FORMAT = 2, 1
"""Of a sample, and of a whole run, which divebooks read that knew no samples."""
MAX_BYTES = 256_000
"""What one run may add to a notebook."""
MAX_UNPACKED = 32_000_000
TEXTS = (20_000, 2_000, 300)
"""Longest texts, tried one after the other until it fits; after the last one the sample becomes smaller."""
LEAST_EVENTS = 10
MAX_FIRST = 5_000_000
"""Larger numbers of events are not believed."""
NAME = 200


def saved_run(
    execution: Execution,
    log: Sequence[Event] | None = None,
    known_secrets: Iterable[str] = (),
    *,
    next_step: str = "",
    max_bytes: int = MAX_BYTES,
) -> PackedRun:
    """Return a run as a notebook holds it: as much as fits into `max_bytes`.

    Secrets are left out as `divebook.text.redaction` says. What does not fit is cut in this order: long texts
    (to 20,000, 2,000, then 300 characters), then events of which a sample is left, then everything but ids and the
    store's path.
    """
    redactor = shared().fresh(known_secrets)
    events = execution.history() if log is None else log
    saved = without_recording(execution, redactor, next_step)
    run = CleanRun(execution, events, redactor)
    before = None
    for texts, count in attempts(run.length):
        recording = run.recording(events=count, texts=texts)
        if recording == before:  # no text was so long: what was too large still is
            continue
        packed = pack(recording)
        before = recording
        if packed is not None and len(packed) + NAME * 5 <= max_bytes:
            form = FORMAT if recording["sample"] else WHOLE_FORMAT
            first = recording["events"]["first"]
            return {**saved, "format": form, "first": first, "texts": texts, "recording": packed}
    return saved


def attempts(events: int, texts: Sequence[int] = TEXTS) -> Iterator[tuple[int, int]]:
    """Yield the longest texts and the number of events to try one after the other, until a recording fits."""
    for longest in texts:
        yield longest, events
    while events > LEAST_EVENTS:
        events //= 2
        yield texts[-1], events


def without_recording(execution: Execution, redactor: Redactor, next_step: str) -> PackedRun:
    """Return what is known of a run without its recording."""
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
    """Return a recording as text; None if it is larger than what anybody unpacks."""
    raw = json.dumps(recording, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    return None if len(raw) > MAX_UNPACKED else base64.b64encode(zlib.compress(raw, 7)).decode("ascii")


# --- from a notebook -----------------------------------------------------------------------------------------------


def read_saved(data: Any) -> tuple[PackedRun, Recording]:
    """Return a run that a notebook holds, checked.

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
    """Return what a file says of a run, its recording as it is; raises SavedRunError."""
    if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise SavedRunError(f"it has format {data['format']}, this divebook reads {FORMAT}; upgrade divebook")
    return cast("PackedRun", checked(data, PackedRun))


def checked_recording(data: Any) -> Recording:
    """Return plain data as the recording that it is; raises SavedRunError."""
    recording = cast("Recording", checked(_in_present_words(data), Recording))
    _check_sizes(recording)
    return recording


def unpack(text: str) -> Any:
    """Return what `pack` packed, unchecked plain data; raises SavedRunError."""
    try:
        engine = zlib.decompressobj()
        raw = engine.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED)
        if engine.unconsumed_tail or not engine.eof:
            raise SavedRunError(f"its data is cut off, or more than {size(MAX_UNPACKED)} when unpacked")
        return json.loads(raw)
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise SavedRunError(f"its data cannot be unpacked: {error}") from None


_UNTIMED: dict[str, Any] = {
    "doing": "stopped",
    "since_us": None,
    "worked_us": 0,
    "waited_us": 0,
    "paused_us": 0,
    "stretches": [],
    "progress": [],
}
"""What headers of older recordings do not say of the course of a run."""


def _in_present_words(data: Any) -> Any:
    """Return a recording, unchecked, in today's words: a question with an answer was ``completed`` in older ones.

    They did not say either which signals a run waits for, or when questions were settled, what the rows of steps gave,
    and knew of no agents with tools.
    """
    if isinstance(data, dict) and isinstance(data.get("header"), dict):
        data["header"] = {
            "waits": "",
            "workspaces": 0,
            "tool_calls": 0,
            "spenders": [],
            "failed": 0,
            "ways": [],
            "dashboards": [],
            **_UNTIMED,
            **data["header"],
        }
        _spread_nothing(data["header"]["progress"])
    if isinstance(data, dict):
        data.setdefault("conversations", [])
        data.setdefault("variables", [])
        data.setdefault("workspaces", [])
        for workspace in data["workspaces"] if isinstance(data["workspaces"], list) else ():
            if isinstance(workspace, dict):
                workspace.setdefault("left_out", [])
                workspace.setdefault("points", [])
        data.setdefault("failures", {"total": 0, "kept": "", "shown": []})
        _explain(data["failures"])
        _name_events(data)
        spans = data.get("spans")
        if isinstance(spans, dict) and isinstance(spans.get("id"), list):
            spans.setdefault("within", [-1] * len(spans["id"]))
            for name in ("item", "given", "came"):
                spans.setdefault(name, [0] * len(spans["id"]))
    questions = data.get("questions") if isinstance(data, dict) else None
    for asked in questions if isinstance(questions, list) else ():
        if isinstance(asked, dict):
            _put_into_words(asked)
    return data


def _spread_nothing(progress: Any) -> None:
    """Let steps of older recordings say nothing of what their rows gave."""
    for told in progress if isinstance(progress, list) else ():
        if isinstance(told, dict):
            told.setdefault("spread", [])


def _explain(failures: Any) -> None:
    """Let failures of older recordings say nothing of what they mean."""
    shown = failures.get("shown") if isinstance(failures, dict) else None
    for failure in shown if isinstance(shown, list) else ():
        if isinstance(failure, dict):
            failure.setdefault("means", "")


def _put_into_words(asked: dict[str, Any]) -> None:
    if asked.get("status") == "completed":
        asked["status"] = InterruptStatus.RESOLVED.value
    asked.setdefault("answered_us", None)
    asked.setdefault("fallback", "")
    if "became" not in asked:
        asked["became"] = cut(became(str(asked.get("status")), asked.get("response")), MAX_ANSWER)


def _name_events(data: dict[str, Any]) -> None:
    """Give the events of an older recording their numbers: it held the newest ones, without gaps."""
    events = data.get("events")
    if not isinstance(events, dict) or "sequence" in events:
        return
    first = events.get("first")
    kinds = events.get("type")
    if isinstance(first, int) and isinstance(kinds, list) and first <= MAX_FIRST:
        events["sequence"] = [*range(first, first + len(kinds))]
        told = f"The last {len(kinds):,} of {first - 1 + len(kinds):,} events"
        data.setdefault("sample", told if first > 1 else "")


def _check_sizes(recording: Recording) -> None:
    """Raise SavedRunError unless columns are of equal length and all places that they name exist."""
    spans = recording["spans"]
    events = recording["events"]
    count = len(spans["id"])
    rows = len(events["type"])
    lengths = {len(cast("Any", spans)[name]) == count for name in SpanBlock.__annotations__ if name != "names"}
    lengths |= {len(cast("Any", events)[name]) == rows for name in ("sequence", "time", "path", "step", "text")}
    lengths |= {len(recording["members"]) == count, len(recording["data"]) == rows == len(recording["changes"])}
    if lengths != {True}:
        raise SavedRunError("its columns are not of the same length")
    words = [
        (spans, name) for name in ("kind", "path", "step", "type", "label", "item", "given", "came", "status", "note")
    ]
    places = [place for block, name in words for place in cast("Any", block)[name]]
    is_sound = all(0 <= place < len(spans["names"]) for place in places)
    named = (place for name in ("type", "path", "step", "text") for place in cast("Any", events)[name])
    is_sound &= all(0 <= place < len(events["names"]) for place in named)
    is_sound &= all(0 < one < other for one, other in pairwise([*events["sequence"], MAX_FIRST]))
    is_sound &= all(0 <= one < other for one, other in pairwise([*spans["id"], recording["total"]]))
    if not is_sound:
        raise SavedRunError("its parts contradict each other")
    for change in (change for event in recording["changes"] for change in event):
        _check_change(change)


def _check_change(change: list[Any]) -> None:
    """Raise SavedRunError unless a change is of a part that states have, and leaves them whole."""
    if len(change) not in (2, 3) or not all(isinstance(part, str) for part in change[:2]):
        raise SavedRunError("one of its changes has the wrong form")
    (part, name) = change[:2]
    value = change[2:]
    if part in WHOLE and (name or not value):
        raise SavedRunError(f"one of its changes takes {part} away")
    kind = PARTS.get(part)
    if kind is None:
        raise SavedRunError(f"one of its changes is of {one_line(part, 40)!r}, which states do not have")
    for new in value:
        checked(new, kind)
