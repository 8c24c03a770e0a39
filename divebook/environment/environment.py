"""The container of agents, workflows, actions and documents over one store; starts executions and finds past ones."""

from __future__ import annotations

import asyncio
import functools
import os
import weakref
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from divebook import extensions
from divebook.agents.clients import CLIENTS
from divebook.documents import DocumentRepository, FileDocuments, Policy
from divebook.engine.bounds import within
from divebook.engine.state import ExecutionState
from divebook.environment.queues import Queueing
from divebook.environment.registry import Holdings
from divebook.environment.settings import (
    WARN,
    EnvironmentWorkspaces,
    GivenTelemetry,
    StartOptions,
    Surroundings,
    as_bounds,
    check_options,
    opening_of,
    started_before,
)
from divebook.environment.variants import Mending, Trials
from divebook.errors import ExecutionError, ExecutionNotFoundError, NotFoundError, SetupError, StartKeyTakenError
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.events.event import to_datetime
from divebook.events.recorded import opened
from divebook.interrupts import interruptible_result
from divebook.projections.formatter import Formatter
from divebook.replay.rehearsal import answers_for
from divebook.runtime.children import Child, Opened
from divebook.runtime.clock import Chance, Clock, SystemChance, SystemClock
from divebook.runtime.compute.dask import Executors
from divebook.runtime.execution import Execution
from divebook.runtime.loop import ENGINE
from divebook.runtime.manager import Control
from divebook.runtime.notify import Hook
from divebook.runtime.recorder import CallTracing
from divebook.runtime.step import Services
from divebook.scripting import Interpreter, default_interpreter
from divebook.steps.action import WORKSPACE_ACTIONS, ScriptStep, condition_holds, filled, items_of
from divebook.steps.actions import Action, action_of, built_in_actions
from divebook.steps.call import EnvironmentApprovals
from divebook.steps.conversations import BOOK_WORKFLOW, ConversationStore, DurableLog
from divebook.steps.function import roots_of
from divebook.steps.handlers import built_in_handlers
from divebook.steps.prompt import ContentBuilder
from divebook.store import EventStore, open_store
from divebook.store.append import Durability, durability_called
from divebook.store.codec import Codec
from divebook.text.arguments import has_methods, is_list_of_strings, list_of, require
from divebook.workflow.code import code_of
from divebook.workflow.definition import Definitions, Workflow, require_name
from divebook.workflow.functions import bind_inputs
from divebook.workflow.servers import ApprovalRule, MCPServerDefinition, WorkspaceDefinition
from divebook.workflow.tools import ToolFunction

_USERS: weakref.WeakKeyDictionary[EventStore, weakref.WeakSet[Environment]] = weakref.WeakKeyDictionary()
"""The open environments over each store: `open_store` shares files."""


_STORE = "a path, a URL, or an instance of a subclass of divebook.store.EventStore"
_EXPECTED: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a string", lambda given: isinstance(given, str)),
    "store": (_STORE, lambda given: isinstance(given, EventStore | str | Path)),
    "documents": (
        "a DocumentRepository, such as FileDocuments('texts') or MemoryDocuments()",
        lambda given: isinstance(given, DocumentRepository),
    ),
    "documents_dir": ("the path of a folder", lambda given: isinstance(given, str | os.PathLike)),
    "printer": ("a function that takes a string", callable),
    "durability": ("'full' or 'relaxed'", lambda given: isinstance(given, str)),
    "notify": (
        "a function, a command as a string or a list of strings, or addresses",
        lambda given: callable(given) or isinstance(given, str) or is_list_of_strings(given),
    ),
    "clock": ("an object with now() and sleep(seconds)", lambda given: has_methods(given, "now", "sleep")),
    "chance": ("an object with bits(count)", lambda given: has_methods(given, "bits")),
    "interpreter": ("a divebook.scripting.Interpreter", lambda given: isinstance(given, Interpreter)),
    "executors": ("a mapping of names to executors", lambda given: isinstance(given, Mapping)),
    "formatter": (
        "an instance of a subclass of divebook.Formatter",
        lambda given: isinstance(given, Formatter),
    ),
    "policy": ("a divebook.Policy, such as Policy('files')", lambda given: isinstance(given, Policy)),
    "codec": ("an object with encrypt(data) and decrypt(data)", lambda given: has_methods(given, "encrypt", "decrypt")),
}
"""By argument of `Environment` what fits, in words and as a condition."""


def _require_settings(given: Mapping[str, Any]) -> None:
    for name, (expected, fits) in _EXPECTED.items():
        value = given[name]
        require(value, name, expected, fits=value is None or fits(value))


