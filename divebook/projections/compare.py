"""Runs laid side by side, place by place: what is the same, what has changed, what only one of them has.

Places are matched by what they are: a visit by path, step and number, an item by its index, a call by its key within
what holds it. Where the lists differ, what tells one from the others is looked at first: the key or the value of an
item, what a call was asked; and visits of a step are matched in their order where paths have other names. The clock is
not compared, nor are ids: what code made of them is.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from divebook.engine.bounds import NANODOLLARS
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
from divebook.projections.failures import place_label, without_places
from divebook.projections.spans import Span
from divebook.projections.summary import ReadLog
from divebook.text.format import NOTHING, Differing, alike, branch_name, marked, parts, plural, price, seconds, visible
from divebook.text.redaction import one_line, shared

# How the operations of a what-if, or of a trial, were answered, as the events at their ends say. Pure.


SERVED = "served"
LIVE = "live"
BLOCKED = "blocked"
COMPUTED = "computed"
SKIPPED = "skipped"
OTHER = "other"
IS_COMPUTED = frozenset({SCRIPT_EXECUTION, TIME_ACCESS, RANDOM_GENERATION, VERDICT, STAGE_ATTEMPT, VERSION_DECISION})


def way_of(data: Any) -> str:
    """Return how the operation or question was answered whose end an event says.

    ``served`` from the log of another execution, ``blocked``: not executed, ``skipped``: a sleep, ``computed``: a
    script, or a reading of clock or chance; ``live``: executed; ``other`` is what only holds others, and an answer that
    a person gave.
    """
    told = data.served
    kind = getattr(data, "operation_type", "")
    if told is not None:
        return BLOCKED if "blocked" in told else SERVED
    if kind == TIMER:
        return SKIPPED
    if kind in IS_COMPUTED:
        return COMPUTED
    return LIVE if kind and kind not in ENCLOSING and kind != CHILD_WORKFLOW else OTHER


# A log as a tree of places: what was asked and what came of it, so that the logs of two runs can be laid side by side.
#
# Children of the run are inputs, visits to steps, branches, variables and outputs; of a visit its items, calls,
# questions and conditions; of an item its calls; of an agent's turn its requests and the calls of its tools.


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
class OperationTree:
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
    inside: list[OperationTree] = field(default_factory=list)
    path: str = ""
    step: str = ""
    way: str = ""
    """Of an operation behind the fork of a what-if: how it was answered (`way_of`)."""
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


def placed(log: ReadLog) -> OperationTree:
    """Return a log as the tree of its places; the root is the run."""
    return _Placing(log).root


class _Placing:
    """Makes the tree of one log."""

    def __init__(self, log: ReadLog) -> None:
        self.root = OperationTree("run", "", ())
        self._steps: dict[str, OperationTree] = {}
        """By path: the visit it is in, or was in last."""
        self._places: dict[str, None] = {}
        """Lines of code that failures name (`divebook.projections.failures`)."""
        self._begun: dict[int, OperationTree] = {}
        """Visits by the event with which they began."""
        self._variables: dict[str, OperationTree] = {}
        self._questions: dict[str, OperationTree] = {}
        self._counts: Counter[Any] = Counter()
        self._ends: dict[int, OperationTree] = {}
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
        known: dict[int, OperationTree] = {}
        items: dict[tuple[str, int | None], OperationTree] = {}
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

    def _call(self, span: Span, around: OperationTree) -> OperationTree:
        key = span.key
        if isinstance(key, str) and key.startswith("tool-"):
            key = _TOOL_KEY.sub(rf"\1-{span.called or ''}\2\3", key)
        name = span.called or ""
        place = (span.type, name, key)
        self._counts[id(around), place] += 1
        made = OperationTree(
            "operation", name, (*place, self._counts[id(around), place]), path=span.path, step=span.step
        )
        if span.kind == "event":
            made.kind, made.answered = "event", (span.parameters or {}).get("data")
        else:
            made.asked, made.answered = _asked(span), _answered(span)
            self._ends[span.sequences[-1]] = made
        return _timed(made, span)

    # --- what takes none -------------------------------------------------------------------------------------------

    def _add(self, kind: Kind, name: str, event: Event, asked: Any, answered: Any) -> OperationTree:
        """Add what an event says to the visit that its path is in, or to the run."""
        around = self._steps.get(event.path, self.root) if event.path else self.root
        self._counts[id(around), kind, name] += 1
        key = kind, name, event.path if around is self.root else "", self._counts[id(around), kind, name]
        made = OperationTree(kind, name, key, asked, answered, began=event.sequence, ended=event.sequence)
        made.path = event.path
        made.step = event.step
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
            made.status = "resolved" if is_answer else "expired"
            made.ended = event.sequence

    def _mutated(self, event: Event, data: catalog.StateMutated) -> None:
        for change in data.mutations:
            if change.type == "delete":
                self._variables.pop(change.key, None)
            else:
                self._variables[change.key] = _variable(event, change.key, change.value)

    def _forked(self, event: Event, data: catalog.ExecutionForked) -> None:
        """Take what is otherwise from here on, and drop the questions that are still open: the fork asks its own."""
        change = data.change or {}
        self._is_answered = data.tools is not None
        for name, value in change.get("variables", {}).items():
            self._variables[name] = _variable(event, name, value)
        for given in self.root.inside:
            if given.kind == "input" and given.name in change.get("inputs", {}):
                given.answered = change["inputs"][given.name]
                given.began = event.sequence
                given.ended = event.sequence
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
            made.way = way_of(data)
            made.served = data.served

    def _ended(self, event: Event, data: catalog.Payload) -> None:
        """Note how it ended; of several ends the last one counts."""
        self.root.inside = [inner for inner in self.root.inside if inner.kind not in ("output", "end")]
        if isinstance(data, catalog.ExecutionCompleted):
            for name, value in data.outputs.items():
                self._add("output", name, event, None, value)
        status = STATUS_AFTER[type(data)]
        error = without_places(getattr(data, "error", None) or "", self._places)
        made = OperationTree("end", "end", ("end",), None, error or status, status)
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


def _is_open_question(inner: OperationTree) -> bool:
    return inner.kind == "question" and inner.status == catalog.WAITING


def _variable(event: Event, name: str, value: Any) -> OperationTree:
    made = OperationTree("variable", name, ("variable", name), None, value)
    made.began = made.ended = event.sequence
    return made


def _step(span: Span) -> OperationTree:
    made = OperationTree(
        "step", span.step, (span.path, span.step, span.visit), span.type, path=span.path, step=span.step
    )
    made.answered = _answered(span)
    return _timed(made, span)


def _item(span: Span) -> OperationTree:
    made = OperationTree("item", span.name, span.iteration, span.item, _answered(span), path=span.path, step=span.step)
    return _timed(made, span)


def _timed(made: OperationTree, span: Span) -> OperationTree:
    made.span = span
    made.status = span.status
    made.began = span.sequences[0]
    made.ended = span.sequences[-1]
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


Difference: TypeAlias = Literal["same", "changed", "added", "removed"]
Facet: TypeAlias = Literal["asked", "answered", "status"]
MINUS = "\u2212"
"""As wide as the plus."""
SIGNS: dict[Difference, str] = {"same": "=", "changed": "≠", "added": "+", "removed": MINUS}


@dataclass(frozen=True, slots=True)
class Row:
    """One place in two runs."""

    a: OperationTree | None
    b: OperationTree | None
    place: str
    """``classify / classify[18] / model call helper``."""
    facet: Facet | None
    """What differs first: what was asked, what came of it, how it ended; None where nothing does, or one lacks it."""

    @property
    def difference(self) -> Difference:
        """What became of it."""
        if self.a is None:
            return "added"
        return "removed" if self.b is None else "same" if self.facet is None else "changed"

    @property
    def present(self) -> OperationTree:
        """It in the first run that has it."""
        found = self.a or self.b
        assert found is not None, "a row stands for something"  # noqa: S101 - rows are made in this file only
        return found

    def event_of(self, side: OperationTree | None) -> int | None:
        """Return the event with which the difference is met in a run; None where that run lacks it."""
        if side is None:
            return None
        return side.ended if self.facet in ("answered", "status") else side.began

    @property
    def parts(self) -> list[Differing]:
        """The smallest parts in which the two differ: of what was asked, else of what came of it."""
        if self.a is None or self.b is None or self.facet is None:
            return []
        found = parts(getattr(self.a, self.facet), getattr(self.b, self.facet))
        return [part._replace(place=_in_words(part.place)) for part in found]


class Divergence(NamedTuple):
    """Where two runs part: the first difference in the order of the first run's log."""

    row: Row
    event: int | None
    """Its event in the first run; None where only the other has it."""
    other_event: int | None
    step: str
    text: str
    """What it is, in words, with both sides in one text; no secrets."""

    def __str__(self) -> str:
        return self.text


