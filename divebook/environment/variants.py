"""Executions that share the first events of others: where they are cut, what is otherwise, and how they are started."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, Unpack, overload

from divebook.engine.bounds import within
from divebook.engine.decide import steps_ahead
from divebook.engine.forks import Change, require_reach
from divebook.engine.lifecycle import TERMINAL
from divebook.environment.queues import Executions
from divebook.environment.settings import (
    RETURN,
    WARN,
    StartOptions,
    as_bounds,
    forked_of,
    opening_of,
    require_options,
    said_of,
    started_before,
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
from divebook.projections.summary import ReadLog
from divebook.questions.bounds import Bounds
from divebook.replay.recorded_answers import RECORDED, TOOLS, EditedCalls, ReadsOnly, ReuseInputs
from divebook.replay.rehearsal import RehearsalHost
from divebook.replay.resume_changed import Kept, ResumePlan, kept_by, planned_to_go_on
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
from divebook.replay.what_if import Plan, Proposal, RepeatedWhatIf, WhatIf, bounds_beside, planned, result_of
from divebook.runtime.children import Child
from divebook.runtime.execution import Execution
from divebook.runtime.forks import (
    Epoch,
    Prefix,
    epochs_of,
    first_reached,
    fitting,
    fitting_inputs,
    point_before,
    prefix_of,
    reached,
    recorded_opening,
    require_definition,
)
from divebook.runtime.leases import DRIVEN_LEASES
from divebook.runtime.manager import Control, refuse_final
from divebook.runtime.operations import FindMissPolicy
from divebook.runtime.step import Services
from divebook.steps.actions import Action
from divebook.steps.function import changed_since
from divebook.store.append import Durability
from divebook.store.base import EventStore
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import bind_inputs
from divebook.workflow.reader import with_keys

_FROM_ANYWHERE = frozenset({"variables", "inputs", "prompts", "model", "definition"})
"""The parts of a change that can be made at any event."""


class Forks(Executions):
    """What can be done with executions that exist, and those that are made of them."""

    @abstractmethod
    def _check(self, workflow: Workflow, ahead: Container[str] | None = None, to_begin: Iterable[str] = ()) -> None: ...

    @abstractmethod
    def _model_called(self, workflow: Workflow, named: str | None, store: EventStore) -> str | None: ...

    @abstractmethod
    def code_of(self, workflow: Workflow) -> dict[str, str]:
        """Return the digests of the Python functions that a workflow may call, by kind and name."""

    @abstractmethod
    def _kept(self, durability: str | None = None) -> Durability | None: ...

    def fork(
        self,
        execution_id: str,
        at: int | None = None,
        change: Change | Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Execution:
        """Start an execution that shares the first events of another one, and goes on live after those.

        Nothing is copied, and the other one stays as it is. Its calls that were under way are made anew, its open
        questions are asked in both. Functions are those of now. With a `key` it is started once, as by `start`.

        Parameters
        ----------
        at
            The last event that it shares; what follows from one rule is not cut in half, and an end is not shared.
            Without it: before what changes, else at the end; of an execution that is done, the latest event from which
            on the change has an effect.
        change
            What is otherwise from there on (`divebook.engine.forks.Change`): ``{"variables": {"x": 1}}``, ``inputs``,
            ``results`` by operation, ``answers`` by question, ``prompts`` by step, ``model``, ``definition``.

        Raises
        ------
        SetupError
            There is no such event, or nothing there that could be changed so.
        InputError
            An input is to be of another type than its workflow declares.
        InterruptError
            An answer does not fit its question.
        """
        told = Change.of(change)
        source = self.store.resolve(execution_id)
        is_done = self.store.record(source).status == COMPLETED  # at its end, nothing of these would have an effect
        reaching_back = is_done and not _FROM_ANYWHERE.isdisjoint(told.named)
        prefix = prefix_of(self.store, source, at, told, reaching_back=reaching_back, is_live=True)
        told = fitting(told, prefix.state, self._clock.now())
        require_reach(told, prefix.state)
        workflow = told.workflow(prefix.workflow)
        told = fitting_inputs(told, workflow, coerce_text=options.get("coerce_text", False))
        require_definition(workflow)
        self._check(workflow)
        told = replace(told, model=self._model_called(workflow, told.model or options.get("model"), self.store))
        opening = opening_of(workflow, prefix.state.inputs, self.code_of(workflow), options, origin=catalog.FORK)
        forked = forked_of(opening, prefix.state, prefix.opened, told, options)
        return self._begun(prefix, forked, workflow, options)

    def _begun(
        self, prefix: Prefix, forked: catalog.ExecutionForked, workflow: Workflow, options: StartOptions
    ) -> Execution:
        """Begin an execution that shares a prefix, or return the one that was begun with its key."""
        try:
            kept = self._kept(options.get("durability"))
            return self._handle(self._control.fork(prefix.source, prefix.at, forked, kept))
        except StartKeyTakenError as taken:
            on_conflict = options.get("on_conflict", WARN)
            change = forked.change or {}
            return self.execution(started_before(taken, workflow.name, self.store, None, on_conflict, change=change))


# Executions of an environment gone through once more, answered from their logs: as they were, or with one change.


GivenChange: TypeAlias = Change | Mapping[str, Any] | None
"""What is otherwise; a mapping has the parts of a `Change` by their names."""


class WhatIfOptions(TypedDict, total=False):
    """What may be said of a what-if; everything may be left out."""

    tools: str
    """What becomes of actions and tools without a recorded result: with ``recorded`` (the default) they are not
    executed, and what called them is told so; with ``read-only`` those are that are declared so; with ``live`` all.
    Another workflow's outcome is taken whole from the log; with other inputs it is a what-if as well."""
    bounds: Bounds | Mapping[str, Any] | None
    """What each may spend itself, beside what its source had spent before."""


