"""Alignment of two runs. Each log becomes a tree of places (steps, items, calls, ...); the nodes of both trees are
matched and compared.

Places are matched by their identity: a visit to a step by path, step and number, an item by its index, a call by its
key within the node that contains it. If the children of two nodes have different keys, values are compared first: the
key or value of an item, and the request of a call. Visits to a step are matched in their order if the names of paths
differ. Clock readings and ids are not compared, but values that code derives from them are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from divebook.engine.forks import ends_in
from divebook.engine.lifecycle import STATUS_AFTER
from divebook.engine.operations import (
    AGENT_RESPONSE,
    AGENT_TURN,
    CACHED_RESPONSE,
    CHILD_WORKFLOW,
    ENCLOSING,
    RANDOM_GENERATION,
    SCRIPT_EXECUTION,
    STAGE_ATTEMPT,
    TIME_ACCESS,
    TIMER,
    VERDICT,
    VERSION_DECISION,
    operation_kind,
)
from divebook.errors import SetupError
from divebook.events import Event, catalog
from divebook.events.codec import encode, readable
from divebook.events.values import ByHash
from divebook.projections.activity import ASLEEP, Activity
from divebook.projections.failures import place_label, without_places
from divebook.projections.spans import Span
from divebook.projections.summary import ReadLog
from divebook.questions.bounds import dollars
from divebook.report.model import SIGNS, DifferenceKind
from divebook.text.format import NOTHING, Differing, alike, branch_name, marked, parts, plural, price, seconds, visible
from divebook.text.redaction import one_line, shared

# --- sources of answers in a what-if or a trial ----------------------------------------------------------------------
#
# The event that ends an operation records where its result came from.


SERVED = "served"
LIVE = "live"
BLOCKED = "blocked"
COMPUTED = "computed"
SKIPPED = "skipped"
OTHER = "other"
IS_COMPUTED = frozenset({SCRIPT_EXECUTION, TIME_ACCESS, RANDOM_GENERATION, VERDICT, STAGE_ATTEMPT, VERSION_DECISION})


def way_of(data: Any) -> str:
    """Return the source of the result of an operation or a question, such as replayed or executed. It is read from the
    event that ends the operation or question.

    ``served``: replayed from the log of another execution. ``blocked``: not executed. ``skipped``: a sleep.
    ``computed``: a script, or a reading of clock or chance. ``live``: executed. ``other``: an operation that only
    contains others, or an answer of a person.
    """
    source = data.served
    kind = getattr(data, "operation_type", "")
    if source is not None:
        return BLOCKED if "blocked" in source else SERVED
    if kind == TIMER:
        return SKIPPED
    if kind in IS_COMPUTED:
        return COMPUTED
    return LIVE if kind and kind not in ENCLOSING and kind != CHILD_WORKFLOW else OTHER


# --- the tree of places of one log -----------------------------------------------------------------------------------
#
# Each node has a request (`asked`) and a result (`answered`), so that two logs can be compared node by node:
#
#     run
#     ├── input n
#     ├── step classify            a visit to a step
#     │   ├── item classify[0]     an item of `Each`
#     │   │   └── model call helper
#     │   └── condition for report
#     ├── branch main
#     ├── variable label
#     └── output label
#
# The turn of an agent contains its requests and the calls of its tools.


Kind: TypeAlias = Literal[
    "run", "input", "step", "item", "operation", "event", "question", "condition", "branch", "variable", "output", "end"
]
OF_THE_MOMENT = frozenset(
    {"timestamp", "tool_call_id", "run_id", "conversation_id", "provider_response_id", "provider_details", "usage"}
    | {"cost_nanodollars", "id"}
)
"""Fields of model messages whose values differ in every call, such as timestamps and ids. They are not compared."""
SCRIPT = "script"
"""Setting of a scripted model: the number of the turn, which selects the scripted response."""
_MODEL_CALLS = frozenset({AGENT_RESPONSE, CACHED_RESPONSE, AGENT_TURN})
# "tool-2-call_7#1/turn": the id that the model chose for the call differs in every run, and is replaced by the name of
# the tool.
_TOOL_KEY = re.compile(r"(tool-\d+)-.*?(#\d+)?(/turn)?")


@dataclass(slots=True)
class OperationTree:
    """Node in the tree of places of a run: a step, item, operation, question, variable, ..., with its request and its
    result.
    """

    kind: Kind
    name: str
    key: Any
    """Identity of the node among the children of its parent."""
    asked: Any = None
    answered: Any = None
    status: str = catalog.COMPLETED
    began: int = 0
    """Sequence number of the first event of the node."""
    ended: int = 0
    """Sequence number of the last event of the node."""
    span: Span | None = None
    inside: list[OperationTree] = field(default_factory=list)
    path: str = ""
    step: str = ""
    way: str = ""
    """Kind of source of an operation's result (`way_of`), after the fork of a what-if; else empty."""
    served: Mapping[str, Any] | None = None
    """Origin of a replayed result: ``execution`` and ``sequence``."""
    idle_us: int = 0
    """Microseconds between start and end in which the run waited for a person, was paused or was stopped."""

    @property
    def tells(self) -> Any:
        """Value that identifies a node if its key differs between the runs, because items or calls were inserted. It is
        the value of an item, or the request (type and parameters) of a call.
        """
        match self.kind:
            case "item":
                # An item of a mapping has a key. An item of a list is identified by its value.
                key = self.span.item_key if self.span is not None else None
                return encode(self.asked) if key is None else key
            case "operation":
                # Type, name and request, without key and count: a call is matched although others were inserted before
                # it.
                return self.key[:-2], encode(self.asked)
            case "step":
                return self.step
        return self.key

    @property
    def display_name(self) -> str:
        """Name of the node for people, without the names of the nodes that contain it."""
        if self.kind == "step":
            visit = self.span.visit if self.span is not None else 1
            parts_of_label = [self.step, branch_name(self.path), f"visit {visit}" if visit > 1 else ""]
            return ", ".join(filter(None, parts_of_label))
        if self.kind == "operation" and self.span is not None:
            return f"{operation_kind(self.span.type)} {self.name}".strip()
        return self.name if self.kind in ("item", "end") else f"{self.kind} {self.name}".strip()

    @property
    def tokens(self) -> int | None:
        """Sum of input and output tokens of the node; None if it called no model."""
        usage = self.span.usage if self.span is not None else {}
        return usage.get("input_tokens", 0) + usage.get("output_tokens", 0) if usage else None

    @property
    def cost(self) -> int | None:
        """Cost of the node in nanodollars; None if no price is known."""
        return self.span.usage.get("cost") if self.span is not None else None

    @property
    def duration_us(self) -> int | None:
        """Duration of the node in microseconds, without the time in which the run waited for a person, was paused or
        was stopped; None if it has no duration or has not ended.
        """
        duration = self.span.duration_us if self.span is not None else None
        return None if duration is None else max(0, duration - self.idle_us)

    @property
    def child(self) -> str:
        """Id of the child execution that the operation started; empty for other nodes."""
        if self.span is None or self.span.type != CHILD_WORKFLOW:
            return ""
        return str((self.span.parameters or {}).get("signal", ""))


