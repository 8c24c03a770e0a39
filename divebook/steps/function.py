"""Function steps: run a Python workflow function. Calls that the log already has are answered from the log."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, NoReturn, Protocol, TypeVar, cast, overload

from divebook.agents.agent import Agent, Output
from divebook.agents.turn import AgentTask, Answer
from divebook.definitions.answer_types import allow_answers, instance_of, schema_of
from divebook.definitions.code import parts_of, reaching
from divebook.definitions.definition import Workflow
from divebook.definitions.functions import (
    CURRENT,
    RESULT,
    WORKFLOW_FUNCTIONS,
    RecordedFunction,
    WorkflowFunction,
    roots_of,
)
from divebook.engine.operations import VERSION_DECISION
from divebook.engine.state import ExecutionState
from divebook.errors import (
    RENAMED,
    ApprovalDeniedError,
    DefinitionError,
    NotFoundError,
    OperationError,
    Problem,
    SetupError,
    StepError,
    UnstorableValueError,
    missing_attribute,
)
from divebook.events import catalog
from divebook.events.codec import checked, storable
from divebook.events.recorded import opened
from divebook.events.rich_output import with_displays
from divebook.runtime.calls import call, named_workspace
from divebook.runtime.children import BeginSuccessor, DriveChild
from divebook.runtime.concurrency import STRAND, CallCounter, ConcurrentCalls, Group, Suspended
from divebook.runtime.context import StepContext
from divebook.runtime.errors import as_recorded
from divebook.runtime.step import THROUGH, Outcome
from divebook.runtime.waiting import timer_seconds, workflow_code
from divebook.scripting import value_text
from divebook.steps.actions import Action
from divebook.steps.workspace_actions import WORKSPACE_ACTIONS
from divebook.text.arguments import (
    DurationLike,
    describe,
    misspelt_argument,
    require_string,
    seconds_of,
    suggest_arguments,
)
from divebook.workspaces.shell import ShellResult

# --- call tasks ------------------------------------------------------------------------------------------------------
#
# Tasks in which a workflow function awaits its calls: its main task, those of `ctx.gather`, and tasks it created
# itself.
#
# A call gets its place in the log where it is made. Calls that are made one after the other and awaited in tasks, as by
# ``asyncio.gather(double(1), double(2))``, therefore work. A call that is made inside such a task would get its place
# by speed, and is refused (`tests/runtime/test_own_tasks.py`).


ADVICE = (
    "runs in a separate task, so its place in the log would depend on timing; write `await ctx.gather(...)` instead of "
    "asyncio.gather, a task group or create_task"
)


class CallTasks:
    """Asyncio tasks of one running workflow function, and the number of recorded calls that are running in them.

    The function is parked only if all its tasks wait. As a context manager, the object counts one call.
    """

    def __init__(self, strands: ConcurrentCalls) -> None:
        self._strands = strands
        self._loop = asyncio.get_running_loop()  # `current_task` takes three times as long to find it
        self._ordered_tasks = {asyncio.current_task()}
        """Tasks whose calls get their places in a deterministic order."""
        self._gathered: set[asyncio.Task[object] | None] = set()
        """Tasks of `ctx.gather`, which are counted already."""
        self._created: set[asyncio.Task[object]] = set()
        self._running_calls = CallCounter(strands)
        self._has_ended = False
        """True once the function has returned or raised."""

    def require_place(self, what: str, name: str = "") -> None:
        """Raise `StepError` if the current asyncio task was created by the workflow function itself, for example with
        ``asyncio.create_task``, because the order of calls from such tasks is not deterministic.
        """
        try:
            has_place = asyncio.current_task() in self._ordered_tasks
        except RuntimeError:  # there is no loop on this thread
            has_place = False
        if not has_place:
            raise StepError(f"{what}{name} {ADVICE}")

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Return a context manager. While its ``with`` block runs, the current asyncio task is registered as a branch
        of `ctx.gather`.
        """
        task = asyncio.current_task()
        self._ordered_tasks.add(task)
        self._gathered.add(task)
        try:
            yield
        finally:
            self._ordered_tasks.discard(task)
            self._gathered.discard(task)

    async def let_others_start(self) -> None:
        """Give other asyncio tasks, which the workflow function has just created, the time to start before the current
        task waits for its call.
        """
        task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._created.add(task)
        await asyncio.sleep(0)

    def __enter__(self) -> bool:
        """Count one more running call of the workflow function. Return True if the function itself created the current
        asyncio task, for example with ``asyncio.create_task``. Return False in the main task and in the branches of
        `ctx.gather`.
        """
        if self._has_ended:  # the current task was created, but started after the end
            raise asyncio.CancelledError("the workflow function has ended")
        task = asyncio.current_task(self._loop)
        # The branches of `ctx.gather` are counted by `side_by_side`.
        if task not in self._gathered:
            self._running_calls.begin()
        is_created_task = task not in self._ordered_tasks
        if is_created_task:  # the function's other tasks may run on meanwhile
            self._strands.forbid_parking()
        return is_created_task

    def __exit__(self, *_: object) -> None:
        if asyncio.current_task(self._loop) not in self._gathered:
            self._running_calls.end()

    async def stop(self) -> None:
        """Cancel the asyncio tasks that the workflow function created and did not await, and wait until they have
        ended. From now on, these tasks cannot make recorded calls.
        """
        self._has_ended = True
        # A task that has not made a call yet is not in `_created`. `_has_ended` stops it at its first call.
        running = [task for task in self._created if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


CallInWorkspace = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Calls a workspace action by name with parameters."""


class WorkspaceHandle:
    """Handle of a workspace in a workflow function. It reads and writes files, runs shell commands, and copies changes
    back. Each method call is a recorded operation.

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
        timeout: DurationLike | None = None,  # noqa: ASYNC109 - time limit of the command
        cwd: str | None = None,
        check: bool = True,
    ) -> ShellResult:
        """Run a shell command in the workspace; return its exit code and output.

        Parameters
        ----------
        timeout
            Time limit of the command; by default the time limit of the workspace.
        cwd
            Working folder of the command.
        check
            True to raise `OperationError` for a failed command.
        """
        limit = None if timeout is None else seconds_of(timeout, "timeout")
        parameters = {"Command": command, "Timeout": limit, "Cwd": cwd, "Check": check}
        result = await self._call(
            "Workspace.Shell", {name: value for name, value in parameters.items() if value is not None}
        )
        return ShellResult(result["exit_code"], result["stdout"], result["stderr"])

    async def read(self, path: str) -> str:
        """Return the text of a file in the workspace."""
        return str(await self._call("Workspace.Read", {"Path": path}))

    async def write(self, path: str, content: str) -> None:
        """Write a file in the workspace as a whole. Missing folders are created."""
        await self._call("Workspace.Write", {"Path": path, "Content": content})

    async def list(self, path: str = ".") -> Sequence[str]:
        """Return the names of the files and folders in a folder of the workspace."""
        names: Sequence[str] = await self._call("Workspace.List", {"Path": path})
        return names

    async def glob(self, pattern: str) -> Sequence[str]:
        """Return the paths of the files in the workspace that match a pattern, newest first."""
        paths: Sequence[str] = await self._call("Workspace.Glob", {"Pattern": pattern})
        return paths

    async def delete(self, path: str) -> None:
        """Remove a file or an empty folder from the workspace."""
        await self._call("Workspace.Delete", {"Path": path})

    async def apply(self, paths: Sequence[str] | None = None, *, ask: bool = True) -> Mapping[str, Sequence[str]]:
        """Copy changed files from the workspace to the folder that the workspace was copied from. A person chooses the
        files.

        The files are written as they were shown to the person, even if the workspace has changed since. The result has
        three lists of paths: ``written`` (copied now), ``there`` (already equal in the folder), and ``left`` (not
        copied). Hidden files and version-control metadata (``.git``) are not copied, unless `paths` or the person names
        them.

        Parameters
        ----------
        paths
            Files to copy; by default all.
        ask
            True to let a person choose.

        Raises
        ------
        OperationError
            The folder has changed since the copy was made. No file was written.
        """
        parameters = {"Ask": ask} if paths is None else {"Ask": ask, "Paths": [*paths]}
        result: Mapping[str, Sequence[str]] = await self._call("Workspace.Apply", parameters)
        return result