class WhatIfs(Executions):
    """Executions, and what they would have come to."""

    _services: Callable[[Control], Services]
    _check: Callable[[Workflow, Container[str], Iterable[str]], None]
    _reads_only: ReadsOnly
    _calls_edited: EditedCalls
    _model_called: Callable[[Workflow, str | None, EventStore], str | None]
    code_of: Callable[[Workflow], dict[str, str]]
    workflow: Callable[[str], Workflow]

    @overload
    def what_if(
        self, execution_id: str, change: GivenChange = None, at: int | None = None, **options: Unpack[WhatIfOptions]
    ) -> WhatIf: ...

    @overload
    def what_if(
        self,
        execution_id: str,
        change: GivenChange = None,
        at: int | None = None,
        *,
        repeat: int,
        **options: Unpack[WhatIfOptions],
    ) -> RepeatedWhatIf: ...

    @overload
    def what_if(
        self,
        execution_id: str,
        change: GivenChange = None,
        at: int | None = None,
        *,
        plan: Literal[True],
        **options: Unpack[WhatIfOptions],
    ) -> Plan: ...

    def what_if(
        self,
        execution_id: str,
        change: GivenChange = None,
        at: int | None = None,
        *,
        repeat: int | None = None,
        plan: bool = False,
        **options: Unpack[WhatIfOptions],
    ) -> WhatIf | RepeatedWhatIf | Plan:
        """Go through an execution once more with one change, answered from its log; return what it comes to.

        The execution itself stays as it is. Operations are answered with the change, with a recorded result of the same
        call, that of the same place first, and else by their kind: scripts are computed, sleeps skipped, clock and
        chance go on from the recorded ones, questions have their recorded answers or wait, models are asked. What
        another workflow came to is taken whole; with other inputs it is a what-if itself. Each what-if is an execution
        of origin ``what-if``; one whose process ended is gone on with by `resume`.

        Parameters
        ----------
        change
            What is otherwise, as for `Change`: ``{"inputs": {"city": "Bonn"}}``; one that changes nothing by default.
        at
            The event after which it is otherwise; by default where the change has an effect on all that it can.
        repeat
            How many to make, of which a list is returned: where models are asked, each comes to something of its own.
        plan
            Return only what would be taken from the log and what would be done anew, without a single call.
        options
            `WhatIfOptions`: ``tools`` and ``bounds``.

        Raises
        ------
        ReplayMismatchError
            Even without a change it does not come to what its log says.
        SetupError
            There is nothing of what is to be changed.
        """
        count: object = 1 if repeat is None else repeat  # whatever a caller has
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise SetupError(f"a what-if is made once or more often, not {count!r} times; leave repeat out for once")
        wanted = self._proposed(execution_id, change, at, options)
        if plan:
            return planned(self._world, wanted)
        checked = self.verify(wanted.source)
        if checked.divergence is not None:
            raise ReplayMismatchError(wanted.source, str(checked.divergence))
        made = [self._handle(self._control.fork(wanted.source, wanted.forked.at, wanted.forked)) for _ in range(count)]
        try:
            found = RepeatedWhatIf(result_of(each.wait(), wanted, checked.unchecked) for each in made)
        except KeyboardInterrupt:  # what nobody waits for any more is not to spend more
            for each in made:
                if each.is_live:
                    each.pause()
            raise
        return found[0] if repeat is None else found

    def _proposed(self, execution_id: str, change: GivenChange, at: int | None, options: WhatIfOptions) -> Proposal:
        """Return what is asked of an execution, checked against its log."""
        require_options(options, WhatIfOptions.__annotations__, "a what-if has no option")
        tools = options.get("tools", RECORDED)
        own = options.get("bounds")
        if tools not in TOOLS:
            advice = did_you_mean(tools, TOOLS) or f"there are {', '.join(TOOLS)}"
            raise SetupError(f"a what-if cannot treat actions and tools as {tools!r} ({advice})")
        source = self.execution(execution_id)
        told = Change.of(change)
        prefix = prefix_of(self.store, source.id, at, told, reaching_back=True, is_live=tools == "live")
        told = fitting(told, prefix.state, self._clock.now())
        require_reach(told, prefix.state)
        workflow = told.workflow(prefix.workflow)
        told = fitting_inputs(told, workflow)
        require_definition(workflow)
        self._check(workflow, steps_ahead(workflow, prefix.state), ())
        told = replace(told, model=self._model_called(workflow, told.model, self.store))
        limits: StartOptions = {} if own is None else {"bounds": bounds_beside(as_bounds(own), prefix.state)}
        forked = self._forked(prefix, workflow, told, limits, tools)
        return Proposal(source.id, source.history(), source.state, workflow, told, forked)

    def _forked(
        self, prefix: Prefix, workflow: Workflow, change: Change, limits: StartOptions, tools: str
    ) -> catalog.ExecutionForked:
        opening = opening_of(workflow, prefix.state.inputs, self.code_of(workflow), limits, origin=catalog.WHAT_IF)
        forked = forked_of(opening, prefix.state, prefix.opened, change, limits)
        return replace(forked, seed=prefix.state.seed, tools=tools)

    def _forked_child(self, child: Child) -> tuple[Workflow, catalog.ExecutionForked]:
        """Return how another workflow begins that an execution asks for which is answered from its source.

        Of a what-if it is one itself: of what its source began, with other inputs. What goes on with another definition
        uses what the other workflow had done, and that one has its definition of now as well.
        """
        assert child.like is not None, "asked only where it is one"  # noqa: S101 - `Control.drive_child` has looked
        source, tools = child.like
        prefix = prefix_of(self.store, source, 1, Change())
        origin = catalog.CHILD if tools in catalog.GOING_ON else catalog.WHAT_IF
        workflow = self.workflow(child.workflow) if origin == catalog.CHILD else prefix.workflow
        self._check(workflow, steps_ahead(workflow, prefix.state), ())
        model = child.model if child.model != prefix.state.model else None
        known = prefix.state.inputs
        given = bind_inputs(workflow, child.inputs)
        others = {name: value for name, value in given.items() if name not in known or known[name] != value}
        change = fitting_inputs(Change(inputs=others, model=model), workflow)
        limits: StartOptions = {"bounds": within(as_bounds(workflow.bounds or {}), child.bounds)}
        forked = self._forked(prefix, workflow, change, limits, tools)
        return workflow, replace(forked, awaited_by=child.parent, origin=origin)

    def verify(self, execution_id: str, definition: Workflow | None = None, *, any_code: bool = False) -> Verification:
        """Drive a definition against the log of an execution, and compare all that it does; not one call is made.

        Scripts, templates and conditions are computed again; every operation is answered from the log. Events are equal
        byte for byte, in each path and strand, but for what comes from the clock, prices or chance outside an
        operation: delays, expiries, reservations, durations.

        Parameters
        ----------
        definition
            By default the one that the log holds. Functions and agents are those of this environment.
        any_code
            Functions need not be the code that ran: only what they do counts.
        """
        return verified(self.execution(execution_id), self._control, definition, any_code=any_code)

    @property
    def _grounds(self) -> ReuseInputs:
        return ReuseInputs(self._reads_only, self._clock, self._calls_edited)

    @property
    def _world(self) -> RehearsalHost:
        def control_over(store: EventStore, beyond: FindMissPolicy) -> Control:
            def services(control: Control) -> Services:
                return replace(self._services(control), find_miss_policy=beyond)

            return Control(store, services, self._check, self.code_of, clock=self._clock, chance=self._chance)

        return RehearsalHost(control_over, self._grounds)


