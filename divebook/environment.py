"""The container of agents, workflows, actions and documents over one store; starts executions and finds past ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from divebook._version import __version__
from divebook.agents import Agent
from divebook.agents.models import is_known_provider
from divebook.documents import DocumentRepository, FileDocuments
from divebook.engine.checkpoint import load_state
from divebook.engine.evolve import fold
from divebook.engine.instructions import Fact
from divebook.engine.interrupts import checked_response
from divebook.engine.state import ExecutionState, Interrupt
from divebook.errors import (
    AlreadyRegisteredError,
    CorruptStoreError,
    DefinitionError,
    ExecutionError,
    InterruptError,
    NotFoundError,
    SetupError,
)
from divebook.events import Event, catalog
from divebook.events.codec import storable
from divebook.events.event import to_datetime
from divebook.execution.clock import Chance, Clock, Ids, SystemChance, SystemClock
from divebook.execution.execution import Execution
from divebook.execution.step_run import Handler, Services
from divebook.scripting import Interpreter, default_interpreter
from divebook.steps.action import ActionStep
from divebook.steps.actions import REGISTERED, Action, built_in_actions
from divebook.steps.content import ContentBuilder
from divebook.steps.evaluation import condition_holds, items_of
from divebook.steps.function import FunctionStep, require_function
from divebook.steps.prompt import PromptStep
from divebook.steps.script import ScriptStep
from divebook.steps.wait import wait_step
from divebook.store import EventStore, ExecutionRecord, Lease, Owner, open_store
from divebook.workflow.definition import Config, Definitions, Workflow
from divebook.workflow.functions import FUNCTION, WORKFLOW_FUNCTIONS
from divebook.workflow.graph import missing_agents
from divebook.workflow.inputs import bind_inputs
from divebook.workflow.settings import check_default_workflow, check_providers, require_name, with_defaults


class Environment:
    """Agents, workflows, actions and documents over one store.

    Parameters
    ----------
    name
        Shown to people.
    store
        Where events rest: a store, or a place for `open_store`; by default ``.divebook/executions.db``.
    agents, workflows, actions
        What it begins with; names must not repeat.
    documents
        What document actions read and write.
    documents_dir
        A folder for documents, where no repository is given; by default the current one.
    printer
        Takes what the ``Print`` action and scripts print.
    clock, chance
        Time and randomness; tests pass their own.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> workflow = Workflow("sum", [Step("add", script="1 + 1", store="n")])
    >>> environment = Environment(store="memory:", workflows=[workflow])
    >>> environment.start("sum").wait().variables
    {'n': 2}
    """

    def __init__(
        self,
        name: str = "divebook",
        *,
        store: EventStore | str | None = None,
        agents: Iterable[Agent] = (),
        workflows: Iterable[Workflow] = (),
        actions: Iterable[Action] = (),
        documents: DocumentRepository | None = None,
        documents_dir: str | os.PathLike[str] | None = None,
        printer: Callable[[str], None] = print,
        clock: Clock | None = None,
        chance: Chance | None = None,
        interpreter: Interpreter | None = None,
    ) -> None:
        if not name:
            raise SetupError("environment name is required")
        self.name, self.description = name, ""
        self.config = Config()
        self.store = open_store(store) if store is None or isinstance(store, str) else store
        if documents is not None and documents_dir is not None:
            raise SetupError("documents dir and repo cannot both be set: a repository has its own folder")
        self.documents = documents if documents is not None else FileDocuments(documents_dir or ".")
        self._clock, self._chance = clock or SystemClock(), chance or SystemChance()
        self._agents: dict[str, Agent] = {}
        self._workflows: dict[str, Workflow] = {}
        self._actions = built_in_actions(self.documents, printer, lambda: to_datetime(self._clock.now()))
        self._own_actions: dict[str, Action] = {action.name: action for action in actions}
        self._live: dict[str, Execution] = {}
        self._services = self._make_services(interpreter or default_interpreter(), printer)
        for agent in agents:
            self.add_agent(agent)
        for workflow in workflows:
            self.add_workflow(workflow)

    def _make_services(self, interpreter: Interpreter, printer: Callable[[str], None]) -> Services:
        content = ContentBuilder(interpreter, self.documents, printer)
        handlers: dict[str, Handler] = {
            "prompt": PromptStep(self._agent_for, content),
            "action": ActionStep(lambda: self.actions),
            "script": ScriptStep(interpreter, self.documents, printer),
            "wait": wait_step,
            "function": FunctionStep(self._run_child),
        }
        return Services(handlers, condition_holds, items_of)

    @classmethod
    def from_definitions(cls, definitions: Definitions, **settings: Any) -> Environment:
        """Make an environment of a whole definition, which must have a name; `settings` are those of the class."""
        environment = cls(require_name(definitions), **settings)
        environment.define(definitions)
        return environment

    # --- what it holds ---------------------------------------------------------------------------------------------

    @property
    def agents(self) -> dict[str, Agent]:
        """Its agents by name, in the order in which they came."""
        return dict(self._agents)

    @property
    def workflows(self) -> dict[str, Workflow]:
        """Its workflows by name: those of this process made with `@workflow`, and its own, which win."""
        return {name: entry.workflow for name, entry in WORKFLOW_FUNCTIONS.items()} | self._workflows

    @property
    def actions(self) -> dict[str, Action]:
        """Every action steps may call: built in, made with `@action`, given to this environment; later ones win."""
        return {**self._actions, **REGISTERED, **self._own_actions}

    @property
    def default_agent(self) -> Agent | None:
        """The agent of prompt steps that name none: the first supervisor, else the first agent."""
        supervisors = [agent for agent in self._agents.values() if agent.is_supervisor]
        return next(iter(supervisors or self._agents.values()), None)

    def agent(self, name: str) -> Agent:
        """Return the agent of that name; raises `NotFoundError`."""
        if name not in self._agents:
            raise NotFoundError("agent", name, self._agents)
        return self._agents[name]

    def workflow(self, name: str) -> Workflow:
        """Return the workflow of that name; raises `NotFoundError`."""
        known = self.workflows
        if name not in known:
            raise NotFoundError("workflow", name, known)
        return known[name]

    @property
    def default_workflow(self) -> Workflow | None:
        """The workflow that the settings name for runs that name none."""
        check_default_workflow(self.config, self._workflows)
        return self._workflows.get(self.config.default_workflow)

    def _agent_for(self, name: str | None) -> Agent | None:
        return self.default_agent if name is None else self.agent(name)

    def add_agent(self, agent: Agent, *, replace: bool = False) -> None:
        """Take an agent in; a taken name is an error unless `replace` is set."""
        if agent.name in self._agents and not replace:
            raise AlreadyRegisteredError("agent", agent.name)
        self._agents[agent.name] = agent

    def add_workflow(self, workflow: Workflow, *, replace: bool = False) -> None:
        """Take a workflow in; executions that are already running keep the one they were started with."""
        if workflow.name in self._workflows and not replace:
            raise AlreadyRegisteredError("workflow", workflow.name)
        self._workflows[workflow.name] = workflow

    def define(self, definitions: Definitions) -> None:
        """Take in all that a text, file or folder defines; what has the name of something old replaces it.

        Agents named by steps must be known by the time an execution starts, not before, so that cells can come in any
        order.
        """
        check_providers(definitions, is_known_provider)
        self.name = definitions.name or self.name
        self.description = definitions.description or self.description
        self.config = _merged_config(self.config, definitions.config)
        for document in definitions.documents:
            if document.path:
                self.documents.register(document.name, document.path)
        for definition in definitions.agents:
            agent = Agent(
                with_defaults(definition, self.config),
                default_provider=self.config.default_provider,
                default_model=self.config.default_model,
            )
            self.add_agent(agent, replace=True)
        for workflow in definitions.workflows:
            self.add_workflow(workflow, replace=True)

    # --- executions ------------------------------------------------------------------------------------------------

    def start(
        self, workflow: Workflow | str, inputs: Mapping[str, Any] | None = None, *, coerce_text: bool = False
    ) -> Execution:
        """Start an execution and return at once; `create` and `Execution.start` in one."""
        return self.create(workflow, inputs, coerce_text=coerce_text).start()

    def fire(self, trigger: str, inputs: Mapping[str, Any] | None = None) -> list[Execution]:
        """Create a pending execution of every workflow that lists a trigger of that name; start those you want."""
        listed = {entry.name for workflow in self._workflows.values() for entry in workflow.triggers}
        if trigger not in listed:
            raise NotFoundError("trigger", trigger, listed)
        subscribed = [w for w in self._workflows.values() if trigger in {entry.name for entry in w.triggers}]
        return [self.create(workflow, inputs) for workflow in subscribed]

    def create(
        self, workflow: Workflow | str, inputs: Mapping[str, Any] | None = None, *, coerce_text: bool = False
    ) -> Execution:
        """Return a pending execution, of which nothing is recorded before it is started.

        Parameters
        ----------
        workflow
            A workflow or the name of one.
        inputs
            Plain data by name.
        coerce_text
            Turn texts into the declared types of inputs, as a command line needs.

        Raises
        ------
        InputError, NotFoundError, DefinitionError, UnstorableValueError
            Before anything is recorded.
        """
        if not workflow:
            raise SetupError("workflow is required; name one of: " + (", ".join(self._workflows) or "none is defined"))
        found = self.workflow(workflow) if isinstance(workflow, str) else workflow
        self._check(found)
        bound = storable(bind_inputs(found, inputs or {}, coerce_text=coerce_text), "inputs")
        opening = catalog.ExecutionStarted(
            found.name, bound, found.to_dict(), found.fingerprint, found.source or None, __version__
        )
        execution_id = Ids(self._clock, self._chance).execution()
        execution = Execution(found, ExecutionState(execution_id), self.store, self._begin(Fact(opening)))
        self._live[execution_id] = execution
        return execution

    def _begin(self, *openings: Fact, lease: Lease | None = None) -> Callable[[Execution], Execution]:
        return lambda execution: execution.drive(openings, self._services, self._clock, self._chance, lease)

    def _check(self, workflow: Workflow) -> None:
        """Raise unless the agents, and in our own dialect the actions, that the steps name exist."""
        if workflow.start.type == FUNCTION and workflow.dialect != "dive":
            require_function(workflow.name)
        problems = missing_agents(workflow, self._agents)
        if problems:
            raise DefinitionError(problems, f"workflow {workflow.name!r}")
        if workflow.dialect == "dive":
            return
        known = self.actions
        for step in workflow.steps:
            if step.type == "action" and step.action and step.action not in known:
                missing = f'action "{step.action}" of step "{step.name}" not found'
                raise NotFoundError("action", step.action, known, missing)
            if step.type == "prompt" and step.agent is None and not self._agents:
                raise NotFoundError("agent", "", (), f'no agent specified for prompt step "{step.name}"')

    async def _run_child(self, workflow: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run a workflow that another one asks for; see `WorkflowContext.run`."""
        child = await self.start(workflow, inputs)
        if child.status != catalog.COMPLETED:
            raise ExecutionError(f"child execution {child.id} of {workflow!r} is {child.status}: {child.error}")
        return {"execution_id": child.id, "status": child.status, "outputs": child.outputs}

    def resume(self, execution_id: str) -> Execution:
        """Take an execution up again where its log ends.

        What completed is not run again. A failed or cancelled execution goes on at the step it stopped in. The
        definition is the one it was started with.

        Raises
        ------
        ExecutionNotFoundError
            The store has no such execution.
        ExecutionError
            It has completed, or this process is running it now.
        LeaseHeldError
            Another process is running it.
        """
        execution_id = self.store.resolve(execution_id)
        live = self._live.get(execution_id)
        if live is not None and live.is_live:
            raise ExecutionError(
                f"execution {execution_id} is running in this process already; wait for it or cancel it"
            )
        if self.store.record(execution_id).status == catalog.COMPLETED:
            raise ExecutionError(f"execution {execution_id} has completed; start a new one to run the workflow again")
        lease = self.store.acquire(execution_id, Owner.current())
        try:
            execution = self._load(execution_id)
            self._check(execution.workflow)
        except BaseException:
            self.store.release(lease)
            raise
        self._live[execution_id] = execution
        return self._begin(Fact(catalog.ExecutionResumed(execution.status)), lease=lease)(execution)

    def answer(self, interrupt_id: str, response: Any, execution_id: str | None = None) -> Execution:
        """Answer a question; its execution goes on at once.

        Parameters
        ----------
        interrupt_id
            Which question, as `Execution.interrupts` and `interrupts` name it.
        response
            To a question about an unknown outcome ``{"choice": "retry"}``, ``{"choice": "done", "result": ...}`` or
            ``{"choice": "fail"}``; the choice alone will do as a text.
        execution_id
            Spares the search through the executions that wait.

        Raises
        ------
        NotFoundError
            There is no such question.
        InterruptError
            It has an answer already, or this one does not fit; the question stays as it was.
        """
        execution = self._asked(interrupt_id, execution_id)
        question = execution.state.interrupts[interrupt_id]
        checked = checked_response(question, storable(response, "response"))
        if execution.answer_live(interrupt_id, checked):
            return execution
        self._check(execution.workflow)
        lease = self.store.acquire(execution.id, Owner.current())
        fresh = self._load(execution.id)
        try:
            checked_response(fresh.state.interrupts[interrupt_id], checked)
        except InterruptError:  # somebody else was faster
            self.store.release(lease)
            raise
        self._live[fresh.id] = fresh
        resumed = Fact(catalog.ExecutionResumed(fresh.status))
        resolved = Fact(catalog.InterruptResolved(interrupt_id, checked), question.path, question.step)
        return self._begin(resumed, resolved, lease=lease)(fresh)

    def interrupts(self) -> list[tuple[str, Interrupt]]:
        """Return every question that waits for an answer, with the id of its execution, newest execution first."""
        return [(found.id, question) for found in self._unfinished() for question in found.interrupts]

    def _unfinished(self) -> Iterable[Execution]:
        return (self.execution(record.execution_id) for record in self.store.records(status=catalog.RUNNING))

    def _asked(self, interrupt_id: str, execution_id: str | None) -> Execution:
        """Return the execution that asked a question."""
        candidates = [self.execution(execution_id)] if execution_id else list(self._unfinished())
        for execution in candidates:
            if interrupt_id in execution.state.interrupts:
                return execution
        known = [question.interrupt_id for execution in candidates for question in execution.interrupts]
        raise NotFoundError("question", interrupt_id, known)

    def execution(self, execution_id: str) -> Execution:
        """Return an execution, live or past; the beginning of an id is enough where it is unique."""
        if execution_id in self._live:
            return self._live[execution_id]
        execution_id = self.store.resolve(execution_id)
        live = self._live.get(execution_id)
        return live if live is not None else self._load(execution_id)

    def cancel(self, execution_id: str) -> Execution:
        """Cancel an execution: one of this process is stopped, any other is marked as cancelled.

        A process that drives it finds with its next step that it may no longer write, and stops there.
        """
        execution = self.execution(execution_id)
        if execution.is_live:
            execution.cancel()
            return execution
        if execution.state.is_over:
            raise ExecutionError(f"execution {execution.id} is {execution.status} already; there is nothing to cancel")
        lease = self._take_over(execution.id)
        return self._load(execution.id).drive_cancellation(self._clock, self._chance, lease)

    def _take_over(self, execution_id: str) -> Lease:
        """Acquire an execution whoever drives it: as if the present lease had expired."""
        held = next((lease for lease in self.store.leases() if lease.execution_id == execution_id), None)
        after = None if held is None or not held.is_live() else held.expires_at + 1
        return self.store.acquire(execution_id, Owner.current(), now=after)

    def recoverable(self) -> list[ExecutionRecord]:
        """Return the executions that have not ended and that no living process drives, newest first."""
        return self.store.orphans()

    def executions(
        self, status: str | None = None, workflow: str | None = None, limit: int = 0, offset: int = 0
    ) -> list[ExecutionRecord]:
        """Return what the store knows of executions, newest first; `limit` 0 returns all."""
        return self.store.records(status=status, workflow=workflow, limit=limit, offset=offset)

    def _load(self, execution_id: str) -> Execution:
        opening = self.store.read(execution_id, limit=1)
        checkpoint = self.store.checkpoint(execution_id)
        state = None if checkpoint is None else load_state(checkpoint[1])
        later = self.store.read(execution_id, after=0 if state is None else state.last_sequence)
        return Execution(_recorded_workflow(execution_id, opening), fold(execution_id, later, state), self.store)

    def __repr__(self) -> str:
        return f"<Environment {self.name!r}: {len(self._agents)} agents, {len(self._workflows)} workflows>"


def _recorded_workflow(execution_id: str, events: Sequence[Event]) -> Workflow:
    """Return the definition that an execution was started with."""
    opening = events[0].data if events else None
    if not isinstance(opening, catalog.ExecutionStarted) or opening.definition is None:
        raise CorruptStoreError(f"execution {execution_id} has no recorded definition; it can be exported, not resumed")
    return Workflow.from_dict({**opening.definition, "source": opening.source or ""})


def _merged_config(old: Config, new: Config) -> Config:
    """Return the settings with what `new` says in place of the old."""
    given = new.to_dict()
    return Config.from_dict({**old.to_dict(), **given})
