"""Runs that repeat an execution with one change, with its calls answered from the recorded log (what-ifs).

First the unchanged definition is verified against the log (`divebook.replay.verify`): if it already differs,
differences after the change would mean nothing. Then exactly one change is made (`tests/replay/test_what_if.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, NamedTuple, TypeAlias, cast

from divebook.definitions.definition import Workflow
from divebook.definitions.functions import FUNCTION
from divebook.engine.decide import steps_ahead
from divebook.engine.forks import Change, ends_in
from divebook.engine.operations import CHILD_WORKFLOW, ENCLOSING, TIMER, operation_kind, operation_name
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionNotFoundError, SetupError, SourceGoneError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.interrupts import interruptible_result
from divebook.projections.compare import BLOCKED, IS_COMPUTED, LIVE, Divergence, as_text, way_of
from divebook.projections.comparison import MIME, Comparison
from divebook.questions.bounds import Bounds, dollars, exact_dollars
from divebook.replay.recorded_answers import REQUESTS, RecordedAnswers, RecordedEnds, ReuseInputs, answering
from divebook.report.model import Column, Items, Line, Paragraph, Report, Section, Table, Text
from divebook.report.shown import Shown
from divebook.runtime.commit import StoreCalls
from divebook.runtime.manager import Control
from divebook.runtime.operations import FindMissPolicy, MissPolicy, OperationRequest
from divebook.runtime.run import Run
from divebook.stores import EventStore
from divebook.stores.memory import MemoryStore
from divebook.text.format import plural, price
from divebook.text.redaction import one_line, shared


@dataclass(frozen=True, slots=True, repr=False)
class WhatIf(Shown):
    """Result of a what-if: an execution that ran again with one change, compared with the original execution (its
    source).

    Examples
    --------
    ::

        what_if = run.what_if({"inputs": {"city": "Bonn"}})
        what_if.outputs, what_if.served, what_if.blocked, str(what_if.diff)
    """

    run: Run
    """Run of the what-if, with the origin ``what-if``."""
    source: str
    """Id of the execution from which the what-if was forked."""
    at: int
    """Number of the last event that the what-if shares with its source."""
    change: Change
    tally: Tally
    comparison: Comparison
    """Comparison of source and what-if, place by place."""
    calls: Sequence[UnreusedCall] = ()
    """Calls that were not answered from the log: they ran (live), or were not executed (blocked)."""
    unchecked: Sequence[str] = ()
    """Parts of the source that could not be verified before the change, with reasons."""

    @property
    def served(self) -> int:
        """Number of operations and questions that were answered from the log of the source execution."""
        return self.tally.served

    @property
    def live(self) -> int:
        """Number of calls that ran: model calls, and the tools that the option `tools` allows."""
        return self.tally.live

    @property
    def blocked(self) -> int:
        """Number of calls that did not run, because they have no recorded result."""
        return self.tally.blocked

    @property
    def unused(self) -> int:
        """Number of results in the log of the source execution that the what-if did not use."""
        return self.tally.unused

    @property
    def cost(self) -> float:
        """Cost of the model calls that the what-if made, in dollars."""
        return dollars(self.run.state.own_usage.cost)

    @property
    def comparable(self) -> str:
        """``full`` if the what-if can be compared completely with its source; ``partly`` if calls were blocked, or if
        the what-if has not ended.
        """
        return FULL if self.run.state.is_over and not self.blocked else PARTLY

    @property
    def diff(self) -> Divergence | None:
        """First difference between the source execution and the what-if; None if they are the same."""
        return self.comparison.first

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Outputs of the what-if."""
        return self.run.outputs

    def give(self, *results: Any) -> WhatIf:
        """Run the what-if again with the given results of its blocked calls, in the order of `calls`. All other calls
        are answered from the log of the what-if.

        Raises
        ------
        SetupError
            There are more results than blocked calls, or no results.
        """
        blocked = self._own_blocked_calls()
        if not results or len(results) > len(blocked):
            raise SetupError(
                f"give() takes one result for each blocked call, so it needs 1 to {len(blocked)} "
                f"results, not {len(results)}"
            )
        change = {call.operation_id: result for call, result in zip(blocked, results, strict=False)}
        return self.run.what_if({"results": change})

    def _own_blocked_calls(self) -> list[UnreusedCall]:
        """Return the blocked calls that can get a result: those of this execution, and not of its children."""
        return [call for call in self.calls if call.way == BLOCKED and call.step and " of " not in call.step]

    def judge(self, by: str | Callable[[Any, Any], object]) -> WhatIf:
        """Return this what-if with a count of the right results of the items of `Each`; see `Comparison.judge`."""
        return replace(self, comparison=self.comparison.judge(by))

    def __repr__(self) -> str:
        tally = self.tally
        text = f"{tally.served} replayed, {tally.live} live, {tally.blocked} blocked, {tally.unused} unused"
        return f"<what-if {self.run.id} of {self.source}: {self.run.status}, {text}>"

    def report(self) -> Report:
        """Return the counted calls, and the comparison with the source: lane A shows the source, lane B the what-if."""
        calls = tuple(Text(line, "faint") for line in _calls(self.calls))
        hint: Line = ("Provide results for the blocked calls: ", Text(".give(RESULT)", "code")) if self.blocked else ""
        lines = (*_head(self), *([hint] if hint else []))
        section = Section("calls that were not answered from the log", (Paragraph(calls),), is_open=False)
        return Report(blocks=(Paragraph(lines), *self.comparison.report().blocks, *([section] if calls else [])))

    def _mime_data(self) -> dict[str, object]:
        """Return the ids of the compared runs, which divebook's JupyterLab extension needs to step through the
        differences, and the blocked calls, to which a person can give results (``widgets/src/lab/blocked.ts``).
        """
        data = self.comparison._mime_data()  # noqa: SLF001 - it is shown as its comparison
        blocked = [
            {"operation": call.operation_id, "what": one_line(call.what, 80), "step": one_line(call.step, 60)}
            for call in self._own_blocked_calls()[:MOST]
        ]
        if not blocked:
            return data
        return {MIME: {**cast("dict[str, object]", data[MIME]), "what_if": {"run": self.run.id, "blocked": blocked}}}