# Executions that go on with the definitions of now: with a plan first, and with all kept that these would do again.


NEW: Final = "new"
FROM_START = "from_start"
FROM_FAILURE = "from_failure"
SKIP_FAILED = "skip_failed"
STRATEGIES = (FROM_START, FROM_FAILURE, SKIP_FAILED)
SKIPPED = "SKIPPED"
GivenDefinition: TypeAlias = Workflow | Literal["new"]
"""A workflow, or ``new`` for the one of the same name that is defined now."""


class _Mended(NamedTuple):
    """An execution that is to go on, checked."""

    source: Execution
    workflow: Workflow
    kept: Kept
    prefix: Prefix
    forked: catalog.ExecutionForked
    """How its continuation begins."""


class Mending(Forks, WhatIfs):
    """Executions, and how they go on with what is defined now."""

    @property
    @abstractmethod
    def workflows(self) -> Mapping[str, Workflow]: ...  # noqa: D102 - as documented where it is promised

    @abstractmethod
    def start(  # noqa: D102 - as documented where it is promised
        self, workflow: Workflow | str, inputs: Mapping[str, Any] | None = None, **options: Unpack[StartOptions]
    ) -> Execution: ...

    @property
    @abstractmethod
    def actions(self) -> Mapping[str, Action]: ...  # noqa: D102 - as documented where it is promised

    @overload
    def resume(
        self,
        execution_id: str,
        bounds: Bounds | Mapping[str, Any] | None = None,
        *,
        definition: GivenDefinition | None = None,
    ) -> Execution: ...

    @overload
    def resume(
        self,
        execution_id: str,
        bounds: Bounds | Mapping[str, Any] | None = None,
        *,
        definition: GivenDefinition,
        plan: Literal[True],
    ) -> ResumePlan: ...

    def resume(
        self,
        execution_id: str,
        bounds: Bounds | Mapping[str, Any] | None = None,
        *,
        definition: GivenDefinition | None = None,
        plan: bool = False,
    ) -> Execution | ResumePlan:
        """Take an execution up again where its log ends, or with a corrected definition where that does otherwise.

        What completed is not run again. A failed or cancelled execution goes on at the step it stopped in. Without a
        `definition` it goes on with the one it was started with; `bounds` replace those it had. One that has completed,
        or that this process runs already, is returned as it is. A call that returned, and whose result the log could
        not hold, is asked about and not made again, unless it is idempotent.

        With a `definition` a new execution goes on, of origin ``resume``: it shares all events up to the first thing
        that the definition does otherwise, and what was done after that is not done again either where the same is
        asked for. What completed counts, also if its function was edited since. The old one stays as it is; if it had
        not ended, it is cancelled first. As long as one goes on so, the same call finds that one: two that ask for it
        at once, and one that asks again after a crash, begin no second one.

        Parameters
        ----------
        definition
            ``new`` for the workflow of that name as it is defined now, or a `Workflow` of that name.
        plan
            With a `definition`: return only what would be reused and what would be done, without a single call.

        Raises
        ------
        ExecutionNotFoundError
            The store has no such execution.
        ExecutionError
            It was rolled back, or goes on as another one; with new `bounds`: it has completed, or this process runs it;
            with a `definition`: it runs.
        SetupError
            The definition does nothing otherwise, is of another workflow, or takes other inputs.
        NotFoundError
            No workflow of that name is defined.
        LeaseHeldError
            Another process is running it.

        Examples
        --------
        A program that is started again after a crash finds its run by the key, and goes on with it::

            execution = environment.start("audit", inputs, key="monday")
            environment.resume(execution.id).wait()

        A step was corrected, after which a run had failed::

            print(environment.resume(run.id, definition="new", plan=True))  # 12 operations reused, 3 live, about $0.04
            environment.resume(run.id, definition="new").wait()
        """
        if definition is None:
            if plan:
                raise SetupError('only a resumption with another definition has a plan; write definition="new"')
            return super().resume(execution_id, bounds)
        source = self._resumable(execution_id)
        opening = recorded_opening(source.id, source.store)
        options = said_of(opening, source.workflow)
        if bounds is not None:
            options["bounds"] = bounds
        workflow = self._corrected(source, definition)
        options["key"] = self._resumption_key(source, workflow, options)
        mended = self._mended(source, workflow, options, catalog.REUSE)
        same = workflow.fingerprint == source.state.fingerprint and self.code_of(workflow) == dict(source.state.code)
        if mended.kept.first is None and same:
            raise SetupError(
                f"the definition of {workflow.name!r} does nothing otherwise than execution {source.id} has recorded; "
                "correct it first, or resume without a definition to make what failed again"
            )
        if plan:
            return planned_to_go_on(self._world, source, workflow, mended.kept, mended.forked)
        begun = self._on(mended)
        return begun if begun.was_driven or begun.state.is_over else super().resume(begun.id)

    @overload
    def run_again(self, execution_id: str, **options: Unpack[StartOptions]) -> Execution: ...

    @overload
    def run_again(self, execution_id: str, *, plan: Literal[True], **options: Unpack[StartOptions]) -> ResumePlan: ...

    def run_again(
        self, execution_id: str, *, plan: bool = False, **options: Unpack[StartOptions]
    ) -> Execution | ResumePlan:
        """Run a workflow as it is now with the inputs of an earlier execution, and reuse what that one did alike.

        The new execution shares the longest beginning that the definition, its agents and its functions would do again;
        behind that nothing is done twice whose result is recorded, unless a function was edited that it called. The
        earlier one may have completed; if it had not ended, it is cancelled first.

        Parameters
        ----------
        plan
            Return only what would be reused and what would be done, without a single call.
        options
            As for `start`.

        Raises
        ------
        ExecutionError, SetupError, NotFoundError, LeaseHeldError
            As `resume` does with a definition.
        """
        source = self.execution(execution_id)
        self._require_still(source)
        now = self._corrected(source, NEW)
        mended = self._mended(source, now, options, catalog.UNEDITED)
        return planned_to_go_on(self._world, source, now, mended.kept, mended.forked) if plan else self._on(mended)

    def retry(self, execution_id: str, strategy: str = FROM_FAILURE) -> Execution:
        """Try again what has failed, in one of three ways.

        Parameters
        ----------
        strategy
            ``from_failure``: the execution goes on at the step it stopped in, as by `resume`. ``from_start``: a new one
            with the same inputs, of the workflow as it is defined now. ``skip_failed``: a fork in which each step that
            has failed counts as done, with the output ``SKIPPED: <error>`` and without the variable that it sets.

        Raises
        ------
        ExecutionError
            It has completed, or cannot go on.
        SetupError
            There is no such strategy, or no failed step to skip.
        """
        if strategy not in STRATEGIES:
            advice = did_you_mean(strategy, STRATEGIES) or f"there are {', '.join(STRATEGIES)}"
            raise SetupError(f"unsupported retry strategy: {strategy} ({advice})")
        if strategy == FROM_FAILURE:
            refuse_final(self._control.find(execution_id))
            return self.resume(execution_id)
        source = self.execution(execution_id)
        self._require_still(source)
        said = said_of(recorded_opening(source.id, source.store), source.workflow)
        if strategy == FROM_START:
            return self.start(self.workflows.get(source.workflow.name, source.workflow), source.inputs, **said)
        failed = {path.id: path.error for path in source.state.paths.values() if path.status == FAILED and path.open}
        if not failed:
            raise SetupError(f"no failed steps found to skip in execution {source.id}; it is {source.status}")
        change = Change(skipped={path: f"{SKIPPED}: {error}" for path, error in failed.items()})
        return self.fork(source.id, change=change, **said)

    # --- checking --------------------------------------------------------------------------------------------------

    def _resumable(self, execution_id: str) -> Execution:
        source = self.execution(execution_id)
        self._require_still(source)
        refuse_final(self._control.find(source.id))
        return source

    def _require_still(self, source: Execution) -> None:
        """Refuse to go on beside an execution that goes on itself."""
        if source.is_live:
            raise ExecutionError(
                f"execution {source.id} is running in this process; wait for it or cancel it, "
                "then resume it with the new definition"
            )
        if not source.state.is_over:
            with DRIVEN_LEASES.taking(source.store, source.id):
                return

    def _corrected(self, source: Execution, definition: GivenDefinition) -> Workflow:
        name = source.state.workflow_name
        if isinstance(definition, Workflow):
            workflow = definition
        elif definition == NEW:
            found = self.workflows.get(name)
            if found is None:
                told = f"no workflow {name!r} is defined here; define it as it is to be, then resume {source.id} again"
                raise NotFoundError("workflow", name, self.workflows, told)
            workflow = found
        else:
            raise SetupError(f'definition is "new" or a Workflow, not {definition!r}')
        if workflow.name != name:
            raise SetupError(
                f"execution {source.id} is one of workflow {name!r}, and cannot go on with {workflow.name!r}; "
                f"start {workflow.name!r} as a run of its own"
            )
        bound = bind_inputs(workflow, source.inputs)
        if other := sorted(bound.keys() ^ source.inputs.keys()):
            raise SetupError(
                f"the definition of {name!r} has other inputs than execution {source.id} ({', '.join(other)}); "
                "start a new run"
            )
        require_definition(workflow)
        return workflow

    def _mended(self, source: Execution, workflow: Workflow, options: StartOptions, counts: str) -> _Mended:
        """Return how an execution goes on; `counts` says which of its results do."""
        self._check(workflow)
        kept = kept_by(source, self._control, workflow)
        if counts == catalog.UNEDITED:
            kept = self._before_edits(source, kept)
        prefix = prefix_of(self.store, source.id, kept.at, Change())
        opening = opening_of(workflow, prefix.state.inputs, self.code_of(workflow), options, origin=catalog.RESUME)
        forked = forked_of(opening, prefix.state, prefix.opened, Change(), options)
        return _Mended(source, workflow, kept, prefix, replace(forked, tools=counts))

    def _before_edits(self, source: Execution, kept: Kept) -> Kept:
        """Return what is kept if functions that were edited are to be called again."""
        events = source.history()
        first = first_reached(events, labels_edited(self, source.state.workflow_name, events))
        return kept if first is None else kept._replace(at=min(kept.at, point_before(events, max(1, first - 1))))

    def _calls_edited(self, workflow: str, events: Sequence[Event]) -> Collection[str]:
        """Return the operations of a log whose functions were edited since."""
        return {operation for _, operation in reached(events, labels_edited(self, workflow, events))}

    # --- going on --------------------------------------------------------------------------------------------------

    def _resumption_key(self, source: Execution, workflow: Workflow, options: StartOptions) -> str:
        """Return what is unique to the next execution that goes on so; those that did so before belong to it."""
        earlier = self.store.records(parent=source.id, origin=catalog.RESUME)
        bounds = options.get("bounds")
        told: dict[str, Any] = {"source": source.id, "definition": workflow.fingerprint, "code": self.code_of(workflow)}
        told["bounds"] = None if bounds is None else as_bounds(bounds).to_dict()
        told["after"] = sorted(record.execution_id for record in earlier if record.status in TERMINAL)
        return f"resume {canonical_hash(told, 'start key')}"

    def _on(self, mended: _Mended) -> Execution:
        source = mended.source
        if not source.state.is_over:
            source.cancel(f"goes on with another definition of {mended.workflow.name!r}").wait()
        return self._begun(mended.prefix, mended.forked, mended.workflow, {"on_conflict": RETURN})


