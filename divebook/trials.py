"""One step of an execution done again with the state it had, as often as wanted; the execution stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, TypedDict, Unpack

from divebook.bounds import Bounds
from divebook.engine.change import Change
from divebook.errors import SetupError, did_you_mean
from divebook.events import catalog
from divebook.execution.definitions import require_definition
from divebook.execution.forks import fitting_inputs, prefix_of
from divebook.history.read_log import ReadLog
from divebook.replay.recorded_answers import RECORDED, TOOLS
from divebook.replay.trial import StepTrial
from divebook.replay.trial_call import ASKED, call_of, is_call
from divebook.replay.trial_entry import alone, entry_of, require_known
from divebook.replay.tried import RECORDED_NUMBER, tried_in
from divebook.replay.what_if import bounds_beside
from divebook.starting import StartOptions, as_bounds, forked_of, opening_of, require_options
from divebook.what_ifs import WhatIfs
from divebook.workflow.changed_step import with_keys
from divebook.workflow.definition import Workflow

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
        visit, call = options.get("visit"), None
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