def placed(log: ReadLog) -> OperationTree:
    """Build the tree of places (steps, items, calls, ...) of a log. Return the root, which stands for the run."""
    return _Placing(log).root


class _Placing:
    """Builds the tree of places (steps, items, calls, ...) of one log."""

    def __init__(self, log: ReadLog) -> None:
        self.root = OperationTree("run", "", ())
        self._steps: dict[str, OperationTree] = {}
        """Current or latest visit to a step, by path."""
        self._places: dict[str, None] = {}
        """Code locations that occur in error texts (`divebook.projections.failures`), as keys."""
        self._begun: dict[int, OperationTree] = {}
        """Visits to steps by the sequence number of their first event."""
        self._variables: dict[str, OperationTree] = {}
        self._questions: dict[str, OperationTree] = {}
        # {(node, kind or place): number of nodes so far}: equal siblings are told apart by their number.
        self._counts: Counter[Any] = Counter()
        self._ends: dict[int, OperationTree] = {}
        """Operations by the sequence number of their last event."""
        self._is_answered = False
        """True if the current events belong to a what-if, or to a run that reuses the results of another execution."""
        # Spans first: they are the steps, items and operations of the tree. The events after them add what takes no
        # time.
        self._place_spans(log.spans)
        # The second pass over the log follows the visits again, from the beginning.
        self._steps = {}
        for event in log:
            change = self._CHANGES.get(type(event.data))
            if change is not None:
                change(self, event, event.data)
        self.root.inside += self._variables.values()
        for visit in self._begun.values():
            # Both passes appended to the same lists.
            visit.inside.sort(key=lambda inner: inner.began)
        waits = any(question.status == catalog.WAITING for question in self._questions.values())
        self.root.status = catalog.WAITING if waits else catalog.RUNNING
        # Inputs come first, variables, outputs and the end last; all others in the order of the log.
        order = {"input": 0, "variable": 2, "output": 3, "end": 4}
        self.root.inside.sort(key=lambda inner: (order.get(inner.kind, 1), inner.began))

    # --- what takes time -------------------------------------------------------------------------------------------

    def _place_spans(self, spans: Iterable[Span]) -> None:
        nodes: dict[int, OperationTree] = {}
        item_nodes: dict[tuple[str, int | None], OperationTree] = {}
        for span in spans:
            if span.is_pause:
                continue
            visit = self._steps.get(span.path, self.root)
            if span.kind == "step":
                node = _step(span)
                self._steps[span.path] = self._begun[node.began] = node
                self.root.inside.append(node)
                # The items of the visit before do not contain the operations of this one.
                item_nodes = {place: item for place, item in item_nodes.items() if place[0] != span.path}
            elif span.kind == "item":
                node = item_nodes[span.path, span.iteration] = _item(span)
                visit.inside.append(node)
            else:
                # The innermost node that contains the operation: a turn, an item, or the visit to a step.
                around = nodes.get(span.holder) or item_nodes.get((span.path, span.iteration)) or visit
                node = self._call(span, around)
                around.inside.append(node)
            nodes[span.index] = node

    def _call(self, span: Span, around: OperationTree) -> OperationTree:
        key = span.key
        if isinstance(key, str) and key.startswith("tool-"):
            key = _TOOL_KEY.sub(rf"\1-{span.called or ''}\2\3", key)
        name = span.called or ""
        place = (span.type, name, key)
        self._counts[id(around), place] += 1
        node = OperationTree(
            "operation", name, (*place, self._counts[id(around), place]), path=span.path, step=span.step
        )
        if span.kind == "event":
            node.kind = "event"
            node.answered = (span.parameters or {}).get("data")
        else:
            node.asked = _asked(span)
            node.answered = _answered(span)
            # The event that ends the operation says where its result came from: see `_operated`.
            self._ends[span.sequences[-1]] = node
        return _timed(node, span)

    # --- what takes none -------------------------------------------------------------------------------------------

    def _add(self, kind: Kind, name: str, event: Event, request: Any, answered: Any) -> OperationTree:
        """Add a node for a single event (an input, a variable, ...) to the tree: below the current step of the event's
        path, or below the run.
        """
        around = self._steps.get(event.path, self.root) if event.path else self.root
        self._counts[id(around), kind, name] += 1
        # Below the run, the path distinguishes nodes; below a step, the step has it already.
        key = kind, name, event.path if around is self.root else "", self._counts[id(around), kind, name]
        node = OperationTree(kind, name, key, request, answered, began=event.sequence, ended=event.sequence)
        node.path = event.path
        node.step = event.step
        around.inside.append(node)
        return node

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
        request = {"question": data.question, "message": data.message, "kind": data.kind, "data": data.data}
        request = {name: _comparable_data(value) for name, value in request.items() if value is not None}
        node = self._questions[data.interrupt_id] = self._add("question", "", event, request, None)
        node.status = catalog.WAITING

    def _settled(self, event: Event, data: catalog.InterruptResolved | catalog.InterruptExpired) -> None:
        node = self._questions.get(data.interrupt_id)
        if node is not None:
            is_answer = isinstance(data, catalog.InterruptResolved)
            node.answered = data.response if isinstance(data, catalog.InterruptResolved) else None
            node.status = "resolved" if is_answer else "expired"
            node.ended = event.sequence

    def _mutated(self, event: Event, data: catalog.StateMutated) -> None:
        for change in data.mutations:
            if change.type == "delete":
                # A deleted variable is compared as one that does not exist.
                self._variables.pop(change.key, None)
            else:
                self._variables[change.key] = _variable(event, change.key, change.value)

    def _forked(self, event: Event, data: catalog.ExecutionForked) -> None:
        """Update the tree for a fork. The values that the fork changes are set, and open questions are removed, because
        the fork asks them again.
        """
        change = data.change or {}
        # `tools` is set for forks that reuse results: what-ifs, trials and continuations with a changed definition.
        self._is_answered = data.tools is not None
        for name, value in change.get("variables", {}).items():
            self._variables[name] = _variable(event, name, value)
        for child in self.root.inside:
            if child.kind == "input" and child.name in change.get("inputs", {}):
                child.answered = change["inputs"][child.name]
                child.began = event.sequence
                child.ended = event.sequence
        for end in ends_in(data).values():
            if isinstance(end, catalog.InterruptResolved):
                self._settled(event, end)
        # The numbers of the removed questions become free, so that the questions of the fork have the keys of the
        # source.
        for around in (self.root, *self._begun.values()):
            settled = [inner for inner in around.inside if not _is_open_question(inner)]
            self._counts[id(around), "question", ""] -= len(around.inside) - len(settled)
            around.inside = settled
        self._questions = {
            name: question for name, question in self._questions.items() if not _is_open_question(question)
        }

    def _failed(self, _: Event, data: catalog.StepFailed | catalog.IterationFailed) -> None:
        # Locations are collected before the end of the run, whose error text repeats them.
        self._places[place_label(data)] = None

    def _operated(self, event: Event, data: catalog.OperationCompleted | catalog.OperationFailed) -> None:
        self._places[place_label(data)] = None
        node = self._ends.get(event.sequence) if self._is_answered else None
        if node is not None:
            node.way = way_of(data)
            node.served = data.served

    def _ended(self, event: Event, data: catalog.Payload) -> None:
        """Add the end of the run and its outputs to the tree. If the run ended several times because it was resumed,
        only the last end counts.
        """
        self.root.inside = [inner for inner in self.root.inside if inner.kind not in ("output", "end")]
        if isinstance(data, catalog.ExecutionCompleted):
            for name, value in data.outputs.items():
                self._add("output", name, event, None, value)
        status = STATUS_AFTER[type(data)]
        error = without_places(getattr(data, "error", None) or "", self._places)
        node = OperationTree("end", "end", ("end",), None, error or status, status)
        node.began = node.ended = event.sequence
        self.root.inside.append(node)

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