def labels_edited(environment: Mending, workflow: str, events: Sequence[Event]) -> Callable[[Epoch], Collection[str]]:
    """Return what says of an epoch of a log which of its functions are others now, or use others."""
    changed = {epoch.begins: changed_since(epoch.code, workflow, environment) for epoch in epochs_of(events)}
    return lambda epoch: {name for found in changed[epoch.begins] for name in found.reaches}


# One step of an execution done again with the state it had, as often as wanted; the execution stays as it is.


StepChanges: TypeAlias = Mapping[str, Any] | str | Callable[[Workflow], Workflow] | None
"""What of a step is otherwise: its changed keys, or what makes the workflow with them."""


class TrialOptions(TypedDict, total=False):
    """What may be said of a trial; everything may be left out."""

    variables: Mapping[str, Any]
    """Variables that the step is to find with other values."""
    inputs: Mapping[str, Any]
    """Inputs that are to have other values."""
    model: str | None
    """The model of its agents, in place of theirs."""
    visit: int | None
    """Which time that the run entered the step, from 1 on, in the order of its log; by default the last."""
    item: int | None
    """Which item of `Each` alone, from 0 on; by default all."""
    tools: str
    """What becomes of actions and tools without a recorded result, as in `WhatIfOptions`: by default they are not
    executed."""
    bounds: Bounds | Mapping[str, Any] | None
    """What each try may spend itself; by default what was left to the run as it entered the step."""


