"""What an environment holds: what its agents may use, workflows, actions, and who carries out which type of step."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace as replaced
from typing import Any, Self, TypeAlias

from divebook.agents import Agent
from divebook.agents.agent import agent_of
from divebook.agents.models import is_known_provider, model_name
from divebook.agents.scripted import SCRIPTED
from divebook.errors import (
    AlreadyRegisteredError,
    DefinitionError,
    NotFoundError,
    Problem,
    SetupError,
)
from divebook.execution.definitions import require_definition
from divebook.execution.step_run import Handler
from divebook.outfit import Outfit
from divebook.steps.actions import REGISTERED, Action
from divebook.steps.agent_checks import asked_agents, check_declared, check_model
from divebook.steps.function import require_function
from divebook.steps.syntax import syntax_problems
from divebook.store import EventStore
from divebook.store.codec import Sealing
from divebook.text.arguments import require
from divebook.text.logs import logger
from divebook.text.names import same_name
from divebook.workflow.approvals import ApprovalRule
from divebook.workflow.definition import AgentDefinition, Config, Definitions, ScheduleDefinition, Workflow
from divebook.workflow.functions import FUNCTION, WORKFLOW_FUNCTIONS
from divebook.workflow.merge import merge
from divebook.workflow.references import missing_actions, missing_agents, missing_workflows
from divebook.workflow.settings import check_default_workflow, check_providers, with_defaults
from divebook.workflow.step import STEP_TYPES

_log = logger(__name__)
StepType: TypeAlias = tuple[Handler, Callable[[Workflow], None] | None]
"""What carries out steps of a type, and looks at a workflow with such."""


class Holdings(Outfit):
    """Agents, workflows, actions, tools and types of step by name; `divebook.Environment` runs them."""

    def __init__(
        self,
        name: str,
        own_actions: Mapping[str, Action],
        approvals: Iterable[ApprovalRule | Mapping[str, Any]],
        sealing: Sealing,
    ) -> None:
        super().__init__(approvals, sealing)
        self.name, self.description = name, ""
        self._workflows: dict[str, Workflow] = {}
        self._actions: dict[str, Action] = {}
        """Those that come with divebook."""
        self._own_actions = dict(own_actions)
        self._handlers: dict[str, Handler] = {}
        self._checks: dict[str, Callable[[Workflow], None]] = {}
        self._step_types: dict[str, StepType] = {}
        """Those that were given to it."""

    def take_in(self, other: Self) -> None:
        """Have all that another one has; what that has wins."""
        super().take_in(other)
        self.name, self.description = other.name, other.description or self.description
        self._workflows |= other._workflows
        self._own_actions |= other._own_actions
        for name, (handler, check) in {**self._step_types, **other._step_types}.items():
            self.add_step_type(name, handler, check)

    @property
    def workflows(self) -> dict[str, Workflow]:
        """Its workflows by name: those of this process made with `@workflow`, and its own, which win."""
        return {name: entry.workflow for name, entry in WORKFLOW_FUNCTIONS.items()} | self._workflows

    @property
    def own_workflows(self) -> tuple[Workflow, ...]:
        """Its own workflows, without those of the process."""
        return tuple(self._workflows.values())

    @property
    def actions(self) -> dict[str, Action]:
        """Every action steps may call: built in, made with `@action`, given to this environment; later ones win."""
        return {**self._actions, **REGISTERED, **self._own_actions}

    def action(self, name: str) -> Action:
        """Return the action of that name; raises `NotFoundError`."""
        for known in (self._own_actions, REGISTERED, self._actions):
            registered = same_name(name, known)
            if registered is not None:
                return known[registered]
        raise NotFoundError("action", name, self.actions, f'action "{name}" not found')

    @property
    def default_agent(self) -> Agent | None:
        """The agent of prompt steps that name none: the first supervisor, else the first agent."""
        supervisors = [agent for agent in self._agents.values() if agent.is_supervisor]
        return next(iter(supervisors or self._agents.values()), None)

    def workflow(self, name: str) -> Workflow:
        """Return the workflow of that name; raises `NotFoundError`."""
        workflows = self.workflows
        known = same_name(name, workflows)
        if known is None:
            raise NotFoundError("workflow", name, workflows)
        return workflows[known]

    def as_written(self, workflow: Workflow) -> Workflow:
        """Return a workflow of a log with the text that it was read from here, if it was: errors name lines of that."""
        known = self._workflows.get(workflow.name, workflow)
        return known if known == workflow else workflow

    @property
    def default_workflow(self) -> Workflow | None:
        """The workflow that the settings name for runs that name none."""
        check_default_workflow(self.config, self._workflows)
        return self._workflows.get(self.config.default_workflow)

    def _agent_for(self, name: str | None) -> Agent | None:
        return self.default_agent if name is None else self.agent(name)

    def add_agent(self, agent: Agent | Any, *, replace: bool = False) -> None:
        """Take an agent in, also one of pydantic-ai as it is; a taken name is an error unless `replace` is set."""
        agent = agent_of(agent)
        if agent.name in self._agents and not replace:
            raise AlreadyRegisteredError("agent", agent.name)
        for server in agent.servers:
            self.add_server(server, replace=replace)
        self._agents[agent.name] = agent
        self._of_text.discard(("agent", agent.name))
        others = [other for other in self._defined.agents if other.name != agent.name]
        self._defined = replaced(self._defined, agents=tuple(others))  # so that settings do not make it anew

    @property
    def schedules(self) -> tuple[ScheduleDefinition, ...]:
        """Its schedules; a worker that is given them enqueues their workflows when they are due."""
        return self._defined.schedules

    def add_schedule(self, schedule: ScheduleDefinition, *, replace: bool = False) -> None:
        """Take a schedule in; a taken name is an error unless `replace` is set."""
        if not replace and schedule.name in {known.name for known in self.schedules}:
            raise AlreadyRegisteredError("schedule", schedule.name)
        self._defined = merge(replaced(self._defined, warnings=()), Definitions(schedules=(schedule,)))

    def add_workflow(self, workflow: Workflow, *, replace: bool = False) -> None:
        """Take a workflow in; executions that are already running keep the one they were started with."""
        expected = "a Workflow; write @workflow above an async function, or Workflow('name', [Step(...)])"
        require(workflow, "a workflow", expected, fits=isinstance(workflow, Workflow))
        if workflow.name in self._workflows and not replace:
            raise AlreadyRegisteredError("workflow", workflow.name)
        self._workflows[workflow.name] = workflow
        self._code_workflows.add(workflow.fingerprint)

    def add_step_type(self, name: str, handler: Handler, check: Callable[[Workflow], None] | None = None) -> None:
        """Let steps of a type be carried out by a handler; one that was there before goes.

        Parameters
        ----------
        name
            One of `divebook.workflow.step.STEP_TYPES`.
        handler
            Coroutine function from a `StepContext` to an `Outcome`.
        check
            Raises before anything is recorded, unless all that a workflow with such steps needs is there.
        """
        if name not in STEP_TYPES:
            raise NotFoundError("step type", name, STEP_TYPES)
        self._handlers[name] = handler
        self._step_types[name] = handler, check
        if check is not None:
            self._checks[name] = check

    def step_handler(self, name: str) -> Handler:
        """Return what carries out steps of a type; raises `NotFoundError`."""
        if name not in self._handlers:
            raise NotFoundError("step type", name, self._handlers)
        return self._handlers[name]

    def define(self, definitions: Definitions) -> None:
        """Take in all that a text, file or folder defines; what has the name of something old replaces it.

        Two texts, one after the other, are what a folder of both is: settings hold for agents that came before them.
        Agents named by steps must be known by the time an execution starts, not before, so that cells can come in any
        order.
        """
        expected = "Definitions; divebook.load('flows.yaml') reads them, and add_agent and add_workflow take one thing"
        require(definitions, "definitions", expected, fits=isinstance(definitions, Definitions))
        problems = syntax_problems(definitions)
        if problems:
            names = {workflow.written.name for workflow in definitions.workflows}
            raise DefinitionError(problems, names.pop() if len(names) == 1 and "" not in names else "definition")
        check_providers(definitions, is_known_provider)
        defined = merge(self._defined, definitions)
        agents = {agent.name: self._agent_of(agent, defined.config, definitions) for agent in defined.agents}
        self._defined = defined
        self._define_origin(definitions)
        self.name = definitions.name or self.name
        self.description = definitions.description or self.description
        for document in definitions.documents:
            if document.path:
                self.documents.register(document.name, document.path)
        self._agents |= agents
        for server in definitions.mcp_servers:
            self.servers.add(server, self.policy if definitions.is_text else self.policy.of_code(), replace=True)
        for workflow in definitions.workflows:
            self.add_workflow(workflow, replace=True)

    @staticmethod
    def _agent_of(definition: AgentDefinition, config: Config, new: Definitions) -> Agent:
        try:
            return Agent(
                with_defaults(definition, config),
                default_provider=config.default_provider,
                default_model=config.default_model,
            )
        except SetupError as error:
            place = ("Agents", new.agents.index(definition), *error.place) if definition in new.agents else error.place
            raise SetupError(str(error), place) from error

    def _stand_in_for(self, workflow: Workflow) -> str | None:
        """Return the scripted model where a file of the old system names a provider that cannot be asked here.

        Such files, which leave the model to the provider, run as they are that way (tests/cli/test_run.py). In our own
        dialect the step fails, and says what to install or set.
        """
        if workflow.manner.is_strict:
            return None
        asked = [self._agent_for(step.agent) for step in workflow.steps if step.type == "prompt"]
        lacking = [agent.missing for agent in asked if agent is not None]
        if not lacking or not all(lacking):
            return None
        _log.warning(
            "the provider that workflow %r names cannot be asked here, so a scripted model stands in for it: this run "
            "and what resumes it hold no text of a model. For real answers: %s, and start it anew",
            workflow.name,
            lacking[0],
        )
        return SCRIPTED

    def _check(self, workflow: Workflow, ahead: Container[str] | None = None, to_begin: Iterable[str] = ()) -> None:
        """Raise unless the agents, and in our own dialect the actions, that the steps name exist.

        Of an execution that goes on only the steps `ahead` count: what finished steps needed may be gone. The workflows
        `to_begin` must exist as well.
        """
        require_definition(workflow)
        for name in to_begin:
            self.workflow(name)
        steps = [step for step in workflow.steps if ahead is None or step.name in ahead]
        if workflow.start.type == FUNCTION and workflow.manner.is_strict:
            require_function(workflow.name)
        for step_type in {step.type for step in steps} & self._checks.keys():
            self._checks[step_type](workflow)
        problems = [workflow.written.located(found) for found in missing_agents(workflow, self._agents, ahead)]
        if problems:
            raise DefinitionError(problems, workflow.written.name or f"workflow {workflow.name!r}")
        for agent in asked_agents(steps, self._agent_for, self):
            self.check_agent(agent)
        for named in (workflow.workspace, *(step.workspace for step in steps)):
            if named is not None:
                self.check_workspace(named)
        if workflow.manner.is_strict:
            check_declared(self._defined.tools, self.tools, self._agents.values(), self.servers)
            self._check_names(workflow, ahead)

    def _model_called(self, workflow: Workflow, named: str | None, store: EventStore) -> str | None:
        """Return the full name of the model that a run has in place of its agents'; SetupError if nobody has it."""
        if model := model_name(None, named, self.config.default_provider) if named else None:
            self._check_models(workflow, model, store)
        return model

    def _check_models(self, workflow: Workflow, model: str | None, store: EventStore) -> None:
        """Raise unless there can be the model of a run, or where it has none, that of each of its agents."""
        if model is not None:
            check_model(model, f"workflow {workflow.name}", store)
        elif workflow.manner.is_strict:
            for agent in asked_agents(workflow.steps, self._agent_for, self):
                check_model(agent.model, f"agent {agent.name}", store)

    def _check_names(self, workflow: Workflow, ahead: Container[str] | None) -> None:
        """Raise unless what the steps name is there."""
        actions = self.actions
        self._raise_first("action", missing_actions(workflow, actions, ahead), actions, workflow)
        if any(step.workflow for step in workflow.steps):
            workflows = self.workflows
            self._raise_first("workflow", missing_workflows(workflow, workflows, ahead), workflows, workflow)
        for step in workflow.steps:
            is_ahead = ahead is None or step.name in ahead
            if is_ahead and step.type == "prompt" and step.agent is None and not self._agents:
                raise NotFoundError("agent", "", (), f'no agent specified for prompt step "{step.name}"')

    @staticmethod
    def _raise_first(
        kind: str, missing: Iterable[tuple[Problem, str]], known: Iterable[str], workflow: Workflow
    ) -> None:
        for found, name in missing:
            where = workflow.written.where(found.place)
            raise NotFoundError(kind, name, known, f"{where}: {found.message}" if where else found.message)

    def not_yet(self, definitions: Definitions) -> list[Problem]:
        """Return warnings of what the steps of definitions name and that is not there yet.

        They may come later, by the time an execution starts.
        """
        return [
            workflow.written.located(
                replaced(found, severity="warning", message=found.message.replace("not found", "is not defined yet"))
            )
            for workflow in definitions.workflows
            for found in self._missing(workflow)
        ]

    def _missing(self, workflow: Workflow) -> Iterator[Problem]:
        yield from missing_agents(workflow, self._agents)
        if workflow.manner.is_strict:
            yield from (found for found, _ in missing_actions(workflow, self.actions))
            yield from (found for found, _ in missing_workflows(workflow, self.workflows))