# --- rehearsal --------------------------------------------------------------------------------------------------------
#
# Rehearsal: a fork runs in memory without external calls, to find out what it would do.
#
# Code stops at each operation that has no recorded answer. The rehearsal therefore shows which calls a change would
# make, and its results are discarded (`tests/replay/test_what_if.py`).


ControlOver: TypeAlias = Callable[[EventStore, FindMissPolicy], Control]
"""Function that returns a `Control` for another store, with the definitions of an environment."""


class Rehearsal(NamedTuple):
    """Result of a rehearsal: a fork that ran in memory, without external calls, until it needed results that are not
    recorded.
    """

    events: Sequence[Event]
    """Log of the fork, including the events shared with its source."""
    state: ExecutionState
    answers: RecordedAnswers
    """Miss policy of the fork, with the unused recorded results."""

    @property
    def unanswered(self) -> Sequence[OperationRequest]:
        """Calls without a recorded result that the fork would make. Its code has stopped at them."""
        return self.answers.unanswered

    def steps_after(self, workflow: Workflow) -> tuple[str, ...]:
        """Return the names of the steps that directly follow the steps at which the rehearsal has stopped."""
        asking = {path.current_step for path in self.state.active_paths() if path.asking}
        stopped_steps = asking.union(request.place.step for request in self.unanswered)
        if self.state.is_over or not stopped_steps:
            return ()
        ahead = steps_ahead(workflow, self.state)
        return tuple(step.name for step in workflow.steps if step.name in ahead and step.name not in stopped_steps)

    def functions_open(self, workflow: Workflow) -> tuple[str, ...]:
        """Return the names of the function steps at which the rehearsal has stopped at a call. Their code may make
        further calls after it.
        """
        stopped_steps = {request.place.step for request in self.unanswered}
        return tuple(step.name for step in workflow.steps if step.type == FUNCTION and step.name in stopped_steps)


class Variant(NamedTuple):
    """Checked description of a what-if, or of a continuation with a changed definition, from which one or several
    executions can be started.
    """

    source: Run
    events: Sequence[Event]
    """Whole log of the source."""
    workflow: Workflow
    change: Change
    """The change of a what-if; without parts for a continuation, whose definition is in `workflow`."""
    forked: catalog.ExecutionForked
    """First own event of each execution. It names the source, and the last shared event."""
    state: ExecutionState
    """State of the source after the last shared event."""


