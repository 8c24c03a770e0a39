"""Executions derived from others: forks, what-ifs, resumptions with a changed definition, and trials of a step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias, TypedDict

from divebook.definitions.definition import Workflow, require_definition
from divebook.definitions.functions import BoundInputs, bind_inputs, changed_names, signature_of
from divebook.definitions.reader import with_keys
from divebook.engine.bounds import within
from divebook.engine.decide import steps_ahead
from divebook.engine.forks import Change, require_reach
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.state import ExecutionState
from divebook.environments.registry import Registry
from divebook.environments.starts import (
    OPTION_NAMES,
    RETURN,
    WARN,
    StartOptions,
    as_bounds,
    check_options,
    existing_execution,
    forked_of,
    opening_of,
    options_of,
    require_options,
    restart_of,
)
from divebook.errors import (
    ExecutionError,
    NotFoundError,
    ReplayMismatchError,
    SetupError,
    StartKeyTakenError,
    did_you_mean,
)
from divebook.events import catalog
from divebook.events.catalog import COMPLETED, FAILED
from divebook.events.codec import canonical_hash
from divebook.events.event import Event
from divebook.events.recorded import opened
from divebook.projections.summary import ReadLog
from divebook.questions.bounds import Bounds
from divebook.replay.recorded_answers import RECORDED, TOOLS, ReuseInputs
from divebook.replay.resume_changed import Kept, ResumePlan, kept_by, resume_plan
from divebook.replay.trial import (
    ASKED,
    RECORDED_NUMBER,
    StepTrial,
    alone,
    call_of,
    entry_of,
    is_call,
    require_known,
    tried_in,
)
from divebook.replay.verify import Verification, verified
from divebook.replay.what_if import (
    Plan,
    Rehearsal,
    RepeatedWhatIf,
    Variant,
    WhatIf,
    bounds_beside,
    planned,
    rehearsed,
    result_of,
)
from divebook.runtime.children import Child
from divebook.runtime.driver import Driver
from divebook.runtime.forks import (
    Epoch,
    ForkSource,
    Prefix,
    epochs_of,
    fitting,
    fitting_inputs,
    point_before,
    prefix_of,
    reused_calls_of,
)
from divebook.runtime.leases import DRIVEN_LEASES, give_up
from divebook.runtime.manager import Control, refuse_final
from divebook.runtime.operations import FindMissPolicy
from divebook.runtime.run import Run
from divebook.runtime.step import Services
from divebook.steps.function import ChangedFunction, HasFunctions, changed_since
from divebook.stores.append import Durability
from divebook.stores.base import EventStore
from divebook.text.arguments import describe, require

_FROM_ANYWHERE = frozenset({"variables", "inputs", "prompts", "model", "definition"})
"""Names of the parts of a `Change` that can be made at any event of a log."""
ChangeLike: TypeAlias = Change | Mapping[str, Any] | None
"""Change of a fork or what-if, as a `Change` or as a mapping with the names of its fields."""
NEW: Final = "new"
FROM_START = "from_start"
FROM_FAILURE = "from_failure"
SKIP_FAILED = "skip_failed"
STRATEGIES = (FROM_START, FROM_FAILURE, SKIP_FAILED)
SKIPPED = "SKIPPED"
DefinitionLike: TypeAlias = Workflow | Literal["new"]
"""Workflow, or ``new`` for the current definition of the workflow of the same name."""
StepChanges: TypeAlias = Mapping[str, Any] | str | Callable[[Workflow], Workflow] | None
"""Change of a step in a trial: its changed keys, as a mapping or YAML, or a function from the workflow to the changed
workflow.
"""


class WhatIfOptions(TypedDict, total=False):
    """Options of a what-if (a run with one change, answered from the log). All options are optional."""

    tools: str
    """Treatment of actions and tools without a recorded result. With ``recorded`` (the default) none of them runs, and
    the caller gets an error; with ``read-only`` only those run that declare to change nothing; with ``live`` all
    run. The outcome of a child execution is replayed as a whole; with other inputs it is a what-if as well.
    """
    bounds: Bounds | Mapping[str, Any] | None
    """Budget of each what-if, in addition to the amount that its source had spent before the first changed event."""


class TrialOptions(TypedDict, total=False):
    """Options of a trial (running one recorded step again). All options are optional."""

    variables: Mapping[str, Any]
    """Changed values of variables."""
    inputs: Mapping[str, Any]
    """Changed values of inputs."""
    model: str | None
    """Model of all agents of the step, in place of their own."""
    visit: int | None
    """Number of the visit of the step, counted from 1 in the order of the log; by default the last visit."""
    item: int | None
    """Index of the only item of ``Each`` to run, counted from 0; by default all items run."""
    tools: str
    """Treatment of actions and tools without a recorded result, as in `WhatIfOptions`; by default none of them runs."""
    bounds: Bounds | Mapping[str, Any] | None
    """Budget of each trial; by default the budget that the run still had when it entered the step."""


class Variants:
    """Creates executions that are derived from others: forks, what-ifs, continuations with a changed definition,
    trials.

    All variants are built in the same way. `prefix_of` cuts the log of the source at an event. The new execution shares
    the events before the cut, and its first own event, an `ExecutionForked`, contains everything that differs. Example:
    a run of the steps ``a, b, c`` failed in ``c``.

    - A fork after ``b`` runs ``c`` live.
    - A what-if of the input ``x`` starts at the first event, and answers the calls of ``a, b, c`` from the log, as
      long as they are the same.
    - A resumption with a new definition of ``c`` shares the events of ``a`` and ``b``, and runs ``c`` live.
    - A trial of ``b`` shares the events of ``a``, and ends after ``b``.

    Parameters
    ----------
    registry
        Workflows, agents and functions of the environment.
    durability
        Return the durability for an option, or the default for None.
    reuse
        Which recorded results a what-if may use.
    services
        Return the services of the runners of a control.
    run_of
        Return the handle of the execution of a driver.
    start
        Start an execution of a workflow with inputs and start options; see `Environment.start`.
    """

    def __init__(
        self,
        registry: Registry,
        control: Control,
        durability: Callable[[str | None], Durability | None],
        reuse: ReuseInputs,
        services: Callable[[Control], Services],
        *,
        run_of: Callable[[Driver], Run],
        start: Callable[..., Run],
    ) -> None:
        self._registry = registry
        self._control = control
        self._store = control.store
        self._durability = durability
        self._reuse = reuse
        self._services = services
        self._run_of = run_of
        self._start = start

    def _execution(self, execution_id: str) -> Run:
        return self._run_of(self._control.look_up(execution_id))

    # --- forks -----------------------------------------------------------------------------------------------------

    def fork(self, execution_id: str, at: int | None, change: ChangeLike, options: StartOptions) -> Run:
        """Start a fork of an execution; see `Run.fork`."""
        require_options(options, ("at", "change", *sorted(OPTION_NAMES)), "a fork has no option")
        parsed = Change.of(change)
        source = self._store.resolve(execution_id)
        # At the end of a completed execution, a change of variables, inputs, prompts, model or definition would have no
        # effect. The prefix then ends at the latest event from which on it has one.
        is_completed = self._store.record(source).status == COMPLETED
        reaching_back = is_completed and not _FROM_ANYWHERE.isdisjoint(parsed.named)
        prefix = prefix_of(self._store, source, at, parsed, reaching_back=reaching_back, is_live=True)
        coerce_text = options.get("coerce_text", False)
        parsed, workflow = self._fitted(prefix.change, prefix, coerce_text=coerce_text)
        self._registry.check(workflow)
        model = self._registry.model_of_run(workflow, parsed.model or options.get("model"))
        parsed = replace(parsed, model=model)
        return self._begin(self._forked(prefix, workflow, parsed, options, catalog.FORK), prefix.state, options)

    def fork_without_failed_steps(self, execution_id: str) -> Run:
        """Start a fork that continues as if the failed steps had completed. See ``skip_failed`` in `retry`;
        the forked execution must have stopped.
        """
        source = self._execution(execution_id)
        self._require_stopped(source)
        options = options_of(source)
        failed = {path.id: path.error for path in source.state.paths.values() if path.status == FAILED and path.open}
        if not failed:
            raise SetupError(f"execution {source.id} has no failed steps to skip; its status is {source.status}")
        # By path: each failed path continues as if its open step had returned this text.
        change = Change(skipped={path: f"{SKIPPED}: {error}" for path, error in failed.items()})
        return self.fork(source.id, None, change, options)

    def start_over(self, execution_id: str) -> Run:
        """Start a new execution with the inputs and options of an execution and the present definition; see
        `Run.again`.
        """
        workflow, inputs, options = restart_of(self._execution(execution_id), self._registry.workflows)
        return self._start(workflow, inputs, **options)

    def retry(self, execution_id: str, strategy: str) -> Run:
        """Retry a failed execution; see `Run.retry`."""
        if strategy not in STRATEGIES:
            advice = did_you_mean(strategy, STRATEGIES) or f"strategies: {', '.join(STRATEGIES)}"
            raise SetupError(f"unsupported retry strategy: {strategy} ({advice})")
        if strategy == FROM_FAILURE:
            refuse_final(self._control.find(execution_id))
            return self._run_of(self._control.continue_run(execution_id))
        source = self._execution(execution_id)
        self._require_stopped(source)
        return self.start_over(source.id) if strategy == FROM_START else self.fork_without_failed_steps(source.id)

    def _fitted(self, change: Change, prefix: Prefix, *, coerce_text: bool = False) -> tuple[Change, Workflow]:
        """Make the change of a fork fit the state that the source execution had where the fork begins. Return the
        fitted change and the changed workflow.

        Raises
        ------
        SetupError, InputError, InterruptError
            The state does not contain what is changed, or a value does not fit.
        """
        change = fitting(change, prefix.state, self._control.clock.now())
        require_reach(change, prefix.state)
        workflow = change.workflow(prefix.workflow)
        change = fitting_inputs(change, workflow, coerce_text=coerce_text)
        require_definition(workflow)
        return change, workflow

    def _forked(
        self,
        prefix: Prefix,
        workflow: Workflow,
        change: Change,
        options: StartOptions,
        origin: str,
        *,
        seed: str | None = None,
        tools: str | None = None,
        only: Mapping[str, Any] | None = None,
        awaited_by: str | None = None,
    ) -> catalog.ExecutionForked:
        """Return the first own event of a variant. It follows the events that the variant shares with its source (the
        prefix).

        Parameters
        ----------
        origin
            Kind of variant, such as `catalog.FORK`.
        seed
            Seed of the source, for a variant that gets answers from the log: ids of questions and idempotency keys are
            computed from the seed, and must be those of the log.
        tools, only, awaited_by
            Fields of the event.
        """
        check_options(options)
        code = self._registry.code_of(workflow)
        opening = opening_of(workflow, prefix.state.inputs, code, options, origin=origin)
        forked = forked_of(opening, prefix.state, prefix.opened, change, options)
        return replace(forked, seed=seed or forked.seed, tools=tools, only=only, awaited_by=awaited_by)

    def _begin(self, forked: catalog.ExecutionForked, source_state: ExecutionState, options: StartOptions) -> Run:
        """Start a variant whose first own event is `forked`; `source_state` is the state of its source before it. If an
        execution with the same start key exists, return that one.
        """
        try:
            durability = self._durability(options.get("durability"))
            return self._run_of(self._control.start_fork(forked, durability, source_state=source_state))
        except StartKeyTakenError as conflict:
            on_conflict = options.get("on_conflict", WARN)
            existing = existing_execution(
                conflict, forked.workflow_name, self._store, None, on_conflict, change=forked.change or {}
            )
            return self._execution(existing)

    # --- what-ifs --------------------------------------------------------------------------------------------------

    def what_if(
        self,
        execution_id: str,
        change: ChangeLike,
        at: int | None,
        repeat: int | None,
        options: WhatIfOptions,
        *,
        plan: bool,
    ) -> WhatIf | RepeatedWhatIf | Plan:
        """Run an execution again with one change, with results from its log; see `Run.what_if`."""
        count = 1 if repeat is None else _times(repeat, "a what-if must be run", "repeat")
        variant = self._what_if(execution_id, change, at, options)
        if plan:
            return planned(variant, self._rehearsed(variant))
        # A what-if of a log that the code no longer reproduces would show differences that the change did not cause.
        verification = verified(variant.source, self._control, None)
        if verification.divergence is not None:
            raise ReplayMismatchError(variant.source.id, str(verification.divergence))
        drivers = [self._control.start_fork(variant.forked, source_state=variant.state) for _ in range(count)]
        executions = [self._run_of(driver) for driver in drivers]
        try:
            results = RepeatedWhatIf(result_of(each.wait(), variant, verification.unchecked) for each in executions)
        except KeyboardInterrupt:  # nobody waits for the others any more, so they must not spend more
            for execution in executions:
                if execution.is_live:
                    execution.pause()
            raise
        return results[0] if repeat is None else results

    def _what_if(self, execution_id: str, change: ChangeLike, at: int | None, options: WhatIfOptions) -> Variant:
        """Return a what-if that has been checked against the log of its source execution, but not started."""
        # Parameters of the method are named in the advice, too.
        allowed = (*WhatIfOptions.__annotations__, "change", "at", "repeat", "plan")
        require_options(options, allowed, "a what-if has no option")
        tools = _tools(options, "a what-if")
        source = self._execution(execution_id)
        parsed = Change.of(change)
        prefix = prefix_of(self._store, source.id, at, parsed, reaching_back=True, is_live=tools == "live")
        whole, workflow = self._fitted(prefix.change, prefix)
        self._registry.check(workflow, steps_ahead(workflow, prefix.state), ())
        whole = replace(whole, model=self._registry.model_of_run(workflow, whole.model))
        limits = _own_bounds(options, prefix.state)
        seed = prefix.state.seed
        forked = self._forked(prefix, workflow, whole, limits, catalog.WHAT_IF, seed=seed, tools=tools)
        # The source already has the changes of earlier forks, so they are not shown as differences from it.
        shown = whole if prefix.change == parsed else parsed
        return Variant(source, source.history(), workflow, shown, forked, prefix.state)

    def forked_child(self, child: Child) -> tuple[Workflow, catalog.ExecutionForked]:
        """Return the workflow and the first event of a child execution that reuses results of a recorded child
        execution. Its parent reuses the results of the recorded parent in the same way.

        In a what-if, the child is a what-if of the recorded child with other inputs. If the parent continues with a
        changed definition, the child reuses the results of the recorded child, and has its own current definition.
        """
        assert child.like is not None, "only called for such children"  # noqa: S101 - `Control.drive_child` checks it
        source, tools = child.like
        # The child shares the start event only, since its inputs may differ. Its calls are answered from the recorded
        # child.
        prefix = prefix_of(self._store, source, 1, Change())
        origin = catalog.CHILD if tools in catalog.REUSE_MODES else catalog.WHAT_IF
        workflow = self._registry.workflow(child.workflow) if origin == catalog.CHILD else prefix.workflow
        self._registry.check(workflow, steps_ahead(workflow, prefix.state), ())
        model = child.model if child.model != prefix.state.model else None
        # Opened first, because the declared types of the inputs check the objects and not their recorded form.
        inputs = BoundInputs.of(workflow, opened(child.inputs))
        # Only inputs that differ are a change. Without any, the recorded child is repeated as it was.
        changed = {name: inputs[name] for name in changed_names(prefix.state.inputs, inputs) if name in inputs}
        change = Change(inputs=changed, model=model)
        limits: StartOptions = {"bounds": within(as_bounds(workflow.bounds or {}), child.bounds)}
        seed = prefix.state.seed
        forked = self._forked(prefix, workflow, change, limits, origin, seed=seed, tools=tools, awaited_by=child.parent)
        return workflow, forked

    def verify(self, execution_id: str, definition: Workflow | None = None, *, any_code: bool = False) -> Verification:
        """Replay a definition against the log of an execution; see `Run.verify`."""
        return verified(self._execution(execution_id), self._control, definition, any_code=any_code)

    def _rehearsed(self, variant: Variant) -> Rehearsal:
        """Run a variant in memory, without external calls, to predict which calls it would make."""

        def control_over(store: EventStore, beyond: FindMissPolicy) -> Control:
            # A rehearsal has its own store and miss policy, so that no external call is made.
            def services(control: Control) -> Services:
                return replace(self._services(control), find_miss_policy=beyond)

            clock = self._control.clock
            chance = self._control.chance
            return Control(store, services, self._registry.check, self._registry.code_of, clock=clock, chance=chance)

        return rehearsed(variant, control_over, self._reuse)

    # --- continuations with a changed definition -------------------------------------------------------------------

    def resume_changed(
        self,
        execution_id: str,
        bounds: Bounds | Mapping[str, Any] | None,
        definition: DefinitionLike,
        *,
        plan: bool,
    ) -> Run | ResumePlan:
        """Resume an execution with a changed definition; see `Run.resume`."""
        source = self._execution(execution_id)
        self._require_stopped(source)
        refuse_final(self._control.find(source.id))
        options = options_of(source)
        if bounds is not None:
            options["bounds"] = bounds
        workflow = self._changed_definition(source, definition)
        options["key"] = self._resumption_key(source, workflow, options)
        # The definition, the code and the first changed operation: at least one of them must differ, or the
        # continuation would repeat the same failure.
        variant, reusable = self._continuation(source, workflow, options, catalog.REUSE)
        is_same_definition = workflow.fingerprint == source.state.fingerprint
        is_same_code = self._registry.code_of(workflow) == dict(source.state.code)
        if reusable.first is None and is_same_definition and is_same_code:
            raise SetupError(
                f"the new definition of {workflow.name!r} makes the same calls as execution {source.id} has recorded, "
                "so nothing would change; edit it first, or resume without a definition to retry the failed call"
            )
        if plan:
            return resume_plan(variant, self._rehearsed(variant), reusable)
        execution = self._start_continuation(variant)
        if execution.internals.was_driven or execution.state.is_over:
            return execution
        # An earlier call has started it, and its process has ended since.
        return self._run_of(self._control.continue_run(execution.id))

    def run_again(self, execution_id: str, options: StartOptions, *, plan: bool) -> Run | ResumePlan:
        """Run the current definition with the inputs of an earlier execution; see `Run.run_again`."""
        source = self._execution(execution_id)
        self._require_stopped(source)
        workflow = self._changed_definition(source, NEW)
        variant, reusable = self._continuation(source, workflow, options, catalog.UNEDITED)
        if plan:
            return resume_plan(variant, self._rehearsed(variant), reusable)
        return self._start_continuation(variant)

    def _require_stopped(self, source: Run) -> None:
        """Raise an error if an execution is running, in this process or in another process."""
        if source.is_live:
            raise ExecutionError(
                f"execution {source.id} is running in this process; wait for it or cancel it, "
                "then resume it with the new definition"
            )
        # Taken and released at once: the call fails if another process drives the execution.
        if not source.state.is_over:
            with DRIVEN_LEASES.taking(source.store, source.id) as lease:
                give_up(source.store, lease)

    def _changed_definition(self, source: Run, definition: DefinitionLike) -> Workflow:
        """Return the changed definition with which an execution continues. Raise `SetupError` if its name or its inputs
        differ from the recorded definition.
        """
        name = source.state.workflow_name
        if isinstance(definition, Workflow):
            workflow = definition
        elif definition == NEW:
            workflows = self._registry.workflows
            if name not in workflows:
                message = f"no workflow {name!r} is defined here; define its new version, then resume {source.id} again"
                raise NotFoundError("workflow", name, workflows, message)
            workflow = workflows[name]
        else:
            raise SetupError(f'definition must be "new" or a Workflow, not {definition!r}')
        if workflow.name != name:
            raise SetupError(
                f"execution {source.id} belongs to workflow {name!r}, so it cannot continue with {workflow.name!r}; "
                f"start {workflow.name!r} as a separate run"
            )
        # Names in one of the two only. A default value counts as given on both sides.
        different = sorted(bind_inputs(workflow, source.inputs).keys() ^ source.inputs.keys())
        if different:
            raise SetupError(
                f"the definition of {name!r} has other inputs than execution {source.id} ({', '.join(different)}); "
                "start a new run"
            )
        require_definition(workflow)
        return workflow

    def _continuation(self, source: Run, workflow: Workflow, options: StartOptions, reuse: str) -> tuple[Variant, Kept]:
        """Return the variant that continues an execution with a changed definition, and the events that it keeps.

        Parameters
        ----------
        reuse
            `catalog.REUSE`: all recorded results count. `catalog.UNEDITED`: results of functions that were edited since
            do not count, so that the shared events end before the first of these.
        """
        self._registry.check(workflow)
        reusable = kept_by(source, self._control, workflow)
        events = source.history()
        if reuse == catalog.UNEDITED:
            reusable = self._kept_before_edits(source, events, reusable)
        prefix = prefix_of(self._store, source.id, reusable.at, Change())
        forked = self._forked(prefix, workflow, Change(), options, catalog.RESUME, tools=reuse)
        return Variant(source, events, workflow, Change(), forked, prefix.state), reusable

    def _kept_before_edits(self, source: Run, events: Sequence[Event], reusable: Kept) -> Kept:
        """Return the events that a continuation shares with its source, up to the first call of a function that was
        edited after the call. If no such function was called, return all of these events.
        """
        first = Edits(self._registry, source.state.workflow_name, events).first_call
        if first is None:
            return reusable
        return reusable._replace(at=min(reusable.at, point_before(ForkSource(self._store, source.id), first - 1)))

    def _resumption_key(self, source: Run, workflow: Workflow, options: StartOptions) -> str:
        """Return the start key for continuing an execution with a changed definition, so that it is continued only
        once.

        Two processes that continue an execution at once with the same definition, functions and bounds get the same
        key, so that only one continuation starts. Continuations that have ended are part of the key, so that the next
        attempt after them starts a new one.
        """
        continuations = self._store.records(parent=source.id, origin=catalog.RESUME)
        bounds = options.get("bounds")
        parts: dict[str, Any] = {
            "source": source.id,
            "definition": workflow.fingerprint,
            "code": self._registry.code_of(workflow),
            "bounds": None if bounds is None else as_bounds(bounds).to_dict(),
            "after": sorted(record.execution_id for record in continuations if record.status in TERMINAL),
        }
        return f"resume {canonical_hash(parts, 'start key')}"

    def _start_continuation(self, variant: Variant) -> Run:
        source = variant.source
        # Waits for the end: two executions of the same work must not run at once.
        if not source.state.is_over:
            source.cancel(f"continues with another definition of {variant.workflow.name!r}").wait()
        return self._begin(variant.forked, variant.state, {"on_conflict": RETURN})

    # --- trials ----------------------------------------------------------------------------------------------------

    def try_step(
        self, execution_id: str, step: str, changes: StepChanges, times: int, options: TrialOptions
    ) -> StepTrial:
        """Run one step of an execution again from its recorded state; see `Run.try_step`.

        A step is found by its visit and item. In a workflow function, `step` can be an agent: then the trial runs a
        workflow of one prompt step, made for that call (`call_of`), and the recorded prompt is the variable `ASKED`.
        """
        count = _times(times, "a trial must run its step", "times")
        allowed = (*TrialOptions.__annotations__, "step", "changes", "times")
        require_options(options, allowed, "a trial has no option")
        tools = _tools(options, "a trial")
        # Find the recorded entry into the step, or the recorded call of the agent in a workflow function.
        source = self._execution(execution_id)
        events = source.history()
        require_definition(source.workflow)
        change = Change(
            variables=options.get("variables", {}), inputs=options.get("inputs", {}), model=options.get("model")
        )
        visit = options.get("visit")
        call = None
        if is_call(source.workflow, step):
            call = call_of(ReadLog.of(events), source.workflow, step, visit)
        entry = call.entry if call else entry_of(events, source.workflow, step, visit, options.get("item"))
        # Share the events before the entry, and build the workflow of the single step.
        prefix = prefix_of(self._store, source.id, entry.began - 1, change)
        require_known(entry, change, prefix.state)
        change = fitting_inputs(change, prefix.workflow)
        workflow = _changed(call.workflow if call else prefix.workflow, step, changes)
        change = replace(change, model=self._registry.model_of_run(workflow, change.model))
        whole = change
        if call is not None:
            whole = replace(change, variables={**change.variables, ASKED: call.prompt})
        single = alone(workflow, step)
        self._registry.check(workflow, [step], ())
        limits = _own_bounds(options, prefix.state)
        seed = prefix.state.seed
        forked = self._forked(prefix, single, whole, limits, catalog.TRIAL, seed=seed, tools=tools, only=entry.only)
        # Start all tries before waiting for the first, so that they run concurrently.
        drivers = [self._control.start_fork(forked, source_state=prefix.state) for _ in range(count)]
        executions = tuple(self._run_of(driver).wait() for driver in drivers)
        tries = tuple(tried_in(each.history(), entry, number, each) for number, each in enumerate(executions, 1))
        recorded = tried_in(events, entry, RECORDED_NUMBER, source)
        return StepTrial(source.id, entry, recorded, tries, workflow, change, source.workflow.source, executions)


def _times(count: object, sentence: str, option: str) -> int:
    """Check how often something is run. `sentence` begins the error text, and `option` is the name of the option."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SetupError(f"{sentence} at least once, not {count!r} times; remove {option} to run it once")
    return count


