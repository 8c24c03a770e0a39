"""Index of the origins of values. One pass over a log finds the causes of each value of a variable, and of each choice
of the next step.

A *choice* is the selection of the steps that follow a step. The causes of a value are the variables and inputs that its
step could read, in the version that the step read, the calls of the step, and the choices without which the step would
not have run. If an edge was not followed, the variables that its steps may set were *kept* because of the choice.
Example::

    a: script ``2``        -> x      x: set by a
    b: if ``state.x > 1``  -> c      choice at b: reads x
    c: script ``"high"``   -> y      y: set by c, because of the choice at b
    d: (not run) sets z              z: kept, because of the choice at b

The origins of ``y`` at the end are therefore: the choice at b, and through it x. `divebook.replay.provenance` presents
them. `tests/replay/test_why.py` changes inputs and calls to show that no cause is missing.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from divebook.definitions.definition import Workflow
from divebook.definitions.functions import FUNCTION
from divebook.definitions.step import STAGE, Step
from divebook.engine.forks import ends_in
from divebook.engine.maps import Map
from divebook.engine.operations import DYNAMIC_CONTENT, SCRIPT_EXECUTION
from divebook.errors import DivebookError
from divebook.events import Event, catalog
from divebook.scripting.needs import (
    EVERYTHING,
    KNOWN_TYPES,
    ReadKeys,
    changed_by_script,
    found_in,
    reads_of,
    reads_of_condition,
    reads_of_script,
)
from divebook.scripting.templates import unwrapped
from divebook.text.syntax import parse_python


class Origins:
    """Index of one log. For each value of a variable, and for each choice of the next step, it has the origin: the
    step, calls and other values that caused it. New events can be added when the log grows.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> steps = [Step("a", script="1", store="x"), Step("b", script="state.x + 1", store="y")]
    >>> log = Environment(store="memory:").start(Workflow("sum", steps)).wait().history()
    >>> origins = Origins(log)
    >>> y = origins.of("y", len(log))
    >>> y.step, [origins.all[number].name for number in y.reads]
    ('b', ['x'])
    """

    def __init__(self, log: Iterable[Event] = ()) -> None:
        self.all: list[ValueOrigin] = []
        self.sequence = 0
        """Number of the last event in the index."""
        self.workflow: Workflow | None = None
        """The recorded definition; None if the log does not contain it: then each step may have read every variable."""
        self.choices = Choices(Workflow.from_dict({"name": "unknown"}))
        # {"x": [(6, 0), (11, 3), (20, None)]}: `x` had the value 0 from event 6 on, the value 3 from event 11 on, and
        # was deleted at event 20.
        self._history: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
        """By variable: pairs of an event number and the number of the value from that event on; None for no value."""
        # A persistent map, so that each visit to a step keeps the versions that it has seen (`StepVisit.view`) without
        # a copy.
        self._present = _NO_VERSIONS
        self._inputs: dict[str, int] = {}
        # What each step may read, by its name, as far as the definition shows: of the whole step, and of the list of
        # its items.
        self._reads: dict[str, ReadKeys] = {}
        self._items: dict[str, ReadKeys] = {}
        self._conditions: dict[str, ReadKeys] = {}
        self._lines: dict[str, PathOrigins] = {}
        self._calls: dict[str, tuple[StepCall, StepVisit]] = {}
        """Calls and their visits, by id of the operation or question."""
        self._last: StepVisit | None = None
        """Visit to the step that ended last."""
        self.take(log)

    def take(self, events: Iterable[Event]) -> None:
        """Update the index of origins with the next events of the log."""
        for event in events:
            change = self._CHANGES.get(type(event.data))
            if change is not None:
                change(self, event, event.data)
            self.sequence = event.sequence

    # --- queries ---------------------------------------------------------------------------------------------------

    def names(self, at: int) -> list[str]:
        """Return the names that had a value at or before an event: variables, and inputs as ``inputs.NAME``."""
        # Versions are in the order of the log, so the first one shows whether the variable had a value by then.
        variables = [name for name, versions in self._history.items() if versions[0][0] <= at]
        return [*variables, *(f"{INPUT}{name}" for name in self._inputs)]

    def of(self, name: str, at: int) -> ValueOrigin | None:
        """Return the origin of the value that a variable or input had after an event; None if it had no value then."""
        if name.startswith(INPUT):
            number = self._inputs.get(name.removeprefix(INPUT))
        else:
            versions = self._history.get(name, [])
            # The last version at or before the event.
            index = bisect_right(versions, at, key=lambda version: version[0]) - 1
            number = versions[index][1] if index >= 0 else None
        return None if number is None else self.all[number]

    def whole(self, at: int) -> ValueOrigin:
        """Return an origin that stands for the whole state after an event. Its causes are the values of all
        variables.
        """
        origins = (self.of(name, at) for name in self._history)
        reads = tuple(origin.number for origin in origins if origin is not None and origin.kind != "output")
        # The origin is not added to the index: a query must not change it.
        return ValueOrigin(len(self.all), "state", "state", at, reads=reads)

    # --- one event at a time ---------------------------------------------------------------------------------------

    def _add(self, kind: Kind, name: str, sequence: int, **facts: Any) -> ValueOrigin:
        origin = ValueOrigin(len(self.all), kind, name, sequence, **facts)
        self.all.append(origin)
        return origin

    def _put(self, name: str, sequence: int, number: int | None) -> None:
        self._history[name].append((sequence, number))
        if number is not None:
            self._present = self._present.set(name, number)
        elif name in self._present:
            self._present = self._present.delete(name)

    def _is_set(self, name: str) -> bool:
        """Return True if a variable has a value at the event that is being read: it was set, and not deleted since."""
        # A variable that was kept is as its origin before: the chain of `kept` leads to the event that set or deleted
        # it.
        number = self._present.get(name)
        while number is not None and self.all[number].kind == "kept":
            number = next(iter(self.all[number].reads), None)
        return number is not None and self.all[number].kind == "set"

    def _versions(self, reads: ReadKeys, view: Mapping[str, int]) -> dict[int, None]:
        # A dict in place of a set, because the order of causes is shown and must be the same each time.
        return dict.fromkeys([*found_in(view, reads.state), *found_in(self._inputs, reads.inputs)])

    def _line(self, event: Event) -> PathOrigins:
        return self._lines.setdefault(event.path, PathOrigins())

    def _execution_started(self, event: Event, data: catalog.ExecutionStarted) -> None:
        if data.definition is not None:
            self._define(data.definition)
        for name in data.inputs:
            self._inputs[name] = self._add("input", f"{INPUT}{name}", event.sequence).number
        # Variables that the predecessor of a continued execution carried over.
        for name in data.state or ():
            self._put(name, event.sequence, self._add("set", name, event.sequence).number)

    def _define(self, definition: Mapping[str, Any]) -> None:
        # The source file is not needed, and may not exist here.
        self.workflow = Workflow.from_dict({**definition, "source": ""})
        self.choices = Choices(self.workflow)
        self._reads = {step.name: reads_of(step) for step in self.workflow.steps}
        self._items = {step.name: reads_of(step, only_items=True) for step in self.workflow.steps}

    def _execution_forked(self, event: Event, data: catalog.ExecutionForked) -> None:
        """Add origins for the inputs and variables that a fork changed: the fork is their cause. Steps that are running
        at the fork read the new values.
        """
        if data.definition is not None:
            self._define(data.definition)
        # A fork changes only what `change` names; all other values keep the origins that they have in the source.
        change = data.change or {}
        for name in change.get("inputs", {}):
            self._inputs[name] = self._add("input", f"{INPUT}{name}", event.sequence).number
        for name in change.get("variables", {}):
            self._put(name, event.sequence, self._add("set", name, event.sequence).number)
        for end in ends_in(data).values():
            if isinstance(end, catalog.OperationCompleted):
                self._operation_ended(event, end)
            else:
                self._interrupt_settled(event, end)
        changed = {name: self._present[name] for name in change.get("variables", {})}
        # A visit that is open at the fork is not started again in the log.
        for visit in (line.visit for line in self._lines.values() if line.visit is not None):
            visit.view = visit.view.update(changed)
            visit.values_read = self._versions(visit.reads, visit.view)

    def _step_started(self, event: Event, data: catalog.StepStarted) -> None:
        line = self._line(event)
        # The step shows which edge was followed, so that the open choice of the path is complete.
        self._decide(line, [event.step])
        # Choices whose routes join again at this step are no longer causes of what follows.
        line.control = self.choices.still_holding(line.control, event.step, self.all)
        # A step that the definition does not contain may have read everything.
        reads = self._reads.get(event.step, EVERYTHING)
        values_read = self._versions(reads, self._present)
        # The list of items is computed once, before the first item, from fewer values than the step reads as a whole.
        items = self._versions(self._items.get(event.step, EVERYTHING), self._present)
        line.visit = StepVisit(event.step, data.visit, reads, line.control, self._present, values_read, items)

    def _operation_started(self, event: Event, data: catalog.OperationStarted) -> None:
        visit = self._line(event).visit
        if visit is None:
            return
        # Dynamic content may be defined by the agent, which the step does not show. A program may read everything.
        if data.operation_type == DYNAMIC_CONTENT:
            parameters = data.parameters or {}
            reads = reads_of_script(str(parameters["script"])) if "script" in parameters else EVERYTHING
            visit.values_read.update(self._versions(reads, visit.view))
        # The item has done something, so that a later change of the loop variable is not its start.
        visit.is_item_new = False
        previous = self._calls.get(data.operation_id)
        if previous is not None and previous[1] is visit:  # it is made again
            # A call that had ended and is made again runs once more; one that never ended is still counted.
            visit.running_calls += previous[0].ended is not None
            previous[0].type = data.operation_type  # differs for a cached response that was lost in a crash
            previous[0].sequence = event.sequence
            previous[0].ended = None
            previous[0].status = catalog.RUNNING
            return
        call = StepCall(
            data.operation_type, data.name or "", event.sequence, item=data.iteration_index, within=data.within
        )
        visit.running_calls += 1
        self._note_call(visit, data.operation_id, call)

    def _note_call(self, visit: StepVisit, name: str, call: StepCall) -> None:
        self._calls[name] = call, visit
        visit.calls.setdefault(call.item, []).append(call)

    def _operation_ended(self, event: Event, data: catalog.OperationCompleted | catalog.OperationFailed) -> None:
        started = self._calls.get(data.operation_id)
        if started is None:
            return
        call, visit = started
        # `ended` is None until the first end, so that a second end of the same call is not subtracted again.
        visit.running_calls -= call.ended is None
        call.ended = event.sequence
        call.status = catalog.COMPLETED if isinstance(data, catalog.OperationCompleted) else catalog.FAILED
        for origin in visit.unclaimed:  # a script's changes stand directly before its end
            origin.item = call.item
            origin.calls = tuple(visit.calls[call.item])
        # What a script could have set and did not set depends on the script, too.
        if call.type == SCRIPT_EXECUTION:
            self._keep_unchanged(event, visit)
        visit.unclaimed.clear()

    def _interrupt_raised(self, event: Event, data: catalog.InterruptRaised) -> None:
        visit = self._line(event).visit
        if visit is not None:
            # The event of a question does not name its item, so that the item that started last is taken.
            call = StepCall("question", data.kind, event.sequence, item=visit.item)
            self._note_call(visit, data.interrupt_id, call)

    def _interrupt_settled(self, event: Event, data: catalog.InterruptResolved | catalog.InterruptExpired) -> None:
        call = self._calls.get(data.interrupt_id)
        if call is not None:
            # Only the end is noted here: `running_calls` does not count questions.
            call[0].ended = event.sequence
            call[0].status = catalog.COMPLETED if isinstance(data, catalog.InterruptResolved) else "expired"

    def _iteration_started(self, event: Event, data: catalog.IterationStarted) -> None:
        visit = self._line(event).visit
        if visit is not None:
            visit.item = data.iteration_index
            visit.is_item_new = True

    def _iteration_ended(self, event: Event, data: catalog.IterationCompleted | catalog.IterationFailed) -> None:
        visit = self._line(event).visit
        # A skipped item has no row in the result.
        skipped = isinstance(data, catalog.IterationFailed) and (data.result is None or "skipped" in data.result)
        if visit is not None and not skipped:
            visit.ended_items[data.iteration_index] = event.sequence

    # --- values ----------------------------------------------------------------------------------------------------

    def _state_mutated(self, event: Event, data: catalog.StateMutated) -> None:
        visit = self._line(event).visit
        for mutation in data.mutations:
            # A change outside of steps is made by the execution itself: it has no causes in the log.
            if visit is None:
                self._put(mutation.key, event.sequence, self._add("set", mutation.key, event.sequence).number)
            elif not self._is_item(event, visit, mutation):
                self._set(event, visit, mutation)
        if visit is not None:
            visit.is_item_new = False

    def _is_item(self, event: Event, visit: StepVisit, mutation: catalog.Mutation) -> bool:
        """Record a change of the loop variable of `Each`, and return True. Return False if the changed variable is
        another one.

        At the start of an item the variable gets the item; at its end, the variable gets its earlier value again.
        """
        # A step that is not in the definition has no known `Each`.
        step = self.workflow.step(visit.step) if self.workflow is not None and visit.step in self._reads else None
        each = step.each if step is not None else None
        # With parallel items, the loop variable is not a variable of the state. While a call runs, a change belongs to
        # its script.
        if each is None or each.as_ != mutation.key or each.parallel > 1 or visit.running_calls:
            return False
        if visit.is_item_new:
            visit.before_items.setdefault(mutation.key, visit.view.get(mutation.key))
            self._set(event, visit, mutation)
            return True
        # The end of an item restores the value from before the first item, whose origin is therefore the earlier one.
        before = visit.before_items.get(mutation.key, visit.view.get(mutation.key))
        self._put(mutation.key, event.sequence, before)
        return True

    def _set(self, event: Event, visit: StepVisit, mutation: catalog.Mutation) -> None:
        """Add the origin (the causes) of a value that a step has set, through its running script or as its result."""
        # A change while a call runs is made by the script of the call.
        by_script = visit.running_calls > 0
        # An item does not depend on the loop variable of earlier items (`test_an_item_does_not_come_from_another`).
        values = visit.items if visit.is_item_new else visit.values_read
        # A script sees the changes that it made itself, so its reads are looked up again.
        if by_script:
            values = self._versions(visit.reads, visit.view)
        kind: Kind = "set" if mutation.type == "set" else "deleted"
        facts = {"path": event.path, "step": visit.step, "visit": visit.number, "because": visit.because}
        origin = self._add(kind, mutation.key, event.sequence, reads=tuple(values), **facts)
        # The call of the change is known when the script ends: see `_operation_ended`.
        if by_script:
            visit.unclaimed.append(origin)
        elif visit.is_item_new:
            # The start of an item sets the loop variable. No call has contributed to it.
            origin.item = visit.item
        else:
            # The result of the step, which depends on all of its calls and on every item with a row.
            origin.calls = tuple(call for calls in visit.calls.values() for call in calls)
            origin.items = tuple(sorted(visit.ended_items.items()))
        self._put(mutation.key, event.sequence, origin.number)
        # The step sees its own change, and may read it again: it is a cause of later values of this visit.
        visit.view = visit.view.set(mutation.key, origin.number)
        if visit.reads.state is None or mutation.key in visit.reads.state:
            visit.values_read[origin.number] = None

    def _keep_unchanged(self, event: Event, visit: StepVisit) -> None:
        """Record the origin ``kept`` of the variables that a script could have set, and did not set in this visit.
        Example: ``if x: y = 1`` with a false ``x`` keeps ``y``. Causes of the kept value are its earlier value and the
        values that the script has read, here ``x``.
        """
        names = self.choices.changed_by(visit.step)
        set_by_script = {origin.name for origin in visit.unclaimed}
        facts = {"path": event.path, "step": visit.step, "visit": visit.number, "because": visit.because}
        # None: the script cannot be analysed, so it could have changed any variable.
        for name in [*self._present] if names is None else names:
            if name not in set_by_script:
                before = [visit.view[name]] if name in visit.view else []
                # An unchanged value depends on its earlier value and on the values that made the script leave it.
                reads = tuple(dict.fromkeys([*before, *self._versions(visit.reads, visit.view)]))
                unchanged = self._add("kept", name, event.sequence, reads=reads, **facts)
                self._put(name, event.sequence, unchanged.number)
                visit.view = visit.view.set(name, unchanged.number)

    # --- choices ---------------------------------------------------------------------------------------------------

    def _step_completed(self, event: Event, _data: catalog.Payload) -> None:
        line = self._line(event)
        self._last = line.visit or self._last
        # Only a choice is remembered. Other steps have one edge, which is followed in any case.
        if line.visit is not None and self.choices.is_choice(event.step):
            line.after = Choosing(line.visit, self._present, sequence=event.sequence)

    def _condition_evaluated(self, event: Event, data: catalog.ConditionEvaluated) -> None:
        after = self._line(event).after
        # Conditions are evaluated after the end of the step, and before the path continues.
        if after is not None:
            after.conditions[data.condition, data.target] = data.result, event.sequence
            after.sequence = event.sequence

    def _step_caught(self, event: Event, data: catalog.StepCaught) -> None:
        line = self._line(event)
        if line.visit is not None:
            # A failed step was never completed, so that its choice begins here, and is decided at once.
            line.after = Choosing(line.visit, self._present, sequence=event.sequence)
            self._decide(line, [data.target])

    def _path_branched(self, event: Event, data: catalog.PathBranched) -> None:
        line = self._line(event)
        self._decide(line, [new_path["current_step"] for new_path in data.new_paths])
        for new_path in data.new_paths:
            # The new paths depend on the choice that split them.
            self._lines[new_path["id"]] = PathOrigins(line.control)

    def _path_waiting(self, event: Event, data: catalog.PathWaiting) -> None:
        # A path that waits at a join has followed the edge to the join.
        self._decide(self._line(event), [data.join_step])

    def _path_joined(self, event: Event, data: catalog.PathJoined) -> None:
        line = self._line(event)
        controls = [self._lines[name].control for name in data.joined if name in self._lines]
        # After a join, everything depends on the choices of all joined paths.
        line.control = tuple(dict.fromkeys([*line.control, *(number for control in controls for number in control)]))

    def _path_completed(self, event: Event, _data: catalog.Payload) -> None:
        # The path followed none of its edges.
        self._decide(self._line(event), [])

    def _decide(self, line: PathOrigins, targets: list[str]) -> None:
        """Record the choice of the next steps (`targets`) of a path, with the values on which it depends. Do nothing if
        the step before had no choice, or its choice is recorded already.
        """
        after = line.after
        # A choice is used once: the events after it belong to the next one.
        line.after = None
        if after is None:
            return
        visit = after.visit
        step = self.workflow.step(visit.step) if self.workflow is not None else None
        # The choice depends on the variables that its conditions read. Where errors are caught, it also depends on
        # everything that the step read and called, since this determines whether it fails.
        reads: dict[int, None] = {}
        for condition, _ in after.conditions:
            if condition not in self._conditions:
                self._conditions[condition] = reads_of_condition(condition)
            reads |= self._versions(self._conditions[condition], after.view)
        calls: tuple[StepCall, ...] = ()
        if step is not None and step.catch:
            reads |= visit.values_read
            calls = tuple(call for operation_calls in visit.calls.values() for call in operation_calls)
        choice = self._add(
            # Without conditions, only a `catch` makes the step a choice.
            "choice" if after.conditions else "caught",
            "",
            after.sequence,
            step=visit.step,
            visit=visit.number,
            calls=calls,
            reads=tuple(reads),
            because=visit.because,
            events=tuple(sequence for _, sequence in after.conditions.values()) or (after.sequence,),
        )
        # The new choice replaces the earlier ones, which are its causes.
        line.control = (choice.number,)
        if step is not None:
            self._keep(choice, step, targets)

    def _keep(self, choice: ValueOrigin, step: Step, targets: list[str]) -> None:
        """Record that a choice of the next steps has left variables unchanged (origins of the kind ``kept``). After
        another choice, steps could have run that set these variables. Their values therefore depend on the choice.
        """
        # `names` is None if the ways not followed may set any variable. A variable that was set since the choice has an
        # origin of its own already.
        not_taken = [target for target in step.targets if target not in targets]
        names = self.choices.may_set(choice.step, not_taken)
        # A failure would have stored its error (`policy.store`), and a success its result (`step.store`): the one that
        # did not occur leaves its variable unchanged.
        if names is not None:
            caught = [policy.store for policy in step.catch if policy.step not in targets]
            names |= {name for name in (*caught, step.store if step.catch else None) if name}
        present = self._present
        for name in present if names is None else names:
            before = present.get(name)
            if before is None or self.all[before].sequence < choice.sequence:
                reads = () if before is None else (before,)
                origin = self._add(
                    "kept", name, choice.sequence, step=choice.step, reads=reads, because=(choice.number,)
                )
                self._put(name, choice.sequence, origin.number)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _execution_completed(self, event: Event, data: catalog.ExecutionCompleted) -> None:
        """Add the origins (the causes) of those outputs of an execution that are not variables, such as the text of the
        last step.
        """
        for name in data.outputs:
            # An output that is a variable has the origin of the variable.
            if self._is_set(name):
                continue
            visit = self._last
            output = self._add("output", name, event.sequence)
            if visit is not None:
                output.step = visit.step
                output.visit = visit.number
                output.because = visit.because
                output.reads = tuple(visit.values_read)
                output.calls = tuple(call for calls in visit.calls.values() for call in calls)
            # Not through `_put`: an output is not a variable that later steps could read.
            self._history[name].append((event.sequence, output.number))

    _CHANGES: ClassVar[dict[type, Callable[[Origins, Event, Any], None]]] = {
        catalog.ExecutionStarted: _execution_started,
        catalog.ExecutionForked: _execution_forked,
        catalog.ExecutionCompleted: _execution_completed,
        catalog.PathBranched: _path_branched,
        catalog.PathWaiting: _path_waiting,
        catalog.PathJoined: _path_joined,
        catalog.PathCompleted: _path_completed,
        catalog.StepStarted: _step_started,
        catalog.StepCompleted: _step_completed,
        catalog.StepCaught: _step_caught,
        catalog.ConditionEvaluated: _condition_evaluated,
        catalog.IterationStarted: _iteration_started,
        catalog.IterationCompleted: _iteration_ended,
        catalog.IterationFailed: _iteration_ended,
        catalog.OperationStarted: _operation_started,
        catalog.OperationCompleted: _operation_ended,
        catalog.OperationFailed: _operation_ended,
        catalog.InterruptRaised: _interrupt_raised,
        catalog.InterruptResolved: _interrupt_settled,
        catalog.InterruptExpired: _interrupt_settled,
        catalog.StateMutated: _state_mutated,
    }


# --- origin of one value or choice ------------------------------------------------------------------------------------


Kind: TypeAlias = Literal["input", "set", "deleted", "kept", "choice", "caught", "output", "state"]
INPUT = "inputs."
"""Prefix of the names of inputs."""


@dataclass(slots=True)
class StepCall:
    """Operation that a step started, or question that a step asked."""

    type: str
    """Type of the operation; ``question`` for a question."""
    name: str
    """Name of the called function, agent or workflow; the kind of a question."""
    sequence: int
    """Number of the event of its last start."""
    ended: int | None = None
    """Number of the event of its end."""
    status: str = catalog.RUNNING
    item: int | None = None
    within: int | None = None
    """Number of the event that started the enclosing call: the turn of an agent."""


@dataclass(slots=True)
class ValueOrigin:
    """Origin of one value that a variable has from an event on, or of one choice of the next step: the step, calls and
    other values that caused it.
    """

    number: int
    """Index in `Origins.all`."""
    kind: Kind
    """``input``; ``set`` or ``deleted`` by a step; ``kept``: unchanged because an edge was not followed; ``choice``
    of the next step; ``caught``: failure of a step, or its absence; ``output`` of the last step; ``state``: all
    variables."""
    name: str
    """Name of the variable; ``inputs.NAME``; empty for a choice."""
    sequence: int
    """Number of the event that recorded the value or choice."""
    path: str = ""
    step: str = ""
    visit: int = 0
    item: int | None = None
    """Index of the item of `Each` that set the value; None for the result of all items."""
    calls: tuple[StepCall, ...] = ()
    """Calls that the step, or the item, made before the value was set."""
    reads: tuple[int, ...] = ()
    """Numbers of the values from which the value was computed."""
    because: tuple[int, ...] = ()
    """Numbers of the choices without which the value would not exist."""
    items: tuple[tuple[int, int], ...] = ()
    """For a result of items: for each row the item, and the number of the event that ended the item."""
    column: str | None = None
    """For a row: the requested column."""
    events: tuple[int, ...] = ()
    """For a choice: numbers of the events of the conditions that held."""

    @property
    def causes(self) -> tuple[int, ...]:
        """Indexes in `Origins.all` of the origins that caused this one: first the origins of values that were read,
        then those of choices.
        """
        return self.reads + self.because


# --- effect of choices, from the definition alone ---------------------------------------------------------------------
#
# A step after a choice depends on it, unless every way reaches the step exactly once (`Choices.merge`). A variable also
# depends on a choice if it kept its value only because another way was not followed (`Choices.may_set`): a log has no
# event for that. Example: of ``a -> b or c; b -> d; c -> d``, step b depends on the choice at a, and d does not.


_CONTRARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
}
# Both directions: `==` is contrary to `!=`, and `!=` to `==`.
_CONTRARY |= {second: first for first, second in _CONTRARY.items()}


class Choices:
    """Analysis of the graph of a workflow: which steps and variables depend on the choice of the steps that follow a
    step. Results are cached.
    """

    def __init__(self, workflow: Workflow) -> None:
        self._steps = {step.name: step for step in workflow.steps}
        self._changed = {step.name: _changed_by(step) for step in workflow.steps}
        self._sets = {step.name: _set_by(step, self._changed[step.name]) for step in workflow.steps}
        self._merges: dict[str, str | None] = {}
        self._settable: dict[tuple[str, str], frozenset[str] | None] = {}

    def is_choice(self, name: str) -> bool:
        """Return True if the steps that follow a step depend on a choice: the step has conditions on its edges, or
        catches failures.
        """
        step = self._steps.get(name)
        return step is not None and (bool(step.catch) or any(edge.condition for edge in step.edges))

    def merge(self, name: str) -> str | None:
        """Return the first step where all routes that start at a given step join again. Each route passes it exactly
        once, so that it does not depend on the choice of the route. Return None without such a step.
        """
        if name not in self._merges:
            # The candidates are the steps of one shortest route to an end. A step that all routes pass is on every
            # route, so that no other step needs a check.
            self._merges[name] = next((step for step in self._candidates(name) if self._merges_at(name, step)), None)
        return self._merges[name]

    def may_set(self, name: str, targets: Iterable[str]) -> frozenset[str] | None:
        """Return the names of the variables that later steps may set if a path continues from a step to some of its
        targets. Return None if it may be any variable.
        """
        names: frozenset[str] = frozenset()
        for target in targets:
            settable = self._set_from(name, target)
            if settable is None:
                return None
            names |= settable
        return names

    def still_holding(self, control: tuple[int, ...], step: str, origins: Sequence[ValueOrigin]) -> tuple[int, ...]:
        """Return those choices of next steps in `control` on which it still depends whether a step runs. A choice does
        not count if all of its routes join again at this step; the choices that it depends on are then examined
        instead. Choices are indexes in `origins`.
        """
        # The usual case: no choice ends at this step, and the tuple stays the same object.
        if all(self.merge(origins[number].step) != step for number in control):
            return control
        choices: dict[int, None] = {}
        waiting = [*reversed(control)]
        while waiting:
            choice = origins[waiting.pop()]
            # The choice itself does not hold any more, but the choices that led to its step may still do: they are
            # examined in its place.
            if self.merge(choice.step) == step:
                waiting += reversed(choice.because)
            else:
                choices[choice.number] = None
        return tuple(choices)

    def changed_by(self, name: str) -> frozenset[str] | None:
        """Return the names of the variables that the script of a step may set or delete, in addition to the one that
        gets its result; None if it may be any variable.
        """
        return self._changed.get(name, frozenset())

    def setters(self, variable: str) -> list[str]:
        """Return the names of the steps that may set a variable of the workflow."""
        return [name for name, variables in self._sets.items() if variables is None or variable in variables]

    def _set_from(self, name: str, target: str) -> frozenset[str] | None:
        key = (name, target)
        if key not in self._settable:
            # Behind the merge, all ways are the same again, so that only the steps before it count.
            sets = [self._sets[step] for step in self._reached([target], self.merge(name)) if step in self._sets]
            unknown = any(names is None for names in sets)
            self._settable[key] = None if unknown else frozenset().union(*(names or () for names in sets))
        return self._settable[key]

    def _candidates(self, name: str) -> Iterator[str]:
        """Yield the steps on a shortest route from a step to an end of the workflow, in the order of the route."""
        # Breadth-first search. `previous` leads from the end back to the start: {step: the step before it}.
        previous: dict[str, str] = {}
        waiting = deque([name])
        while waiting:
            step = waiting.popleft()
            if step != name and self._may_end(step):
                way = [step]
                while (before := previous[way[-1]]) != name:
                    way.append(before)
                yield from reversed(way)
                return
            for target in self._follows(step):
                # A way back to the start is not a route to an end.
                if target not in previous and target != name:
                    previous[target] = step
                    waiting.append(target)

    def _merges_at(self, name: str, merge: str) -> bool:
        # After a step that may end a path, a path need not reach the merge.
        if self._may_end(name):
            return False
        between = self._reached(self._follows(name), merge)
        # A route that may end before the merge does not pass it.
        if any(self._may_end(step) for step in between):
            return False
        # A join merges split paths to one. Without a join, a split would pass the merge several times, once for each
        # path.
        return self._steps[merge].join or all(_is_one_way(self._steps[step]) for step in (*between, name))

    def _reached(self, begin: Iterable[str], stop: str | None) -> list[str]:
        """Return the steps that a path starting at the steps in `begin` can reach without passing the step `stop`."""
        reached = dict.fromkeys(step for step in begin if step != stop)
        waiting = [*reached]
        while waiting:
            for target in self._follows(waiting.pop()):
                if target != stop and target not in reached:
                    reached[target] = None
                    waiting.append(target)
        return [*reached]

    def _follows(self, name: str) -> tuple[str, ...]:
        step = self._steps.get(name)
        return () if step is None else tuple(target for target in step.targets if target in self._steps)

    def _may_end(self, name: str) -> bool:
        """Return True if a path can end after a step: either the step has no edges, or it is possible that none of the
        conditions on its edges holds.
        """
        edges = self._steps[name].edges
        return not edges or (all(edge.condition for edge in edges) and not _are_contrary(self._steps[name]))


def _is_one_way(step: Step) -> bool:
    """Return True if at most one edge of a step can be followed, so that a path never splits after the step."""
    return len(step.edges) <= 1 or _are_contrary(step)


def _are_contrary(step: Step) -> bool:
    """Return True if exactly one of the conditions on a step's two edges holds in any state, such as ``state.n < 3``
    and ``state.n >= 3``.

    Two kinds of values are left out of account: NaN, for which both orderings are false, and the text "false", for
    which ``state.ok`` and ``not state.ok`` are false. `why` would otherwise name the choice as a cause of everything
    behind nearly every branch.

    >>> _are_contrary(Step("a", script="1", next=[("b", "$(state.n < 3)"), ("c", "$(state.n >= 3)")]))
    True
    """
    texts = [edge.condition for edge in step.edges if edge.condition]
    if len(texts) != 2 or len(step.edges) != 2:
        return False
    try:
        first, second = (parse_python(unwrapped(text), mode="eval").body for text in texts)
    except SyntaxError:
        return False
    return _is_not(first, second) or _is_not(second, first) or _is_contrary(first, second)


def _is_not(first: ast.expr, second: ast.expr) -> bool:
    if not isinstance(first, ast.UnaryOp) or not isinstance(first.op, ast.Not):
        return False
    return ast.dump(first.operand) == ast.dump(second)


def _is_contrary(first: ast.expr, second: ast.expr) -> bool:
    if not (
        isinstance(first, ast.Compare) and isinstance(second, ast.Compare) and len(first.ops) == len(second.ops) == 1
    ):
        return False
    # `state.n < 3` and `state.n >= 3`: equal sides, contrary operators. The sides are compared as syntax trees.
    sides = [ast.dump(comparison.left) + ast.dump(comparison.comparators[0]) for comparison in (first, second)]
    return sides[0] == sides[1] and _CONTRARY[type(first.ops[0])] is type(second.ops[0])


def _changed_by(step: Step) -> frozenset[str] | None:
    """Return the names of the variables that a step may change in addition to the one that gets its result; None if
    that cannot be determined.
    """
    if step.type in (FUNCTION, STAGE):
        return frozenset()
    if step.type not in KNOWN_TYPES:
        return None
    try:
        return changed_by_script(step.script) if step.type == "script" and step.script else frozenset()
    except DivebookError:  # it cannot run
        return frozenset()


def _set_by(step: Step, changed: frozenset[str] | None) -> frozenset[str] | None:
    """Return the names of the variables that a step may set, including the one that gets its result; None if that
    cannot be determined.
    """
    stored = {name for name in (step.store, *(policy.store for policy in step.catch)) if name}
    return None if changed is None else changed | stored


# --- state of the index: paths, visits to steps, and open choices -----------------------------------------------------


@dataclass(slots=True)
class StepVisit:
    """One visit of a path to a step, with the values of variables that the step has read so far."""

    step: str
    number: int
    reads: ReadKeys
    because: tuple[int, ...]
    view: Map[str, int]
    """Numbers of the values that the step sees, by variable."""
    values_read: dict[int, None]
    """Numbers of all values that the step has read or may have read, in order (the values of the dict are None)."""
    items: dict[int, None]
    """Numbers of the values from which the list of items was computed."""
    calls: dict[int | None, list[StepCall]] = field(default_factory=dict)
    """Calls of the step by index of the item; None for calls outside items."""
    item: int | None = None
    """Index of the item that started last."""
    is_item_new: bool = False
    """True if the item that started last has recorded no event yet."""
    ended_items: dict[int, int] = field(default_factory=dict)
    """Items that have a row in the result, and the numbers of the events that ended them."""
    running_calls: int = 0
    """Number of calls that have started and not ended."""
    unclaimed: list[ValueOrigin] = field(default_factory=list)
    """Values that the running script has set. They get their call when the script ends."""
    before_items: dict[str, int | None] = field(default_factory=dict)
    """Value that the loop variable had before the first item, by name of the variable."""


@dataclass(slots=True)
class Choosing:
    """Choice of the next steps after a step, as far as it is known from the events read so far. Conditions on edges may
    still be unevaluated.
    """

    visit: StepVisit
    view: Map[str, int]
    conditions: dict[tuple[str, str], tuple[bool, int]] = field(default_factory=dict)
    """Result of each condition and the number of its event, by condition and target."""
    sequence: int = 0


@dataclass(slots=True)
class PathOrigins:
    """Data about one path while its log is read: its current visit to a step, its unfinished choice of the next steps,
    and the earlier choices on which the path depends.
    """

    control: tuple[int, ...] = ()
    """Numbers of the latest choices on which the path depends; earlier choices are causes of these."""
    visit: StepVisit | None = None
    after: Choosing | None = None


_NO_VERSIONS: Map[str, int] = Map()
