"""A log as a tree of places: what was asked and what came of it, so that the logs of two runs can be laid side by side.

Children of the run are inputs, visits to steps, branches, variables and outputs; of a visit its items, calls, questions
and conditions; of an item its calls; of an agent's turn its requests and the calls of its tools.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from divebook.engine.lifecycle import STATUS_AFTER
from divebook.engine.operations import (
    AGENT_RESPONSE,
    AGENT_TURN,
    CACHED_RESPONSE,
    CHILD_WORKFLOW,
    TIME_ACCESS,
    operation_kind,
)
from divebook.events import Event, catalog
from divebook.events.codec import encode
from divebook.history.failure_places import place_label, without_places
from divebook.history.read_log import ReadLog
from divebook.history.served import way_of
from divebook.history.span import Span
from divebook.text.shown import branch_name

Kind: TypeAlias = Literal[
    "run", "input", "step", "item", "operation", "event", "question", "condition", "branch", "variable", "output", "end"
]
OF_THE_MOMENT = frozenset(
    {"timestamp", "tool_call_id", "run_id", "conversation_id", "provider_response_id", "provider_details", "usage"}
    | {"cost_nanodollars", "id"}
)
"""In what was said to a model and by it: names of what no two calls have in common."""
SCRIPT = "script"
"""Which of its scripts a scripted model has taken: the number of the turn."""
_MODEL_CALLS = frozenset({AGENT_RESPONSE, CACHED_RESPONSE, AGENT_TURN})
_TOOL_KEY = re.compile(r"(tool-\d+)-.*?(#\d+)?(/turn)?")


@dataclass(slots=True)
class Placed:
    """Something at its place in a run."""

    kind: Kind
    name: str
    key: Any
    """Its place among what its parent holds."""
    asked: Any = None
    answered: Any = None
    status: str = catalog.COMPLETED
    began: int = 0
    """Sequence number of its first event."""
    ended: int = 0
    """That of its last one."""
    span: Span | None = None
    inside: list[Placed] = field(default_factory=list)
    path: str = ""
    step: str = ""
    way: str = ""
    """Of an operation behind the fork of a what-if: how it was answered, as `divebook.history.served.way_of` says."""
    served: Mapping[str, Any] | None = None
    """What it was answered with: ``execution`` and ``sequence``."""

    @property
    def tells(self) -> Any:
        """What tells it from the others of its kind where places have shifted."""
        match self.kind:
            case "item":
                key = self.span.item_key if self.span is not None else None
                return encode(self.asked) if key is None else key
            case "operation":
                return self.key[:-2], encode(self.asked)
            case "step":
                return self.step
        return self.key

    @property
    def label(self) -> str:
        """How people call it, without what holds it."""
        if self.kind == "step":
            visit = self.span.visit if self.span is not None else 1
            told = [self.step, branch_name(self.path), f"visit {visit}" if visit > 1 else ""]
            return ", ".join(filter(None, told))
        if self.kind == "operation" and self.span is not None:
            return f"{operation_kind(self.span.type)} {self.name}".strip()
        return self.name if self.kind in ("item", "end") else f"{self.kind} {self.name}".strip()

    @property
    def tokens(self) -> int | None:
        """Tokens that were read and written in it; None where no model was asked."""
        usage = self.span.usage if self.span is not None else {}
        return usage.get("input_tokens", 0) + usage.get("output_tokens", 0) if usage else None

    @property
    def cost(self) -> int | None:
        """Nanodollars; None where no price is known."""
        return self.span.usage.get("cost") if self.span is not None else None

    @property
    def duration_us(self) -> int | None:
        """Microseconds that it took; None where it took none, or has not ended."""
        return self.span.duration_us if self.span is not None else None

    @property
    def child(self) -> str:
        """The execution of another workflow that it began."""
        if self.span is None or self.span.type != CHILD_WORKFLOW:
            return ""
        return str((self.span.parameters or {}).get("signal", ""))


def placed(log: ReadLog) -> Placed:
    """Return a log as the tree of its places; the root is the run."""
    return _Placing(log).root


class _Placing:
    """Makes the tree of one log."""

    def __init__(self, log: ReadLog) -> None:
        self.root = Placed("run", "", ())
        self._steps: dict[str, Placed] = {}
        """By path: the visit it is in, or was in last."""
        self._places: dict[str, None] = {}
        """Lines of code that failures name (`divebook.history.failure_places`)."""
        self._begun: dict[int, Placed] = {}
        """Visits by the event with which they began."""
        self._variables: dict[str, Placed] = {}
        self._questions: dict[str, Placed] = {}
        self._counts: Counter[Any] = Counter()
        self._ends: dict[int, Placed] = {}
        """Operations by the event with which they ended."""
        self._is_answered = False
        """Whether what comes now is that of a what-if, or of what goes on with the results of another execution."""
        self._place_spans(log.spans)
        self._steps = {}
        for event in log:
            change = self._CHANGES.get(type(event.data))
            if change is not None:
                change(self, event, event.data)
        self.root.inside += self._variables.values()
        for visit in self._begun.values():
            visit.inside.sort(key=lambda inner: inner.began)
        waits = any(asked.status == catalog.WAITING for asked in self._questions.values())
        self.root.status = catalog.WAITING if waits else catalog.RUNNING
        order = {"input": 0, "variable": 2, "output": 3, "end": 4}
        self.root.inside.sort(key=lambda inner: (order.get(inner.kind, 1), inner.began))

    # --- what takes time -------------------------------------------------------------------------------------------

    def _place_spans(self, spans: Iterable[Span]) -> None:
        known: dict[int, Placed] = {}
        items: dict[tuple[str, int | None], Placed] = {}
        for span in spans:
            if span.is_pause:
                continue
            visit = self._steps.get(span.path, self.root)
            if span.kind == "step":
                made = _step(span)
                self._steps[span.path] = self._begun[made.began] = made
                self.root.inside.append(made)
                items = {place: item for place, item in items.items() if place[0] != span.path}
            elif span.kind == "item":
                made = items[span.path, span.iteration] = _item(span)
                visit.inside.append(made)
            else:
                around = known.get(span.holder) or items.get((span.path, span.iteration)) or visit
                made = self._call(span, around)
                around.inside.append(made)
            known[span.index] = made

    def _call(self, span: Span, around: Placed) -> Placed:
        key = span.key
        if isinstance(key, str) and key.startswith("tool-"):
            key = _TOOL_KEY.sub(rf"\1-{span.called or ''}\2\3", key)
        name = span.called or ""
        place = (span.type, name, key)
        self._counts[id(around), place] += 1
        made = Placed("operation", name, (*place, self._counts[id(around), place]), path=span.path, step=span.step)
        if span.kind == "event":
            made.kind, made.answered = "event", (span.parameters or {}).get("data")
        else:
            made.asked, made.answered = _asked(span), _answered(span)
            self._ends[span.sequences[-1]] = made
        return _timed(made, span)

    # --- what takes none -------------------------------------------------------------------------------------------

    def _add(self, kind: Kind, name: str, event: Event, asked: Any, answered: Any) -> Placed:
        """Add what an event says to the visit that its path is in, or to the run."""
        around = self._steps.get(event.path, self.root) if event.path else self.root
        self._counts[id(around), kind, name] += 1
        key = kind, name, event.path if around is self.root else "", self._counts[id(around), kind, name]
        made = Placed(kind, name, key, asked, answered, began=event.sequence, ended=event.sequence)
        made.path, made.step = event.path, event.step
        around.inside.append(made)
        return made

    def _started(self, event: Event, data: catalog.ExecutionStarted) -> None:
        for name, value in data.inputs.items():
            self._add("input", name, event, None, value)

    def _step_started(self, event: Event, _data: catalog.Payload) -> None:
        if event.sequence in self._begun:
            self._steps[event.path] = self._begun[event.sequence]

    def _branched(self, event: Event, data: catalog.PathBranched) -> None:
        self._add("branch", event.path, event, None, [entry["current_step"] for entry in data.new_paths])

    def _condition(self, event: Event, data: catalog.ConditionEvaluated) -> None:
        self._add("condition", f"for {data.target}", event, data.condition, data.result)

    def _raised(self, event: Event, data: catalog.InterruptRaised) -> None:
        asked = {"question": data.question, "message": data.message, "kind": data.kind, "data": data.data}
        asked = {name: value for name, value in asked.items() if value is not None}
        made = self._questions[data.interrupt_id] = self._add("question", "", event, asked, None)
        made.status = catalog.WAITING

    def _settled(self, event: Event, data: catalog.InterruptResolved | catalog.InterruptExpired) -> None:
        made = self._questions.get(data.interrupt_id)
        if made is not None:
            is_answer = isinstance(data, catalog.InterruptResolved)
            made.answered = data.response if isinstance(data, catalog.InterruptResolved) else None
            made.status, made.ended = "resolved" if is_answer else "expired", event.sequence

    def _mutated(self, event: Event, data: catalog.StateMutated) -> None:
        for change in data.mutations:
            if change.type == "delete":
                self._variables.pop(change.key, None)
            else:
                self._variables[change.key] = _variable(event, change.key, change.value)

    def _forked(self, event: Event, data: catalog.ExecutionForked) -> None:
        """Take what is otherwise from here on, and drop the questions that are still open: the fork asks its own."""
        change, self._is_answered = data.change or {}, data.tools is not None
        for name, value in change.get("variables", {}).items():
            self._variables[name] = _variable(event, name, value)
        for given in self.root.inside:
            if given.kind == "input" and given.name in change.get("inputs", {}):
                given.answered, given.began, given.ended = change["inputs"][given.name], event.sequence, event.sequence
        for around in (self.root, *self._begun.values()):
            kept = [inner for inner in around.inside if not _is_open_question(inner)]
            self._counts[id(around), "question", ""] -= len(around.inside) - len(kept)
            around.inside = kept
        self._questions = {name: asked for name, asked in self._questions.items() if not _is_open_question(asked)}

    def _failed(self, _: Event, data: catalog.StepFailed | catalog.IterationFailed) -> None:
        self._places[place_label(data)] = None

    def _operated(self, event: Event, data: catalog.OperationCompleted | catalog.OperationFailed) -> None:
        self._places[place_label(data)] = None
        made = self._ends.get(event.sequence) if self._is_answered else None
        if made is not None:
            made.way, made.served = way_of(data), data.served

    def _ended(self, event: Event, data: catalog.Payload) -> None:
        """Note how it ended; of several ends the last one counts."""
        self.root.inside = [inner for inner in self.root.inside if inner.kind not in ("output", "end")]
        if isinstance(data, catalog.ExecutionCompleted):
            for name, value in data.outputs.items():
                self._add("output", name, event, None, value)
        status = STATUS_AFTER[type(data)]
        error = without_places(getattr(data, "error", None) or "", self._places)
        made = Placed("end", "end", ("end",), None, error or status, status)
        made.began = made.ended = event.sequence
        self.root.inside.append(made)

    _CHANGES: ClassVar[dict[type, Callable[[_Placing, Event, Any], None]]] = {
        catalog.ExecutionStarted: _started,
        catalog.StepStarted: _step_started,
        catalog.PathBranched: _branched,
        catalog.ConditionEvaluated: _condition,
        catalog.InterruptRaised: _raised,
        catalog.InterruptResolved: _settled,
        catalog.InterruptExpired: _settled,
        catalog.StateMutated: _mutated,
        catalog.ExecutionForked: _forked,
        catalog.OperationCompleted: _operated,
        catalog.OperationFailed: _operated,
        catalog.StepFailed: _failed,
        catalog.IterationFailed: _failed,
        catalog.ExecutionCompleted: _ended,
        catalog.ExecutionFailed: _ended,
        catalog.ExecutionCancelled: _ended,
    }


def _is_open_question(inner: Placed) -> bool:
    return inner.kind == "question" and inner.status == catalog.WAITING


def _variable(event: Event, name: str, value: Any) -> Placed:
    made = Placed("variable", name, ("variable", name), None, value)
    made.began = made.ended = event.sequence
    return made


def _step(span: Span) -> Placed:
    made = Placed("step", span.step, (span.path, span.step, span.visit), span.type, path=span.path, step=span.step)
    made.answered = _answered(span)
    return _timed(made, span)


def _item(span: Span) -> Placed:
    made = Placed("item", span.name, span.iteration, span.item, _answered(span), path=span.path, step=span.step)
    return _timed(made, span)


def _timed(made: Placed, span: Span) -> Placed:
    made.span, made.status = span, span.status
    made.began, made.ended = span.sequences[0], span.sequences[-1]
    return made


def _asked(span: Span) -> Any:
    given: Any = span.parameters
    if span.type == CHILD_WORKFLOW:  # its id is new in every run
        given = {name: value for name, value in (given or {}).items() if name != "signal"}
    if span.type in _MODEL_CALLS:
        given = lasting(given)
        setting = {name: value for name, value in (span.setting or {}).items() if name != SCRIPT}
        if setting:
            given = {**(given or {}), "setting": setting}
    return given


def _answered(span: Span) -> Any:
    """Return what came of it; nothing of the clock, which is another in every run: what code made of it counts."""
    if span.type == TIME_ACCESS:
        return None
    result = lasting(span.result) if span.type in _MODEL_CALLS else span.result
    return result if span.error is None else {"error": span.error, "result": result}


def lasting(said: Any) -> Any:
    """Return what was said to a model or by it without what no two calls have in common.

    >>> lasting({"parts": [{"content": "hi", "part_kind": "text"}], "timestamp": "2026-11-23T01:54:27Z"})
    {'parts': [{'content': 'hi', 'part_kind': 'text'}]}
    """
    if isinstance(said, Mapping):
        if said.keys() == {"tool"}:
            return {"tool": None}
        return dict(_lasting_parts(said))
    return [lasting(part) for part in said] if isinstance(said, list) else said


def _lasting_parts(said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in said.items():
        if name not in OF_THE_MOMENT:
            yield name, value if name in ("args", "content") else lasting(value)
