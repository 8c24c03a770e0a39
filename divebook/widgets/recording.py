"""A run as it is saved in a notebook: its newest events as columns, and each state as a difference to the one before.

A state is taken apart into cells (one for each variable, output, path, question, and one for each other part), so that
an event costs no more than what it changed. `RecordedPositions` puts them together
again, as ``widgets/src/lab`` does in the browser.
Everything passes the redactor before it is cut, so that no half of a secret is left.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeAlias

from divebook.engine.evolve import evolve
from divebook.engine.state import ExecutionState
from divebook.events import Event
from divebook.execution.execution import Execution
from divebook.history.spans import Span, spans_of
from divebook.text.redaction import Redactor
from divebook.widgets.conversations import newest_conversations, shortened
from divebook.widgets.positions import (
    Budget,
    block_of,
    is_short,
    path_cell,
    path_view,
    pending_view,
    shown_paths,
    summary_of,
)
from divebook.widgets.protocol import DetailEvent, EventBlock, Header, PathView, PendingView, Recording, StateView
from divebook.widgets.rows import block_of as spans_block
from divebook.widgets.rows import label_of
from divebook.widgets.source import graph_of, header_of, question_of, shown
from divebook.widgets.spending import Spending

Cell: TypeAlias = tuple[str, str]
"""A part of a state, and a name in it: ``("variables", "n")``; parts that are whole have the name ``""``."""
Change: TypeAlias = list[Any]
"""A part, a name and the value that is there now; without a value the cell is gone."""

MAX_EVENTS = 5000
"""Events that are ever saved; more would make opening a notebook slow."""
MAX_MEMBERS = 20
MAX_CONVERSATIONS = 20
"""Turns and single requests whose messages are saved, the newest."""
NOT_SAVED = "not in this notebook"
VALUE_PER_TEXT = 5
"""How much longer than one text a value may be in all."""
_TABLES = ("inputs", "outputs", "variables")
WHOLE: Mapping[str, Any] = {"status": str, "error": str, "usage": dict[str, int]}
"""Parts that every state has, with what they are."""
PARTS: Mapping[str, Any] = {**WHOLE, **dict.fromkeys(_TABLES, Any), "paths": PathView, "pending": PendingView}
"""All parts of states, with what they, or what stands in them under a name, are."""
_MADE_OF = {part: (part,) for part in (*WHOLE, *_TABLES)} | {
    "paths": ("paths", "variables"),
    "pending": ("interrupts",),
}
"""The fields of a state that each part shows."""
_FIELDS = tuple(sorted({field for fields in _MADE_OF.values() for field in fields}))
_FIELDS_OF = operator.attrgetter(*_FIELDS)
_MADE_BY_THE_ENGINE = frozenset(
    ["operation_id", "operation_type", "parameters_hash", "iteration_index", "duration", "usage", "reserved", "visit"]
)
"""Fields of events with ids and numbers, never with what a person, a model or a program said: no secret is there, and
not to look there halves what saving a long run costs (`test_saving_a_long_run_makes_few_calls...`)."""


class CleanRun:
    """A run, read and cleaned of secrets once, of which recordings of several sizes are cut.

    The redactor learns the secrets of its newest events, and of its variables, first.
    """

    def __init__(self, execution: Execution, log: Sequence[Event], redactor: Redactor) -> None:
        first = max(0, len(log) - MAX_EVENTS)
        self._redactor, self._first, self._origin = redactor, first, log[0].recorded_at if log else 0
        redactor.learn(shown({**execution.state.inputs, **execution.state.variables}))
        self._events = log[first:]
        self._data = self._clean_data(self._events)
        self._texts = [redactor.text(summary_of(event)) for event in self._events]
        spans = spans_of(log)
        self._conversations = [
            redactor.value(said) for said in newest_conversations(spans, MAX_CONVERSATIONS, execution.state.question_id)
        ]
        self._total, self._spans = len(spans), [self._labelled(span) for span in spans[-MAX_EVENTS:]]
        base, *self._changes = self._changes_of(_states(execution.id, log, first))
        self._base = _applied({}, [base])
        spending = Spending()
        for span in spans:
            spending.take(span)
        header = spending.of(header_of(execution))
        self._header = Header(**{**header, "live": False, "commands": [], "error": redactor.text(header["error"])})
        asked = execution.state.interrupts.values()
        self._questions = [redactor.value(shown(question_of(question))) for question in asked]
        self._graph = redactor.value(graph_of(execution.workflow))

    def recording(self, *, events: int, texts: int) -> Recording:
        """Return the newest `events`, with texts of at most `texts` characters."""
        left_out = max(0, len(self._events) - events)
        first, spans = self._first + left_out, self._spans[max(0, len(self._spans) - events) :]

        def limited(value: Any) -> Any:
            budget = texts * VALUE_PER_TEXT
            return value if is_short(value, budget) else Budget(budget, texts).shortened(value)

        base = _applied(self._base, self._changes[:left_out])
        return Recording(
            header=self._header,
            questions=[limited(asked) for asked in self._questions[-events:]],
            graph=self._graph,
            total=self._total,
            spans=spans_block(spans, self._origin),
            conversations=[
                shortened(said, texts) for said in self._conversations if spans and said["id"] >= spans[0][0].index
            ],
            members=[[*span.sequences[:1], *span.sequences[1:][1 - MAX_MEMBERS :]] for span, _ in spans],
            events=block_of(self._events[left_out:], self._texts[left_out:], self._origin, first + 1),
            data=[limited(data) for data in self._data[left_out:]],
            base=_view(first, {cell: limited(value) for cell, value in base.items()}),
            changes=[[[*told[:2], *map(limited, told[2:])] for told in event] for event in self._changes[left_out:]],
        )

    def _clean_data(self, events: Iterable[Event]) -> list[dict[str, Any]]:
        """Return what events hold, without secrets: those of all of them are known before the first is cleaned."""
        raw = shown([event.data.to_data() for event in events])
        for data in raw:
            self._redactor.learn({name: data[name] for name in data if name not in _MADE_BY_THE_ENGINE})
        under = self._redactor.under
        return [{k: part if k in _MADE_BY_THE_ENGINE else under(k, part) for k, part in data.items()} for data in raw]

    def _labelled(self, span: Span) -> tuple[Span, str]:
        """Take the secrets out of a span, and return its label too; what its first event holds is clean already."""
        begun = span.sequences[0] - self._first - 1
        if begun >= 0:
            data = self._data[begun]
        else:
            data = self._redactor.value(shown({"item": span.item, "parameters": span.parameters}))
        span.error = None if span.error is None else self._redactor.text(span.error)
        span.item, span.parameters = data.get("item"), data.get("parameters")
        return span, label_of(span)

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
                cells, present = known[part], _cells(part, state)
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


def _states(execution_id: str, log: Sequence[Event], first: int) -> Iterator[ExecutionState]:
    """Yield the state before the kept events, and after each of them."""
    state = ExecutionState(execution_id)
    for event in log[:first]:
        state = evolve(state, event)
    yield state
    for event in log[first:]:
        state = evolve(state, event)
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
    return before is not now if part in _TABLES else bool(before != now)


def _applied(cells: Mapping[Cell, Any], changes: Iterable[Iterable[Change]]) -> dict[Cell, Any]:
    """Return cells once some events have changed them."""
    present = dict(cells)
    for change in (change for event in changes for change in event):
        part, name, *value = change
        if value:
            present[part, name] = value[0]
        else:
            present.pop((part, name), None)
    return present


def _view(sequence: int, cells: Mapping[Cell, Any]) -> StateView:
    tables = {table: {name: value for (part, name), value in cells.items() if part == table} for table in _TABLES}
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
    """Answers what was so at each position of a recording, as `divebook.widgets.positions.Positions` does of a log."""

    def __init__(self, recording: Recording, store: str = "") -> None:
        self._recording, self._store = recording, store
        self._changes = recording["changes"]
        self._base = _taken_apart(recording["base"])

    @property
    def first(self) -> int:
        """Sequence number of the first event that is here."""
        return self._recording["events"]["first"]

    @property
    def total(self) -> int:
        """How many events the log has up to the last one that is here."""
        return self.first - 1 + len(self._changes)

    def event_at(self, sequence: int) -> DetailEvent:
        """Return one event. Raises `IndexError`."""
        row, block = self._row(sequence, 0), self._recording["events"]
        return DetailEvent(
            sequence=sequence,
            event_type=block["names"][block["type"][row]],
            recorded_us=block["origin_us"] + block["time"][row],
            data=self._recording["data"][row],
        )

    def block(self, after: int = 0, stop: int | None = None) -> EventBlock:
        """Return the events that follow `after`; those that are not here by a word that says so."""
        block = self._recording["events"]
        stop = self.total if stop is None else min(stop, self.total)
        missing = max(0, min(stop, self.first - 1) - after)
        rows = slice(max(0, after - self.first + 1), max(0, stop - self.first + 1))
        nothing, absent = [0] * missing, [len(block["names"])] * missing
        return EventBlock(
            first=after + 1,
            origin_us=block["origin_us"],
            names=[*block["names"], NOT_SAVED],
            time=nothing + block["time"][rows],
            type=absent + block["type"][rows],
            path=nothing + block["path"][rows],
            step=nothing + block["step"][rows],
            text=nothing + block["text"][rows],
        )

    def _row(self, sequence: int, least: int) -> int:
        row = sequence - self.first
        if not least <= row < len(self._changes):
            where = f"; its log was in {self._store}" if self._store else ""
            raise IndexError(f"the notebook holds events {self.first:,} to {self.total:,} of this run{where}")
        return row

    def state_at(self, sequence: int) -> StateView:
        """Return the state after an event. Raises `IndexError`."""
        count = self._row(sequence, -1) + 1
        return _view(sequence, _applied(self._base, self._changes[:count]))


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