class Side(NamedTuple):
    """One of the runs."""

    id: str
    workflow: str
    fingerprint: str
    parent: str
    origin: str
    """How it came about, one of `divebook.events.catalog.ORIGINS`."""
    status: str
    began_us: int
    took_us: int
    """From its first event to its last, without the time between the fork of a fork and what it was forked from."""
    root: OperationTree

    @classmethod
    def of(cls, log: Iterable[Event]) -> Side:
        """Read a log."""
        read = ReadLog.of(log)
        if not read or not isinstance(read[0].data, catalog.ExecutionStarted):
            raise SetupError("a run that has not begun has nothing to compare; start it first")
        began = read[0]
        start = read[0].data
        forks = [(event.sequence, event.data) for event in read if isinstance(event.data, catalog.ExecutionForked)]
        between = sum(read[place - 1].recorded_at - read[place - 2].recorded_at for place, _ in forks)
        shared().learn(start.inputs)
        root = placed(read)
        end = next((inner for inner in root.inside if inner.kind == "end"), None)
        return cls(
            began.execution_id,
            start.workflow_name,
            start.fingerprint or "",
            start.parent or "",
            forks[-1][1].came_from if forks else start.came_from,
            end.status if end else root.status,
            began.recorded_at,
            read[-1].recorded_at - began.recorded_at - between,
            root,
        )

    def is_related_to(self, other: Side) -> bool:
        """Whether both ran one workflow, or one was made of the other."""
        same = self.workflow == other.workflow or (self.fingerprint and self.fingerprint == other.fingerprint)
        return bool(same) or self.parent == other.id or other.parent == self.id