def _comparable_data(value: Any) -> Any:
    """Return the data of a question in a form that can be compared. The changed files of a workspace are paired by
    their paths, and the id of their snapshot is left out.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("files"), list):
        return value
    files = value["files"]
    if not all(isinstance(file, Mapping) and isinstance(file.get("path"), str) for file in files):
        return value
    by_path = {file["path"]: file.get("diff") or file for file in files}
    return {name: by_path if name == "files" else each for name, each in value.items() if name != "tree"}


def _is_open_question(inner: OperationTree) -> bool:
    return inner.kind == "question" and inner.status == catalog.WAITING


def _variable(event: Event, name: str, value: Any) -> OperationTree:
    node = OperationTree("variable", name, ("variable", name), None, value)
    node.began = node.ended = event.sequence
    return node


def _step(span: Span) -> OperationTree:
    node = OperationTree(
        "step", span.step, (span.path, span.step, span.visit), span.type, path=span.path, step=span.step
    )
    node.answered = _answered(span)
    return _timed(node, span)


def _item(span: Span) -> OperationTree:
    node = OperationTree("item", span.name, span.iteration, span.item, _answered(span), path=span.path, step=span.step)
    return _timed(node, span)


def _timed(node: OperationTree, span: Span) -> OperationTree:
    node.span = span
    node.status = span.status
    node.began = span.sequences[0]
    node.ended = span.sequences[-1]
    return node


def _asked(span: Span) -> Any:
    parameters: Any = span.parameters
    if span.type == CHILD_WORKFLOW:  # its id is new in every run
        parameters = {name: value for name, value in (parameters or {}).items() if name != "signal"}
    if span.type in _MODEL_CALLS:
        parameters = without_volatile(parameters)
        setting = {name: value for name, value in (span.setting or {}).items() if name != SCRIPT}
        if setting:
            parameters = {**(parameters or {}), "setting": setting}
    return parameters


def _answered(span: Span) -> Any:
    """Return the result of an operation in a form that can be compared between runs. Return None for a reading of the
    clock, because it differs in every run.
    """
    if span.type == TIME_ACCESS:
        return None
    result = without_volatile(span.result) if span.type in _MODEL_CALLS else span.result
    return result if span.error is None else {"error": span.error, "result": result}


def without_volatile(message: Any) -> Any:
    """Return a message of a model without those fields, such as ids and times, that differ in every call.

    >>> without_volatile({"parts": [{"content": "hi", "part_kind": "text"}], "timestamp": "2026-11-23T01:54:27Z"})
    {'parts': [{'content': 'hi', 'part_kind': 'text'}]}
    """
    if isinstance(message, Mapping):
        # The result of a tool call: `{"tool": id}`, whose id differs in every run.
        if message.keys() == {"tool"}:
            return {"tool": None}
        return dict(_stable_parts(message))
    return [without_volatile(part) for part in message] if isinstance(message, list) else message


def _stable_parts(message: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in message.items():
        if name not in OF_THE_MOMENT:
            # Arguments and contents are texts of the model or of users: a field `id` in them is compared.
            yield name, value if name in ("args", "content") else without_volatile(value)


Facet: TypeAlias = Literal["asked", "answered", "status"]


@dataclass(frozen=True, slots=True)
class Row:
    """One place (step, item, call, ...) in two compared runs, with its node in each run and the difference between
    them.
    """

    a: OperationTree | None
    b: OperationTree | None
    place: str
    """Labels of the nodes from the root, such as ``classify / classify[18] / model call helper``."""
    facet: Facet | None
    """First facet that differs: request (``asked``), result (``answered``) or status. None if none differs, or if one
    run lacks the place.
    """

    @property
    def difference(self) -> DifferenceKind:
        """Kind of the difference between the runs at this place: ``same``, ``changed``, ``added`` or ``removed``."""
        if self.a is None:
            return "added"
        if self.b is None:
            return "removed"
        return "same" if self.facet is None else "changed"

    @property
    def has_same_result(self) -> bool:
        """True if both runs have the place with equal results and statuses. The requests may differ."""
        if self.a is None or self.b is None:
            return False
        # The facet is the first one that differs, so that only after a request the result is unknown.
        is_known = self.facet != "asked"
        return self.facet is None if is_known else _result_facet(self.a, self.b) is None

    @property
    def blocked(self) -> bool:
        """True if the call was not executed in the second run, because it has no recorded result there.

        In the comparison of a what-if with the next one, which got a result for the call, the first run lacks it.
        """
        return self.b is not None and self.b.way == BLOCKED

    @property
    def present(self) -> OperationTree:
        """Node of this place in the first run; if the first run lacks the place, the node in the second run."""
        node = self.a or self.b
        assert node is not None, "a row stands for something"  # noqa: S101 - rows are made in this file only
        return node

    def event_of(self, side: OperationTree | None) -> int | None:
        """Return the number of the event at which the difference appears in a run, whose node is `side`; None if the
        run lacks the place.
        """
        if side is None:
            return None
        return side.ended if self.facet in ("answered", "status") else side.began

    @property
    def parts(self) -> list[Differing]:
        """Smallest parts in which the first differing facet of both runs differs, each with its two values. Empty if
        one run lacks the place.
        """
        return [] if self.facet is None else self.parts_of(self.facet)

    def parts_of(self, facet: Facet) -> list[Differing]:
        """Return the smallest parts in which the request, result or status of both runs differs, each with its two
        values. Return none if one run lacks the place.
        """
        if self.a is None or self.b is None:
            return []
        differing = parts(getattr(self.a, facet), getattr(self.b, facet))
        return [part._replace(place=_in_words(part.place)) for part in differing]

    @property
    def changes(self) -> frozenset[tuple[str, str]]:
        """Values of all parts in which the requests and results differ, as text: a pair of both runs for each part."""
        differing = [*self.parts_of("asked"), *self.parts_of("answered")]
        return frozenset((as_text(part.before), as_text(part.after)) for part in differing)


class Divergence(NamedTuple):
    """First difference between two runs, in the order of the first run's log."""

    row: Row
    event: int | None
    """Sequence number of the event in the first run; None if only the other run has the place."""
    other_event: int | None
    step: str
    text: str
    """Description of the difference, with both values in one text and without secrets."""

    def __str__(self) -> str:
        return self.text


