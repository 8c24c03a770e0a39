"""Executions that go on with the definitions of now: with a plan first, and with all kept that these would do again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, Unpack, overload

from divebook.bounds import Bounds
from divebook.engine.change import Change
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.state import FAILED
from divebook.errors import ExecutionError, NotFoundError, SetupError, did_you_mean
from divebook.events import catalog
from divebook.events.codec import canonical_hash
from divebook.events.event import Event
from divebook.execution.definitions import recorded_opening, require_definition
from divebook.execution.execution import Execution
from divebook.execution.fork_points import point_before
from divebook.execution.forks import Epoch, Prefix, epochs_of, first_reached, prefix_of, reached
from divebook.execution.leases import HANDS
from divebook.execution.refusals import refuse_final
from divebook.forking import Forks
from divebook.replay.going_on import Kept, ResumePlan, kept_by, planned_to_go_on
from divebook.starting import RETURN, StartOptions, as_bounds, forked_of, opening_of, said_of
from divebook.steps.actions import Action
from divebook.steps.code import changed_since
from divebook.what_ifs import WhatIfs
from divebook.workflow.definition import Workflow
from divebook.workflow.inputs import bind_inputs

NEW: Final = "new"
FROM_START, FROM_FAILURE, SKIP_FAILED = "from_start", "from_failure", "skip_failed"
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
            with HANDS.taking(source.store, source.id):
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
