"""The class `Environment`, the container of workflows, agents, actions and documents that uses one store."""

from __future__ import annotations

import asyncio
import functools
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict, TypeVar, Unpack, overload

from divebook.agents import Agent, imports
from divebook.agents.agent import AnyAgent, agent_of
from divebook.agents.clients import CLIENTS
from divebook.definitions.definition import Definitions, Workflow
from divebook.definitions.functions import WorkflowFunction
from divebook.definitions.resources import (
    ApprovalRule,
    ScheduleDefinition,
    WorkspaceDefinition,
)
from divebook.definitions.servers import MCPServerDefinition
from divebook.definitions.tools import ToolFunction, tool_of
from divebook.documents import DocumentRepository, FileDocuments, Policy
from divebook.engine.approvals import StandingRule
from divebook.environments.registry import (
    EnvironmentApprovalPolicy,
    NamedObjects,
    Registry,
    require_server,
    require_workflow,
    require_workspace,
)
from divebook.environments.settings import (
    EnvironmentWorkspaces,
    Hook,
    Settings,
    TelemetrySetting,
    checked_telemetry,
)
from divebook.environments.starts import (
    DEFAULT_QUEUE,
    WARN,
    Starter,
    StartOptions,
    enqueued_event,
    existing_execution,
    require_options,
)
from divebook.environments.variants import (
    Edits,
    Variants,
)
from divebook.errors import ExecutionError, NotFoundError, SetupError, StartKeyTakenError, missing_attribute
from divebook.events.event import to_datetime
from divebook.interrupts import interruptible_result
from divebook.projections.spans import Formatter
from divebook.projections.summary import records_with
from divebook.questions import Question
from divebook.replay.recorded_answers import ReuseInputs
from divebook.replay.what_if import answers_for
from divebook.runtime.clock import Chance, Clock, SystemChance, SystemClock
from divebook.runtime.compute.dask import Executors
from divebook.runtime.driver import Driver
from divebook.runtime.loop import ENGINE
from divebook.runtime.manager import Control
from divebook.runtime.messages import this_person
from divebook.runtime.recorder import CallTracing
from divebook.runtime.run import Run
from divebook.runtime.step import Handler, Services
from divebook.scripting import Interpreter, default_interpreter
from divebook.steps.actions import Action, action_of, built_in_actions
from divebook.steps.conversations import ConversationStore, DurableLog, Thread, Threads
from divebook.steps.handlers import built_in_handlers
from divebook.steps.prompt import ContentBuilder
from divebook.steps.script_step import ScriptStep, condition_holds, filled, items_of
from divebook.steps.workspace_actions import WORKSPACE_ACTIONS
from divebook.stores import EventStore, ExecutionRecord, MemoryStore, open_store, transfer
from divebook.stores.append import Durability, durability_called
from divebook.stores.backend import SimpleStore
from divebook.stores.codec import Codec
from divebook.stores.leases import QueuedExecution, WorkerRecord
from divebook.stores.memory import as_store
from divebook.text.arguments import (
    describe,
    id_of,
    is_list_of_strings,
    list_of,
    question_id_of,
    require,
    suggest_arguments,
    suggest_in_methods,
)
from divebook.text.format import plural
from divebook.text.path_arguments import as_path
from divebook.text.protocols import require_protocol
from divebook.text.ranges import COUNT_OR_ZERO
from divebook.text.redaction import logger

if TYPE_CHECKING:
    from divebook.analysis.store import Frames
    from divebook.queues import Worker

_log = logger(__name__)
_USERS: weakref.WeakKeyDictionary[EventStore, weakref.WeakSet[Environment]] = weakref.WeakKeyDictionary()
"""For each store, the open environments that use it. `open_store` returns one store object for one file, so that
environments can share a store; the last environment closes it.
"""
R = TypeVar("R")
Printer: TypeAlias = Callable[[str], None]
Closer: TypeAlias = Callable[[], object]
_FILTERS = ("tag", "origin", "parent", "notebook", "cell", "key")
"""Names of the keyword arguments by which `Environment.runs` can filter."""
_STORE = "a path, a URL, a divebook.stores.EventStore"
_EXPECTED: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a string", lambda value: isinstance(value, str)),
    "documents_dir": ("the path of a folder", lambda value: isinstance(value, str | os.PathLike)),
    "durability": ("'full' or 'relaxed'", lambda value: isinstance(value, str)),
    "executors": ("a mapping of names to executors", lambda value: isinstance(value, Mapping)),
}
"""For each argument of `Environment` that is plain data: the expected value in words, for the error, and a function
that checks a value.
"""
_PROTOCOLS: Mapping[str, tuple[Any, str]] = {
    "documents": (DocumentRepository, "FileDocuments('texts'), MemoryDocuments()"),
    "printer": (Printer, ""),
    "clock": (Clock, ""),
    "chance": (Chance, ""),
    "interpreter": (Interpreter, ""),
    "formatter": (Formatter, ""),
    "policy": (Policy, "Policy('files')"),
    "codec": (Codec, ""),
}
"""For each argument of `Environment` that is an object: its protocol, and an example for the error."""


