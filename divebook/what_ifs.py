"""Executions of an environment gone through once more, answered from their logs: as they were, or with one change."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

from divebook.bounds import Bounds
from divebook.engine.ahead import steps_ahead
from divebook.engine.bounds import within
from divebook.engine.change import Change
from divebook.engine.forked import require_reach
from divebook.errors import SetupError, UnfaithfulError, did_you_mean
from divebook.events import catalog
from divebook.execution.beyond import FindBeyond
from divebook.execution.children import Child
from divebook.execution.control import Control
from divebook.execution.definitions import require_definition
from divebook.execution.forks import Prefix, fitting, fitting_inputs, prefix_of
from divebook.execution.step_run import Services
from divebook.executions import Executions
from divebook.replay.recorded_answers import RECORDED, TOOLS, ReadsOnly
from divebook.replay.rehearsal import World
from divebook.replay.reused_answers import EditedCalls, Grounds
from divebook.replay.verify import Verification, verified
from divebook.replay.what_if import Plan, Proposal, bounds_beside, planned, result_of
from divebook.replay.what_if_result import RepeatedWhatIf, WhatIf
from divebook.starting import StartOptions, as_bounds, forked_of, opening_of, require_options
from divebook.store import EventStore
from divebook.workflow.definition import Workflow
from divebook.workflow.inputs import bind_inputs

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
        UnfaithfulError
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
            raise UnfaithfulError(wanted.source, str(checked.divergence))
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
        tools, own = options.get("tools", RECORDED), options.get("bounds")
        if tools not in TOOLS:
            advice = did_you_mean(tools, TOOLS) or f"there are {', '.join(TOOLS)}"
            raise SetupError(f"a what-if cannot treat actions and tools as {tools!r} ({advice})")
        source, told = self.execution(execution_id), Change.of(change)
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
        known, given = prefix.state.inputs, bind_inputs(workflow, child.inputs)
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
    def _grounds(self) -> Grounds:
        return Grounds(self._reads_only, self._clock, self._calls_edited)

    @property
    def _world(self) -> World:
        def control_over(store: EventStore, beyond: FindBeyond) -> Control:
            def services(control: Control) -> Services:
                return replace(self._services(control), beyond=beyond)

            return Control(store, services, self._check, self.code_of, clock=self._clock, chance=self._chance)

        return World(control_over, self._grounds)
