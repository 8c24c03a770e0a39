"""Start of executions: the start options, the first event, and start keys, which ensure that an execution is started
only once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias, TypedDict

from divebook._version import __version__
from divebook.definitions.definition import Workflow
from divebook.definitions.functions import BoundInputs, changed_names
from divebook.engine.bounds import within
from divebook.engine.forks import Change
from divebook.engine.state import ExecutionState
from divebook.environments.registry import Registry
from divebook.errors import (
    ExecutionNotFoundError,
    InputError,
    SetupError,
    StartKeyTakenError,
    StartKeyWarning,
    did_you_mean,
    shown_number,
)
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.events.event import to_microseconds
from divebook.events.recorded import opened
from divebook.questions.bounds import Bounds
from divebook.runtime.children import Child, Opened
from divebook.runtime.driver import Driver
from divebook.runtime.forks import recorded_opening
from divebook.runtime.manager import Control
from divebook.runtime.run import Run
from divebook.steps.conversations import BOOK_WORKFLOW
from divebook.stores import EventStore
from divebook.stores.append import Durability
from divebook.text.arguments import describe, require
from divebook.text.redaction import shared
from divebook.text.user_warning import warn_user


class StartOptions(TypedDict, total=False):
    """Options for starting an execution. All options are optional."""

    coerce_text: bool
    """True to convert strings to the declared types of inputs, as a command line needs."""
    bounds: Bounds | Mapping[str, Any] | None
    """Bounds (budget) in place of the bounds of the workflow: ``{"max_llm_calls": 40, "max_cost": 2.50}``."""
    identity: Mapping[str, Any] | None
    """Identity of the caller for the envelope: ``user_id``, ``session_id``, ``request_id``, ``metadata``."""
    durability: str | None
    """``full`` or ``relaxed``, for this execution only."""
    key: str | None
    """Start key, unique in the store. A second start with the key returns the existing execution. An interrupted
    execution is not resumed; to resume it, write ``environment.start(..., key=key).resume().wait()``.
    """
    on_conflict: str
    """Reaction if the execution with the key was started with other inputs: ``warn`` issues a warning and returns the
    existing execution (the default), ``refuse`` raises `StartKeyTakenError`, and ``return`` returns the existing
    execution without a warning.
    """
    model: str | None
    """Model of all agents, in place of their own models: ``provider:model``, or ``scripted``."""
    tags: Sequence[str] | None
    """Tags (words) by which the execution can be found later."""
    note: str | None
    """Free text of a person about the execution."""
    notebook: str | None
    """File name of the notebook that starts the execution."""
    cell: str | None
    """Id of the notebook cell that starts the execution."""


WARN = "warn"
REFUSE = "refuse"
RETURN = "return"
CONFLICTS = (WARN, REFUSE, RETURN)
"""Values of the option ``on_conflict``."""
MOST_NAMED = 5
"""Maximum number of different inputs that a warning or an error shows with their values."""
CELL = "cell"
"""Key of the notebook cell in the identity of an execution."""
OPTION_NAMES = StartOptions.__optional_keys__


ForkedChild: TypeAlias = Callable[[Child], tuple[Workflow, catalog.ExecutionForked]]
"""Function from a child execution to its workflow and first event, for a child whose parent takes results from a log.
"""


class Starter:
    """Creates executions: those that callers start, child executions, successors, and executions that only store the
    messages of conversations.

    Parameters
    ----------
    registry
        Workflows, agents and functions of the environment.
    durability
        Return the durability for an option, or the default for None.
    forked_child
        See `divebook.environments.variants.Variants.forked_child`.
    """

    def __init__(
        self,
        registry: Registry,
        control: Control,
        durability: Callable[[str | None], Durability | None],
        forked_child: ForkedChild,
    ) -> None:
        self._registry = registry
        self._control = control
        self._store = control.store
        self._durability = durability
        self._forked_child = forked_child

    def create(self, workflow: Workflow | str, inputs: Mapping[str, Any] | None, options: StartOptions) -> Driver:
        """Return the driver of a pending execution; see `Environment.create`."""
        registry = self._registry
        if not workflow or not isinstance(workflow, Workflow | str):
            names = ", ".join({**registry.registered_workflows, **registry.workflows}) or "none is defined"
            value: object = workflow
            way_on = "decorate it with @workflow" if callable(value) else f"name one of: {names}"
            raise SetupError(f"a workflow is required, not {value!r}; {way_on}")
        check_options(options)
        definition = registry.workflow(workflow) if isinstance(workflow, str) else workflow
        registry.check(definition)
        # A caller that passes the object itself is Python code. A name may also be that of a workflow from a text.
        if isinstance(workflow, Workflow):
            registry.origins.mark_workflow_as_code(workflow)
        # The model is recorded with the start, so that a resumption elsewhere uses the same one.
        model = registry.model_of_run(definition, options.get("model")) or registry.stand_in_for(definition)
        options["model"] = model
        registry.check_models(definition, model)
        bound = BoundInputs.of(definition, inputs or {}, coerce_text=options.get("coerce_text", False))
        opening = opening_of(definition, dict(bound), registry.code_of(definition), options)
        return self._control.create(definition, opening, self._durability(options.get("durability")))

    async def drive_child(self, child: Child, *, again: bool) -> ExecutionState:
        """Run the child execution that a step requests, and return its final state; see `Context.run`."""
        opening = self._child_opening if child.like is None else self._child_fork
        return await self._control.drive_child(child, functools.partial(opening, child), again=again)

    async def begin_successor(self, request: Child) -> str:
        """Start the successor of an execution and return its id. If it was started before, only return its id. See
        `Context.continue_as_new`.
        """
        workflow = self._registry.workflows.get(request.workflow)
        if workflow is None:
            workflow = self._control.look_up(request.parent).workflow
        # An execution has one successor, so its id makes the key unique.
        key = f"continues/{request.parent}"
        request = await self._control.remaining_bounds_for(request)
        workflow, opening, durability = self._opening(request, workflow, origin=catalog.RUN, key=key)
        driver = self._control.create(workflow, opening, durability)
        try:
            await self._control.begin_successor(driver, request.parent)
        except StartKeyTakenError as conflict:
            # A process has started the successor, and ended before the log of the predecessor recorded that. The
            # successor has lost its driver as well.
            await self._control.continue_successor(conflict.run_id)
            return conflict.run_id
        return driver.id

    def begin_log(self, key: str) -> str:
        """Start an execution that runs no steps and stores the messages of a `DurableLog`; return its id. If an
        execution was started before for the key of this log, return that id.
        """
        opening = opening_of(BOOK_WORKFLOW, {}, {}, {"key": key}, origin=catalog.BOOK)
        driver = self._control.create(BOOK_WORKFLOW, opening, self._durability(None))
        try:
            self._control.begin(driver)
        except StartKeyTakenError as conflict:
            return existing_execution(conflict, BOOK_WORKFLOW.name, self._store)
        return driver.id

    def _child_fork(self, child: Child) -> Opened:
        try:
            return *self._forked_child(child), self._durability(None)
        except ExecutionNotFoundError:
            # The recorded child was deleted. A what-if cannot do without it; a continuation runs the child again.
            if child.like is None or child.like.tools not in catalog.REUSE_MODES:
                raise
            return self._child_opening(child)

    def _child_opening(self, child: Child) -> Opened:
        return self._opening(child, self._registry.workflow(child.workflow))

    def _opening(
        self, child: Child, workflow: Workflow, *, origin: str | None = None, key: str | None = None
    ) -> tuple[Workflow, catalog.ExecutionStarted, Durability | None]:
        """Return three values for starting a child execution or a successor: the workflow, the first event, and the
        durability (how soon events reach the disk).
        """
        self._registry.check(workflow)
        self._registry.check_models(workflow, child.model)
        bounds = within(as_bounds(workflow.bounds or {}), child.bounds)
        options: StartOptions = {"bounds": bounds, "model": child.model, "key": key}
        # Opened first, because the declared types of the inputs check the objects and not their recorded form.
        inputs = dict(BoundInputs.of(workflow, opened(child.inputs)))
        code = self._registry.code_of(workflow)
        opening = opening_of(workflow, inputs, code, options, parent=child.parent, origin=origin)
        # A successor begins with the variables of its predecessor. A child has none.
        return workflow, replace(opening, state=child.variables or None), self._durability(None)


def opening_of(
    workflow: Workflow,
    inputs: Mapping[str, Any],
    code: Mapping[str, str],
    options: StartOptions,
    *,
    parent: str | None = None,
    origin: str | None = None,
) -> catalog.ExecutionStarted:
    """Return the first event (`ExecutionStarted`) of a new execution.

    Parameters
    ----------
    inputs
        Inputs in their stored form.
    options
        Start options. `check_options` has checked those of a caller.
    code
        Digests of the Python functions that the workflow may call.
    parent
        The execution that starts this one, if any. It waits for the end, unless `origin` has another meaning.
    """
    bounds = options.get("bounds")
    identity = options.get("identity")
    tags = options.get("tags")
    # An empty mapping of bounds counts as given: it removes the bounds of the workflow.
    limits = bounds if bounds is not None else workflow.bounds
    return catalog.ExecutionStarted(
        workflow.name,
        inputs,
        workflow.stored,
        workflow.fingerprint,
        workflow.source or None,
        __version__,
        None if limits is None else as_bounds(limits).to_dict() or None,
        storable(identity, "identity") if identity else None,
        parent=parent,
        origin=origin,
        key=options.get("key"),
        tags=_listed(tags) or None,
        note=options.get("note"),
        notebook=options.get("notebook"),
        cell=options.get("cell"),
        code=code or None,
        model=options.get("model"),
    )


def forked_of(
    opening: catalog.ExecutionStarted, source: ExecutionState, opened: int, change: Change, options: StartOptions
) -> catalog.ExecutionForked:
    """Return the event `ExecutionForked`, with which a fork begins. It contains only those start options of the fork
    that differ from the ones of its source.

    Parameters
    ----------
    source
        State of the source at the event of the fork.
    opened
        Sequence number of the newest opening among the shared events.
    """
    # The start event is among the shared events, so everything that is equal is left out here.
    is_changed = opening.fingerprint != source.fingerprint
    return catalog.ExecutionForked(
        source.execution_id,
        source.last_sequence,
        opening.workflow_name,
        opened,
        change.to_data() or None,
        opening.origin,
        opening.definition if is_changed else None,
        opening.source if is_changed else None,
        opening.fingerprint,
        opening.written_by,
        opening.bounds if options.get("bounds") is not None else None,
        opening.identity,
        opening.key,
        opening.tags,
        opening.note,
        opening.notebook,
        opening.cell,
        # A log without a seed uses its execution id in place of it. The fork has another id, so it records the seed
        # of its source.
        source.seed if source.seed == source.execution_id else None,
        None if opening.code == (dict(source.code) or None) else opening.code or {},
        change.model or opening.model,
        origin_started_us=source.code_started_us,
    )


def restart_of(source: Run, workflows: Mapping[str, Workflow]) -> tuple[Workflow, Mapping[str, Any], StartOptions]:
    """Return the workflow, the inputs and the start options of a new execution that repeats `source` with the present
    definition of its workflow. If `workflows` has none of that name, it is the recorded definition.
    """
    return workflows.get(source.workflow.name, source.workflow), source.inputs, options_of(source)


def options_of(execution: Run) -> StartOptions:
    """Return the start options of an existing execution, for starting another execution with the same options.

    The start key is left out, since it is unique. Bounds that come from the workflow are left out, so that the current
    ones of the workflow apply.
    """
    opening = recorded_opening(execution.id, execution.store)
    workflow = execution.workflow
    # Compared in the recorded form. Equal bounds count as those of the definition.
    bounds_of_workflow = None if workflow.bounds is None else as_bounds(workflow.bounds).to_dict() or None
    return {
        "bounds": None if opening.bounds == bounds_of_workflow else opening.bounds,
        "identity": opening.identity,
        "model": opening.model,
        "tags": opening.tags,
        "note": opening.note,
        "notebook": opening.notebook,
        "cell": opening.cell,
    }


def existing_execution(
    conflict: StartKeyTakenError,
    workflow: str,
    store: EventStore,
    inputs: Mapping[str, Any] | None = None,
    on_conflict: str = WARN,
    *,
    change: Mapping[str, Any] | None = None,
) -> str:
    """Return the id of the execution that already has the start key of a second start. Raise `StartKeyTakenError` if it
    runs another workflow.

    Parameters
    ----------
    conflict
        The error of the second start.
    inputs
        Inputs of the second start; None if they do not matter.
    on_conflict
        What to do if the execution was started with other inputs: see `StartOptions`.
    change
        The change of a fork. A fork is compared by its change in place of its inputs.
    """
    existing_id = conflict.run_id
    existing_workflow = store.record(existing_id).workflow_name
    # Never returned silently: the caller would wait for the results of another workflow.
    if existing_workflow != workflow:
        raise StartKeyTakenError(conflict.key, existing_id, existing_workflow, workflow) from conflict
    if on_conflict == RETURN:
        return existing_id
    difference = _difference_of_start(existing_id, store, inputs, change)
    if difference and on_conflict == REFUSE:
        raise StartKeyTakenError(conflict.key, existing_id, difference=difference) from conflict
    if difference:
        warn_user(
            f"start key {conflict.key!r} belongs to execution {existing_id}, which {difference}; that execution is "
            "returned, and nothing was started. Use another key, or choose on_conflict='refuse' or 'return'",
            StartKeyWarning,
        )
    return existing_id


def _difference_of_start(
    execution_id: str, store: EventStore, inputs: Mapping[str, Any] | None, change: Mapping[str, Any] | None
) -> str:
    """Describe how a recorded execution differs from a second start with the same start key. The second start has the
    inputs `inputs` or, for a fork, the change `change`. The result is empty if they are equal.
    """
    if change is None:
        if inputs is None:
            return ""
        difference = _difference(recorded_opening(execution_id, store).inputs, inputs)
        return difference and f"was started with other inputs ({difference})"
    # The newest opening event of a fork has its change. The start event before it belongs to the source.
    (event,) = store.read(execution_id, store.record(execution_id).opened - 1, 1)
    if not isinstance(event.data, catalog.ExecutionForked):
        difference = _difference({}, change)
        return difference and f"is not a fork ({difference})"
    difference = _difference(event.data.change or {}, change)
    return difference and f"was forked with another change ({difference})"


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe which values of two mappings of inputs differ, each with its old and new value, without secrets; an
    empty string if none differs.
    """
    # Inputs may contain secrets, so both are learned before any of them is shown.
    shared().learn(before)
    shared().learn(now)
    names = changed_names(before, now)
    parts = [f"{name}: {_shortened(before, name)}, now {_shortened(now, name)}" for name in names[:MOST_NAMED]]
    if len(names) > MOST_NAMED:
        parts.append(f"and {len(names) - MOST_NAMED} more")
    return "; ".join(parts)