class Environment(Holdings, Mending, Trials, Queueing):
    """Agents, workflows, actions and documents over one store.

    Parameters
    ----------
    name
        Shown to people.
    store
        Where events rest: a store, or a place for `open_store`; by default ``.divebook/executions.db``.
    agents, workflows, actions, tools, servers, workspaces
        What it begins with; names must not repeat.
    documents, documents_dir
        What document actions read and write, or a folder of it; by default the current one.
    printer
        Takes what the ``Print`` action and scripts print.
    durability
        How logs are written: ``full`` (every event survives a power failure) or ``relaxed`` (several times faster, may
        lose the latest events then); by default what the settings or else the store say.
    notify
        Told of every new question: a function, a command that reads JSON, or addresses for Apprise (``pip install
        'divebook[notify]'``); by default what ``DIVEBOOK_NOTIFY`` names. See `divebook.runtime.notify`.
    clock, chance
        Time and randomness; tests pass their own.
    executor
        Where functions of actions and ``@step`` run that do not say, coroutine functions excepted: ``"thread"`` (the
        default), ``"process"`` (one for each processor), a name of `executors`, a `concurrent.futures.Executor`, a
        function that makes one, or a Dask client, cluster or address. Actions that take a ``context`` run in threads.
    executors
        Executors by the names under which functions and steps may ask for them; who made them closes them.
    approvals
        Rules for calls of tools: see `divebook.ApprovalRule`.
    formatter
        Hears, step by step, what its executions do; see `divebook.Formatter`.
    codec
        Encrypts values before the store writes them, for all who use it here; by default
        `divebook.store.codec.FernetCodec` with the keys of the variable ``DIVEBOOK_KEY``, if it is set.
    policy
        What definitions may reach beyond their folder and the public internet; by default what the variable
        ``DIVEBOOK_ALLOW`` says. See `divebook.documents.policy`.
    telemetry
        Whether OpenTelemetry is told what its executions do (``pip install 'divebook[otel]'``), where (an address) or
        how: see `divebook.telemetry.Telemetry`; by default what the variable ``DIVEBOOK_TELEMETRY`` says (``1``).

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
        store: EventStore | str | Path | None = None,
        agents: Iterable[Any] = (),
        workflows: Iterable[Workflow] = (),
        actions: Iterable[Action] = (),
        tools: Iterable[ToolFunction | Callable[..., Any]] = (),
        servers: Iterable[MCPServerDefinition] = (),
        workspaces: Iterable[WorkspaceDefinition] = (),
        documents: DocumentRepository | None = None,
        documents_dir: str | os.PathLike[str] | None = None,
        printer: Callable[[str], None] = print,
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
        telemetry: GivenTelemetry | None = None,
    ) -> None:
        if not name:
            raise SetupError("environment name is required")
        _require_settings(locals())
        if documents is not None and documents_dir is not None:
            raise SetupError("documents dir and repo cannot both be set: a repository has its own folder")
        place = documents if documents_dir is None else FileDocuments(documents_dir)
        kept = durability_called(durability)
        self._has_opened = store is None or isinstance(store, str | Path)
        self.store = open_store(store) if store is None or isinstance(store, str | Path) else store
        self._closers: list[Callable[[], object]] = []
        self._listening: list[Callable[[], object]] = []
        self._is_closed, self._surrounded = False, CallTracing()
        self._printer, self._clock, self._chance = printer, clock or SystemClock(), chance or SystemChance()
        books = DurableLog(self.store, self._begin_book, self._clock)
        self._policy, self.threads = EnvironmentApprovals(self.approvals_for, books), ConversationStore(books)
        own = {made.name: made for made in map(action_of, list_of(actions, "actions", "actions=[shout]"))}
        super().__init__(name, own, approvals, self.store.sealing)
        self._settle(Surroundings(place, interpreter, policy, kept, notify, formatter, codec, telemetry))
        self._executors = Executors(executor, executors)
        self._control = Control(
            self.store, self._services, self._check, self.code_of, clock=self._clock, chance=self._chance
        )
        extensions.extension(extensions.STEP_TYPES)(self)
        self._step_types.clear()  # what comes with divebook is made for each environment
        CLIENTS.join(self)
        _USERS.setdefault(self.store, weakref.WeakSet()).add(self)
        for add, each, argument in (
            (self.add_agent, agents, "agents"),
            (self.add_tool, tools, "tools"),
            (self.add_workflow, workflows, "workflows"),
            (self.add_server, servers, "servers"),
            (self.add_workspace, workspaces, "workspaces"),
        ):
            for one in list_of(each, argument, f"{argument}=[...]"):
                add(one)

    def _settle(self, given: Surroundings) -> None:
        """Let what it is given hold here, in place of what held before."""
        self._given = given
        for stop in self._listening:
            stop()
        self._listening = given.listen_to(self.store, self._surrounded)
        if given.codec is not None:
            self.store.sealing.codec = given.codec
        self.reach(given.documents or FileDocuments("."), given.policy or Policy.given())
        self._actions = built_in_actions(self.documents, self._printer, lambda: to_datetime(self._clock.now()))
        self._actions |= WORKSPACE_ACTIONS
        interpreter = given.interpreter or default_interpreter()
        self._handlers |= built_in_handlers(
            self._agent_for,
            self.action,
            ContentBuilder(interpreter, self.documents, self._printer, self.policy),
            ScriptStep(interpreter, self.documents, self._printer),
            drive_child=self._drive_child,
            begin_successor=self._begin_successor,
            offers=self,
        )

    def _services(self, control: Control) -> Services:
        above = control.inbox, control.claim_expired, control.texts, self._executors, self._policy, self.as_written
        beyond = functools.partial(answers_for, control.store, self._grounds)
        self.on_close((lender := EnvironmentWorkspaces(self, control.store)).close)
        return Services(self._handlers, condition_holds, items_of, filled, *above, lender, self._surrounded, beyond)

    def add_executor(self, name: str, executor: object, *, replace: bool = False) -> None:
        """Let functions and steps name an executor (``Executor: name``); who made it closes it."""
        self._executors.add(name, executor, replace=replace)

    def take_in(self, other: Self) -> None:
        """Have what another environment has, and what it was given; what it has wins.

        Its store, printer, clock and chance stay where they are: those belong to who runs it.
        """
        require(other, "what an environment takes in", "another Environment", fits=isinstance(other, Environment))
        given = self._given.plus(other._given)
        if given != self._given:
            self._settle(given)
        super().take_in(other)
        self._executors.merge_from(other._executors)

    def _check(self, workflow: Workflow, ahead: Container[str] | None = None, to_begin: Iterable[str] = ()) -> None:
        super()._check(workflow, ahead, to_begin)
        for step in workflow.steps:
            if step.executor and (ahead is None or step.name in ahead):
                self._executors.named(step.executor)

    # --- closing ---------------------------------------------------------------------------------------------------

    def on_close(self, closer: Callable[[], object]) -> None:
        """Have something called when this environment is closed; the last one comes first."""
        self._closers.append(closer)

    def close(self) -> None:
        """Close what this environment has opened; calling it twice is the same as once.

        Executions that it still drives are left as they are and can be resumed elsewhere; `Execution.wait` for those
        that are to end. A store that it was given, or that another environment uses, stays open.
        """
        if ENGINE.is_current():
            raise ExecutionError("close() on the engine's own thread would wait for itself; call it in another thread")
        if self._is_closed:
            return
        self._is_closed = True
        self._control.close()
        self._executors.close()
        if self.servers:
            interruptible_result(ENGINE.call(lambda: ENGINE.promise(self.servers.close())))
        interruptible_result(ENGINE.call(lambda: ENGINE.promise(CLIENTS.leave(self))))
        for closer in (*reversed(self._closers), *self._listening):
            closer()
        users = _USERS[self.store]
        users.discard(self)
        if self._has_opened and not users:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    @classmethod
    def from_definitions(cls, definitions: Definitions, **settings: Any) -> Environment:
        """Make an environment of a whole definition, which must have a name; `settings` are those of the class."""
        (environment := cls(require_name(definitions), **settings)).define(definitions)
        return environment

    # --- executions ------------------------------------------------------------------------------------------------

    def stream_text(self, *, always: bool) -> None:
        """Let models stream `always`, not only while somebody listens; see `Execution.subscribe_text`.

        A listener that begins a moment after the start then gets a text from its beginning.
        """
        self._control.texts.always = always

    def start(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Execution:
        """Start an execution and return once it is in the store; `create` and `Execution.start` in one.

        With a `key` it is started once: a second start with that key, from whatever process, returns the execution that
        exists, as it stands, and raises `StartKeyTakenError` if that is one of another workflow. If that one was
        started with other inputs, a `StartKeyWarning` names the difference; `on_conflict` refuses that, or returns it
        silently.
        `divebook.environment.settings.StartOptions` lists the options.
        """
        created = self.create(workflow, inputs, **options)
        try:
            return created.start()
        except StartKeyTakenError as taken:
            return self._started_before(taken, created, options.get("on_conflict", WARN))

    def fire(self, trigger: str, inputs: Mapping[str, Any] | None = None) -> list[Execution]:
        """Create a pending execution of every workflow that lists a trigger of that name; start those you want."""
        require(trigger, "the trigger", "its name as a string", fits=isinstance(trigger, str))
        subscribed = [w for w in self._workflows.values() if trigger in {entry.name for entry in w.triggers}]
        if not subscribed:
            raise NotFoundError("trigger", trigger, {e.name for w in self._workflows.values() for e in w.triggers})
        return [self.create(workflow, inputs) for workflow in subscribed]

    def create(
        self,
        workflow: Workflow | str,
        inputs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> Execution:
        """Return a pending execution, of which nothing is recorded before it is started.

        Parameters
        ----------
        workflow
            A workflow or the name of one.
        inputs
            Plain data by name.
        options
            Bounds, identity, durability, start key, model, tags: see `divebook.environment.settings.StartOptions`.
            A key that another execution has raises `StartKeyTakenError`.

        Raises
        ------
        InputError, NotFoundError, DefinitionError, UnstorableValueError
            Before anything is recorded.
        """
        if not workflow or not isinstance(workflow, Workflow | str):
            known = f"name one of: {', '.join(self._workflows) or 'none is defined'}"
            raise SetupError(f"workflow is required, not {workflow!r}; {known}")
        check_options(options)
        self._check(found := self.workflow(workflow) if isinstance(workflow, str) else workflow)
        if isinstance(workflow, Workflow):
            self._code_workflows.add(workflow.fingerprint)
        options["model"] = self._model_called(found, options.get("model"), self.store) or self._stand_in_for(found)
        self._check_models(found, options["model"], self.store)
        bound = storable(bind_inputs(found, inputs or {}, coerce_text=options.get("coerce_text", False)), "inputs")
        opening = opening_of(found, bound, self.code_of(found), options)
        return self._handle(self._control.create(found, opening, self._kept(options.get("durability"))))

    def code_of(self, workflow: Workflow) -> dict[str, str]:
        """Return the digests of the Python functions that a workflow may call, by kind and name."""
        return code_of(roots_of(workflow, self.actions))

    def _kept(self, durability: str | None = None) -> Durability | None:
        return durability_called(durability or self._given.durability or self.config.durability or None)

    async def _drive_child(self, child: Child, *, again: bool) -> ExecutionState:
        """Run a workflow that another one asks for; see `WorkflowContext.run`."""
        opening = self._opening_of if child.like is None else self._fork_of
        return await self._control.drive_child(child, functools.partial(opening, child), again=again)

    def _fork_of(self, child: Child) -> Opened:
        try:
            return *self._forked_child(child), self._kept()
        except ExecutionNotFoundError:  # what it had done was deleted
            if child.like is None or child.like.tools not in catalog.GOING_ON:
                raise
            return self._opening_of(child)

    async def _begin_successor(self, asked: Child) -> str:
        """Start the execution as which another one goes on, once; see `WorkflowContext.continue_as_new`."""
        same = self.workflows.get(asked.workflow) or self.execution(asked.parent).workflow
        key = f"continues/{asked.parent}"
        asked = await self._control.remaining_bounds_for(asked)
        found, opening, durability = self._opening_of(asked, same, origin=catalog.RUN, key=key)
        driver = self._control.create(found, opening, durability)
        try:
            await self._control.begin_successor(driver, asked.parent)
        except StartKeyTakenError as taken:  # before the process that started it had recorded that
            return taken.execution_id
        return driver.id

    def _begin_book(self, key: str) -> str:
        """Start what a book is an execution of, once."""
        opening = opening_of(BOOK_WORKFLOW, {}, {}, {"key": key}, origin=catalog.BOOK)
        driver = self._control.create(BOOK_WORKFLOW, opening, self._kept())
        try:
            self._control.start(driver)
        except StartKeyTakenError as taken:
            return started_before(taken, BOOK_WORKFLOW.name, self.store)
        return driver.id

    def _opening_of(
        self, child: Child, known: Workflow | None = None, *, origin: str | None = None, key: str | None = None
    ) -> tuple[Workflow, catalog.ExecutionStarted, Durability | None]:
        found = known or self.workflow(child.workflow)
        self._check(found)
        self._check_models(found, child.model, self.store)
        bounds = within(as_bounds(found.bounds or {}), child.bounds)
        options: StartOptions = {"bounds": bounds, "model": child.model, "key": key}
        inputs = storable(bind_inputs(found, opened(child.inputs)), "inputs")
        opening = opening_of(found, inputs, self.code_of(found), options, parent=child.parent, origin=origin)
        return found, replace(opening, state=child.variables or None), self._kept()

    def beside(self, store: EventStore) -> Environment:  # noqa: D102 - as documented where it is promised
        require(store, "store", _STORE, fits=isinstance(store, EventStore))
        (beside := Environment(self.name, store=store)).take_in(self)
        return beside

    def __repr__(self) -> str:
        return f"<Environment {self.name!r}: {len(self._agents)} agents, {len(self._workflows)} workflows>"