def rehearsed(variant: Variant, control_over: ControlOver, reuse_inputs: ReuseInputs) -> Rehearsal:
    """Run a variant of an execution in memory, without external calls. Return its log, its state, and the calls that it
    would make.
    """
    forked = variant.forked
    answers: list[RecordedAnswers] = []

    # The driver asks for the policy when it starts. The list makes it available to this function.
    async def find(state: ExecutionState, calls: StoreCalls) -> MissPolicy:
        # `patiently` repeats the call while the store is busy.
        events_of_fork = await calls.patiently(lambda: store.read(state.execution_id))
        fork_event = forked_by(events_of_fork)
        recorded = answering(variant.events, events_of_fork, fork_event, reuse_inputs, stops_at_calls=True)
        answers.append(recorded)
        return answers[-1]

    # The rehearsal gets a store, a manager and a log of its own, so that nothing of it can reach the real store.
    with MemoryStore() as store:
        control = control_over(store, find)
        try:
            # The fork shares the first events of its source, which must therefore be in the same store.
            store.append(forked.source, variant.events[: forked.at], 0)
            driver = control.start_fork(forked, source_state=variant.state)
            # The driver returns when all code has stopped at calls without a recorded result, or when the execution has
            # ended.
            interruptible_result(driver.driving())
            return Rehearsal(store.read(driver.id), driver.refresh().state, answers[-1])
        finally:
            control.close()


async def answers_for(
    store: EventStore, reuse_inputs: ReuseInputs, state: ExecutionState, calls: StoreCalls
) -> RecordedAnswers:
    """Return the policy by which a forked execution gets answers from the log of its source. It is created when the
    fork starts or is resumed.

    Raise `SourceGoneError` if a what-if's source was deleted.
    """

    def read() -> RecordedAnswers:
        events_of_fork = store.read(state.execution_id)
        fork_event = forked_by(events_of_fork)
        assert isinstance(fork_event.data, catalog.ExecutionForked)  # noqa: S101 - that is what it looks for
        try:
            source = store.read(fork_event.data.source)
        except ExecutionNotFoundError:
            # A what-if without its source has no answers at all. A continuation can make all remaining calls itself.
            if fork_event.data.tools not in catalog.REUSE_MODES:
                raise SourceGoneError(state.execution_id, fork_event.data.source) from None
            source = events_of_fork[
                : fork_event.data.at
            ]  # deleted: what it shares is its own by now, and all else is made anew
        return answering(source, events_of_fork, fork_event, reuse_inputs)

    return await calls.patiently(read)


def forked_by(events: Sequence[Event]) -> Event:
    """Return the event `ExecutionForked` with which a fork begins after the events of its source. If the log has
    several such events, return the last one.
    """
    # A fork of a fork shares the `execution_forked` event of its source, so that only the last one is its own.
    return next(event for event in reversed(events) if isinstance(event.data, catalog.ExecutionForked))


# --- planned calls and their estimated cost ---------------------------------------------------------------------------


class Planned(NamedTuple):
    """Call that a what-if, or a resumption with a changed definition, would make."""

    operation_type: str
    name: str
    step: str

    def __str__(self) -> str:
        return " ".join(filter(None, (operation_kind(self.operation_type), self.name, f"(step {self.step})")))


def planned_call(request: OperationRequest) -> Planned:
    """Return a summary of an operation that a rehearsal has requested and that did not run: its type, name and step."""
    kind = request.operation_type
    return Planned(kind, operation_name(kind, request.parameters) or "", request.place.step)


def likely_cost(events: Iterable[Event], requests: Sequence[OperationRequest]) -> float | None:
    """Return the estimated cost of planned calls in dollars, from the recorded model requests of the same agents.

    None if the log has no request of one of the agents, or if a call starts a child execution.
    """
    # The child makes calls that are not planned here.
    if any(each.operation_type == CHILD_WORKFLOW for each in requests):
        return None
    # Mean of all recorded requests of the agent, in nanodollars (1e-9 dollars).
    mean_costs = {agent: sum(costs) / len(costs) for agent, costs in _spent(events, by_turn=False).items()}
    agents = [operation_name(each.operation_type, each.parameters) for each in requests]
    agents = [agent for each, agent in zip(requests, agents, strict=True) if each.operation_type in REQUESTS]
    if any(agent not in mean_costs for agent in agents):
        return None
    return dollars(sum(mean_costs[agent] for agent in agents))