class Side(NamedTuple):
    """One of two compared runs: its workflow, status and times, and its tree of places (steps, items, calls, ...)."""

    id: str
    workflow: str
    fingerprint: str
    parent: str
    origin: str
    """Origin of the run, one of `divebook.events.catalog.ORIGINS`."""
    status: str
    began_us: int
    """Start of the run; for a fork that of the fork, and not that of its source."""
    took_us: int
    """Microseconds from the first event to the last in which the run worked or slept: without the time in which it
    waited for a person, was paused or was stopped, and without the time between a run and the start of its fork.
    """
    root: OperationTree
    spans: tuple[Span, ...] = ()
    """Spans of the run, with times in microseconds of work since its start: the time in which it waited for a person,
    was paused or was stopped is cut out.
    """

    @classmethod
    def of(cls, log: Iterable[Event]) -> Side:
        """Read the log of a run, and build its tree of places.

        Raises
        ------
        SetupError
            The run has not started.
        """
        read = ReadLog.of(log)
        if not read or not isinstance(read[0].data, catalog.ExecutionStarted):
            raise SetupError("a run that has not started cannot be compared; start it first")
        began = read[0]
        start = read[0].data
        forks = [(event.sequence, event.data) for event in read if isinstance(event.data, catalog.ExecutionForked)]
        shared().learn(start.inputs)
        root = placed(read)
        idle_time = _IdleTime(read)
        idle_time.note_in(root)
        end = next((inner for inner in root.inside if inner.kind == "end"), None)
        return cls(
            began.execution_id,
            start.workflow_name,
            start.fingerprint or "",
            start.parent or (forks[-1][1].source if forks else ""),
            # The origin of a fork is in its last fork event.
            forks[-1][1].came_from if forks else start.came_from,
            end.status if end else root.status,
            read[forks[-1][0] - 1].recorded_at if forks else began.recorded_at,
            idle_time.worked_us(began.recorded_at, read[-1].recorded_at),
            root,
            tuple(idle_time.without(read.spans, began.recorded_at)),
        )

    def is_related_to(self, other: Side) -> bool:
        """Return whether this run and another one ran the same workflow, or one of them was derived from the other."""
        same = self.workflow == other.workflow or (self.fingerprint and self.fingerprint == other.fingerprint)
        return bool(same) or self.parent == other.id or other.parent == self.id