class Totals(NamedTuple):
    """What the calls of a run come to."""

    tokens: int
    cost: int | None
    """Nanodollars; None where no price is known."""
    seconds: float | None
    """That it took; None of what was answered from a log, in no time."""


class Pair:
    """Two runs, place by place."""

    def __init__(self, a: Side, b: Side) -> None:
        self.a = a
        self.b = b
        self.rows: list[Row] = list(_rows(a.root, b.root, ""))

    @cached_property
    def differences(self) -> list[Row]:
        """The rows that are not the same."""
        return [row for row in self.rows if row.difference != "same"]

    @cached_property
    def telling(self) -> list[Row]:
        """The differences without the steps, items and turns that differ in their outcome and in what they hold."""
        found: list[Row] = []
        for row in reversed(self.differences):
            inside = f"{row.place} / "
            if row.facet != "answered" or not any(inner.place.startswith(inside) for inner in found[-1:]):
                found.append(row)
        return found[::-1]

    @cached_property
    def first(self) -> Divergence | None:
        """Where they part: nothing that follows from a difference comes before it in a log."""
        if not self.differences:
            return None
        reached = 0.0
        at = dict[int, float]()
        for row in sorted(self.rows, key=lambda row: row.b.began if row.b is not None else 0):
            at[id(row)] = reached + 0.5 if row.a is None else row.event_of(row.a) or 0
            if row.a is not None and row.b is not None:  # what lies inside comes before the end of what holds it
                reached = max(reached, row.a.began if row.a.inside else at[id(row)])
        row = min(self.differences, key=lambda row: at[id(row)])
        return Divergence(row, row.event_of(row.a), row.event_of(row.b), row.present.step, told(row))

    @property
    def totals(self) -> tuple[Totals, Totals]:
        """What the calls of both come to: what was answered from the other's log counts as it did there."""
        ours = [row.a for row in self.rows if row.a is not None]
        theirs = [row.b for row in self.rows if row.b is not None]
        return _totals(self.a, ours, self.b, theirs), _totals(self.b, theirs, self.a, ours)

    @property
    def counts(self) -> dict[Difference, int]:
        """How many places are the same, changed, added and removed."""
        found: dict[Difference, int] = dict.fromkeys(SIGNS, 0)
        for row in self.rows:
            found[row.difference] += 1
        return found