def items_to_come(events: Iterable[Event], state: ExecutionState) -> dict[str, int]:
    """Count the items of `Each` that have not started yet in each running step. Return the counts by step name."""
    started: defaultdict[str, set[int]] = defaultdict(set)
    totals: Counter[str] = Counter()
    for event in events:
        if isinstance(event.data, catalog.StepStarted):
            # A step that is entered again starts its items anew.
            started[event.path] = set()
            totals[event.path] = 0
        elif isinstance(event.data, catalog.IterationStarted):
            started[event.path].add(event.data.iteration_index)
            # Only the first item that starts has the total number of items.
            totals[event.path] = max(totals[event.path], event.data.total or 0)
    counts: Counter[str] = Counter()
    for path in state.active_paths():
        # `totals` is 0 for a step without items.
        counts[path.current_step] += max(0, totals[path.id] - len(started[path.id]))
    return {step: count for step, count in counts.items() if count}


def likely_items(events: Sequence[Event], remaining: Mapping[str, int]) -> float | None:
    """Return the estimated cost in dollars of the items that have not started, from the recorded items of the same
    steps.

    None if a step has costs but no completed item.
    """
    completed = Counter(event.step for event in events if isinstance(event.data, catalog.IterationCompleted))
    costs: Counter[str] = Counter()
    for event in events:
        data = event.data
        if isinstance(data, catalog.OperationCompleted) and data.operation_type in REQUESTS and data.usage:
            costs[event.step] += data.usage.get("cost", 0)
    # Without a completed item, the cost of one item is unknown. A step without recorded costs calls no model, and costs
    # nothing.
    if any(costs[step] and not completed[step] for step in remaining):
        return None
    return dollars(sum(count * costs[step] / completed[step] for step, count in remaining.items() if costs[step]))


def likely_turns(events: Sequence[Event], workflow: Workflow, steps: Iterable[str]) -> float | None:
    """Return the estimated cost in dollars of the agent turns in steps that the log does not contain.

    The estimate uses the recorded turns of the same agents in other steps.

    Steps in the log cost nothing here, because their results are probably reused. None if the log has no turn of one of
    the agents.
    """
    recorded_steps = {event.step for event in events if isinstance(event.data, catalog.OperationStarted)}
    mean_costs = {agent: sum(costs) / len(costs) for agent, costs in _spent(events, by_turn=True).items()}
    new_steps = set(steps) - recorded_steps
    agents = [step.agent for step in workflow.steps if step.name in new_steps and step.prompt is not None]
    if any(agent not in mean_costs for agent in agents):
        return None
    return dollars(sum(mean_costs[agent] for agent in agents))


def _spent(events: Iterable[Event], *, by_turn: bool) -> dict[str | None, list[int]]:
    """Return the recorded costs of each agent in nanodollars: one entry per model request, or one per turn."""
    costs_of_agents: dict[str | None, dict[tuple[str | int | None, ...], int]] = {}
    items: dict[str, int | None] = {}
    agents: dict[str, str | None] = {}
    for event in events:
        match event.data:
            case catalog.OperationStarted() as data if data.operation_type in REQUESTS:
                items[data.operation_id] = data.iteration_index
                agents[data.operation_id] = data.name or operation_name(data.operation_type, data.parameters)
            case catalog.OperationCompleted() as data if data.operation_id in agents and data.usage:
                costs = costs_of_agents.setdefault(agents[data.operation_id], {})
                # The requests of one turn have the same path, step and item, so that their costs are added up under one
                # key.
                turn = event.path, event.step, items[data.operation_id]
                key = turn if by_turn else (data.operation_id,)
                costs[key] = costs.get(key, 0) + data.usage.get("cost", 0)
    return {agent: [*costs.values()] for agent, costs in costs_of_agents.items()}


# --- answers in the log of a what-if ----------------------------------------------------------------------------------


