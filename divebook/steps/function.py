"""Function steps: a workflow function runs, and everything it asks for comes from the log if the log has it."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar, cast

from divebook.agents.turn import AgentTask, Answer
from divebook.engine.operations import VERSION_DECISION
from divebook.engine.state import ExecutionState
from divebook.errors import (
    ApprovalDeniedError,
    DefinitionError,
    NotFoundError,
    OperationError,
    Problem,
    StepError,
    UnstorableValueError,
)
from divebook.events import catalog
from divebook.events.codec import checked
from divebook.events.recorded import opened
from divebook.runtime.children import BeginSuccessor, DriveChild
from divebook.runtime.concurrency import CallCounter, ConcurrentCalls, Group, Suspended
from divebook.runtime.context import STRAND, StepContext
from divebook.runtime.errors import as_recorded
from divebook.runtime.step import THROUGH, Outcome
from divebook.runtime.waiting import seconds_of, workflow_code
from divebook.scripting import value_text
from divebook.steps.action import WORKSPACE_ACTIONS
from divebook.steps.actions import Action
from divebook.steps.call import call, named_workspace
from divebook.workflow.code import parts_of, reaching
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import CURRENT, FUNCTION, RESULT, WORKFLOW_FUNCTIONS, StepFunction
from divebook.workflow.json_schemas import instance_of, schema_of
from divebook.workspace.shell import ShellResult

# The tasks in which a workflow function awaits its calls: its own, those of `ctx.gather`, and others it made itself.
#
# A call gets its place where it is made. Calls that are made one after the other and awaited in tasks, as by
# ``asyncio.gather(double(1), double(2))``, therefore work; a call that is made inside such a task would get its place
# by speed, and is refused. (`tests/execution/test_own_tasks.py`)


ADVICE = (
    "is made in a task of its own, so that its place in the log would depend on speed; "
    "write `await ctx.gather(...)` in place of asyncio.gather, a task group or create_task"
)


class Tasks:
    """Counts the calls under way as strands, so that the function rests only when none has anything left to do.

    As a context manager it surrounds one call.
    """

    def __init__(self, strands: ConcurrentCalls) -> None:
        self._strands, self._loop = strands, asyncio.get_running_loop()
        self._placing = {asyncio.current_task()}
        """Tasks whose calls get their places in an order that is always the same."""
        self._gathered: set[asyncio.Task[object] | None] = set()
        """Those of `ctx.gather`, which are strands already."""
        self._others: set[asyncio.Task[object]] = set()
        self._under_way = CallCounter(strands)
        self._has_ended = False
        """Whether the function has returned or raised."""

    def require_place(self, what: str, name: str = "") -> None:
        """Raise StepError unless the present task may give a call its place."""
        try:
            has_place = asyncio.current_task() in self._placing
        except RuntimeError:  # there is no loop on this thread
            has_place = False
        if not has_place:
            raise StepError(f"{what}{name} {ADVICE}")

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Surround what a strand of `ctx.gather` awaits."""
        task = asyncio.current_task()
        self._placing.add(task)
        self._gathered.add(task)
        try:
            yield
        finally:
            self._placing.discard(task)
            self._gathered.discard(task)

    def _present(self) -> asyncio.Task[object] | None:
        return asyncio.current_task(self._loop)  # to name the loop takes a third of the time

    async def settle(self) -> None:
        """In a task of the function's own: let those that were made with it begin before anything is waited for."""
        task = self._present()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._others.add(task)
        await asyncio.sleep(0)

    def __enter__(self) -> bool:
        """Return whether the present task is one of the function's own making."""
        if self._has_ended:  # a task that was made and had not begun yet
            raise asyncio.CancelledError("the workflow function has ended")
        task = self._present()
        if task not in self._gathered:
            self._under_way.begin()
        if is_another := task not in self._placing:  # what the function does meanwhile is not known
            self._strands.forbid_parking()
        return is_another

    def __exit__(self, *_: object) -> None:
        if self._present() not in self._gathered:
            self._under_way.end()

    async def stop(self) -> None:
        """Cancel what the function began and did not wait for; its tasks make no further calls."""
        self._has_ended = True
        left = [task for task in self._others if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


# A workspace as a workflow function has it: each use is a recorded call, the same that steps and agents make.


CallInWorkspace = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Makes a call of an action of workspaces, by its name, with its parameters."""


class WorkspaceOfContext:
    """A workspace as a workflow function has it: its files, a shell, and what becomes of them.

    Examples
    --------
    ::

        app = ctx.workspace("app")
        tested = await app.shell("pytest -q", check=False)
        if tested.exit_code == 0:
            await app.apply()  # a person chooses among the changed files
    """

    def __init__(self, name: str, call: CallInWorkspace) -> None:
        self.name = name
        self._call = call

    async def shell(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it is of the command
        cwd: str | None = None,
        check: bool = True,
    ) -> ShellResult:
        """Run a command and return its exit code and what it printed.

        Parameters
        ----------
        timeout
            Seconds that it may take, by default as many as the workspace says.
        cwd
            The folder to run it in.
        check
            Whether a command that fails is an error (`OperationError`).
        """
        given = {"Command": command, "Timeout": timeout, "Cwd": cwd, "Check": check}
        told = await self._call("Workspace.Shell", {name: value for name, value in given.items() if value is not None})
        return ShellResult(told["exit_code"], told["stdout"], told["stderr"])

    async def read(self, path: str) -> str:
        """Return the text of a file."""
        return str(await self._call("Workspace.Read", {"Path": path}))

    async def write(self, path: str, content: str) -> None:
        """Write a file whole; folders are made."""
        await self._call("Workspace.Write", {"Path": path, "Content": content})

    async def list(self, path: str = ".") -> Sequence[str]:
        """Return the names in a folder."""
        found: Sequence[str] = await self._call("Workspace.List", {"Path": path})
        return found

    async def glob(self, pattern: str) -> Sequence[str]:
        """Return the paths that a pattern means, the newest first."""
        found: Sequence[str] = await self._call("Workspace.Glob", {"Pattern": pattern})
        return found

    async def delete(self, path: str) -> None:
        """Remove a file or an empty folder."""
        await self._call("Workspace.Delete", {"Path": path})

    async def apply(self, paths: Sequence[str] | None = None, *, ask: bool = True) -> Mapping[str, Sequence[str]]:
        """Take changed files over into the folder that this is a copy of; a person chooses among them.

        They are written as they were shown, whatever has become of them meanwhile.
        Returned are the paths that were ``written``, were ``there`` already, and were ``left`` as they are.
        Hidden files and version-control metadata (``.git``) are left, unless `paths` or the person names them.

        Parameters
        ----------
        paths
            Of which files; by default of all.
        ask
            Whether a person chooses.

        Raises
        ------
        OperationError
            The folder has something else than the changes began with; nothing was written.
        """
        given = {"Ask": ask} if paths is None else {"Ask": ask, "Paths": [*paths]}
        found: Mapping[str, Sequence[str]] = await self._call("Workspace.Apply", given)
        return found


RANDOM_BITS = 53


F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
T = TypeVar("T")
_MOST_REMEMBERED = 64
"""Calls that are remembered before those that were awaited are dropped."""


def _is_unawaited(call: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(call) == inspect.CORO_CREATED


def _awaited(method: F) -> F:
    """Let a method of the context remember its calls, so that one without its await is named."""

    @functools.wraps(method)
    def called(context: WorkflowContext, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        return context._promised(f"ctx.{method.__name__}()", method(context, *args, **kwargs))  # noqa: SLF001

    return cast("F", called)


AskAgent = Callable[[StepContext, str, AgentTask], Awaitable[Answer]]
"""Asks the agent of a name."""


@dataclass(frozen=True, slots=True)
class AgentOfContext:
    """An agent as a workflow function has it."""

    name: str
    _ask: Callable[[str, str, Any, Any, str | None], Coroutine[Any, Any, Any]]

    def run(
        self, prompt: str, *, output: Any = None, deps: Any = None, thread: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Return the agent's answer, to be awaited; each request to its model is recorded and counts in the bounds.

        Parameters
        ----------
        output
            What it is to answer with, in place of its own `output`: a pydantic model, a dataclass or another type,
            or a JSON schema. The answer then is such a value; else it is a text.
        deps
            What its tools and capabilities get as ``ctx.deps``, in place of its own.
        thread
            Id of a conversation that it goes on with, over several runs: see `Environment.thread`.

        Examples
        --------
        ::

            verdict = await ctx.agent("critic").run("Is this good?", output=Verdict)
            if verdict.score < 5: ...
        """
        return self._ask(self.name, prompt, output, deps, thread)


class WorkflowContext:
    """What a workflow function may ask for; its first parameter.

    Every question is answered once and then from the log, so that the function comes to the same whenever it runs
    again. Calls get their place in the order in which they are made, not in which they end. Clocks and races of asyncio
    are refused in the function's own code (`divebook.runtime.waiting`); recorded calls may use them.
    """

    def __init__(
        self, context: StepContext, drive_child: DriveChild, ask_agent: AskAgent, begin_successor: BeginSuccessor
    ) -> None:
        self._context = context
        self._drive_child = drive_child
        self._ask_agent = ask_agent
        self._begin_successor = begin_successor
        self._calls: dict[str, int] = {}
        self._made_calls: list[tuple[str, Coroutine[Any, Any, Any]]] = []
        self._failing: set[str] = set()  # gatherings that fail once it is known what is to be undone
        self.tasks = Tasks(context.strands())

    @property
    def execution_id(self) -> str:
        """The execution this is a run of."""
        return self._context.execution_id

    @_awaited
    async def now(self) -> datetime:
        """Return the time, UTC."""
        self.tasks.require_place("ctx.now()")
        return await self._context.now()

    @_awaited
    async def random(self) -> float:
        """Return a random number from 0 up to 1."""
        self.tasks.require_place("ctx.random()")
        return await self._context.random_bits(RANDOM_BITS, "float") / float(2**RANDOM_BITS)

    @_awaited
    async def sleep(self, seconds: float) -> None:
        """Let time pass; a restart waits only for what is left."""
        self.tasks.require_place("ctx.sleep()")
        await self._context.sleep(seconds_of(seconds, "ctx.sleep()"))

    @_awaited
    async def version(self, change_id: str, min_version: int, max_version: int) -> int:
        """Return which version of a piece of the function this execution follows, so that the function may change.

        A new execution gets `max_version`, and keeps it. One that had passed this place before the call was put here
        gets `min_version`.

        Raises
        ------
        StepError
            The recorded version is outside the range: the function no longer supports this execution.

        Examples
        --------
        ::

            if await ctx.version("check twice", 1, 2) >= 2:
                await check(order)
        """
        checked(catalog.VersionDecision(change_id, max_version, min_version, max_version))
        key = f"version-{change_id}"
        passed = self._context.record_of(key) is None and self._context.has_history_ahead()

        async def decide() -> int:
            return min_version if passed else max_version

        def noted(version: int) -> catalog.Payload:
            return catalog.VersionDecision(change_id, version, min_version, max_version)

        asked = {"change_id": change_id}
        decided = int(
            await self._context.operation(VERSION_DECISION, asked, decide, key=key, repeatable=True, noted=noted)
        )
        if not min_version <= decided <= max_version:
            raise StepError(
                f"this execution follows version {decided} of {change_id!r}, and the function supports "
                f"{min_version} to {max_version}; run it with the function it was started with"
            )
        return decided

    @_awaited
    async def interrupt(
        self,
        kind: str,
        question: str,
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
        answer: Any = None,
        expires_in: float | None = None,
        default: Any = None,
    ) -> dict[str, Any]:
        """Ask a person and return the answer in full form: ``text``, ``approved``, ``decision``, ``data``.

        The execution waits, and can be answered from any process. The function goes on where it stands if it is still
        in memory and its code was not changed; else it runs again, and every call before the question is answered from
        the log.

        Parameters
        ----------
        kind
            One of `divebook.questions.question.DEFINABLE`.
        message, data
            More than the question itself: a text, and plain data.
        answer
            What is asked for: a type, for example a pydantic model, or a JSON schema.
        expires_in, default
            Seconds after which the question can no longer be answered, and the answer that holds then.

        Raises
        ------
        InterruptExpiredError
            The question expired without an answer, and has no default.
        """
        self.tasks.require_place("a question")
        with self.tasks:
            answered = await self._context.interrupt(
                kind,
                question,
                message=message,
                data=data,
                schema=None if answer is None else schema_of(answer),
                expires_in=expires_in,
                default=default,
            )
        return dict(opened(answered.response or {}))

    @_awaited
    async def ask(self, question: str, answer: Any = None, **options: Any) -> Any:
        """Ask for a clarification; return the text, or an instance of the type `answer`. Options as in `interrupt`."""
        response = await self.interrupt("clarification", question, answer=answer, **options)
        return response.get("text") if answer is None else instance_of(answer, response.get("data"))

    @_awaited
    async def confirm(self, question: str, **options: Any) -> bool:
        """Ask whether to do something; only an approval gives True. Options as in `interrupt`."""
        return (await self.interrupt("confirmation", question, **options)).get("approved") is True

    @_awaited
    async def wait_signal(self, name: str, within: float | None = None) -> Any:
        """Wait for a signal and return its payload; each is taken once, in the order in which they came.

        Raises
        ------
        OperationError
            None came within so many seconds.
        """
        self.tasks.require_place("ctx.wait_signal()")
        within = None if within is None else seconds_of(within, "within of ctx.wait_signal()")
        with self.tasks:
            return opened(await self._context.signal(name, within))

    @_awaited
    async def gather(self, *calls: Awaitable[Any], return_exceptions: bool = False) -> list[Any]:
        """Await several calls side by side; return their results in order.

        The first failure cancels the others and is raised, unless with `return_exceptions` the errors stand among the
        results. A call that has to wait for an answer does not hold up the others. What is to be undone then comes to
        its end before that.
        """
        self.tasks.require_place("ctx.gather()")
        results: list[Any] = [None] * len(calls)
        suspended: list[Suspended] = []
        failed: list[Exception] = []
        gathering = self._next_key("gather")

        async def keep(strand: Callable[[], AbstractContextManager[None]], index: int, call: Awaitable[Any]) -> None:
            STRAND.set(f"{gathering}.{index}-")
            with strand(), self.tasks.gathering():
                try:
                    results[index] = await call
                except Suspended as stopped:
                    suspended.append(stopped)
                except Exception as error:
                    if not return_exceptions or isinstance(error, THROUGH):
                        if not self._context.has_unknown():
                            raise
                        failed.append(error)
                        self._failing.add(gathering)
                    results[index] = error

        group = Group()
        with self.tasks, self._context.strands().side_by_side(len(calls)) as strand:
            async with group.running():
                for index, call in enumerate(calls):
                    group.start(keep(strand, index, call))
        if failed and not self._context.has_unknown():
            raise failed[0]
        if suspended:
            raise suspended[0]
        return results

    @_awaited
    async def run(self, workflow: str, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run another workflow of the environment to its end as an execution of its own; return its outputs.

        It is started once. While it waits for an answer, so does this one; what it consumes counts in the bounds of
        this one as well.

        Raises
        ------
        OperationError
            It did not complete.
        """
        given = self._context.storable(dict(inputs or {}), "inputs")
        self.tasks.require_place("ctx.run()")
        with self.tasks:
            child = await self._context.child(workflow, given, self._drive_child, key=self._next_key())
        return dict(opened(child["outputs"]))

    @_awaited
    async def continue_as_new(
        self, inputs: Mapping[str, Any] | None = None, *, reason: str = "manual_request"
    ) -> NoReturn:
        """Let this execution end here and go on as a new one of the same workflow, with a fresh and short log.

        For workflows that run for ever: what a log holds is read and folded whenever it is resumed.

        Parameters
        ----------
        inputs
            What differs from the inputs of this execution; whatever the new one needs to know must be among them.
        reason
            Recorded, for people.

        Raises
        ------
        StepError
            Another execution waits for this one.

        Examples
        --------
        ::

            if handled == 1000:
                await ctx.continue_as_new({"since": last_seen})
        """
        self.tasks.require_place("ctx.continue_as_new()")
        given = self._context.storable({**self._context.inputs, **(inputs or {})}, "inputs")
        await self._context.go_on_as_new(given, reason, self._begin_successor)

    def agent(self, name: str) -> AgentOfContext:
        """Return an agent of the environment; ``await ctx.agent("critic").run("Is this good? ...")`` asks it."""

        def ask(*asked: Any) -> Coroutine[Any, Any, Any]:
            return self._promised("ctx.agent().run()", self._ask(*asked))

        return AgentOfContext(name, ask)

    async def _ask(self, name: str, prompt: str, output: Any, deps: Any, thread: str | None) -> Any:
        self.tasks.require_place("ctx.agent().run()")
        prefix = f"{self._next_key('agent')}/"
        asked = AgentTask(prompt, output=output, deps=deps, prefix=prefix, thread=thread)
        with self.tasks:
            answer = await self._ask_agent(self._context, name, asked)
        return opened(answer.value)

    def workspace(self, name: str | None = None) -> WorkspaceOfContext:
        """Return a workspace, by default that of the workflow: ``await ctx.workspace().shell("pytest -q")``.

        Raises
        ------
        StepError
            None is named.
        """
        found = named_workspace(self._context, "ctx.workspace()", name or "")
        return WorkspaceOfContext(found, functools.partial(self._work, found))

    async def _work(self, workspace: str, name: str, parameters: Mapping[str, Any]) -> Any:
        self.tasks.require_place("a call in a workspace")
        key = self._next_key()
        there = replace(WORKSPACE_ACTIONS[name], workspace=workspace)
        return await self._made(name, lambda: call(self._context, there, parameters, key), key)

    def emit(self, name: str, data: Any = None) -> None:
        """Record an event of the workflow's own, once; `Execution.subscribe`, frames and timelines have it."""
        self.tasks.require_place("ctx.emit()")
        self._context.emit(name, data, key=self._next_key("emit"))

    def call(self, step: StepFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        """Give a call of a step function its place; for ``@step``."""
        self.tasks.require_place("a call of ", step.name)
        return self._promised(f"step {step.name}()", self._call(step, args, kwargs, self._next_key()))

    def _promised(self, label: str, call: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Return a call, and remember it until it is awaited."""
        if len(self._made_calls) >= _MOST_REMEMBERED:
            self._made_calls = [made for made in self._made_calls if _is_unawaited(made[1])]
        self._made_calls.append((label, call))
        return call

    def unawaited(self) -> str | None:
        """Return the first call that was made and never awaited, and close all of them; None if there is none."""
        left = [(label, made) for label, made in self._made_calls if _is_unawaited(made)]
        for _, made in left:
            made.close()  # so that Python does not warn of it as well
        return left[0][0] if left else None

    def _next_key(self, kind: str = "call") -> str:
        """Return the name of the next call; each strand counts its own, so that their speed does not matter."""
        name = f"{STRAND.get()}{kind}-"
        number = self._calls[name] = self._calls.get(name, 0) + 1
        return f"{name}{number}"

    async def _call(self, step: StepFunction, args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> Any:
        try:
            arguments = step.named(args, kwargs)
        except TypeError as error:
            raise StepError(f"step {step.name}: {error}") from error
        return await self._made(step.name, lambda: call(self._context, step, arguments, key), key)

    async def _made(self, called: str, make: Callable[[], Awaitable[Any]], key: str) -> Any:
        if any(key.startswith(f"{failing}.") and self._context.record_of(key) is None for failing in self._failing):
            raise Suspended
        try:
            with self.tasks as is_in_another:
                if is_in_another:
                    await self.tasks.settle()
                result = await make()
        except ApprovalDeniedError:
            raise
        except OperationError as error:
            error.called = called
            raise
        except Exception as error:
            raise as_recorded(error) from error
        return opened(result)


class FunctionStep:
    """Carries out function steps."""

    def __init__(self, drive_child: DriveChild, ask_agent: AskAgent, begin_successor: BeginSuccessor) -> None:
        self._means = (drive_child, ask_agent, begin_successor)

    async def __call__(self, context: StepContext) -> Outcome:
        """Run the workflow function; what it returns is the step's value."""
        name = context.workflow.name
        if name not in WORKFLOW_FUNCTIONS:
            raise NotFoundError("workflow function", name, WORKFLOW_FUNCTIONS, missing_function(name))
        workflow_context = WorkflowContext(context, *self._means)
        token = CURRENT.set(workflow_context)
        try:
            with workflow_code():
                value = await WORKFLOW_FUNCTIONS[name].function(workflow_context, **opened(dict(context.inputs)))
            if (call := workflow_context.unawaited()) is not None:
                raise StepError(f"{call} was not awaited, so it was never made; write `await` before the call")
        except (TypeError, AttributeError, UnstorableValueError) as error:
            call = workflow_context.unawaited() if "coroutine" in str(error) else None
            if call is None:
                raise
            told = StepError(f"{call} was not awaited ({type(error).__name__}: {error}); write `await` before the call")
            raise told.with_traceback(error.__traceback__) from error
        finally:
            CURRENT.reset(token)
            workflow_context.unawaited()  # closes calls that a failure left behind, of which Python would warn
            await workflow_context.tasks.stop()
        kept = context.storable(value, RESULT)
        return Outcome(value_text(kept), kept)


def missing_function(name: str) -> str:
    """Return what to do where a workflow function is not there."""
    return (
        f"workflow function {name!r} is not defined in this process; run the cell or import the module that defines it"
    )


def require_function(name: str) -> None:
    """Raise `DefinitionError` unless this process has the workflow function."""
    if name not in WORKFLOW_FUNCTIONS:
        raise DefinitionError([Problem(missing_function(name))], f"workflow {name!r}")


# Which functions of an execution are not what they were when it was started.


CALLED = ("workflow ", "step ", "action ")


class ChangedFunction(NamedTuple):
    """A function that differs from the one that an execution was started with."""

    label: str
    """Kind and name: ``step parse``, ``function clean``, ``class Order``."""
    change: str
    """``changed``, ``new`` or ``gone``."""
    reaches: tuple[str, ...]
    """Labels of the workflows, steps and actions that use it: what they did before may be different now."""
    by_workflow: bool = False
    """Whether the function of the workflow uses it itself, and not only through steps: anything may be different."""


class HasFunctions(Protocol):
    """What the functions of a workflow are looked for in: an `Environment`."""

    @property
    def actions(self) -> Mapping[str, Action]:
        """Its actions by name."""

    @property
    def workflows(self) -> Mapping[str, Workflow]:
        """Its workflows by name."""


def roots_of(workflow: Workflow, actions: Mapping[str, Action]) -> dict[str, Callable[..., Any]]:
    """Return the functions that a workflow names itself, by label; those of divebook are left out."""
    if workflow.start.type == FUNCTION:
        known = WORKFLOW_FUNCTIONS.get(workflow.name)
        return {} if known is None else {f"workflow {workflow.name}": known.function}
    called = {step.action for step in workflow.steps if step.action}
    found = {f"action {name}": actions[name].function for name in sorted(called & actions.keys())}
    return {label: function for label, function in found.items() if not _is_ours(function)}


def _is_ours(function: Callable[..., Any]) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]


def changed_functions(state: ExecutionState, environment: HasFunctions) -> list[ChangedFunction]:
    """Return what is different now, in the order of the labels; nothing for a log that does not say what it was."""
    return changed_since(state.code, state.workflow_name, environment)


def changed_since(code: Mapping[str, str], workflow_name: str, environment: HasFunctions) -> list[ChangedFunction]:
    """Return what differs now from digests of the functions of a workflow; nothing where there are none."""
    workflow = environment.workflows.get(workflow_name)
    if not code or workflow is None:
        return []
    parts = parts_of(roots_of(workflow, environment.actions))
    before = dict(code)
    now = {label: part.digest for label, part in parts.items()}
    different = sorted(label for label in before | now if before.get(label) != now.get(label))
    return [_changed(label, before, parts) for label in different]


def _changed(label: str, before: Mapping[str, str], parts: Mapping[str, Any]) -> ChangedFunction:
    change = "gone" if label not in parts else "changed" if label in before else "new"
    users = sorted(name for name in reaching(parts, label) if name.startswith(CALLED))
    own = {name: part for name, part in parts.items() if not name.startswith(CALLED[1:])}
    uses_it = label in own and any(name.startswith(CALLED[0]) for name in reaching(own, label))
    return ChangedFunction(label, change, tuple(users), uses_it)
