"""Forks (executions that start with the first events of another execution): the event that begins a fork, and the
changes that a fork makes.

Operations and questions that are open at the event of the fork belong to the source. The fork drops them, and starts
them again or gets their results from the change. Ended operations and answered questions stay
(tests/engine/test_forked.py). Example: at event 7 the source has ended call 1 and begun call 2. A fork at event 7 uses
the recorded result of call 1 and makes call 2 again, unless `Change.results` has a result for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from divebook.definitions.definition import Workflow
from divebook.engine.bounds import follow_about_bounds
from divebook.engine.changes import without_a_call, workspaces_of_source
from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.engine.maps import Map
from divebook.engine.operations import AGENT_RESPONSE, CHILD_WORKFLOW, ENCLOSING
from divebook.engine.state import (
    EMPTY,
    ENDED,
    NO_ROLLBACKS,
    READY,
    ROUTING,
    Draft,
    ExecutionState,
    Ledger,
    OpenStep,
    OperationRecord,
    PathState,
    is_sleeping,
)
from divebook.errors import SetupError, did_you_mean
from divebook.events import catalog
from divebook.events.catalog import COMPLETED, FAILED, RUNNING, ExecutionForked
from divebook.events.codec import storable
from divebook.events.event import Event
from divebook.questions.bounds import Bounds
from divebook.questions.question import RESOURCE_EXHAUSTED
from divebook.text.arguments import normal_name

# --- changes of a fork -----------------------------------------------------------------------------------------------


_BY_KEY = {
    "variables": "names of variables",
    "inputs": "names of inputs",
    "results": "ids of operations (op_...)",
    "answers": "ids of questions (ask_...)",
    "prompts": "names of steps",
    "skipped": "ids of paths",
}
"""Fields that are mappings, with a description of their keys."""
_APART = ("definition", "model")
"""Fields that the event stores outside `change`."""


@dataclass(frozen=True, slots=True)
class Change:
    """Differences of a fork from its source, as plain data: variables, inputs, results, answers, prompts, skipped
    steps, model, definition. All fields are optional.

    Raises
    ------
    SetupError
        A field has the wrong type.
    UnstorableValueError
        A value cannot be stored in an event.

    Examples
    --------
    >>> Change(variables={"city": "Bonn"}).to_data()
    {'variables': {'city': 'Bonn'}}
    >>> Change.of({"model": "scripted"}).named
    ('model',)
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    """New values of variables."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """New values of inputs."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """New results of operations, by operation id."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """New answers by question id, in the form in which the log stores them (`divebook.questions.answer`)."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """New prompts by step name."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Output texts by id of a path whose step has failed. The text replaces the output of that step; no variable is
    set."""
    model: str | None = None
    """Model that replaces the models of all agents."""
    definition: Mapping[str, Any] | None = None
    """Workflow as plain data (`Workflow.to_dict`). A `Workflow` is accepted and converted."""

    def __post_init__(self) -> None:
        # Callers may pass any objects, so each field is checked.
        for name, keys in _BY_KEY.items():
            object.__setattr__(self, name, _checked(name, keys, getattr(self, name)))
        for step, text in self.prompts.items():
            if not isinstance(text, str):
                raise SetupError(f"the prompt of step {step!r} must be a string, not {type(text).__name__}")
        for path, text in self.skipped.items():
            if not isinstance(text, str):
                raise SetupError(
                    f"the new result for the step of path {path!r} must be a string, not {type(text).__name__}"
                )
        model: Any = self.model
        if model is not None and (not isinstance(model, str) or not model):
            raise SetupError(f"model must be the name of a model (provider:model), not {model!r}")
        definition: Any = self.definition
        if isinstance(definition, Workflow):
            object.__setattr__(self, "definition", definition.to_dict())
        elif definition is not None and not isinstance(definition, Mapping):
            kind = type(definition).__name__
            raise SetupError(f"definition must be a workflow or its plain data, not {kind}; write workflow.to_dict()")

    @classmethod
    def of(cls, change: Change | Mapping[str, Any] | None) -> Change:
        """Create a change from a `Change` or from a mapping of its fields. None gives a change without any
        differences.
        """
        if isinstance(change, Change):
            return change
        if not isinstance(change, Mapping | None):
            raise SetupError(
                f"a change must be a mapping such as {{'variables': {{'x': 1}}}}, not {type(change).__name__}"
            )
        # Checked before the call of the class, whose TypeError would suggest no name.
        names = [entry.name for entry in fields(cls)]
        for name in change or {}:
            if name not in names:
                advice = did_you_mean(str(name), names) or f"possible changes: {', '.join(names)}"
                raise SetupError(f"a fork cannot change {name!r} ({advice})")
        return cls(**(change or {}))

    @classmethod
    def recorded(cls, data: ExecutionForked) -> Change:
        """Return the change that a fork makes, read from the event with which the fork starts."""
        return cls(**(data.change or {}), model=data.model, definition=data.definition)

    @property
    def named(self) -> tuple[str, ...]:
        """Names of the fields of the change that are not empty."""
        values = ((entry.name, getattr(self, entry.name)) for entry in fields(self))
        return tuple(name for name, value in values if value not in (None, {}))

    def over(self, earlier: Change) -> Change:
        """Return the combination of an earlier change and this change. If both have a value, the value of this change
        is used. Variables and skipped steps of the earlier change are left out, because they belong to the fork point
        of that change.

        >>> Change(inputs={"a": 1}).over(Change(inputs={"a": 0, "b": 2})).to_data()
        {'inputs': {'a': 1, 'b': 2}}
        """
        # A new definition replaces the earlier prompts as well.
        prompts = self.prompts if self.definition is not None else {**earlier.prompts, **self.prompts}
        return replace(
            self,
            inputs={**earlier.inputs, **self.inputs},
            results={**earlier.results, **self.results},
            answers={**earlier.answers, **self.answers},
            prompts=prompts,
            model=self.model or earlier.model,
            definition=earlier.definition if self.definition is None else self.definition,
        )

    def to_data(self) -> dict[str, Any]:
        """Return the change as plain data, for the field ``change`` of a fork's start event. Model and definition are
        left out, because they have separate fields in the event.
        """
        return {name: getattr(self, name) for name in self.named if name not in _APART}

    def workflow(self, source: Workflow) -> Workflow:
        """Return the workflow of a fork. It is the definition in the change, or without one the definition of the
        source. Changed prompts replace those in it.

        Raises
        ------
        SetupError
            A step whose prompt is changed does not exist or has no prompt, or the definition has the wrong shape.
        DefinitionError
            The definition is invalid.
        """
        if self.definition is not None and not _is_shaped(self.definition):
            raise SetupError(
                "definition must have a name and a list of steps, each plain data; write workflow.to_dict()"
            )
        # `from_dict` does not check recorded definitions. `replace` calls the constructor, which checks this new one.
        workflow = source if self.definition is None else replace(Workflow.from_dict(self.definition))
        if not self.prompts:
            return workflow
        steps = {step.name: step for step in workflow.steps}
        for name, text in self.prompts.items():
            if name not in steps or steps[name].prompt is None:
                with_prompt = [step.name for step in workflow.steps if step.prompt is not None]
                advice = did_you_mean(name, with_prompt) or f"steps with a prompt: {', '.join(with_prompt) or 'none'}"
                raise SetupError(f"workflow {workflow.name!r} has no step {name!r} with a prompt ({advice})")
            steps[name] = replace(steps[name], prompt=text)
        return replace(workflow, steps=tuple(steps.values()))


def _is_shaped(definition: Mapping[str, Any]) -> bool:
    """Return whether plain data has the shape of a workflow definition. `Workflow.from_dict` checks the contents."""
    name = definition.get("name")
    steps = definition.get("steps")
    return isinstance(name, str) and isinstance(steps, Sequence) and all(isinstance(step, Mapping) for step in steps)


def _checked(name: str, keys: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise SetupError(f"{name} of a change must be a mapping of {keys} to new values, not {type(values).__name__}")
    for key in values:
        if not isinstance(key, str) or not key:
            raise SetupError(
                f"{name} of a change must be a mapping of {keys} to new values; {key!r} is not a valid key"
            )
    # The values are normalized now, so that the event can be recorded once the fork begins.
    return {normal_name(key): storable(value, f"{name}.{key}") for key, value in values.items()}


# --- fold of the event -----------------------------------------------------------------------------------------------


CHANGED_BY = "change"
"""Name of the answerer if a change answers a question."""
_ALONE = (catalog.PathBranched, catalog.StepFailed)
"""Facts that are always followed by another fact of the same rule."""
_TOGETHER = frozenset(
    {
        (catalog.PathCompleted, catalog.PathJoined),
        (catalog.PathCompleted, catalog.PathCompleted),
        (catalog.StateMutated, catalog.StepCompleted),
        (catalog.StateMutated, catalog.StepCaught),
        (catalog.StateMutated, catalog.RollbackAdded),
        (catalog.RollbackAdded, catalog.StepCompleted),
        (catalog.RollbackAdded, catalog.IterationCompleted),
        (catalog.OperationCompleted, catalog.RollbackAdded),
        (catalog.OperationFailed, catalog.StepRetried),
    }
)
"""Pairs of facts that one rule creates together (`divebook.engine.decide`). A fork cannot begin between them."""


def forked_from(source: ExecutionState, execution_id: str) -> ExecutionState:
    """Return the state of a source at the fork point as that of its fork, before the fork's first own event. It equals
    the fold of the shared events under the id of the fork.
    """
    # An execution without a recorded seed has its own id as seed.
    seed = execution_id if source.seed == source.execution_id else source.seed
    return replace(source, execution_id=execution_id, seed=seed)


# What the fold of `execution_forked` does, for a source that is at event 7 of this log and a fork with the change
# {"results": {"op_2": 5}}:
#
#     source after event 7                    fork
#     op_1  completed, result 3               stays
#     op_2  running                           completed, result 5 (from the change)
#     op_3  running                           dropped; the fork makes this call itself
#     question "ask_1", open                  deleted; asked again under the same id, as the seed is the same
#     model calls counted 2, tokens used 90   stay for the bounds; `inherited` takes them out of totals
def execution_forked(draft: Draft, data: catalog.ExecutionForked) -> None:
    """Apply `execution_forked` to a state that a fork has copied from its source: drop the open operations and
    questions of the source, and apply the changes of the fork.
    """
    change = Change.recorded(data)
    _reset(draft, data)
    # Before the calls are dropped: in a trial no step is open any more.
    if data.only is not None:
        _keep_only(draft, data.only)
    for path in list(draft.paths.values()):
        if path.open is not None or path.asking:
            copy = draft.own(path.id)
            copy.asking = 0
            open_step = copy.open
            copy.open = None if open_step is None else _without_calls(copy, open_step, change)
            # The fork makes the dropped model calls again, and counts them then.
            draft.ledger = _without_dropped(draft.ledger, copy, open_step)
    _skip_failed(draft, change)
    _set_variables(draft, change)
    _settle_questions(draft, change)
    if change.inputs:
        draft.inputs = {**draft.inputs, **change.inputs}
        draft.edited_inputs = tuple(sorted({*draft.edited_inputs, *change.inputs}))
    draft.asking = 0
    draft.sleeping = sum(is_sleeping(path) for path in draft.paths.values() if path.phase != ENDED)


def _reset(draft: Draft, data: catalog.ExecutionForked) -> None:
    """Reset times, messages, queue, rollbacks and outcome in the state that a fork copied from its source. The
    consumption before the fork still counts for the bounds.
    """
    draft.lifecycle = RUNNING
    draft.started_us = draft.moment
    draft.origin_started_us = data.origin_started_us
    draft.paused_us = 0
    draft.ended_us = draft.error = draft.reason = draft.stopped = draft.paused = draft.failed_path = None
    # The parent of the source does not wait for the fork.
    draft.parent = data.awaited_by
    draft.continued_as = None
    draft.queue = None
    draft.priority = 0
    draft.due_us = None
    draft.outputs = EMPTY
    draft.taken = 0
    draft.inherited = draft.usage
    # The source rolls back its own work.
    draft.rollbacks = NO_ROLLBACKS
    draft.rolling_back = None
    draft.undone_from = 0
    # Running calls stay with the source, and so do the amounts that they have reserved.
    draft.ledger = draft.ledger._replace(reserved_tokens=0, reserved_cost=0, reserved_calls=0)
    draft.tools = data.tools
    draft.only = data.only or EMPTY
    draft.workspaces = workspaces_of_source(draft.workspaces)
    draft.seed = data.seed or draft.seed
    draft.fingerprint = data.fingerprint or draft.fingerprint
    draft.code = draft.code if data.code is None else data.code
    draft.model = data.model or draft.model
    draft.identity = draft.identity if data.identity is None else data.identity
    draft.bounds = draft.bounds if data.bounds is None else Bounds.from_dict(data.bounds)


def _keep_only(draft: Draft, only: Mapping[str, Any]) -> None:
    """Prepare a fork that is a trial (one step run again). The path with this step gets ready to enter the step, and
    all other paths are ended.

    (test_other_paths_do_nothing_in_a_trial)
    """
    for path in list(draft.paths.values()):
        copy = draft.own(path.id)
        copy.open = None
        copy.hop = None
        copy.routing = ()
        if path.id != only["path"]:
            copy.phase = ENDED
            copy.status = COMPLETED
            copy.ended_us = copy.ended_us or draft.moment
    trial = draft.own(only["path"])
    trial.phase = READY
    trial.current_step = only["step"]
    draft.active = 1
    draft.joining = 0


def _without_calls(path: PathState, open_step: OpenStep, change: Change) -> OpenStep:
    """Return an open step as the fork starts with it. Unfinished calls are left out, because they belong to the source.
    Calls for which the change of the fork sets a result have this result.
    """
    records: dict[str, OperationRecord] = {}
    for key, record in open_step.operations.items():
        if key in change.results:
            # No event has the number 0: no `operation_completed` holds this result.
            records[key] = record.ended(0, COMPLETED, (change.results[key], None, (), None))
        elif not _belongs_to_source(path, open_step, record):
            records[key] = record._replace(reserved=None)
    # A turn that stays must not refer to dropped calls inside it.
    for key, record in records.items():
        if record.holds:
            records[key] = record._replace(holds=tuple(inner for inner in record.holds if inner in records))
    return open_step._replace(operations=Map(records))


def _without_dropped(ledger: Ledger, path: PathState, before: OpenStep | None) -> Ledger:
    """Return the counters (`Ledger`) after a fork has left out unfinished model calls of an open step: these are not
    counted any more. `before` is the step in the source.
    """
    if before is None or path.open is None:
        return ledger
    for key, record in before.operations.items():
        if record.operation_type == AGENT_RESPONSE and key not in path.open.operations:
            ledger = without_a_call(ledger, path)
    return ledger


def _belongs_to_source(path: PathState, open_step: OpenStep, record: OperationRecord) -> bool:
    if record.operation_type in ENCLOSING:  # the fork enters it again, with the ended operations inside it
        return False
    # A failed child of an ended path would be resumed, but it belongs to the source. So the fork starts a new child,
    # unless the code of the step caught this failure and continued.
    if record.operation_type == CHILD_WORKFLOW and record.status != COMPLETED and path.phase == ENDED:
        return open_step.ended_by is None or record.operation_id in open_step.ended_by
    return record.status not in (COMPLETED, FAILED)


def _skip_failed(draft: Draft, change: Change) -> None:
    """Skip failed steps as the change of the fork demands. Each path whose step has failed continues after this step,
    as if it had completed. Its output is the text that the change has for the path.
    """
    for name, output in change.skipped.items():
        path = draft.own(name)
        step = path.current_step
        path.status = RUNNING
        path.phase = ROUTING
        path.left = ROUTING
        path.open = None
        path.last_step = step
        path.routing = ()
        path.error = None
        path.reason = None
        path.ended_us = None
        path.variables = draft.variables
        path.variables_at = draft.variables_at
        path.step_outputs = path.step_outputs.set(step, output)
        # No event `step_completed` holds this output, so a checkpoint copies it.
        path.outputs_at = _without(path.outputs_at, [step])


def _set_variables(draft: Draft, change: Change) -> None:
    """Set the variables that a fork changes, also in the copies that open steps and conditions read."""
    values = change.variables
    if not values:
        return
    draft.variables = draft.variables.update(values)
    # No event `state_mutated` holds these values, so a checkpoint copies them.
    draft.variables_at = _without(draft.variables_at, values)
    for path in list(draft.paths.values()):
        # A failed path with an open step may be resumed in the fork, so its variables change too.
        if path.phase != ENDED or path.open is not None:
            copy = draft.own(path.id)
            copy.variables = copy.variables.update(values)
            copy.variables_at = _without(copy.variables_at, values)
            if copy.open is not None:
                entry = copy.open.entry_variables.update(values)
                places = _without(copy.open.entry_at, values)
                copy.open = copy.open._replace(entry_variables=entry, entry_at=places)


def _without(places: Map[str, int], names: Iterable[str]) -> Map[str, int]:
    for name in names:
        if name in places:
            places = places.delete(name)
    return places


def _settle_questions(draft: Draft, change: Change) -> None:
    """Apply the answers that the change of a fork contains to the questions copied from its source. Remove the other
    open questions, because the fork asks them again.
    """
    for question in list(draft.interrupts.values()):
        if question.id in change.answers:
            answer = catalog.InterruptResolved(question.id, change.answers[question.id], CHANGED_BY)
            answered_question = question.resolved(answer)._replace(settled_us=draft.moment, waiting=())
            draft.interrupts = draft.interrupts.set(question.id, answered_question)
            if question.kind == RESOURCE_EXHAUSTED:
                follow_about_bounds(draft, answered_question)
        elif question.is_open:
            draft.interrupts = draft.interrupts.delete(question.id)


def ends_in(data: ExecutionForked) -> dict[str, catalog.OperationCompleted | catalog.InterruptResolved]:
    """Return the ends of operations and questions that the change of a fork sets, by their ids. The log has no other
    event of these ends.

    The type of an operation is ``change``, since the change does not name its type.

    >>> ends = ends_in(ExecutionForked("exec_1", 7, "w", change={"answers": {"ask_1": "yes"}}))
    >>> ends["ask_1"].response
    'yes'
    """
    change = Change.recorded(data)
    results = {name: catalog.OperationCompleted(name, CHANGED_BY, result=each) for name, each in change.results.items()}
    return results | {name: catalog.InterruptResolved(name, each, CHANGED_BY) for name, each in change.answers.items()}


# --- checks before a fork begins -------------------------------------------------------------------------------------


def require_reach(change: Change, source: ExecutionState) -> None:
    """Raise `SetupError` if the change of a fork refers to something that its source does not have at the fork point.
    Otherwise do nothing.

    Results need an open operation, answers a question, skipped paths a failed step, and inputs an input of that name.
    Variables may be new.
    """
    # Only calls of open steps can get other results: when a step ends, its result has been used, and its calls are
    # dropped.
    open_steps = [path.open for path in source.paths.values() if path.open is not None]
    operations = {key for step in open_steps for key in step.operations}
    place = f"event {source.last_sequence} of execution {source.execution_id}"
    for operation in change.results:
        if operation not in operations:
            raise SetupError(
                f"the result of {operation} cannot be changed at {place}: no step that is running there has started "
                "this operation. Fork at an event after the operation_started event and before the end of the step"
            )
    for question in change.answers:
        if question not in source.interrupts:
            questions = ", ".join(source.interrupts) or "none"
            raise SetupError(
                f"question {question} has not been asked yet at {place} (asked there: {questions}); fork at a later "
                "event"
            )
    for name in change.skipped:
        path = source.paths.get(name)
        if path is None or path.status != FAILED or path.open is None:
            failed_ids = ", ".join(path.id for path in source.paths.values() if path.status == FAILED) or "none"
            raise SetupError(f"no step of path {name!r} has failed at {place} (paths that failed: {failed_ids})")
    for name in change.inputs:
        if name not in source.inputs:
            raise SetupError(f"there is no input {name!r} to change (inputs: {', '.join(source.inputs) or 'none'})")


def snapped(events: Sequence[Event], at: int, state_at: Callable[[int], ExecutionState]) -> int:
    """Return the event nearest to `at` after which an execution can be forked. A fork cannot begin between events that
    one rule of the engine records together.

    The end of an execution and the start of its rollback are not shared, since no other event could follow them.

    Parameters
    ----------
    events
        The whole log, from event 1. Only events near the result are accessed.
    state_at
        Return the state of the execution after an event.
    """
    # Example: events 7 and 8 are `path_branched` and `path_completed`. A fork "at 7" begins after event 8.
    while at < len(events) and _belong_together(events[at - 1].data, events[at].data):
        at += 1
    # Example: event 20 is `execution_failed` and event 21 an annotation. A fork "at 21" begins after event 19.
    while state_at(at).lifecycle in TERMINAL:
        at = _last_of(events, at, tuple(STATUS_AFTER)) - 1
    while state_at(at).rolling_back is not None:
        at = _last_of(events, at, (catalog.RollbackStarted,)) - 1
    return at


def _last_of(events: Sequence[Event], at: int, kinds: tuple[type[catalog.Payload], ...]) -> int:
    """Return the number of the last event up to event `at` that has one of the types `kinds`."""
    return next(number for number in range(at, 0, -1) if isinstance(events[number - 1].data, kinds))


def _belong_together(data: catalog.Payload, following: catalog.Payload) -> bool:
    return isinstance(data, _ALONE) or (type(data), type(following)) in _TOGETHER


def opened_as(first: catalog.ExecutionStarted, forks: Iterable[catalog.ExecutionForked]) -> catalog.ExecutionStarted:
    """Return the start event of an execution as if it had been started with the changes of its forks (inputs, model,
    bounds, definition and others).

    Examples
    --------
    >>> forked = catalog.ExecutionForked("exec_1", 7, "w", change={"inputs": {"x": 2}})
    >>> opened = opened_as(catalog.ExecutionStarted("w", {"x": 1, "y": 0}), [forked])
    >>> dict(opened.inputs), opened.parent, opened.came_from
    ({'x': 2, 'y': 0}, 'exec_1', 'fork')
    """
    # Each fork states only its differences from the opening before it.
    opening = first
    for fork in forks:
        values: dict[str, Any] = {
            "bounds": fork.bounds,
            "identity": fork.identity,
            "seed": fork.seed,
            "code": fork.code,
            "model": fork.model,
            "written_by": fork.written_by,
            "fingerprint": fork.fingerprint,
        }
        if fork.definition is not None:
            values |= {"definition": fork.definition, "source": fork.text or ""}
        opening = replace(
            opening,
            **{name: value for name, value in values.items() if value is not None},
            inputs={**opening.inputs, **Change.recorded(fork).inputs},
            parent=fork.source,
            origin=fork.came_from,
            key=fork.key,
            tags=fork.tags,
            note=fork.note,
            notebook=fork.notebook,
            cell=fork.cell,
        )
    return opening