# Bits of a float's fraction: all quotients by 2**53 are exact.
RANDOM_BITS = 53


F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")


_MOST_REMEMBERED = 64
"""Number of remembered calls at which the awaited ones are dropped."""


# A coroutine that was never awaited has not started.
def _is_not_started(call: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(call) == inspect.CORO_CREATED


def _remembered_call(method: F) -> F:
    """Wrap an async method of `Context`: each coroutine that it returns is remembered, so that a missing
    ``await`` can be detected later.
    """

    @functools.wraps(method)
    def wrapper(context: Context, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        try:
            call = method(context, *args, **kwargs)
        except TypeError:
            if (unexpected := misspelt_argument(method, kwargs)) is not None:
                raise unexpected from None
            raise
        return context._remember(f"ctx.{method.__name__}()", call)  # noqa: SLF001

    return cast("F", wrapper)


def require_calls(calls: Sequence[object]) -> None:
    """Raise `SetupError` if an argument of `Context.gather` cannot be awaited."""
    for call_object in calls:
        if not inspect.isawaitable(call_object):
            # ``asyncio.gather`` takes its calls one by one too, but people often have a list of them.
            is_list = isinstance(call_object, Iterable) and not isinstance(call_object, str)
            advice = "ctx.gather(*calls), with a star before the list" if is_list else "ctx.gather(one(1), other())"
            raise SetupError(f"ctx.gather() takes calls to await, not {describe(call_object)}; write {advice}")


class Context:
    """First parameter of a workflow function: access to time, randomness, people, agents and other workflows.

    Each call is made once and then answered from the log, so that the function has the same results whenever it runs
    again. The key of a call in the log is assigned when the call is made, not when it ends. The function's own code
    must not use clocks or races of asyncio, such as ``asyncio.sleep`` or ``asyncio.as_completed``; such a call raises
    an error (`divebook.runtime.waiting`). Steps and other recorded calls may use them.
    """

    def __init__(
        self, context: StepContext, drive_child: DriveChild, ask_agent: AskAgent, begin_successor: BeginSuccessor
    ) -> None:
        self._context = context
        self._drive_child = drive_child
        self._ask_agent = ask_agent
        self._begin_successor = begin_successor
        self._calls: dict[str, int] = {}
        self._remembered_calls: list[tuple[str, Coroutine[Any, Any, Any]]] = []
        self._failed: set[str] = set()
        """Keys of `gather` calls that have failed. Their other branches may not have begun in this process."""
        self._failing: set[str] = set()
        """Keys of `gather` calls that will fail. They wait for calls with an unknown outcome, for the rollback."""
        self._tasks = CallTasks(context.strands())

    if not TYPE_CHECKING:  # a type checker would accept any name otherwise

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name, RENAMED)

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._context.run_id

    @_remembered_call
    async def now(self) -> datetime:
        """Return the current time in UTC, recorded in the log."""
        self._tasks.require_place("ctx.now()")
        return await self._context.now()

    @_remembered_call
    async def random(self) -> float:
        """Return a random number from 0 up to 1, recorded in the log."""
        self._tasks.require_place("ctx.random()")
        return await self._context.random_bits(RANDOM_BITS, "float") / float(2**RANDOM_BITS)

    @_remembered_call
    async def sleep(self, duration: DurationLike) -> None:
        """Sleep for a number of seconds, a `timedelta`, or a string such as ``"5 min"``. After a restart, sleep only
        for the remaining time.
        """
        self._tasks.require_place("ctx.sleep()")
        await self._context.sleep(timer_seconds(duration, "the duration of ctx.sleep()"))

    @_remembered_call
    async def version(self, change_id: str, min_version: int, max_version: int) -> int:
        """Return a number by which the code of a workflow function chooses between its old and its new behaviour. The
        code can then be changed while executions of it are running.

        A new execution gets `max_version` and keeps it. An execution that had passed this place before the call was
        added gets `min_version`.

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
        # Checked before anything is recorded.
        checked(catalog.VersionDecision(change_id, max_version, min_version, max_version))
        key = f"version-{change_id}"
        # The log has later operations of this step but no decision: the execution passed here before the call was
        # added.
        is_past = self._context.record_of(key) is None and self._context.has_history_ahead()

        async def decide() -> int:
            return min_version if is_past else max_version

        def decision_event(version: int) -> catalog.Payload:
            return catalog.VersionDecision(change_id, version, min_version, max_version)

        parameters = {"change_id": change_id}
        chosen_version = int(
            await self._context.operation(
                VERSION_DECISION, parameters, decide, key=key, repeatable=True, noted=decision_event
            )
        )
        if not min_version <= chosen_version <= max_version:
            raise StepError(
                f"this execution follows version {chosen_version} of {change_id!r}, and the function supports "
                f"{min_version} to {max_version}; run it with the function it was started with"
            )
        return chosen_version

    @_remembered_call
    async def interrupt(
        self,
        kind: str,
        question: str,
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
        answer: Any = None,
        expires_in: DurationLike | None = None,
        default: Any = None,
    ) -> dict[str, Any]:
        """Ask a person a question, wait, and return the full answer: ``text``, ``approved``, ``decision``, ``data``.

        The execution waits and can be answered from any process. If the function is still in memory and its code is
        unchanged, it continues where it waits. Otherwise it runs again, and the log answers every call before the
        question.

        Parameters
        ----------
        kind
            Kind of the question, such as ``clarification``, ``confirmation`` or ``checkpoint``.
        message, data
            Text and plain data shown with the question.
        answer
            Type of the answer: a type, for example a pydantic model, or a JSON schema.
        expires_in, default
            Duration after which the question expires, and the answer that is used in this case.

        Raises
        ------
        InterruptExpiredError
            The question expired without an answer, and has no default.
        """
        self._tasks.require_place("a question")
        require_string(question, "the question")
        if not question.strip():
            raise SetupError("the question must not be empty, because a person reads it; write for example 'Continue?'")
        seconds = None if expires_in is None else timer_seconds(expires_in, "expires_in of a question")
        allow_answers(answer)  # instances of the classes in the type may be recorded
        with self._tasks:
            answered_question = await self._context.interrupt(
                kind,
                question,
                message=message,
                data=data,
                schema=None if answer is None else schema_of(answer),
                expires_in=seconds,
                default=default,
            )
        return dict(opened(answered_question.response or {}))

    @overload
    async def ask(
        self,
        question: str,
        answer: None = None,
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
        expires_in: DurationLike | None = None,
        default: Any = None,
    ) -> str: ...
    @overload
    async def ask(
        self,
        question: str,
        answer: type[T],
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
        expires_in: DurationLike | None = None,
        default: Any = None,
    ) -> T: ...
    # JSON schemas and annotations that are no classes, such as ``Literal["a", "b"]``.
    @overload
    async def ask(
        self,
        question: str,
        answer: object,
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
        expires_in: DurationLike | None = None,
        default: Any = None,
    ) -> Any: ...
    @_remembered_call
    async def ask(
        self,
        question: str,
        answer: Any = None,
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
        expires_in: DurationLike | None = None,
        default: Any = None,
    ) -> Any:
        """Ask a person for a clarification. Return the answer as text, or as an instance of the type `answer`. For the
        other parameters see `interrupt`.
        """
        response = await self.interrupt(
            "clarification",
            question,
            answer=answer,
            message=message,
            data=data,
            expires_in=expires_in,
            default=default,
        )
        return response.get("text") if answer is None else instance_of(answer, response.get("data"))

    @_remembered_call
    async def confirm(
        self,
        question: str,
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
        expires_in: DurationLike | None = None,
        default: Any = None,
    ) -> bool:
        """Ask a person whether to do something; return True only after an approval. For the parameters see
        `interrupt`.
        """
        response = await self.interrupt(
            "confirmation", question, message=message, data=data, expires_in=expires_in, default=default
        )
        return response.get("approved") is True

    @_remembered_call
    async def wait_signal(self, name: str, within: DurationLike | None = None) -> Any:
        """Wait for a signal (a message from outside) and return its payload. Signals with the same name are received in
        order of arrival, each signal once.

        Raises
        ------
        OperationError
            No signal arrived within the duration `within`.
        """
        self._tasks.require_place("ctx.wait_signal()")
        require_string(name, "the name of a signal")
        within = None if within is None else timer_seconds(within, "within of ctx.wait_signal()")
        with self._tasks:
            return opened(await self._context.wait_signal(name, within))

    # Typed as `asyncio.gather` is: a fixed number of calls gives a tuple of types. The result is always a list.
    @overload
    async def gather(
        self,
        call_1: Awaitable[T1],
        call_2: Awaitable[T2],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2]: ...
    @overload
    async def gather(
        self,
        call_1: Awaitable[T1],
        call_2: Awaitable[T2],
        call_3: Awaitable[T3],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2, T3]: ...
    @overload
    async def gather(
        self,
        call_1: Awaitable[T1],
        call_2: Awaitable[T2],
        call_3: Awaitable[T3],
        call_4: Awaitable[T4],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    async def gather(
        self,
        call_1: Awaitable[T1],
        call_2: Awaitable[T2],
        call_3: Awaitable[T3],
        call_4: Awaitable[T4],
        call_5: Awaitable[T5],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2, T3, T4, T5]: ...
    @overload
    async def gather(
        self,
        call_1: Awaitable[T1],
        call_2: Awaitable[T2],
        call_3: Awaitable[T3],
        call_4: Awaitable[T4],
        call_5: Awaitable[T5],
        call_6: Awaitable[T6],
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> tuple[T1, T2, T3, T4, T5, T6]: ...
    @overload
    async def gather(
        self,
        call_1: Awaitable[T1],
        call_2: Awaitable[T2],
        /,
        *,
        return_exceptions: Literal[True],
    ) -> tuple[T1 | Exception, T2 | Exception]: ...
    @overload
    async def gather(
        self,
        call_1: Awaitable[T1],
        call_2: Awaitable[T2],
        call_3: Awaitable[T3],
        /,
        *,
        return_exceptions: Literal[True],
    ) -> tuple[T1 | Exception, T2 | Exception, T3 | Exception]: ...
    @overload
    async def gather(
        self,
        call_1: Awaitable[T1],
        call_2: Awaitable[T2],
        call_3: Awaitable[T3],
        call_4: Awaitable[T4],
        /,
        *,
        return_exceptions: Literal[True],
    ) -> tuple[T1 | Exception, T2 | Exception, T3 | Exception, T4 | Exception]: ...
    @overload
    async def gather(
        self,
        call_1: Awaitable[T1],
        call_2: Awaitable[T2],
        call_3: Awaitable[T3],
        call_4: Awaitable[T4],
        call_5: Awaitable[T5],
        /,
        *,
        return_exceptions: Literal[True],
    ) -> tuple[T1 | Exception, T2 | Exception, T3 | Exception, T4 | Exception, T5 | Exception]: ...
    @overload
    async def gather(
        self,
        call_1: Awaitable[T1],
        call_2: Awaitable[T2],
        call_3: Awaitable[T3],
        call_4: Awaitable[T4],
        call_5: Awaitable[T5],
        call_6: Awaitable[T6],
        /,
        *,
        return_exceptions: Literal[True],
    ) -> tuple[T1 | Exception, T2 | Exception, T3 | Exception, T4 | Exception, T5 | Exception, T6 | Exception]: ...
    @overload
    async def gather(self, *calls: Awaitable[T], return_exceptions: Literal[False] = False) -> list[T]: ...
    @overload
    async def gather(self, *calls: Awaitable[T], return_exceptions: Literal[True]) -> list[T | Exception]: ...
    @_remembered_call
    async def gather(self, *calls: Awaitable[Any], return_exceptions: bool = False) -> Any:
        """Await several calls concurrently; return a list of their results in the order of the arguments.

        The first failure cancels the other calls and is raised. With `return_exceptions`, errors are items of the
        result instead. A call that waits for an answer does not delay the others. Before the failure is raised,
        divebook waits for running calls that have a rollback.
        """
        self._tasks.require_place("ctx.gather()")
        require_calls(calls)
        results: list[Any] = [None] * len(calls)
        suspensions: list[Suspended] = []
        errors: list[Exception] = []
        gathering = self._next_key("gather")

        async def store_result(
            strand: Callable[[], AbstractContextManager[None]], index: int, call: Awaitable[Any]
        ) -> None:
            # Calls in this branch have keys such as `gather-1.0-call-2`, whatever the other branches do meanwhile.
            STRAND.set(f"{gathering}.{index}-")
            with strand(), self._tasks.gathering():
                try:
                    results[index] = await call
                # A branch that waits for an answer does not end the others.
                except Suspended as suspension:
                    suspensions.append(suspension)
                except Exception as error:
                    if not return_exceptions or isinstance(error, THROUGH):
                        # If the outcome of a call with a rollback is unknown, the failure waits until that is settled.
                        if not self._context.has_unknown():
                            raise
                        errors.append(error)
                        self._failing.add(gathering)
                    results[index] = error

        group = Group()
        with self._tasks, self._context.strands().side_by_side(len(calls)) as strand:
            try:
                async with group.running():
                    for index, call in enumerate(calls):
                        group.spawn(store_result(strand, index, call))
            except Exception:
                self._note_failure(gathering)
                raise
        # A failure takes precedence over branches that wait.
        if errors and not self._context.has_unknown():
            self._note_failure(gathering)
            raise errors[0]
        if suspensions:
            raise suspensions[0]
        return results

    def _note_failure(self, gathering: str) -> None:
        """Note that the `gather` with this key has failed. What its other branches wait for is abandoned."""
        self._failed.add(gathering)
        self._context.abandon_waits(f"{gathering}.")

    @_remembered_call
    async def run(self, workflow: str | Workflow, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run another workflow of the environment as a child execution; return its outputs.

        A workflow function can also be called: ``await total(words=words)`` returns its result.

        The child is started once. While the child waits for an answer, this execution waits too. The child's
        consumption also counts in the bounds of this execution.

        Raises
        ------
        OperationError
            The child did not complete.
        """
        stored_inputs = self._context.storable(dict(inputs or {}), "inputs")
        self._tasks.require_place("ctx.run()")
        name = workflow.name if isinstance(workflow, Workflow) else workflow
        with self._tasks:
            child = await self._context.child(name, stored_inputs, self._drive_child, key=self._next_key())
        return dict(opened(child["outputs"]))

    @_remembered_call
    async def continue_as_new(
        self, inputs: Mapping[str, Any] | None = None, *, reason: str = "manual_request"
    ) -> NoReturn:
        """End this execution and start a successor: a new execution of the same workflow with an empty log.

        Use this in workflows that run for ever. Whenever an execution is resumed, its whole log is read, so the log
        must not grow without limit.

        Parameters
        ----------
        inputs
            Changes to the inputs of this execution. They must contain all data that the new execution needs.
        reason
            Recorded text for people.

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
        self._tasks.require_place("ctx.continue_as_new()")
        stored_inputs = self._context.storable({**self._context.inputs, **(inputs or {})}, "inputs")
        await self._require_requested(next_key="continue-as-new")
        await self._context.go_on_as_new(stored_inputs, reason, self._begin_successor)

    @overload
    def agent(self, agent: Agent[T]) -> AgentHandle[T]: ...
    @overload
    def agent(self, agent: str) -> AgentHandle[Any]: ...
    @suggest_arguments
    def agent(self, agent: Agent[Any] | str) -> AgentHandle[Any]:
        """Return a handle for sending prompts to an agent: ``await ctx.agent("critic").run("Is this good? ...")``.

        Parameters
        ----------
        agent
            Name of an agent of the environment, or the agent object itself. The agent must be registered in the
            environment, so that any process can continue the execution. If you pass the object, type checkers know the
            type of the answers.
        """
        name = agent.name if isinstance(agent, Agent) else agent

        def ask(*arguments: Any) -> Coroutine[Any, Any, Any]:
            return self._remember("ctx.agent().run()", self._ask(*arguments))

        return AgentHandle(name, ask)

    async def _ask(self, name: str, prompt: str, output: Any, deps: Any, thread: str | None) -> Any:
        self._tasks.require_place("ctx.agent().run()")
        # All operations of the turn have keys such as `agent-1/model-2`.
        prefix = f"{self._next_key('agent')}/"
        task = AgentTask(prompt, output=output, deps=deps, prefix=prefix, thread=thread)
        with self._tasks:
            answer = await self._ask_agent(self._context, name, task)
        return opened(answer.value)

    @suggest_arguments
    def workspace(self, name: str | None = None) -> WorkspaceHandle:
        """Return a workspace by name, by default the workspace of the workflow.

        Example: ``await ctx.workspace().shell("pytest -q")``.

        Raises
        ------
        StepError
            `name` is None, and the workflow has no workspace.
        """
        workspace = named_workspace(self._context, "ctx.workspace()", name or "")
        return WorkspaceHandle(workspace, functools.partial(self._work, workspace))

    async def _work(self, workspace: str, name: str, parameters: Mapping[str, Any]) -> Any:
        self._tasks.require_place("a call in a workspace")
        key = self._next_key()
        action = replace(WORKSPACE_ACTIONS[name], workspace=workspace)
        return await self._perform(name, lambda: call(self._context, action, parameters, key), key)

    @suggest_arguments
    def emit(self, name: str, data: Any = None) -> None:
        """Record an application event in the log, once, even if the function runs again. `Run.subscribe`, frames
        and timelines include application events.
        """
        self._tasks.require_place("ctx.emit()")
        self._context.emit(name, data, key=self._next_key("emit"))

    def _start_step(
        self, step: RecordedFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """Return the coroutine for a call of a function decorated with ``@step``. The operation key of the call is
        assigned at once, before the coroutine runs.
        """
        self._tasks.require_place("a call of ", step.name)
        return self._remember(f"step {step.name}()", self._call(step, args, kwargs, self._next_key()))

    def _start_child(
        self, workflow: WorkflowFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """Return the coroutine that runs a workflow function as a child execution and returns its result."""
        return self._remember(f"workflow {workflow.name}()", self._call_child(workflow, args, kwargs))

    async def _call_child(
        self, workflow: WorkflowFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            inputs = workflow.arguments(args, kwargs)
        except TypeError as error:
            raise StepError(f"workflow {workflow.name}: {error}") from error
        return (await self.run(workflow.name, inputs))[RESULT]

    async def _run_function(self, function: Callable[..., Awaitable[Any]]) -> Any:
        """Run the workflow function with the inputs of the execution, and return its result. Raise `StepError` if a
        call was not awaited.
        """
        # Calls of `@step` functions find the context in this variable.
        token = CURRENT.set(self)
        try:
            with workflow_code():
                value = await function(self, **opened(dict(self._context.inputs)))
            if (call := self._unawaited()) is not None:
                raise StepError(f"{call} was not awaited, so it was never made; write `await` before the call")
            await self._require_requested()
        # A forgotten `await` shows first in the code that uses the coroutine, for example as "'coroutine' object is not
        # subscriptable".
        except (TypeError, AttributeError, UnstorableValueError) as error:
            call = self._unawaited() if "coroutine" in str(error) else None
            if call is None:
                raise
            clearer = StepError(
                f"{call} was not awaited ({type(error).__name__}: {error}); write `await` before the call"
            )
            raise clearer.with_traceback(error.__traceback__) from error
        finally:
            CURRENT.reset(token)
            self._unawaited()  # closes coroutines after a failure, to prevent Python's own warning
            await self._tasks.stop()
        return value

    def _remember(self, label: str, call: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Return a coroutine unchanged, and remember it with its label, so that `_unawaited` can report that an
        ``await`` is missing.
        """
        # Only coroutines that have not started are needed later, so the list is cleaned now and then.
        if len(self._remembered_calls) >= _MOST_REMEMBERED:
            self._remembered_calls = [entry for entry in self._remembered_calls if _is_not_started(entry[1])]
        self._remembered_calls.append((label, call))
        return call

    def _unawaited(self) -> str | None:
        """Close all remembered coroutines that were never awaited. Return the label of the first of them, for an error;
        None if all were awaited.
        """
        unawaited_calls = [
            (label, coroutine) for label, coroutine in self._remembered_calls if _is_not_started(coroutine)
        ]
        for _, coroutine in unawaited_calls:
            coroutine.close()  # prevents Python's own warning about the coroutine
        return unawaited_calls[0][0] if unawaited_calls else None

    async def _require_requested(self, next_key: str = "") -> None:
        """Raise `DivergenceError` if the log has a call that has started and not ended, and that the function leaves
        out. `next_key` is the key of a call that the function makes next.
        """

        def is_abandoned(key: str) -> bool:
            # "gather-1.0-call-2" is the key of a call; "agent-1/model-2" is that of an operation inside the call
            # "agent-1".
            name, _, number = key.partition("/")[0].rpartition("-")
            is_made = key == next_key or (number.isdigit() and self._calls.get(f"{name}-", 0) >= int(number))
            return is_made or any(key.startswith(f"{gather_key}.") for gather_key in self._failed)

        await self._context.require_requested(is_abandoned)

    def _next_key(self, kind: str = "call") -> str:
        """Return the operation key of the next recorded call of a kind. Each branch of `ctx.gather` counts its own
        calls, so that keys do not depend on timing.
        """
        name = f"{STRAND.get()}{kind}-"
        number = self._calls[name] = self._calls.get(name, 0) + 1
        return f"{name}{number}"

    async def _call(self, step: RecordedFunction, args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> Any:
        try:
            arguments = step.named(args, kwargs)
        except TypeError as error:
            raise StepError(f"step {step.name}: {error}") from error
        return await self._perform(step.name, functools.partial(call, self._context, step, arguments, key), key)

    async def _perform(self, name: str, make: Callable[[], Awaitable[Any]], key: str) -> Any:
        # After a failure in `gather`, its other branches make no new calls; only calls in the log are replayed.
        if self._failing and any(
            key.startswith(f"{gather_key}.") and self._context.record_of(key) is None for gather_key in self._failing
        ):
            # The branch counts as waiting until the unknown outcomes are settled. Then the failure is raised.
            raise Suspended
        try:
            with self._tasks as is_created_task:
                # Tasks that were created together must all have started before the first of them can be parked.
                if is_created_task:
                    await self._tasks.let_others_start()
                result = await make()
        # A function may catch a denial by its class.
        except ApprovalDeniedError:
            raise
        except OperationError as error:
            error.called = name
            raise
        # Live and from the log, the function gets the same error.
        except Exception as error:
            raise as_recorded(error) from error
        return opened(result)


AskAgent = Callable[[StepContext, str, AgentTask], Awaitable[Answer]]
"""Asks an agent by name."""


@dataclass(frozen=True, slots=True)
class AgentHandle(Generic[Output]):
    """Handle of an agent for use in a workflow function; `Context.agent` returns it.

    The type parameter is the type of the agent's answers.
    """

    name: str
    _ask: Callable[[str, str, Any, Any, str | None], Coroutine[Any, Any, Any]]

    @overload
    def run(
        self, prompt: str, *, output: None = None, deps: Any = None, thread: str | None = None
    ) -> Coroutine[Any, Any, Output]: ...
    @overload
    def run(
        self, prompt: str, *, output: type[T], deps: Any = None, thread: str | None = None
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def run(
        self, prompt: str, *, output: object, deps: Any = None, thread: str | None = None
    ) -> Coroutine[Any, Any, Any]: ...
    def run(
        self, prompt: str, *, output: Any = None, deps: Any = None, thread: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Send the agent a prompt; return an awaitable of the agent's answer. Each model request is recorded and counts
        in the bounds of the execution.

        Parameters
        ----------
        output
            Type of the answer, in place of the agent's `output`: a pydantic model, a dataclass or another type, or a
            JSON schema. By default the answer has the type of the agent's `output`, or is a string.
        deps
            Value of ``ctx.deps`` for the agent's tools and capabilities, in place of the value that the agent was
            created with.
        thread
            Id of the conversation that the turn continues, over several runs: see `Environment.threads`.

        Examples
        --------
        ::

            verdict = await ctx.agent("critic").run("Is this good?", output=Verdict)
            if verdict.score < 5: ...
        """
        return self._ask(self.name, prompt, output, deps, thread)

    if not TYPE_CHECKING:  # a type checker would accept any name otherwise

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)


class FunctionStep:
    """Handler of function steps, the steps of workflows that are Python functions."""

    def __init__(self, drive_child: DriveChild, ask_agent: AskAgent, begin_successor: BeginSuccessor) -> None:
        self._services = (drive_child, ask_agent, begin_successor)

    async def __call__(self, context: StepContext) -> Outcome:
        """Run the workflow function with the inputs of the execution. The function's return value becomes the value of
        the step.
        """
        name = context.workflow.name
        if name not in WORKFLOW_FUNCTIONS:
            raise NotFoundError("workflow function", name, WORKFLOW_FUNCTIONS, missing_function(name))
        workflow_context = Context(context, *self._services)
        value = await workflow_context._run_function(WORKFLOW_FUNCTIONS[name].function)  # noqa: SLF001 - same module
        stored = storable(value, RESULT, with_displays)
        return Outcome(value_text(stored), stored)


def missing_function(name: str) -> str:
    """Return the error message for a workflow function that is not defined in this process."""
    return (
        f"workflow function {name!r} is not defined in this process; run the cell or import the module that defines it"
    )


def require_function(name: str) -> None:
    """Raise `DefinitionError` if the workflow function of this name is not defined in this process."""
    if name not in WORKFLOW_FUNCTIONS:
        raise DefinitionError([Problem(missing_function(name))], f"workflow {name!r}")


# --- changed functions -----------------------------------------------------------------------------------------------
#
# Comparison of the functions of a workflow with those that an execution was started with.


CALLED = ("workflow ", "step ", "action ")
"""Prefixes of the labels of functions that run as a whole, as `divebook.definitions.functions` makes them."""


class ChangedFunction(NamedTuple):
    """Function or class of a workflow whose code has changed since an execution of the workflow started."""

    label: str
    """Kind and name: ``step parse``, ``function clean``, ``class Order``."""
    change: str
    """``changed``, ``new`` or ``gone``."""
    reaches: tuple[str, ...]
    """Labels of the workflows, steps and actions that use it. Their behaviour may have changed."""
    by_workflow: bool = False
    """True if the workflow function itself uses it, not only through steps. Everything may have changed then."""


class HasFunctions(Protocol):
    """Protocol for an object with actions and workflows, such as `Environment.definitions`."""

    @property
    def actions(self) -> Mapping[str, Action]:
        """Actions by name."""

    @property
    def workflows(self) -> Mapping[str, Workflow]:
        """Workflows by name."""


def changed_functions(state: ExecutionState, definitions: HasFunctions) -> list[ChangedFunction]:
    """Return the functions and classes whose code changed since an execution started, sorted by label. Return an empty
    list if the log of the execution has no digests of its code.
    """
    return changed_since(state.code, state.workflow_name, definitions)


def changed_since(code: Mapping[str, str], workflow_name: str, definitions: HasFunctions) -> list[ChangedFunction]:
    """Return the functions and classes of a workflow whose code differs from `code`, the digests that an execution
    recorded. Return an empty list if `code` is empty or `definitions` does not have the workflow.
    """
    workflow = definitions.workflows.get(workflow_name)
    if not code or workflow is None:
        return []
    parts = parts_of(roots_of(workflow, definitions.actions))
    old_digests = dict(code)
    new_digests = {label: part.digest for label, part in parts.items()}
    changed_labels = sorted(
        label for label in old_digests | new_digests if old_digests.get(label) != new_digests.get(label)
    )
    return [_changed(label, old_digests, parts) for label in changed_labels]


def _changed(label: str, old_digests: Mapping[str, str], parts: Mapping[str, Any]) -> ChangedFunction:
    if label not in parts:
        change = "gone"
    elif label in old_digests:
        change = "changed"
    else:
        change = "new"
    users = sorted(name for name in reaching(parts, label) if name.startswith(CALLED))
    # Steps and actions are left out, so only paths on which the workflow function itself uses the code remain.
    parts_of_function = {name: part for name, part in parts.items() if not name.startswith(CALLED[1:])}
    uses_it = label in parts_of_function and any(
        name.startswith(CALLED[0]) for name in reaching(parts_of_function, label)
    )
    return ChangedFunction(label, change, tuple(users), uses_it)