_OF_A_RUN = (
    "annotate", "cancel", "files", "fork", "inspect", "label", "note", "replay", "resume", "retry", "run_again",
    "signal", "tag", "try_step", "untag", "verify", "what_if", "why",
)  # fmt: skip
_OF_THE_DEFINITIONS = ("actions", "agents", "documents", "tools", "workflows", "workspaces")
_OF_THE_REGISTRY = (
    "approvals_for", "as_written", "check_agent", "check_workspace", "code_of", "default_agent", "default_workflow",
    "folder_of", "limited", "may_apply_unasked", "not_yet", "policy_for_agent", "policy_of", "require_permitted",
    "require_reachable", "responses", "servers", "servers_for", "step_handler", "subordinates_for", "tools_for",
)  # fmt: skip
REMOVED: Mapping[str, str] = {
    **{name: f"environment.run_of(id).{name}(...)" for name in _OF_A_RUN},
    **{name: f"environment.internals.registry.{name}" for name in _OF_THE_REGISTRY},
    **{name: f"environment.queues.{name}(...)" for name in ("queued", "recover", "recoverable", "workers")},
    **{name: f"environment.internals.{name}(...)" for name in ("beside", "on_close", "take_in")},
    **{name: f"environment.internals.registry.{name}" for name in ("config", "policy")},
    **{name: f"environment.definitions.{name}" for name in _OF_THE_DEFINITIONS},
    "action": "environment.definitions.actions[name]",
    "add_schedule": "environment.schedules.add(...)",
    "agent": "environment.definitions.agents[name]",
    "answer_alike": "environment.answer(..., alike=True)",
    "compare": "run.compare(other) or divebook.compare(...)",
    "execution": "environment.run_of(id)",
    "executions": "environment.runs(...), or environment.store.records(...) for summary rows",
    "export_log": "environment.run_of(id).export(file)",
    "fire": "environment.schedules.fire(...)",
    "from_definitions": "Environment(name), then environment.define(definitions)",
    "import_log": "environment.open(file, keep=True)",
    "interrupts": "environment.inbox()",
    "mcp_tools": "environment.definitions.mcp_tools()",
    "own_workflows": "environment.internals.registry.registered_workflows",
    "question": "environment.run_of(id).questions",
    "reach": "Environment(documents=..., policy=...)",
    "requests_of": "environment.run_of(id).requests",
    "revoke": "environment.rules.revoke(rule_id)",
    "stream_text": "environment.internals.control.texts.always = True",
    "thread": "environment.threads[id]",
    "workflow": "environment.definitions.workflows[name]",
    "workspace": "environment.definitions.workspaces[name]",
}
"""Replacement of each removed name of `Environment`, as the error shows it."""


@dataclass(frozen=True, slots=True)
class Internals:
    """Parts of an environment that other packages of divebook use."""

    registry: Registry
    control: Control
    variants: Variants
    beside: Callable[[EventStore], Environment]
    """Returns a new environment that uses another store, and has the definitions and settings of this environment."""
    take_in: Callable[[Environment], None]
    """Adds the definitions and settings of another environment."""
    on_close: Callable[[Closer], None]
    """Registers a function to be called when the environment is closed."""


class Queues:
    """Queues of an environment: the executions in them, the workers, and executions whose process died.

    `Environment.enqueue` puts an execution into a queue, and `Environment.worker` creates a worker.
    """

    def __init__(self, control: Control, run_of: Callable[[Driver], Run]) -> None:
        self._control = control
        self._store = control.store
        self._handle = run_of

    def queued(self, *, withheld: bool = False) -> list[QueuedExecution]:
        """Return the executions that wait or run in queues, sorted by queue and then in the order in which they start.

        With `withheld`, return instead the executions that workers skip, because a person has paused them or they were
        interrupted too often. `resume` continues such an execution.
        """
        return self._store.queued(withheld=withheld)

    def workers(self) -> list[WorkerRecord]:
        """Return the running workers, with the queues and workflows that each can run."""
        return self._store.workers()

    def recover(self, run: Run | str) -> Run:
        """Resume an execution whose process died. Recoveries are counted if the process may have been working on the
        execution. After several recoveries without progress, a person must resume the execution; see
        `divebook.runtime.queueing`.

        If the parent of the execution has ended, the execution is cancelled instead, together with its child
        executions, and makes no calls. An execution that has ended is returned unchanged.

        Raises
        ------
        NeedsPersonError
            The execution was resumed automatically several times, and was interrupted each time before it made
            progress.
        ExecutionError
            The execution was interrupted without progress, and the pause before the next attempt has not ended yet.

        Examples
        --------
        ::

            for record in environment.queues.recoverable():
                environment.queues.recover(record.execution_id)
        """
        execution_id = id_of(run, "run")
        driver = self._control.find(execution_id)
        # Before the attempt is counted: an execution that ends here was not resumed.
        if self._control.cancel_with_parent(driver) or driver.state.is_over:
            return self._handle(driver)  # it has ended, or ends, perhaps with an execution above it
        try:
            return self._handle(self._control.continue_run(execution_id, is_recovery=True))
        except ExecutionError:
            # It may have been cancelled in the meantime, for example with an execution above it.
            if not driver.refresh().state.is_over:
                raise
            return self._handle(driver)

    def recoverable(self) -> list[ExecutionRecord]:
        """Return the executions that can continue and that no running process drives, newest first.

        A waiting execution can continue when its timer is due, when it has received a message, or when its parent has
        ended.
        """
        return self._control.recoverable()


class WorkerOptions(TypedDict, total=False):
    """Options of `Environment.worker`, as for `divebook.queues.Worker`."""

    parallel: int
    schedules: Definitions | Iterable[ScheduleDefinition] | None
    name: str | None


