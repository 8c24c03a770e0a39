"""A run as it is saved in a notebook: a sample of its events, and each state as a difference to the one before.

A state is taken apart into cells (one for each variable, output, path, question, and one for each other part), so that
an event costs no more than what it changed. `divebook.widgets.recorded` puts them together
again, as ``widgets/src/lab`` does in the browser. Which events are kept says `divebook.widgets.sample`.
Everything passes the redactor before it is cut, so that no half of a secret is left.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, repeat
from typing import Any

from divebook.engine.evolve import evolve
from divebook.engine.state import ExecutionState
from divebook.events import Event
from divebook.execution.execution import Execution
from divebook.history.failures import ItemNames
from divebook.history.names import item_name
from divebook.history.read_log import ReadLog
from divebook.history.spans import Span
from divebook.text.redaction import Redactor
from divebook.widgets.budget import Budget, is_short
from divebook.widgets.changed_files import FilesReader, within
from divebook.widgets.conversations import newest_conversations, shortened
from divebook.widgets.failing import Failing
from divebook.widgets.pace import paced
from divebook.widgets.positions import (
    block_of,
    path_cell,
    path_view,
    pending_view,
    shown_paths,
    summary_of,
)
from divebook.widgets.previews import came_of
from divebook.widgets.protocol.failures import FailureReport
from divebook.widgets.protocol.recording import Recording
from divebook.widgets.protocol.replay import PathView, PendingView
from divebook.widgets.protocol.run import Header
from divebook.widgets.recorded import TABLES, Change, applied, merged, view_of_cells
from divebook.widgets.rows import Labels, labels_of
from divebook.widgets.rows import block_of as spans_block
from divebook.widgets.sample import members, sample_of
from divebook.widgets.source import graph_of, header_of, question_of, shown
from divebook.widgets.spending import Spending
from divebook.widgets.variables import Setters, VariableReader, shorter
from divebook.workflow.pipeline_steps import hidden_in

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
        self._redactor, self._origin = redactor, log[0].recorded_at if log else 0
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
        spending, failing = Spending(), Failing(names)
        for event in read:
            spending.hear(event)
        for span in spans:
            spending.take(span)
            failing.take(span)
        self._failures: FailureReport = redactor.value(failing.report(spans))
        read.spreads.count()
        header = paced(failing.of(spending.of(header_of(execution))), read.course, read.spreads)
        error, progress = redactor.text(header["error"]), redactor.value(header["progress"])
        self._header: Header = {**header, "live": False, "commands": [], "dashboards": []}
        self._header |= {"error": error, "progress": progress}
        asked, hidden = execution.state.interrupts.values(), hidden_in(execution.workflow)
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
        present, rows = frozenset(kept), [self._rows[sequence] for sequence in kept]
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
