"""A run as it is saved in a notebook: its newest events as columns, and each state as a difference to the one before.

A state is taken apart into cells (one for each variable, output, path, question, and one for each other part), so that
an event costs no more than what it changed. `RecordedPositions` puts them together
again, as ``widgets/src/lab`` does in the browser.
Everything passes the redactor before it is cut, so that no half of a secret is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from divebook.engine.evolve import evolve
from divebook.engine.state import ExecutionState, PathState
from divebook.events import Event
from divebook.events.codec import payload_from
from divebook.execution import Execution
from divebook.history.spans import Span, spans_of
from divebook.questions import Question
from divebook.text.redaction import Redactor
from divebook.widgets.positions import Budget, block_of, shown_paths
from divebook.widgets.protocol import DetailEvent, EventBlock, PathView, PendingView, Recording, StateView
from divebook.widgets.rows import block_of as spans_block
from divebook.widgets.rows import label_of
from divebook.widgets.source import graph_of, header_of, question_of, shown

Cell: TypeAlias = tuple[str, str]
"""A part of a state, and a name in it: ``("variables", "n")``; parts that are whole have the name ``""``."""
Change: TypeAlias = list[Any]

MAX_EVENTS = 5000
"""Events that are ever saved; more would make opening a notebook slow."""
MAX_MEMBERS = 20
NOT_SAVED = "not in this notebook"
VALUE_PER_TEXT = 5
"""How much longer than one text a value may be in all."""
_TABLES = ("inputs", "outputs", "variables")


def record(execution: Execution, redactor: Redactor, *, events: int = MAX_EVENTS, texts: int) -> Recording:
    """Return the newest `events` of an execution, with texts of at most `texts` characters.

    The redactor learns the secrets of these events, and of the variables, first.
    """
    log = execution.history()
    redactor.learn(shown({**execution.state.inputs, **execution.state.variables}))
    first = max(0, len(log) - events)
    raw = [shown(event.data.to_data()) for event in log[first:]]
    for data in raw:
        redactor.learn(data)
    clean = [redactor.value(data) for data in raw]
    limited = _Limited(redactor, texts)
    kept = [_cleaned(event, data) for event, data in zip(log[first:], clean, strict=True)]
    spans = [_clean_span(span, redactor) for span in spans_of(log)]
    shown_spans = spans[max(0, len(spans) - events) :]
    states = _states(execution.id, log, first)
    base = next(states)
    header, questions = header_of(execution), [question_of(asked) for asked in execution.state.interrupts.values()]
    return Recording(
        header={**header, "live": False, "commands": [], "error": redactor.text(header["error"])},
        questions=[cast("Any", limited.plain(asked)) for asked in questions[-events:]],
        graph=redactor.value(graph_of(execution.workflow)),
        total=len(spans),
        spans=spans_block([(span, label_of(span)) for span in shown_spans], log[0].recorded_at if log else 0),
        members=[[*span.sequences[:1], *span.sequences[1:][1 - MAX_MEMBERS :]] for span in shown_spans],
        events=block_of(kept, log[0].recorded_at if log else 0, first + 1),
        data=[limited.plain(data, clean=True) for data in clean],
        base=_view(first, dict(_cells(base, limited))),
        changes=list(_changes(base, states, limited)),
    )


def _cleaned(event: Event, data: Any) -> Event:
    return replace(event, data=payload_from(event.event_type, data))


def _clean_span(span: Span, redactor: Redactor) -> Span:
    given = span.parameters
    error = None if span.error is None else redactor.text(span.error)
    return replace(span, error=error, parameters=None if given is None else redactor.value(shown(dict(given))))


def _states(execution_id: str, log: Sequence[Event], first: int) -> Iterator[ExecutionState]:
    """Yield the state before the kept events, and behind each of them."""
    state = ExecutionState(execution_id)
    for event in log[:first]:
        state = evolve(state, event)
    yield state
    for event in log[first:]:
        state = evolve(state, event)
        yield state


class _Limited:
    """Turns values of a state into what is saved of them."""

    def __init__(self, redactor: Redactor, texts: int) -> None:
        self._redactor, self._texts = redactor, texts

    def named(self, name: str, value: Any) -> Any:
        return self._shortened(self._redactor.under(name, shown(value)))

    def plain(self, value: Any, *, clean: bool = False) -> Any:
        return self._shortened(value if clean else self._redactor.value(shown(value)))

    def text(self, text: str) -> str:
        return str(self._shortened(self._redactor.text(text)))

    def _shortened(self, value: Any) -> Any:
        return Budget(self._texts * VALUE_PER_TEXT, self._texts).shortened(value)


# --- states as cells -----------------------------------------------------------------------------------------------


def _cells(state: ExecutionState, limited: _Limited) -> Iterator[tuple[Cell, Any]]:
    for part, source in _sources(state):
        yield part, _saved(part, source, limited)


def _changes(before: ExecutionState, states: Iterable[ExecutionState], limited: _Limited) -> Iterator[list[Change]]:
    """Yield what each event changed; what is the same object as before is not looked at."""
    known = dict(_sources(before))
    for state in states:
        present = dict(_sources(state))
        gone: list[Change] = [[*cell] for cell in known if cell not in present]
        told = [
            [*cell, _saved(cell, source, limited)] for cell, source in present.items() if _differs(known, cell, source)
        ]
        yield [*gone, *told]
        known = present


def _differs(known: Mapping[Cell, Any], cell: Cell, source: Any) -> bool:
    if cell not in known:
        return True
    return known[cell] is not source if cell[0] in _TABLES else bool(known[cell] != source)


def _sources(state: ExecutionState) -> Iterator[tuple[Cell, Any]]:
    """Yield the cells of a state with what they are made of."""
    yield ("status", ""), state.status
    yield ("error", ""), state.error or ""
    yield ("usage", ""), state.usage
    for table in _TABLES:
        for name, value in sorted(getattr(state, table).items()):
            yield (table, name), value
    for path in shown_paths(state):
        own = path.open is not None and path.variables != state.variables
        yield ("paths", path.id), (path, dict(path.variables) if own else None)
    for asked in state.pending_interrupts():
        yield ("pending", asked.interrupt_id), asked


def _saved(cell: Cell, source: Any, limited: _Limited) -> Any:
    match cell:
        case ("status", _):
            return source
        case ("error", _):
            return limited.text(source)
        case ("usage", _):
            return source.to_dict()
        case ("paths", _):
            path, variables = source
            return _path(path, variables, limited)
        case ("pending", _):
            return _pending(source, limited)
        case (_, name):
            return limited.named(name, source)


def _path(path: PathState, variables: Mapping[str, Any] | None, limited: _Limited) -> PathView:
    return PathView(
        id=path.id,
        status=path.status,
        phase=path.phase,
        step=path.current_step,
        visits=path.visits.get(path.current_step, 0),
        variables=None if variables is None else {name: limited.named(name, v) for name, v in variables.items()},
        error=limited.text(path.error or ""),
    )


def _pending(asked: Question, limited: _Limited) -> PendingView:
    return PendingView(
        interrupt_id=asked.interrupt_id,
        kind=asked.kind,
        question=limited.text(asked.question or ""),
        path=asked.path,
        step=asked.step,
    )


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
        """Return events behind `after`; those that are not here by a word that says so."""
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
        """Return the state behind an event. Raises `IndexError`."""
        count = self._row(sequence, -1) + 1
        cells = dict(self._base)
        for change in (change for event in self._changes[:count] for change in event):
            part, name, *value = change
            if value:
                cells[part, name] = value[0]
            else:
                cells.pop((part, name), None)
        return _view(sequence, cells)


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