class _IdleTime:
    """Time in which a run waited for a person, was paused or was stopped.

    The start of a fork is recorded when the fork starts, perhaps days after the last event of its source. `Activity`
    counts this time as stopped.
    """

    def __init__(self, log: ReadLog) -> None:
        activity: Activity = log.activity
        last = activity.last_us
        phases = [(phase.started_us, phase.ended_us or last, phase.doing) for phase in activity.phases]
        if activity.current is not None:
            phases.append((activity.current.started_us, last, activity.current.doing))
        self._phases = [(start, end) for start, end, doing in phases if doing != ASLEEP]
        # Idle time before each phase. The phases are in order and do not overlap.
        self._before = [0, *accumulate(end - start for start, end in self._phases)]

    def note_in(self, node: OperationTree) -> None:
        """Set the idle time of a node and of all nodes inside it."""
        if not self._phases:
            return
        span = node.span
        if span is not None and span.ended_us is not None:
            node.idle_us = self._until(span.ended_us) - self._until(span.started_us)
        for inner in node.inside:
            self.note_in(inner)

    def without(self, spans: Iterable[Span], start: int) -> Iterator[Span]:
        """Yield spans whose times are microseconds of work since the start of the run."""
        for span in spans:
            ended = None if span.ended_us is None else self.worked_us(start, span.ended_us)
            yield replace(span, started_us=self.worked_us(start, span.started_us), ended_us=ended)

    def worked_us(self, start: int, end: int) -> int:
        """Return the microseconds between two moments without the idle time."""
        return max(0, end - start - self._until(end) + self._until(start))

    def _until(self, moment: int) -> int:
        """Return the idle time from the beginning up to a moment, in microseconds."""
        place = bisect_right(self._phases, (moment, moment)) - 1
        if place < 0:
            return 0
        start, end = self._phases[place]
        return self._before[place] + min(moment, end) - start


class Totals(NamedTuple):
    """Sums of tokens, cost and time over all calls of a run."""

    tokens: int
    cost: int | None
    """Cost in nanodollars; None if no price is known."""
    duration: timedelta | None
    """Time in which the run worked or slept; None if some calls were answered from a log, because those take no
    time.
    """


@dataclass(slots=True)
class ResultCounts:
    """Numbers of results of the items that two runs have in common, for one step."""

    total: int = 0
    changed: int = 0
    right: tuple[int, int] = (0, 0)
    """Numbers of right results in both runs, if the results are judged."""


Verdict: TypeAlias = Literal["better", "worse"]