class EnvironmentSchedules(Sequence[ScheduleDefinition]):
    """Schedules of an environment. A worker that was created with these schedules enqueues each scheduled workflow when
    it is due.
    """

    def __init__(self, registry: Registry, create: Callable[..., Run]) -> None:
        self._registry = registry
        self._create = create

    @overload
    def __getitem__(self, index: int) -> ScheduleDefinition: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ScheduleDefinition]: ...
    def __getitem__(self, index: int | slice) -> ScheduleDefinition | Sequence[ScheduleDefinition]:
        return self._registry.schedules[index]

    def __len__(self) -> int:
        return len(self._registry.schedules)

    def __repr__(self) -> str:
        return f"<{plural(len(self), 'schedule')}>"

    def add(self, schedule: ScheduleDefinition, *, replace: bool = False) -> None:
        """Add a schedule. If the name is already used, an error is raised unless `replace` is set."""
        self._registry.add_schedule(schedule, replace=replace)

    def fire(self, trigger: str, inputs: Mapping[str, Any] | None = None) -> list[Run]:
        """Create one pending execution of each workflow that lists this trigger. The executions are not started; the
        caller must call their `start`.
        """
        require(trigger, "the trigger", "its name as a string", fits=isinstance(trigger, str))
        workflows = tuple(self._registry.registered_workflows.values())
        subscribed = [workflow for workflow in workflows if trigger in {entry.name for entry in workflow.triggers}]
        if not subscribed:
            triggers = {entry.name for workflow in workflows for entry in workflow.triggers}
            raise NotFoundError("trigger", trigger, triggers)
        return [self._create(workflow, inputs) for workflow in subscribed]