def _shortened(inputs: Mapping[str, Any], name: str) -> str:
    return shared().text(f"{inputs[name]!r:.60}") if name in inputs else "none"


def as_bounds(bounds: Bounds | Mapping[str, Any]) -> Bounds:
    """Convert bounds to a `Bounds` object; a mapping is parsed, and a `Bounds` object is returned unchanged."""
    return bounds if isinstance(bounds, Bounds) else Bounds.read(bounds)


def require_options(options: Iterable[str], allowed: Collection[str], refusal: str) -> None:
    """Raise `SetupError` if an option has a name that is not in `allowed`. The error text begins with the text
    `refusal`, such as "a what-if has no option".
    """
    for name in options:
        if name not in allowed:
            advice = did_you_mean(name, allowed) or f"the options are {', '.join(allowed)}"
            raise SetupError(f"{refusal} {name!r} ({advice})")


def check_options(options: StartOptions) -> None:
    """Raise `SetupError` for a start option that does not exist, or has a value of the wrong type.

    Texts of people (``key``, ``note``, ``notebook``, ``cell``) must be strings; a start key must not be blank.
    """
    if not options:
        return
    values: Mapping[str, Any] = options
    require_options(values, ["inputs", *sorted(OPTION_NAMES)], "an execution cannot be started with the option")
    for name in ("bounds", "identity"):
        require(values.get(name), name, "a mapping", fits=isinstance(values.get(name), Mapping | Bounds))
    for name in ("durability", "model"):
        require(values.get(name), name, "a string", fits=isinstance(values.get(name), str))
    for name in ("key", "note", "notebook", "cell"):
        if not isinstance(values.get(name), str | None):
            raise SetupError(f"{name} must be a string, not {type(values[name]).__name__}; write {name}=str(...)")
    key = values.get("key")
    on_conflict = values.get("on_conflict", WARN)
    if key is not None and not key.strip():
        raise SetupError(f"a start key must not be blank, and {key!r} is; leave it out, or write key='order 7'")
    if on_conflict not in CONFLICTS:
        advice = did_you_mean(str(on_conflict), CONFLICTS) or f"write one of {', '.join(CONFLICTS)}"
        raise SetupError(f"unknown on_conflict {on_conflict!r} ({advice})")