def _tools(options: WhatIfOptions | TrialOptions, kind: str) -> str:
    """Return the option ``tools`` of a what-if or trial after a check. `kind` names it in the error text."""
    tools = options.get("tools", RECORDED)
    if tools not in TOOLS:
        advice = did_you_mean(tools, TOOLS) or f"use {', '.join(TOOLS)}"
        raise SetupError(f"{kind} cannot run actions and tools as {tools!r} ({advice})")
    return tools


def _own_bounds(options: WhatIfOptions | TrialOptions, state: ExecutionState) -> StartOptions:
    """Return the start option ``bounds`` of a what-if or trial. `state` is that of the source where it begins."""
    bounds = options.get("bounds")
    # The shared events have used a part of the budget already. It is added, so that the bounds hold for the new
    # execution alone.
    return {} if bounds is None else {"bounds": bounds_beside(as_bounds(bounds), state)}


class Edits:
    """Python functions that a workflow may call and whose code has been edited since an execution ran.

    An execution that was resumed with edited functions has several epochs, which are the parts of its log between two
    starts or resumptions. The present code is compared with the code of each epoch.

    Parameters
    ----------
    environment
        Workflows and actions as they are now.
    workflow
        Name of the workflow of the execution.
    events
        The log of the execution from event 1.
    """

    def __init__(self, environment: HasFunctions, workflow: str, events: Sequence[Event]) -> None:
        self._events = events
        self._changes = {epoch.begins: changed_since(epoch.code, workflow, environment) for epoch in epochs_of(events)}

    @property
    def functions(self) -> tuple[ChangedFunction, ...]:
        """The edited functions, each with its latest change."""
        by_label = {function.label: function for functions in self._changes.values() for function in functions}
        return tuple(by_label.values())

    @property
    def affects_every_call(self) -> bool:
        """True if the code of the workflow function itself has been edited since the last epoch. It decides which calls
        are made, so that no recorded call is certain.
        """
        latest = list(self._changes.values())[-1]
        return any(function.by_workflow for function in latest)

    @property
    def operations(self) -> Collection[str]:
        """Ids of the recorded operations that called an edited function, or a function that uses one."""
        return {operation for _, operation in reused_calls_of(self._events, self._affected_labels)}

    @property
    def first_call(self) -> int | None:
        """Number of the event that starts the first call of an edited function, before which a fork must begin so that
        all such calls run again. None if the execution has no such call whose result would be reused.
        """
        return next((sequence for sequence, _ in reused_calls_of(self._events, self._affected_labels)), None)

    def _affected_labels(self, epoch: Epoch) -> Collection[str]:
        # `reaches` names the steps and actions that use an edited function, so edits of helper functions count too.
        return {name for function in self._changes[epoch.begins] for name in function.reaches}


def _changed(workflow: Workflow, step: str, changes: StepChanges) -> Workflow:
    if not changes:
        return workflow
    if not callable(changes):
        expected = "keys of the step as a mapping or YAML, or a function of the workflow"
        require(changes, "changes", expected, fits=isinstance(changes, str | Mapping))
        return with_keys(workflow, step, changes)
    try:
        signature_of(changes).bind(workflow)
    except TypeError as error:
        raise SetupError(f"changes must be a function of one workflow: {error}") from error
    except ValueError:  # C code without a signature
        pass
    changed: Any = changes(workflow)
    if not isinstance(changed, Workflow):
        raise SetupError(f"changes must return the workflow with the changed step, not {describe(changed)}")
    return changed
