"""Executions that share the first events of others: where they are cut, what is otherwise, and how they are started."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, Unpack

from divebook.engine.change import Change
from divebook.engine.forked import require_reach
from divebook.engine.state import COMPLETED
from divebook.errors import StartKeyTakenError
from divebook.events import catalog
from divebook.execution.definitions import require_definition
from divebook.execution.execution import Execution
from divebook.execution.forks import Prefix, fitting, fitting_inputs, prefix_of
from divebook.executions import Executions
from divebook.starting import WARN, StartOptions, forked_of, opening_of, started_before
from divebook.store.base import EventStore
from divebook.store.durability import Durability
from divebook.workflow.definition import Workflow

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
            What is otherwise from there on (`divebook.engine.change.Change`): ``{"variables": {"x": 1}}``, ``inputs``,
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
        told, source = Change.of(change), self.store.resolve(execution_id)
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
            on_conflict, change = options.get("on_conflict", WARN), forked.change or {}
            return self.execution(started_before(taken, workflow.name, self.store, None, on_conflict, change=change))