# --- matching ------------------------------------------------------------------------------------------------------


def _rows(a: OperationTree, b: OperationTree, above: str) -> Iterator[Row]:
    """Yield the rows of what two places hold, in the first's order; what only the other has after its neighbour."""
    partner = _partners(a.inside, b.inside)
    taken = {id(mine): its for its, mine in ((inner, partner.get(id(inner))) for inner in b.inside) if mine is not None}
    after: dict[int, list[OperationTree]] = defaultdict(list)
    neighbour = 0
    for inner in b.inside:
        mine = partner.get(id(inner))
        if mine is None:
            after[neighbour].append(inner)
        else:
            neighbour = id(mine)
    for inner in after[0]:
        yield from _alone(inner, above, is_first=False)
    for inner in a.inside:
        its = taken.get(id(inner))
        if its is None:
            yield from _alone(inner, above, is_first=True)
        else:
            place = above + inner.label
            yield Row(inner, its, place, _facet(inner, its))
            if inner.inside or its.inside:
                yield from _rows(inner, its, f"{place} / ")
        for added in after.get(id(inner), ()):
            yield from _alone(added, above, is_first=False)


def _alone(inner: OperationTree, above: str, *, is_first: bool) -> Iterator[Row]:
    """Yield the rows of what one run has alone."""
    place = above + inner.label
    yield Row(inner if is_first else None, None if is_first else inner, place, None)
    for part in inner.inside:
        yield from _alone(part, f"{place} / ", is_first=is_first)


def _facet(a: OperationTree, b: OperationTree) -> Facet | None:
    if not alike(a.asked, b.asked):
        return "asked"
    if not alike(a.answered, b.answered):
        return "answered"
    return None if a.status == b.status else "status"


def _partners(ours: Sequence[OperationTree], theirs: Sequence[OperationTree]) -> dict[int, OperationTree]:
    """Return, by the id of each of theirs that has one, what it is matched with."""
    if [inner.key for inner in ours] == [inner.key for inner in theirs] and _are_settled(ours, theirs):
        return {id(its): mine for mine, its in zip(ours, theirs, strict=True)}
    found: dict[int, OperationTree] = {}
    for kind in dict.fromkeys(inner.kind for inner in theirs):
        left = [inner for inner in ours if inner.kind == kind]
        other = [inner for inner in theirs if inner.kind == kind]
        for way in _ways(kind, left, other):
            if not left or not other:
                break
            _match(left, other, way, found)
            matched = {id(mine) for mine in found.values()}
            left = [inner for inner in left if id(inner) not in matched]
            other = [inner for inner in other if id(inner) not in found]
    return found