_NEVER_REUSED = IS_COMPUTED | ENCLOSING | {TIMER}
"""Operations that are never answered from the log. Their recorded results do not count as unused."""
_CALLS = catalog.OperationCompleted | catalog.OperationFailed
ENDS = catalog.OperationCompleted | catalog.OperationFailed | catalog.InterruptResolved | catalog.InterruptExpired


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of operations in a what-if by the source of their results: replayed, executed, blocked, computed, ..."""

    served: int = 0
    """Answered from the log of the source, including answers of people."""
    live: int = 0
    """Executed: model calls, and the tools that the option `tools` allows."""
    blocked: int = 0
    """Not executed, because there is no recorded result."""
    computed: int = 0
    """Computed again: scripts, and times and random values at places that the source did not reach."""
    skipped: int = 0
    """Skipped: sleeps."""
    unused: int = 0
    """Recorded results of the source that were not used."""

    def __add__(self, addend: Tally) -> Tally:
        # Adds field by field, in the order of the class.
        return Tally(*map(sum, zip(astuple(self), astuple(addend), strict=True)))


def tally(source: Sequence[Event], events_of_fork: Sequence[Event], forked: Event) -> Tally:
    """Count the operations in the log of a what-if by the source of their results: replayed, executed, blocked,
    computed, ...
    """
    fork = forked.data
    assert isinstance(fork, catalog.ExecutionForked)  # noqa: S101 - the only event that begins one
    pool = RecordedEnds(fork.source, source, fork.at)
    counted = Counter[str]()
    for event in events_of_fork:
        # Events up to the fork are those of the source, and were not answered by the what-if.
        if event.sequence > forked.sequence and isinstance(event.data, ENDS):
            served = event.data.served
            counted[way_of(event.data)] += 1
            # A result that was taken from another log, such as that of a child, is not in the pool.
            if served is not None and served.get("execution") == fork.source:
                pool.use(served)
    # Received answers of people count. Signals that no step has received, and results that are computed anyway, do not.
    # The what-if begins with those changes of earlier forks that it does not share.
    again = ends_in(fork)
    unused = sum(
        end.was_asked_for and end.content[0] not in _NEVER_REUSED and not (end.is_changed and end.place in again)
        for end in pool.unused()
    )
    return Tally(
        **{name: counted[name] for name in ("served", "live", "blocked", "computed", "skipped")}, unused=unused
    )


class UnreusedCall(NamedTuple):
    """Call in a what-if that was not answered from the log of its source."""

    sequence: int
    """Number of the event of the what-if that ended the call."""
    way: str
    """``live`` if the call ran, ``blocked`` if it was not executed."""
    what: str
    """Kind and name of the call, such as ``action pay``."""
    step: str
    operation_id: str = ""
    """Id of the call. A fork can replace the result of the call by this id."""


def not_served(events_of_fork: Iterable[Event], forked: Event) -> Iterator[UnreusedCall]:
    """Yield the calls of a what-if that were not answered from the log of its source, in the order of their ends. They
    have run, or were blocked.
    """
    started: dict[str, str] = {}
    for event in events_of_fork:
        if isinstance(event.data, catalog.OperationStarted):
            data = event.data
            name = data.name or operation_name(data.operation_type, data.parameters) or ""
            started[data.operation_id] = f"{operation_kind(data.operation_type)} {name}".rstrip()
        elif event.sequence > forked.sequence and isinstance(event.data, _CALLS):
            way = way_of(event.data)
            if way in (LIVE, BLOCKED):
                operation = event.data.operation_id
                yield UnreusedCall(event.sequence, way, started[operation], event.step, operation)


def begun_in(events_of_fork: Iterable[Event], forked: Event) -> list[str]:
    """Return the ids of the child executions that a what-if has started after the fork."""
    started: dict[str, str] = {}
    for event in events_of_fork:
        data = event.data
        if event.sequence <= forked.sequence:
            continue
        if isinstance(data, catalog.OperationStarted) and data.operation_type == CHILD_WORKFLOW:
            started[data.operation_id] = (data.parameters or {})["signal"]
        # A child whose result was reused as a whole did not run as a what-if.
        elif isinstance(data, _CALLS) and data.served is not None:
            started.pop(data.operation_id, None)
    return list(started.values())


# --- result of a what-if, and its display -----------------------------------------------------------------------------


MOST = 12
"""Maximum number of calls that are named."""
_COLUMNS = (
    *map(Column, ("what-if", "status", "served", "live", "blocked", "unused", "cost")),
    Column("outputs", "long"),
)


FULL = "full"
PARTLY = "partly"


def _head(what_if: WhatIf) -> Iterator[Line]:
    changed = ", ".join(_named_change(what_if.change)) or "nothing"
    status = what_if.run.status
    yield (Text("what-if", "badge"), f" changed: {changed}, from event {what_if.at + 1:,} on; ", Text(status, status))
    yield f"{_counted(what_if)}; {_comparable(what_if)}"
    if what_if.run.error:
        yield one_line(shared().text(f"error: {what_if.run.error}"), 400)
    for reason in what_if.unchecked:
        yield one_line(f"not checked: {reason}", 400)


def _named_change(change: Change) -> Iterator[str]:
    """Yield the parts of a change, with the names of the changed inputs, variables and prompts: ``prompts (classify)``.
    The keys of results and answers are ids, and are left out.
    """
    for name in change.named:
        keys = getattr(change, name) if name in ("inputs", "variables", "prompts") else ()
        yield f"{name} ({one_line(', '.join(keys), 80)})" if keys else name


def _counted(what_if: WhatIf) -> str:
    tally = what_if.tally
    parts = [f"{tally.served:,} replayed from the log", f"{tally.live:,} live", f"{tally.blocked:,} blocked"]
    parts += [f"{tally.computed:,} computed"] if tally.computed else []
    parts += [f"{plural(tally.skipped, 'sleep')} skipped"] if tally.skipped else []
    parts += [f"{plural(tally.unused, 'recorded result')} unused"]
    return ", ".join([*parts, f"cost {price(what_if.cost)}"])


def _comparable(what_if: WhatIf) -> str:
    """Return a text that states whether the what-if is fully comparable with its source. If not, the text has the
    reasons.
    """
    reasons = ["it was blocked"] if what_if.blocked else []
    reasons += [] if what_if.run.state.is_over else ["it has not ended"]
    return f"comparable: {what_if.comparable}" + (f", since {' and '.join(reasons)}" if reasons else "")


def _calls(calls: Sequence[UnreusedCall]) -> Iterator[str]:
    """Yield one line of text for the calls that were not answered from the log of the source. Equal calls of one step
    are one line. Blocked calls come first.
    """
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.way != BLOCKED):
        groups[call.way, call.what, call.step].append(call.sequence)
    for (way, what, step), sequences in [*groups.items()][:MOST]:
        times = f" {len(sequences):,} times" if len(sequences) > 1 else ""
        yield f"{way}: {what}{times}, step {step} ({'from ' if times else ''}event {sequences[0]:,})"
    if len(groups) > MOST:
        yield f"and {plural(sum(map(len, [*groups.values()][MOST:])), 'more call')}: .calls lists all"


class RepeatedWhatIf(Shown, list[WhatIf]):
    """List of what-ifs that were run several times with the same change, displayed as a table with one row each."""

    def report(self) -> Report:
        """Return a table with one row for each what-if."""
        return Report(blocks=(Table(_COLUMNS, tuple(map(_row, self))),))


def _row(what_if: WhatIf) -> tuple[Line, ...]:
    tally = what_if.tally
    counts = (tally.served, tally.live, tally.blocked, tally.unused)
    outputs = one_line(shared().text(as_text(what_if.outputs)), 120)
    status = what_if.run.status
    cost = Text(price(what_if.cost), "money")
    return Text(what_if.run.id, "id"), Text(status, status), *map(str, counts), cost, outputs


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Shown):
    """Plan of a what-if: the recorded results it would reuse, and the calls it would make. It is computed without
    external calls.
    """

    source: str
    at: int
    change: Change
    reused: int
    """Number of operations whose recorded results are reused, including the ones before the change."""
    live: tuple[Planned, ...]
    """Calls that would certainly be made."""
    cost: float | None
    """Estimated cost in dollars of these calls and of the later items of `Each`, based on the calls of the source. None
    if the source has no call of one of the agents, or if a call starts a child execution.
    """
    unknown: tuple[str, ...]
    """Steps and items of `Each` after these calls. It is unknown which calls they make, because this depends on the
    results.
    """
    blocked: int = 0
    """Number of calls up to this point that would not be executed."""

    @property
    def summary(self) -> str:
        """The counted results and calls, and their cost, in one line."""
        text = f"{plural(self.reused, 'operation')} reused, {len(self.live)} live"
        if self.cost is not None and self.live:
            text += f", about {price(self.cost)}"
        text += f", {self.blocked} blocked" if self.blocked else ""
        return text + (f", then unknown: {', '.join(self.unknown)}" if self.unknown else "")

    def report(self) -> Report:
        """Return the summary, and each call that would be made."""
        title = f"plan of a what-if of {self.source}, from event {self.at + 1} on: {self.summary}"
        return Report(title, blocks=(Items(tuple(f"live: {call}" for call in self.live)),))


def bounds_beside(bounds: Bounds, before: ExecutionState) -> Bounds:
    """Return the bounds (budget) of a what-if. The log of the what-if contains the events before the fork, whose
    consumption must not count. The bounds of the what-if are therefore increased by the amounts that the source
    consumed before the fork.
    """
    # Example: `max_llm_calls` is 5, and the source made 3 calls before the fork: the what-if gets 8.
    usage = before.usage
    return replace(
        bounds,
        max_llm_calls=None if bounds.max_llm_calls is None else bounds.max_llm_calls + before.ledger.llm_calls,
        max_tokens=None if bounds.max_tokens is None else bounds.max_tokens + usage.input_tokens + usage.output_tokens,
        # Dollars are a `Decimal` in bounds; a float would round them.
        max_cost=None if bounds.max_cost is None else bounds.max_cost + exact_dollars(usage.cost),
    )


def later_calls(step: str) -> str:
    """Return the words of a plan for the calls that a function step may make after the ones that are planned."""
    return f"later calls of {step}"


def planned(variant: Variant, rehearsal: Rehearsal) -> Plan:
    """Return the plan of a what-if, from its rehearsal."""
    at = variant.forked.at
    counts = tally(variant.events, rehearsal.events, forked_by(rehearsal.events))
    # Results before the fork point are reused without being requested again.
    before = sum(isinstance(event.data, ENDS) for event in variant.events[:at])
    live = tuple(planned_call(request) for request in rehearsal.unanswered)
    items = items_to_come(rehearsal.events, rehearsal.state)
    costs = likely_cost(variant.events, rehearsal.unanswered), likely_items(variant.events, items)
    return Plan(
        variant.source.id,
        at,
        variant.change,
        before + counts.served,
        live,
        None if None in costs else sum(cost or 0 for cost in costs),
        (
            *(f"{step} ({plural(count, 'more item')})" for step, count in items.items()),
            *(later_calls(step) for step in rehearsal.functions_open(variant.workflow)),
            *rehearsal.steps_after(variant.workflow),
        ),
        counts.blocked,
    )


def result_of(execution: Run, variant: Variant, unchecked: Sequence[str] = ()) -> WhatIf:
    """Return the result of a what-if (a run made again with one change) that has ended or waits for a person. `variant`
    describes what was changed.
    """
    events_of_fork = execution.history()
    counts, calls = _counts_and_calls(execution.store, variant.events, events_of_fork)
    compared = Comparison([variant.events, events_of_fork])
    source = variant.source.id
    return WhatIf(execution, source, variant.forked.at, variant.change, counts, compared, calls, unchecked)


def _counts_and_calls(
    store: EventStore, source: Sequence[Event], events_of_fork: Sequence[Event]
) -> tuple[Tally, tuple[UnreusedCall, ...]]:
    """Count the operations of a what-if and its child executions by the source of their results. Return the numbers,
    and the calls that were not answered from a log.
    """
    forked = forked_by(events_of_fork)
    counts = tally(source, events_of_fork, forked)
    calls = [*not_served(events_of_fork, forked)]
    # Children are what-ifs of the children of the source, and are counted in the same way.
    for child in begun_in(events_of_fork, forked):
        try:
            inner = store.read(child)
        except ExecutionNotFoundError:
            continue  # it has not begun, or was deleted
        fork = forked_by(inner).data
        assert isinstance(fork, catalog.ExecutionForked)  # noqa: S101 - that is what it looks for
        more, more_children = _counts_and_calls(store, store.read(fork.source), inner)
        counts += more
        # The step is named with its child, since both workflows may have a step of this name.
        calls += [call._replace(step=f"{call.step} of {child}") for call in more_children]
    return counts, tuple(calls)