class Trials(WhatIfs):
    """Executions whose steps can be tried."""

    def try_step(
        self,
        execution_id: str,
        step: str,
        changes: StepChanges = None,
        *,
        times: int = 1,
        **options: Unpack[TrialOptions],
    ) -> StepTrial:
        """Do one step of an execution again with the state it had, and return what it comes to beside the record.

        In a workflow function, where there is one step, it can also be an agent that its code asked: it is asked again,
        with the recorded prompt, which the key ``Prompt`` can name as ``${state.asked}``; `visit` says which time.

        The execution stays as it is. Each try is an execution of origin ``trial`` that shares the events before the
        step and ends after it; one whose process ended is gone on with by `resume`. Models are asked; actions and tools
        have the recorded result of the same call, and are else not executed; questions have their recorded answers or
        wait. A failure is caught by nothing, and is what the try came to.

        Parameters
        ----------
        changes
            Keys of the step in place of its own, as a definition has them: ``{"Prompt": "Shorter: ${state.text}"}``, or
            as YAML; or a function from the workflow to the one in which the step is otherwise.
        times
            How many tries.
        options
            `TrialOptions`: ``variables``, ``inputs``, ``model``, ``visit``, ``item``, ``tools``, ``bounds``.

        Raises
        ------
        NotFoundError
            The workflow has no such step; the run had no such variable or input as it entered it.
        SetupError
            The run never entered it, or not so often; fewer tries than one are asked for.
        DefinitionError
            The changed keys make no sense.
        """
        count: object = times  # whatever a caller has
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise SetupError(f"a step is tried once or more often, not {count!r} times; leave times out for once")
        require_options(options, TrialOptions.__annotations__, "a trial has no option")
        tools = options.get("tools", RECORDED)
        if tools not in TOOLS:
            advice = did_you_mean(tools, TOOLS) or f"there are {', '.join(TOOLS)}"
            raise SetupError(f"a trial cannot treat actions and tools as {tools!r} ({advice})")
        source = self.execution(execution_id)
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
        prefix = prefix_of(self.store, source.id, entry.began - 1, change)
        require_known(entry, change, prefix.state)
        change = fitting_inputs(change, prefix.workflow)
        workflow = _changed(call.workflow if call else prefix.workflow, step, changes)
        change = replace(change, model=self._model_called(workflow, change.model, self.store))
        whole = change if call is None else replace(change, variables={**change.variables, ASKED: call.prompt})
        tried = alone(workflow, step)
        self._check(workflow, [step], ())
        own = options.get("bounds")
        limits: StartOptions = {} if own is None else {"bounds": bounds_beside(as_bounds(own), prefix.state)}
        opening = opening_of(tried, prefix.state.inputs, self.code_of(tried), limits, origin=catalog.TRIAL)
        forked = forked_of(opening, prefix.state, prefix.opened, whole, limits)
        forked = replace(forked, seed=prefix.state.seed, tools=tools, only=entry.only)
        drivers = [self._control.fork(source.id, prefix.at, forked) for _ in range(times)]
        done = [self._handle(driver).wait() for driver in drivers]
        tries = tuple(tried_in(each.history(), entry, number, each) for number, each in enumerate(done, 1))
        recorded = tried_in(events, entry, RECORDED_NUMBER, source)
        return StepTrial(source.id, entry, recorded, tries, workflow, change, source.workflow.source, tuple(done))


def _changed(workflow: Workflow, step: str, changes: StepChanges) -> Workflow:
    if not changes:
        return workflow
    return changes(workflow) if callable(changes) else with_keys(workflow, step, changes)