def _are_settled(ours: Sequence[OperationTree], theirs: Sequence[OperationTree]) -> bool:
    """Whether those that have the same places are one by one the same things."""
    pairs = zip(ours, theirs, strict=True)
    return all(a.kind == b.kind and (a.kind != "item" or alike(a.asked, b.asked)) for a, b in pairs)


def _ways(
    kind: str, ours: Sequence[OperationTree], theirs: Sequence[OperationTree]
) -> tuple[Callable[[OperationTree], Hashable], ...]:
    """Return by what they are matched, the surest first."""
    if kind == "step":
        return _by_key, _by_telling
    are_alike = [inner.key for inner in ours] == [inner.key for inner in theirs] and _are_settled(ours, theirs)
    if are_alike or kind not in ("item", "operation"):
        return (_by_key,)
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
    way: Callable[[OperationTree], Hashable],
    found: dict[int, OperationTree],
) -> None:
    """Match what is equal in one way, each once, in order."""
    waiting: dict[Hashable, deque[OperationTree]] = defaultdict(deque)
    for inner in ours:
        waiting[way(inner)].append(inner)
    for inner in theirs:
        same = waiting.get(way(inner))
        if same:
            found[id(inner)] = same.popleft()


# --- in words --------------------------------------------------------------------------------------------------------


def told(row: Row) -> str:
    """Return a difference in a line: both sides in one text, without secrets."""
    clean = shared().text
    if row.difference != "changed":
        which = "the first" if row.b is None else "the other"
        return f"{row.place}: {row.difference}, only in {which} run"
    found = row.parts
    if row.facet == "status" or not found or row.a is None or row.b is None:
        return f"{row.place}: {row.a and row.a.status} before, now {row.b and row.b.status}"
    part = found[0]
    under = f", {part.place}" if part.place else ""
    more = f" (and {plural(len(found) - 1, 'more part')})" if found[1:] else ""
    texts = clean(as_text(part.before)), clean(as_text(part.after))
    return visible(f"{one_line(row.place, 120)}{under}: {one_line(marked(*texts), 400)}{more}")


def _in_words(place: str) -> str:
    """Return the place of a part as people call it: in what models are told and answer, what it is.

    >>> _in_words("new[0].parts[1].content"), _in_words("parts[0].args.city"), _in_words("arguments.n")
    ('message', 'arguments.city', 'arguments.n')
    """
    return next((pattern.sub(word, place) for pattern, word in _MESSAGE_PARTS if pattern.match(place)), place)


_MESSAGE_PARTS = [
    (re.compile(rf"{before}parts\[\d+\]\.{name}\b"), word)
    for before, name, word in (
        (r"new\[\d+\]\.", "content", "message"),
        ("", "content", "answer"),
        ("", "args", "arguments"),
        ("", "tool_name", "tool"),
    )
]


def as_text(value: Any) -> str:
    """Return a value as people read it; nothing of what a run lacks."""
    if value is NOTHING:
        return ""
    value = value.value if isinstance(value, ByHash) else value
    return value if isinstance(value, str) else str(readable(value))


def money(nanodollars: int | None) -> str:
    """Return a cost as people read it.

    >>> money(1_500_000_000), money(None)
    ('$1.50', 'unknown')
    """
    return "unknown" if nanodollars is None else price(nanodollars / NANODOLLARS)


def took(totals: Totals) -> str:
    """Return the time that a run took as people read it."""
    return "answered from the log" if totals.seconds is None else seconds(totals.seconds)


def _totals(side: Side, found: Sequence[OperationTree], other: Side, its: Sequence[OperationTree]) -> Totals:
    calls = [each for each in found if each.kind == "operation"]
    served = {each.served["sequence"] for each in calls if each.served and each.served.get("execution") == other.id}
    calls += [each for each in its if each.kind == "operation" and each.ended in served]
    costs = [each.cost for each in calls if each.cost is not None]
    took = None if any(each.way == SERVED for each in calls) else side.took_us / 1e6
    return Totals(sum(each.tokens or 0 for each in calls), sum(costs) if costs else None, took)