def _listed(tags: Sequence[str] | None) -> list[str]:
    # A string is iterable as well: "baseline" would become eight tags of one letter.
    if isinstance(tags, str):
        raise SetupError(f"tags must be a list of words, not {tags!r}; write tags=[{tags!r}]")
    if tags is not None and not isinstance(tags, Iterable):
        raise SetupError(f"tags must be a list of words, not {describe(tags)}; write tags=['baseline']")
    listed = list(tags or ())
    for tag in listed:
        if not isinstance(tag, str):
            raise SetupError(f"a tag must be a word, not {tag!r}; write {str(tag)!r}")
    return listed


# --- queues ----------------------------------------------------------------------------------------------------------
#
# Options of executions that wait in a queue for a worker (`divebook.queues.Worker`).


DEFAULT_QUEUE = "default"
MOST_PRIORITY = 1_000_000


def enqueued_event(queue: Any, priority: Any, at: Any) -> catalog.ExecutionEnqueued:
    """Return the event that puts an execution into a queue. Raise `SetupError` if the queue, the priority or the
    earliest start time is not valid.
    """
    if not isinstance(queue, str) or not queue.strip():
        raise SetupError(f"a queue name must be a word, not {queue!r}; write queue='labels'")
    # `isinstance` would accept a boolean.
    if type(priority) is not int or abs(priority) > MOST_PRIORITY:
        most = f"{MOST_PRIORITY:,}"
        raise SetupError(
            f"a priority must be an integer from -{most} to {most}, not {shown_number(priority)}; write priority=0"
        )
    if at is not None and not isinstance(at, datetime):
        raise SetupError(f"at must be a datetime, not {at!r}; write at=datetime.now() + timedelta(hours=1)")
    return catalog.ExecutionEnqueued(queue, priority, None if at is None else _microseconds(at))


def time_named(text: str | None) -> datetime | None:
    """Parse the time in the option ``--at``, such as ``2026-05-01T08:00``; return None for None, and raise `InputError`
    for other texts.
    """
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"--at {text!r} is not a time; write --at 2026-05-01T08:00") from error


def _microseconds(at: datetime) -> int:
    try:
        # A time without a zone is local.
        return to_microseconds(at.astimezone())
    except (ValueError, OverflowError) as error:  # with its zone it lies before the year 1, or after 9999
        raise SetupError(
            f"at must be a time that clocks can show, not {at.isoformat()}; write an earlier one"
        ) from error