class EnvironmentDefinitions:
    """Definitions of an environment, by name. `Environment.define` and the ``add_`` methods of `Environment` add them.

    The mappings are copies. If a name is missing, the error lists the existing names and the call that adds a
    definition.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @property
    def workflows(self) -> dict[str, Workflow]:
        """Workflows by name: those registered with ``@workflow`` in this process, and those of this environment. If two
        workflows have the same name, the workflow of this environment is used.
        """
        return NamedObjects("workflow", self._registry.workflows, "environment.add_workflow(...) adds one")

    @property
    def agents(self) -> dict[str, Agent]:
        """Agents by name, in the order in which they were added."""
        return NamedObjects("agent", self._registry.agents, "environment.add_agent(...) adds one")

    @property
    def actions(self) -> dict[str, Action]:
        """Actions that steps can call: built-in actions, functions decorated with ``@action``, and actions added to the
        environment. If actions from several of these sources have the same name, the last source in this list is used.
        """
        return NamedObjects("action", self._registry.actions, "environment.add_action(...) adds one")

    @property
    def tools(self) -> dict[str, ToolFunction]:
        """Tools by name: functions decorated with ``@tool``, and tools added to the environment. If two tools have the
        same name, the tool of the environment is used.

        Built-in tools are not included. They are created for each agent that names them: see `divebook.tools.builtin`.
        """
        return NamedObjects("tool", self._registry.tools, "environment.add_tool(...) adds one")

    def mcp_tools(self) -> dict[str, ToolFunction]:
        """Return the tools of all MCP servers of the environment, by ``server/tool``. Servers that are not running are
        started.

        Each tool can be passed to an agent, whose approval rules then apply: ``Agent("a",
        tools=[tools["files/read"]])``.

        Raises
        ------
        ServerError
            A server cannot be reached.
        """
        return self._registry.mcp_tools()

    @property
    def workspaces(self) -> dict[str, WorkspaceDefinition]:
        """Definitions of workspaces by name."""
        return NamedObjects("workspace", self._registry.workspaces, "environment.add_workspace(...) adds one")

    @property
    def documents(self) -> DocumentRepository:
        """The documents that actions, prompts and tools of agents read and write."""
        return self._registry.documents

    def __repr__(self) -> str:
        return f"<{plural(len(self.workflows), 'workflow')}, {plural(len(self.agents), 'agent')}>"


class StandingRules(Sequence[tuple[str | None, StandingRule]]):
    """Approval rules that people created while approving calls, and that were valid when they were read.

    The items are pairs of execution id and rule. Rules for a single run come first. Rules for all executions have None
    in place of the id.
    """

    def __init__(
        self, rules: Sequence[tuple[str | None, StandingRule]], policy: EnvironmentApprovalPolicy, control: Control
    ) -> None:
        self._rules = tuple(rules)
        self._policy = policy
        self._control = control

    @overload
    def __getitem__(self, index: int) -> tuple[str | None, StandingRule]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str | None, StandingRule]]: ...
    def __getitem__(
        self, index: int | slice
    ) -> tuple[str | None, StandingRule] | Sequence[tuple[str | None, StandingRule]]:
        return self._rules[index]

    def __len__(self) -> int:
        return len(self._rules)

    def __repr__(self) -> str:
        return f"<{plural(len(self), 'rule')}>"

    def revoke(self, rule_id: str, by: str | None = None) -> None:
        """Revoke one of these rules. All later calls are checked without the rule.

        Parameters
        ----------
        by
            Name of the person who revokes the rule; by default the user of this process.

        Raises
        ------
        NotFoundError
            No valid rule has this id. A rule for a single run ends with the run.
        """
        runs = [execution_id for execution_id, rule in self._rules if rule.rule_id == rule_id]
        if not runs:
            raise NotFoundError("rule", rule_id, [rule.rule_id for _, rule in self._rules])
        for execution_id in runs:
            if execution_id is None:
                self._policy.revoke(rule_id, by or this_person())
            else:
                self._control.answering.revoke(execution_id, rule_id, by)


@suggest_in_methods
@suggest_arguments
class Environment:
    """Container of workflows, agents, actions and documents that uses one store.

    An environment is composed of a registry (`divebook.environments.registry`: definitions by name, and their checks),
    settings, a starter of executions, variants of executions (`divebook.environments.variants`), and the control of the
    executions of the store (`divebook.runtime.manager`).

    Parameters
    ----------
    name
        Name of the environment, shown to people.
    store
        Store of the events: a store object, an object that implements `divebook.stores.backend.SimpleStore`, or a path
        or URL for `open_store`. The default is the file ``.divebook/executions.db``.
    agents, workflows, actions, tools, servers, workspaces
        Initial definitions. Each name may occur once.
    documents, documents_dir
        Repository of the documents that actions read and write, or the path of a folder with documents; by default the
        current folder.
    printer
        Function that receives the output of the ``Print`` action and of scripts.
    durability
        Durability of the logs: with ``full``, every event survives a power failure; ``relaxed`` is several times
        faster, but a power failure may lose the latest events. The default is the value in the definitions, or else
        that of the store.
    notify
        Notification of every new question: a function that is called with the question, a command that reads the
        question as JSON, or addresses for Apprise (``pip install 'divebook[notify]'``). The default is the value of
        ``DIVEBOOK_NOTIFY``. See `divebook.environments.settings`.
    clock, chance
        Sources of time and of random bits. Tests can replace them.
    executor
        Executor of the functions of actions and ``@step`` that do not name an executor: ``"thread"`` (the default),
        ``"process"`` (one process for each processor), a name in `executors`, a `concurrent.futures.Executor`, a
        function that creates an executor, or a Dask client, cluster or address. Coroutine functions always run on the
        event loop, and actions with a parameter ``context`` always run in threads.
    executors
        Executors by name. Functions and steps refer to them by these names. The caller closes them.
    approvals
        Approval rules for tool calls; see `divebook.definitions.ApprovalRule`.
    formatter
        Object that is called with the progress of executions, step by step; see `divebook.environments.Formatter`.
    codec
        Codec that encrypts values before the store writes them. It applies to all users of the store in this process.
        The default is a `divebook.stores.codec.FernetCodec` with the keys in the environment variable ``DIVEBOOK_KEY``,
        or no encryption if the variable is not set.
    policy
        Permissions of definitions, in addition to access to their folder and the public internet. The default is the
        value of the environment variable ``DIVEBOOK_ALLOW``. See `divebook.documents.policy`.
    telemetry
        Reports of executions to OpenTelemetry (``pip install 'divebook[otel]'``): True, the address of a collector, or
        a `divebook.telemetry.Telemetry`. The default is the value of the environment variable ``DIVEBOOK_TELEMETRY``,
        such as ``1``.

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
        store: EventStore | SimpleStore | str | Path | None = None,
        agents: Iterable[AnyAgent] = (),
        workflows: Iterable[Workflow] = (),
        actions: Iterable[Action | Callable[..., Any]] = (),
        tools: Iterable[ToolFunction | Callable[..., Any]] = (),
        servers: Iterable[MCPServerDefinition] = (),
        workspaces: Iterable[WorkspaceDefinition] = (),
        documents: DocumentRepository | None = None,
        documents_dir: str | os.PathLike[str] | None = None,
        printer: Printer = print,
        durability: str | None = None,
        notify: Hook | Sequence[str] | str | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        interpreter: Interpreter | None = None,
        executor: object = None,
        executors: Mapping[str, object] | None = None,
        approvals: Iterable[ApprovalRule | Mapping[str, Any]] = (),
        formatter: Formatter | None = None,
        policy: Policy | None = None,
        codec: Codec | None = None,
        telemetry: TelemetrySetting | None = None,
    ) -> None:
        if not name:
            raise SetupError("environment name is required")
        # First, while `locals()` has nothing but the arguments.
        _require_types(locals())
        if documents is not None and documents_dir is not None:
            raise SetupError("documents dir and repo cannot both be set: a repository has its own folder")
        # All objects are checked before a store is opened, so that a refused environment leaves no file.
        registered_actions = [action_of(each) for each in list_of(actions, "actions", "actions=[shout]")]
        all_agents = [agent_of(each) for each in list_of(agents, "agents", "agents=[...]")]
        all_tools = [tool_of(each) for each in list_of(tools, "tools", "tools=[...]")]
        all_workflows = [require_workflow(each) for each in list_of(workflows, "workflows", "workflows=[...]")]
        all_servers = [require_server(each) for each in list_of(servers, "servers", "servers=[...]")]
        all_workspaces = [require_workspace(each) for each in list_of(workspaces, "workspaces", "workspaces=[...]")]
        self._executors = Executors(executor, executors)
        self.name = name
        self.description = ""
        repository = documents if documents_dir is None else FileDocuments(documents_dir)
        durability_of_logs = durability_called(durability)
        settings = Settings(repository, interpreter, policy, durability_of_logs, notify, formatter, codec, telemetry)
        # A store that was passed in belongs to the caller, and `close` leaves it open.
        self._has_opened_store = store is None or isinstance(store, str | Path)
        self.store = open_store(store) if store is None or isinstance(store, str | Path) else as_store(store)
        self._is_closed = False
        # Called when the environment is closed, the last one first.
        self._closers: list[Callable[[], object]] = []
        # End the subscriptions of the present settings. `_apply` replaces them.
        self._unsubscribers: list[Callable[[], object]] = []
        self._printer = printer
        self._clock = clock or SystemClock()
        self._chance = chance or SystemChance()
        self._surrounded_calls = CallTracing()
        durable_log = DurableLog(self.store, self._begin_log, self._clock)
        threads = ConversationStore(durable_log)
        self._registry = Registry(
            self.store, self._executors, registered_actions, approvals, threads=threads, clock=self._clock
        )
        self._policy = EnvironmentApprovalPolicy(self._registry.approvals_for, durable_log)
        self._reuse = ReuseInputs(
            self._registry.reads_only, self._clock, lambda name, log: Edits(self._registry, name, log).operations
        )
        # The control calls `_services` at once. The dictionary of handlers in it is filled later, by `_apply`.
        self._control = Control(
            self.store,
            self._services,
            self._registry.check,
            self._registry.code_of,
            clock=self._clock,
            chance=self._chance,
        )
        self._variants = Variants(
            self._registry,
            self._control,
            self._durability,
            self._reuse,
            self._services,
            run_of=self._handle,
            start=self.start,
        )
        self._starter = Starter(self._registry, self._control, self._durability, self._variants.forked_child)
        self.internals = Internals(
            self._registry, self._control, self._variants, self._beside, self._take_in, self._on_close
        )
        """Parts of the environment for other packages of divebook. They are not part of the public API."""
        self._queues = Queues(self._control, self._handle)
        self._schedules = EnvironmentSchedules(self._registry, self.create)
        # After registry, control and starter, which the step handlers use.
        self._apply(settings)
        _add_stages(self)
        # Each environment adds the stages of pipelines itself, so `_take_in` must not copy those of another one.
        self._registry.custom_step_types.clear()
        CLIENTS.join(self)
        _USERS.setdefault(self.store, weakref.WeakSet()).add(self)
        for agent in all_agents:
            self.add_agent(agent)
        for tool in all_tools:
            self.add_tool(tool)
        for workflow in all_workflows:
            self.add_workflow(workflow)
        for server in all_servers:
            self.add_server(server)
        for workspace in all_workspaces:
            self.add_workspace(workspace)

    def _apply(self, settings: Settings) -> None:
        """Replace the settings of this environment. The old listeners no longer receive the events of the store, and
        the new listeners do.
        """
        self._settings = settings
        # The old listeners leave first, so that a formatter that stays gets no event twice.
        for unsubscribe in self._unsubscribers:
            unsubscribe()
        self._unsubscribers = settings.listen_to(self.store, self._surrounded_calls)
        if settings.codec is not None:
            self.store.sealing.codec = settings.codec
        # The built-in actions and handlers below get the documents and the policy that are set here.
        self._registry.reach(settings.documents or FileDocuments("."), settings.policy or Policy.given())
        actions = built_in_actions(self._registry.documents, self._printer, lambda: to_datetime(self._clock.now()))
        interpreter = settings.interpreter or default_interpreter()
        handlers = built_in_handlers(
            self._registry.agent_or_default,
            self._registry.action,
            ContentBuilder(interpreter, self._registry.documents, self._printer, self._registry.policy),
            ScriptStep(interpreter, self._registry.documents, self._printer),
            drive_child=self._starter.drive_child,
            begin_successor=self._starter.begin_successor,
            services=self._registry,
        )
        self._registry.set_built_ins({**actions, **WORKSPACE_ACTIONS}, handlers)

    def _services(self, control: Control) -> Services:
        """Return the services (workspaces, executors, step handlers, ...) that drivers need to run the steps of
        executions. `control` is the object that manages these drivers.
        """
        # The store of the control, not of the environment: a rehearsal has a store of its own.
        workspaces = EnvironmentWorkspaces(self._registry, control.store)
        self._on_close(workspaces.close)
        return Services(
            self._registry.handlers,
            condition_holds,
            items_of,
            filled,
            control.inbox,
            control.claim_expired,
            control.texts,
            self._executors,
            self._policy,
            self._registry.as_written,
            workspaces,
            self._surrounded_calls,
            functools.partial(answers_for, control.store, self._reuse),
        )

    def _begin_log(self, key: str) -> str:
        return self._starter.begin_log(key)  # the starter is created later than the log

    def _durability(self, durability: str | None) -> Durability | None:
        """Return the durability (how soon events reach the disk) of a new execution: the given one, else that of the
        settings; None if the store decides.
        """
        return durability_called(durability or self._settings.durability or self._registry.config.durability or None)

    def _handle(self, driver: Driver) -> Run:
        return Run(self, driver)

    def _beside(self, store: EventStore) -> Environment:
        """Return a new environment that uses another store, and has the definitions and settings of this
        environment.
        """
        require_protocol(store, EventStore, "store")
        # Without definitions, since `_take_in` adds all of them together with the settings.
        environment = Environment(self.name, store=store)
        environment._take_in(self)
        return environment

    def _take_in(self, other: Self) -> None:
        """Add the definitions and settings of another environment to this one. Where both define the same name, the
        definition of the other environment is used.

        Store, printer, clock and chance do not change.
        """
        require(other, "the environment to merge", "another Environment", fits=isinstance(other, Environment))
        settings = self._settings.plus(other._settings)
        # Applying equal settings would replace the step handlers and listeners for nothing.
        if settings != self._settings:
            self._apply(settings)
        self._registry.merge_from(other._registry)
        self.name = other.name
        self.description = other.description or self.description
        self._executors.merge_from(other._executors)

    # --- closing ---------------------------------------------------------------------------------------------------

    def _on_close(self, closer: Closer) -> None:
        """Register a function to be called when this environment is closed. The function that was registered last is
        called first.
        """
        require_protocol(closer, Closer, "closer")
        self._closers.append(closer)

    def close(self) -> None:
        """Close everything that this environment has opened, such as executors, MCP servers and its own store. A second
        call has no effect.

        Executions that this environment still drives keep their state and can be resumed elsewhere. To let an execution
        end first, call its `Run.wait` before. A store that was passed in, or that another environment uses, stays open.
        """
        if ENGINE.is_current():
            raise ExecutionError(
                "close() was called on the engine's own thread, where it would never return; call it in another thread"
            )
        if self._is_closed:
            return
        self._is_closed = True
        # Executions first: until they are left, they use executors, servers and model clients.
        self._control.close()
        self._executors.close()
        if self._registry.servers:
            interruptible_result(ENGINE.call(lambda: ENGINE.promise(self._registry.servers.close())))
        self._registry.library_cache.clear()
        interruptible_result(ENGINE.call(lambda: ENGINE.promise(CLIENTS.leave(self))))
        for closer in (*reversed(self._closers), *self._unsubscribers):
            closer()
        users = _USERS[self.store]
        users.discard(self)
        # The last environment of a store closes it, unless the store was passed in.
        if self._has_opened_store and not users:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # `close` waits for the engine, and must not block the event loop of the caller.
        await asyncio.to_thread(self.close)

    if not TYPE_CHECKING:  # a type checker would accept any name otherwise

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name, REMOVED)

    def __repr__(self) -> str:
        agents = len(self._registry.agents)
        workflows = len(self._registry.registered_workflows)
        return f"<Environment {self.name!r}: {agents} agents, {workflows} workflows>"

    # --- definitions -----------------------------------------------------------------------------------------------

    def define(self, definitions: Definitions) -> None:
        """Add all definitions that were read from a string, file or folder. A new definition replaces an older
        definition with the same name.

        Adding two strings one after the other has the same effect as adding a folder that contains both: the settings
        of the second string also apply to the agents of the first. An agent that a step names need not exist until an
        execution starts, so cells can run in any order.
        """
        self._registry.define(definitions)
        self.name = definitions.name or self.name
        self.description = definitions.description or self.description

    def add_agent(self, agent: AnyAgent, *, replace: bool = False) -> None:
        """Add an agent of divebook or pydantic-ai. If the name is already used, an error is raised unless `replace` is
        set.
        """
        self._registry.add_agent(agent, replace=replace)

    def add_workflow(self, workflow: Workflow, *, replace: bool = False) -> None:
        """Add a workflow. Executions that are already running keep the workflow with which they started."""
        self._registry.add_workflow(workflow, replace=replace)

    def add_action(self, action: Action | Callable[..., Any], *, replace: bool = False) -> None:
        """Add an action. It replaces a built-in action with the same name. If an action with this name was added
        before, an error is raised unless `replace` is set.
        """
        self._registry.add_action(action_of(action), replace=replace)

    def add_step_type(self, name: str, handler: Handler, check: Callable[[Workflow], None] | None = None) -> None:
        """Set the handler for all steps of a type. A previous handler for the type is replaced.

        Parameters
        ----------
        name
            Name of the step type, one of `divebook.definitions.step.STEP_TYPES`.
        handler
            Coroutine function from a `StepContext` to an `Outcome`.
        check
            Function that checks a workflow with such steps before anything is recorded. It raises an error if something
            that the workflow needs does not exist.
        """
        self._registry.add_step_type(name, handler, check)

    def add_executor(self, name: str, executor: object, *, replace: bool = False) -> None:
        """Add an executor (a place where functions run, such as a process pool) under a name. Functions and steps refer
        to it as ``Executor: name``. The caller closes it.
        """
        self._executors.add(name, executor, replace=replace)

    @property
    def definitions(self) -> EnvironmentDefinitions:
        """Definitions of this environment: workflows, agents, actions, tools, workspaces and documents, by name."""
        return EnvironmentDefinitions(self._registry)

    @property
    def queues(self) -> Queues:
        """Queues of the environment: the executions in them, the workers, and executions whose process died."""
        return self._queues

    @property
    def schedules(self) -> EnvironmentSchedules:
        """Schedules of the environment. A worker that was created with these schedules enqueues each scheduled workflow
        when it is due.
        """
        return self._schedules

    # --- tools of agents, and permissions --------------------------------------------------------------------------

    def add_tool(self, tool: ToolFunction | Callable[..., Any], *, replace: bool = False) -> None:
        """Add a tool. If the name is already used, an error is raised unless `replace` is set."""
        self._registry.add_tool(tool, replace=replace)

    def add_server(self, server: MCPServerDefinition, *, replace: bool = False) -> None:
        """Add an MCP server. If the name is already used, an error is raised unless `replace` is set.

        The server starts when an agent first needs it, and stops when the environment is closed.
        """
        self._registry.add_server(server, replace=replace)

    def add_workspace(self, workspace: WorkspaceDefinition, *, replace: bool = False) -> None:
        """Add a workspace. If the name is already used, an error is raised unless `replace` is set."""
        self._registry.add_workspace(workspace, replace=replace)

    # --- starting executions ---------------------------------------------------------------------------------------

    @overload
    def start(
        self,
        workflow: WorkflowFunction[..., R],
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run[R]: ...
    @overload
    def start(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run: ...
    def start(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run:
        """Start an execution, and return as soon as its first event is stored. This is the same as `create` followed by
        `Run.start`. In a coroutine, this method returns at once, and `Run.ensure_stored` waits until the event is
        stored.

        With a `key`, the execution is started only once. A second start with the same key, from any process, returns
        the existing execution in its current state. If the existing execution was started with other inputs, a
        `StartKeyWarning` names the difference; `on_conflict` can turn this warning into an error or switch it off. If
        the existing execution is one of another workflow, `StartKeyTakenError` is raised.

        ``environment.start(workflow, inputs, key=key).resume().wait()`` works whatever the state of the execution is.
        If no execution has the key, a new one starts. If the execution is running or waiting, in any process, the call
        waits for it. If it has completed, it is returned. If it was interrupted or cancelled, or has failed, it
        continues. Without `Run.resume`, `Run.wait` raises `ExecutionError` for an interrupted execution.

        `divebook.environments.starts.StartOptions` lists the options.
        """
        execution = self.create(workflow, inputs, **options)
        try:
            return execution.start()
        except StartKeyTakenError as conflict:
            return self._existing(conflict, execution, options.get("on_conflict", WARN))

    @overload
    def run(
        self,
        workflow: WorkflowFunction[..., R],
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run[R]: ...
    @overload
    def run(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run: ...
    def run(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run:
        """Start an execution as `start` does, wait until it has ended or needs a person, and return it."""
        return self.start(workflow, inputs, **options).wait()

    @overload
    def create(
        self,
        workflow: WorkflowFunction[..., R],
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run[R]: ...
    @overload
    def create(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run: ...
    def create(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Run:
        """Return a pending execution. Nothing is recorded in the store before `Run.start` is called.

        Parameters
        ----------
        workflow
            A workflow, or the name of a workflow.
        inputs
            Input values by name, as plain data.
        options
            Bounds, identity, durability, start key, model, tags; see `divebook.environments.starts.StartOptions`. If
            another execution already has the start key, `StartKeyTakenError` is raised.

        Raises
        ------
        InputError, NotFoundError, DefinitionError, UnstorableValueError
            The workflow or its inputs are not valid. Nothing was recorded.
        """
        return self._handle(self._starter.create(workflow, inputs, options))

    @overload
    def enqueue(
        self,
        workflow: WorkflowFunction[..., R],
        inputs: Mapping[str, Any] | None = None,
        *,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        at: datetime | None = None,
        **options: Unpack[StartOptions],
    ) -> Run[R]: ...
    @overload
    def enqueue(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        *,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        at: datetime | None = None,
        **options: Unpack[StartOptions],
    ) -> Run: ...
    def enqueue(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        *,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        at: datetime | None = None,
        **options: Unpack[StartOptions],
    ) -> Run:
        """Put an execution into a queue, and return as soon as it is stored. A worker that reads the queue runs the
        execution.

        Until a worker starts it, the execution has the status ``enqueued``. In any process, `Run.wait` waits for the
        end of the execution, and answers and signals are delivered to its worker. `resume` runs the execution in this
        process instead.

        Parameters
        ----------
        inputs
            Input values by name, as plain data.
        queue
            Name of the queue. A queue need not be created first.
        priority
            Priority, an integer. Executions with a higher priority start first in their queue.
        at
            Earliest start time. A time without a zone is local time.
        options
            As for `Environment.start`. With a `key`, the execution is enqueued only once. A second call with the same
            key returns the existing execution in its current state. `on_conflict` determines the reaction if the
            existing execution has other inputs.

        Raises
        ------
        SetupError
            The queue, the priority or the time is not valid.
        StartKeyTakenError
            An execution of another workflow already has the key.
        """
        # Checked before the execution is created, so that an invalid queue leaves no pending execution.
        enqueued = enqueued_event(queue, priority, at)
        execution = self.create(workflow, inputs, **options)
        try:
            return self._handle(self._control.queues.enqueue(execution._driver, enqueued))  # noqa: SLF001 - it is ours
        except StartKeyTakenError as conflict:
            return self._existing(conflict, execution, options.get("on_conflict", WARN))

    def _existing(self, conflict: StartKeyTakenError, execution: Run, on_conflict: str) -> Run:
        """Return the execution that already uses the start key of `execution`. The store refused to start `execution`,
        because a start key belongs to one execution only.
        """
        opening = execution._driver.opening  # noqa: SLF001 - it is ours
        inputs = None if opening is None else opening.inputs
        return self.run_of(existing_execution(conflict, execution.workflow.name, self.store, inputs, on_conflict))

    # --- executions of the store -----------------------------------------------------------------------------------

    def run_of(self, run: Run | str) -> Run:
        """Return an execution of the store, running or ended, by its id. A unique prefix of the id is enough.

        The log is not read until it is needed, so the time of this call does not depend on the length of the log.
        """
        return self._handle(self._control.look_up(id_of(run, "run")))

    def runs(self, status: str | None = None, workflow: str | None = None, limit: int = 0, **filters: Any) -> list[Run]:
        """Return the executions of the store, newest first. A `limit` of 0 returns all.

        `status` is a value of `divebook.Run.status`. `filters` are those of `EventStore.records`: ``tag``, ``origin``,
        ``parent``, ``notebook``, ``cell``, ``key``. If you need only summary rows, use
        ``environment.store.records(...)``.
        """
        require_options(filters, _FILTERS, "runs cannot be filtered by")
        if not COUNT_OR_ZERO.fits(limit):
            raise SetupError(f"limit must be {COUNT_OR_ZERO}; 0 for all, not {describe(limit)}")
        records = records_with(self.store, status, workflow=workflow, limit=limit, **filters)
        return [self._handle(self._control.look_up(record.execution_id)) for record in records]

    def frames(
        self,
        where: Mapping[str, Any] | None = None,
        *,
        columns: Mapping[str, str] | None = None,
        limit: int = 0,
        **filters: Any,
    ) -> Frames:
        """Return the DataFrames of the executions of the store; see `divebook.frames` for the parameters."""
        from divebook.analysis.store import frames_of

        return frames_of(self.store, where, columns, limit, filters)

    def worker(self, queues: Sequence[str] = (DEFAULT_QUEUE,), **options: Unpack[WorkerOptions]) -> Worker:
        """Return a worker that runs the executions in the queues of this environment. Use it in a ``with`` statement:
        ``with environment.worker():``.

        `divebook.queues.Worker` lists the options.
        """
        from divebook.queues import Worker

        require_options(options, WorkerOptions.__annotations__, "a worker has no option")
        return Worker(self, queues, **options)

    # --- questions, rules and threads ------------------------------------------------------------------------------

    @overload
    def answer(
        self, question: Question | str, response: Any, run: Run | str | None = None, by: str | None = None
    ) -> Run: ...
    @overload
    def answer(
        self, question: Question | str, response: Any, *, alike: Literal[True], by: str | None = None
    ) -> list[Run]: ...
    def answer(
        self,
        question: Question | str,
        response: Any,
        run: Run | str | None = None,
        by: str | None = None,
        *,
        alike: bool = False,
    ) -> Run | list[Run]:
        """Answer a question. The execution that asked continues at once, in this process or in the process that drives
        it.

        If another process drives the execution, this method returns as soon as the answer is stored. If the execution
        ends afterwards without the answer, the caller gets no error. `Run.refresh` shows whether it has ended.

        Parameters
        ----------
        question
            A question, for example from `Run.open_questions`, or its id. If several executions have a question with
            this id, add the id of the execution: ``ask_...@exec_...``.
        response
            An answer for the kind of question: a string, or a value that fits its schema (clarification); True, False
            or ``"no: REASON"`` (confirmation); ``"approve"``, ``"reject"`` or ``"modify"`` (agent_review); a number,
            ``"raise"`` or ``"stop"`` (resource_exhausted); ``"retry"``, ``"fail"`` or ``{"choice": "done", "result":
            ...}`` (unknown outcome). The full form is ``{"text": ..., "approved": ..., "decision": ..., "data": ...}``.
            For example, ``{"approved": True, "data": {"parameters": {...}, "rule": {"scope": "always"}}}`` approves a
            call with changed parameters, and all similar later calls.
        run
            The execution that asks the question, or its id. Without it, all waiting executions are searched for the
            question.
        by
            Name of the person who answers; by default the user of this process.
        alike
            Give the same answer to all similar open questions of all executions, and return the executions that
            continue because of it. Questions are similar if the same step of the same workflow asks them and they have
            the same kind and form of answer. Questions about calls must also concern the same tool or action of the
            same agent. Changed arguments and rules in the answer apply only to the named question. Questions that were
            answered in the meantime do not change.

        Raises
        ------
        NotFoundError
            The question does not exist.
        InterruptError
            The question already has an answer, which the error shows, or has expired. Or the answer does not fit; the
            question then stays open. Or `alike` was used for a kind of question that cannot share one answer.
        AnswerKeptError
            The answer is stored, but the execution cannot continue in this process.
        ExecutionError
            The execution ended after the answer was stored, without reading the answer.
        """
        if alike:
            drivers = self._control.answering.answer_alike(question_id_of(question), response, by)
            return [self._handle(driver) for driver in drivers]
        asker = None if run is None else id_of(run, "run")
        return self._handle(self._control.answering.answer_question(question_id_of(question), response, asker, by))

    def inbox(self) -> list[tuple[str, Question]]:
        """Return all open questions as pairs of execution id and question, newest execution first."""
        return self._control.answering.questions()

    @property
    def rules(self) -> StandingRules:
        """The approval rules that people created while approving calls and that are valid now."""
        now = self._clock.now()
        permanent = self._policy.standing()
        rules = [*self._control.answering.rules(), *((None, rule) for rule in permanent)]
        # The log keeps expired rules, because it never changes.
        valid = [(name, rule) for name, rule in rules if rule.expires_us is None or now < rule.expires_us]
        return StandingRules(valid, self._policy, self._control)

    @property
    def threads(self) -> Mapping[str, Thread]:
        """Threads (conversations over several runs) by id. A thread exists as soon as it has messages."""
        return Threads(self._registry.threads, this_person())

    # --- files of executions ---------------------------------------------------------------------------------------

    def open(
        self, file: str | os.PathLike[str], *, keep: bool = False, rename: bool = False, as_fork: bool = False
    ) -> Run:
        """Load the run in an exported file (``run.html``, ``run.ipynb`` or ``run.jsonl``), and return the run.

        By default, the run is loaded into a store in memory, and the store of this environment does not change. A run
        that had not ended is loaded as a read-only snapshot, which cannot continue. There are two exceptions: a run
        that was exported as a move, and `as_fork`.

        The file may also be a message history of pydantic-ai, or a trace; see `divebook.agents.imports.read`.

        Parameters
        ----------
        keep
            Add the run to this store instead. Either the whole log is added, or nothing.
        rename
            Give the loaded run a new id.
        as_fork
            Load the run as a fork, which can continue.

        Raises
        ------
        StoreError, InvalidEventError
            The file cannot be read, is damaged, or contains no log. The error names the damaged part.
        """
        log = imports.read(as_path(file, "the file of a log"))
        # A new environment has the definitions of this one, so the run can be verified and varied like any other.
        environment = self if keep else self._beside(MemoryStore())
        execution_id = transfer.import_(log, environment.store, rename=rename, as_fork=as_fork)
        for caveat in transfer.caveats(log, as_fork=as_fork):
            _log.warning("execution %s from %s: %s", execution_id, file, caveat)
        return environment.run_of(execution_id)


def _add_stages(environment: Environment) -> None:
    from divebook.pipeline.stages import add_stages

    add_stages(environment)


def _require_types(arguments: Mapping[str, Any]) -> None:
    """Raise `SetupError` if a constructor argument of `Environment` has a value of the wrong type.

    First the arguments that are plain data, then those that are objects, then those that may be either. None means that
    the caller omitted the argument.
    """
    for name, (expected, fits) in _EXPECTED.items():
        value = arguments[name]
        require(value, name, expected, fits=value is None or fits(value))
    for name, (protocol, example) in _PROTOCOLS.items():
        if arguments[name] is not None:
            require_protocol(arguments[name], protocol, name, or_else=example)
    notify = arguments["notify"]
    if notify is not None and not isinstance(notify, str) and not is_list_of_strings(notify):
        require_protocol(notify, Hook, "notify", or_else="a command as a string or a list of strings, addresses")
    if arguments["telemetry"] is not None:
        checked_telemetry(arguments["telemetry"])
    store = arguments["store"]
    if isinstance(store, EventStore):
        require_protocol(store, EventStore, "store")
    elif store is not None and not isinstance(store, str | Path):
        require_protocol(store, SimpleStore, "store", or_else=_STORE, page="stores")