class Pair:
    """Comparison of two runs, with one row for each place (step, item, call, ...) that at least one of them has."""

    def __init__(self, a: Side, b: Side) -> None:
        self.a = a
        self.b = b
        self.rows: list[Row] = list(_rows(a.root, b.root, ""))
        self.is_right: Callable[[OperationTree], bool] | None = None
        """Function that tells whether the result of an item is right; None if the results are not judged."""

    @cached_property
    def differences(self) -> list[Row]:
        """Rows of those places that differ between the runs."""
        return [row for row in self.rows if row.difference != "same"]

    @cached_property
    def telling(self) -> list[Row]:
        """Rows that differ, without those that only repeat differences of other rows: a step, item or turn whose result
        differs only because something inside it differs, a turn whose request differs as the ones inside it, and a
        variable that collects differing results.
        """
        rows: list[Row] = []
        # Backwards, the nodes inside a node come directly before it: the rows that were kept last lie inside it, if any
        # does.
        for row in reversed(self.differences):
            inside = f"{row.place} / "
            has_inner = bool(rows) and rows[-1].place.startswith(inside)
            if not has_inner or not _is_repeated(row, (inner for inner in _inside(rows, inside))):
                rows.append(row)
        rows.reverse()
        of_calls = frozenset[tuple[str, str]]().union(
            *(row.changes for row in rows if row.present.kind in ("operation", "item", "question", "step"))
        )
        # A variable with one of these results is shown, because the rest of the run depends on it.
        collects = (row.present.kind == "variable" and all(part.place for part in row.parts) for row in rows)
        return [row for row, is_list in zip(rows, collects, strict=True) if not (is_list and _repeats(row, of_calls))]

    @cached_property
    def results(self) -> dict[str, ResultCounts]:
        """Results of the items of each step with `Each`, by the name of the step. Steps without items are left out."""
        counts: dict[str, ResultCounts] = {}
        for row in self.rows:
            if row.present.kind == "item" and row.a is not None and row.b is not None:
                count = counts.setdefault(row.present.step, ResultCounts())
                count.total += 1
                count.changed += not row.has_same_result
                if self.is_right is not None:
                    right = self.is_right(row.a), self.is_right(row.b)
                    count.right = count.right[0] + right[0], count.right[1] + right[1]
        return counts

    @property
    def is_judged(self) -> bool:
        """True if it is known which results of items are right."""
        return self.is_right is not None

    @cached_property
    def verdicts(self) -> dict[int, Verdict]:
        """Verdicts about the rows that differ, by the ``id()`` of the row. The row of an item has the verdict; if it is
        not among the differing rows, the last row inside it with another result has it.
        """
        verdicts: dict[int, Verdict] = {}
        if self.is_right is None:
            return verdicts
        telling = {id(row) for row in self.telling}
        item: tuple[str, Verdict | None] = "", None
        last: Row | None = None
        for row in [*self.rows, None]:
            if row is None or (item[1] is not None and not row.place.startswith(item[0])):
                if last is not None and item[1] is not None:
                    verdicts[id(last)] = item[1]
                item = "", None
            if row is None:
                break
            if row.present.kind == "item" and row.a is not None and row.b is not None:
                before, after = self.is_right(row.a), self.is_right(row.b)
                verdict: Verdict | None = None if before == after else "better" if after else "worse"
                item, last = (f"{row.place} / ", verdict), row if id(row) in telling else None
            elif id(row) in telling and not row.has_same_result:
                last = row
        return verdicts

    def judge(self, is_right: Callable[[OperationTree], bool]) -> Pair:
        """Return this comparison together with a function that tells whether the result of an item is right."""
        judged = copy(self)
        judged.is_right = is_right
        for name in ("results", "verdicts"):
            judged.__dict__.pop(name, None)
        return judged

    @cached_property
    def first(self) -> Divergence | None:
        """First difference between the runs, in the order of the first run's log; None if the runs are the same.

        Each row gets a position: the event at which it appears in the first run, or, if only the other run has it,
        just behind the latest event of the first run that precedes it there. The difference with the smallest position
        is the first one. Every consequence of a difference comes later in a log.
        """
        if not self.differences:
            return None
        reached = 0.0
        at = dict[int, float]()
        # Rows that only the first run has (b is None) get their own event, whatever their place in this order.
        for row in sorted(self.rows, key=lambda row: row.b.began if row.b is not None else 0):
            # 0.5 places the row between two events of the first run.
            at[id(row)] = reached + 0.5 if row.a is None else row.event_of(row.a) or 0
            if row.a is not None and row.b is not None:  # what lies inside comes before the end of what holds it
                reached = max(reached, row.a.began if row.a.inside else at[id(row)])
        row = min(self.differences, key=lambda row: at[id(row)])
        return Divergence(row, row.event_of(row.a), row.event_of(row.b), row.present.step, describe(row))

    @property
    def totals(self) -> tuple[Totals, Totals]:
        """Sums of tokens, cost and time over the calls of each of the two runs. A call replayed from the log of the
        other run counts with its recorded cost.
        """
        ours = [row.a for row in self.rows if row.a is not None]
        theirs = [row.b for row in self.rows if row.b is not None]
        return _totals(self.a, ours, self.b, theirs), _totals(self.b, theirs, self.a, ours)

    @property
    def counts(self) -> dict[DifferenceKind, int]:
        """Number of places with each kind of difference (same, changed, added, removed)."""
        counts: dict[DifferenceKind, int] = dict.fromkeys(SIGNS, 0)
        for row in self.rows:
            counts[row.difference] += 1
        return counts


def _inside(rows: Sequence[Row], inside: str) -> Iterator[Row]:
    """Yield the last rows of a list, as far as their places begin with `inside`."""
    for row in reversed(rows):
        if not row.place.startswith(inside):
            return
        yield row


def _is_repeated(row: Row, inner_rows: Iterable[Row]) -> bool:
    """Return whether the difference of a row only repeats those of the rows inside it."""
    if row.a is None or row.b is None or row.facet == "status":
        return False
    if row.facet == "answered":
        return any(not inner.has_same_result for inner in inner_rows)
    return _repeats(row, frozenset[tuple[str, str]]().union(*(inner.changes for inner in inner_rows)))


def _repeats(row: Row, changes: frozenset[tuple[str, str]]) -> bool:
    return bool(row.changes) and row.changes <= changes


# --- alignment of two trees ------------------------------------------------------------------------------------------
#
# The children of two aligned nodes are aligned with each other, kind by kind, and then recursively. If both have the
# same keys in the same order, they are paired one by one. If not, several criteria are tried, the most specific first,
# and each child is matched at most once. Example: the items of A have the values [x, y, z], those of B [y, z, w]. The
# keys are the indexes 0, 1, 2 in both, but the values differ. "Key and value" matches nothing, "value" pairs y with y
# and z with z, and "key" finds nothing in what remains (x has index 0 and w has index 2). The rows are: x removed, y
# and z the same, w added. Children that only B has follow the row of the child that precedes them in B.


def _rows(a: OperationTree, b: OperationTree, above: str) -> Iterator[Row]:
    """Yield a `Row` (a place in both runs, with their difference) for each child of two matched nodes, in the order of
    the first run.

    A child that only the other node has follows the row of its neighbour, the matched child that precedes it.
    """
    # {id of a node of B: its partner in A}, and the reverse for the loop over A.
    partner = _partners(a.inside, b.inside)
    partner_in_b: dict[int, OperationTree] = {}
    # {id of a node of A: nodes that only B has and that follow it}.
    after: dict[int, list[OperationTree]] = defaultdict(list)
    neighbour = 0  # stands for the beginning
    for inner in b.inside:
        mine = partner.get(id(inner))
        if mine is None:
            after[neighbour].append(inner)
        else:
            partner_in_b[id(mine)] = inner
            neighbour = id(mine)
    for inner in after[0]:
        yield from _alone(inner, above, is_first=False)
    for inner in a.inside:
        its = partner_in_b.get(id(inner))
        if its is None:
            yield from _alone(inner, above, is_first=True)
        else:
            place = above + inner.display_name
            yield Row(inner, its, place, _facet(inner, its))
            if inner.inside or its.inside:
                yield from _rows(inner, its, f"{place} / ")
        for added in after.get(id(inner), ()):
            yield from _alone(added, above, is_first=False)


def _alone(inner: OperationTree, above: str, *, is_first: bool) -> Iterator[Row]:
    """Yield a `Row` (a place, with its difference) for a node that only one of the runs has, and for each node inside
    it.
    """
    place = above + inner.display_name
    yield Row(inner if is_first else None, None if is_first else inner, place, None)
    for part in inner.inside:
        yield from _alone(part, f"{place} / ", is_first=is_first)


def _facet(a: OperationTree, b: OperationTree) -> Facet | None:
    return "asked" if not alike(a.asked, b.asked) else _result_facet(a, b)


def _result_facet(a: OperationTree, b: OperationTree) -> Facet | None:
    if not alike(a.answered, b.answered):
        return "answered"
    return None if a.status == b.status else "status"


def _partners(ours: Sequence[OperationTree], theirs: Sequence[OperationTree]) -> dict[int, OperationTree]:
    """Match the nodes inside a node of one run (`ours`) with those inside the corresponding node of the other run
    (`theirs`). Return a mapping from the ``id()`` of a node in `theirs` to the matching node in `ours`.

    Equal lists are paired one by one. Else each kind of child is matched separately, with several criteria
    (`_criteria`). Each criterion pairs children that remained from the ones before.
    """
    if [inner.key for inner in ours] == [inner.key for inner in theirs] and _are_settled(ours, theirs):
        return {id(its): mine for mine, its in zip(ours, theirs, strict=True)}
    partners: dict[int, OperationTree] = {}
    # Kinds are matched separately, because keys and values of different kinds have nothing in common.
    for kind in dict.fromkeys(inner.kind for inner in theirs):
        ours_left = [inner for inner in ours if inner.kind == kind]
        theirs_left = [inner for inner in theirs if inner.kind == kind]
        for criterion in _criteria(kind, ours_left, theirs_left):
            if not ours_left or not theirs_left:
                break
            _match(ours_left, theirs_left, criterion, partners)
            # Pairs are found by `id`, since nodes with equal values are different nodes.
            matched = {id(mine) for mine in partners.values()}
            ours_left = [inner for inner in ours_left if id(inner) not in matched]
            theirs_left = [inner for inner in theirs_left if id(inner) not in partners]
    return partners


def _are_settled(ours: Sequence[OperationTree], theirs: Sequence[OperationTree]) -> bool:
    """Return whether two lists of nodes can be paired in order, without a further search. The lists have the same keys.
    All kinds must be equal too, and items must have equal values.
    """
    pairs = zip(ours, theirs, strict=True)
    return all(a.kind == b.kind and (a.kind != "item" or alike(a.asked, b.asked)) for a, b in pairs)


def _criteria(
    kind: str, ours: Sequence[OperationTree], theirs: Sequence[OperationTree]
) -> tuple[Callable[[OperationTree], Hashable], ...]:
    """Return functions that decide which nodes of two runs are paired: two nodes are paired if a function returns equal
    values for both. The most specific function is first. `kind` is the kind of all nodes.
    """
    if kind == "step":
        # The names of paths may differ between two runs; the order of the visits to a step may not.
        return _by_key, _by_telling
    are_alike = [inner.key for inner in ours] == [inner.key for inner in theirs] and _are_settled(ours, theirs)
    if are_alike or kind not in ("item", "operation"):
        return (_by_key,)
    # For the calls and items of a list that changed: equal in both, then equal in value, then at the same position.
    return _by_both, _by_telling, _by_key


def _by_key(inner: OperationTree) -> Hashable:
    return inner.key  # type: ignore[no-any-return]  # of each kind another


def _by_telling(inner: OperationTree) -> Hashable:
    return inner.tells  # type: ignore[no-any-return]  # likewise


def _by_both(inner: OperationTree) -> Hashable:
    return inner.key, inner.tells


def _match(
    ours: Iterable[OperationTree],
    theirs: Iterable[OperationTree],
    criterion: Callable[[OperationTree], Hashable],
    partners: dict[int, OperationTree],
) -> None:
    """Add to `partners` the pairs of nodes for which `criterion` returns equal values. Nodes are paired in order, each
    at most once.
    """
    # Nodes with equal criteria are paired in the order in which they occur.
    waiting: dict[Hashable, deque[OperationTree]] = defaultdict(deque)
    for inner in ours:
        waiting[criterion(inner)].append(inner)
    for inner in theirs:
        same = waiting.get(criterion(inner))
        if same:
            partners[id(inner)] = same.popleft()


# --- in words --------------------------------------------------------------------------------------------------------


def describe(row: Row) -> str:
    """Describe a difference between two runs in one line, with both values in one text and without secrets."""
    clean = shared().text
    if row.difference != "changed":
        which = "the first" if row.b is None else "the other"
        return f"{row.place}: {row.difference}, only in {which} run"
    differing = row.parts
    if row.facet == "status" or not differing or row.a is None or row.b is None:
        return f"{row.place}: {row.a and row.a.status} before, now {row.b and row.b.status}"
    part = differing[0]
    under = f", {part.place}" if part.place else ""
    more = f" (and {plural(len(differing) - 1, 'more part')})" if differing[1:] else ""
    texts = clean(as_text(part.before)), clean(as_text(part.after))
    return visible(f"{one_line(row.place, 120)}{under}: {one_line(marked(*texts), 400)}{more}")


def _in_words(place: str) -> str:
    """Describe the position of a differing part in words, such as ``message`` for the content of a model message.

    >>> _in_words("new[0].parts[1].content"), _in_words("parts[0].args.city"), _in_words("arguments.n")
    ('message', 'arguments.city', 'arguments.n')
    """
    # The first pattern that fits, since the more specific ones come first.
    return next((pattern.sub(word, place) for pattern, word in _MESSAGE_PARTS if pattern.match(place)), place)


_MESSAGE_PARTS = [
    # The path of a field of a message in pydantic-ai's JSON form: "new[0].parts[1].content".
    (re.compile(rf"{before}parts\[\d+\]\.{name}\b"), word)
    for before, name, word in (
        (r"new\[\d+\]\.", "content", "message"),
        ("", "content", "answer"),
        ("", "args", "arguments"),
        ("", "tool_name", "tool"),
    )
]


def as_text(value: Any) -> str:
    """Format one of two compared values for people; return an empty string if the run does not have the value."""
    if value is NOTHING:
        return ""
    value = value.value if isinstance(value, ByHash) else value
    return value if isinstance(value, str) else str(readable(value))


def money(nanodollars: int | None) -> str:
    """Format a cost in dollars, or ``unknown``.

    >>> money(1_500_000_000), money(None)
    ('$1.50', 'unknown')
    """
    return "unknown" if nanodollars is None else price(dollars(nanodollars))


def took(totals: Totals) -> str:
    """Format the duration of a run."""
    return "answered from the log" if totals.duration is None else seconds(totals.duration.total_seconds())


def _totals(side: Side, rows: Sequence[OperationTree], other: Side, its: Sequence[OperationTree]) -> Totals:
    calls = [each for each in rows if each.kind == "operation"]
    # A replayed call costs nothing in this run. Its cost is that of the recorded call in the other run, so that both
    # runs are comparable.
    served = {each.served["sequence"] for each in calls if each.served and each.served.get("execution") == other.id}
    calls += [each for each in its if each.kind == "operation" and each.ended in served]
    costs = [each.cost for each in calls if each.cost is not None]
    # Replayed calls take no time, and the time of the run means nothing then.
    took = None if any(each.way == SERVED for each in calls) else timedelta(microseconds=side.took_us)
    return Totals(sum(each.tokens or 0 for each in calls), sum(costs) if costs else None, took)
