"""Unit tests of workflow functions: a context that runs steps directly and takes answers, replies and signals from
the test.

``await total.fn(Context(), ...)`` calls the function of a workflow without a store. A test of a whole run uses
``Environment(store="memory:")`` and a `ScriptedModel`.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, NoReturn

from divebook.agents.agent import Agent
from divebook.agents.scripted import ScriptedModel
from divebook.definitions.answer_types import instance_of, schema_of
from divebook.definitions.definition import Workflow
from divebook.definitions.functions import (
    IDEMPOTENCY_KEY,
    RESULT,
    WORKFLOW_FUNCTIONS,
    RecordedFunction,
    WorkflowFunction,
)
from divebook.definitions.json_schemas import FITTING
from divebook.errors import InterruptExpiredError, NotFoundError, OperationError, SetupError, StepError
from divebook.events.codec import storable
from divebook.events.recorded import opened
from divebook.events.rich_output import with_displays
from divebook.questions.answer import checked_answer
from divebook.questions.question import DEFINABLE, KINDS, Question
from divebook.runtime.errors import as_recorded
from divebook.runtime.waiting import timer_seconds
from divebook.steps.function import AgentHandle, WorkspaceHandle, require_calls
from divebook.steps.function import Context as WorkflowContext
from divebook.text.arguments import DurationLike, describe, list_of, require, suggest_in_methods

__all__ = ["Context", "ContinuedAsNew", "EmittedEvent", "ScriptedModel", "StepCall"]

START = datetime(2026, 1, 1, tzinfo=UTC)
"""Time at which the clock of a `Context` starts, unless the test sets another one."""


class StepCall(NamedTuple):
    """A call of a step that a workflow function made in a test."""

    step: str
    arguments: dict[str, Any]
    """Arguments by parameter name, without defaults."""


class EmittedEvent(NamedTuple):
    """An application event that a workflow function emitted in a test."""

    name: str
    data: Any


class ContinuedAsNew(Exception):  # noqa: N818 - it reports how the function ended, and is not a fault
    """Raised by `Context.continue_as_new`, where a run would end and start its successor.

    Parameters
    ----------
    inputs
        Changed inputs of the successor.
    reason
        Recorded text for people.
    """

    def __init__(self, inputs: Mapping[str, Any], reason: str) -> None:
        self.inputs = dict(inputs)
        self.reason = reason
        super().__init__(f"continued as new with {self.inputs} ({reason})")


@suggest_in_methods
class Context(WorkflowContext):
    """Context for unit tests of workflow functions. Nothing is recorded.

    Steps and child workflows run directly, in this process. Their results are copied as a log would copy them, and
    their failures have the class that a run raises. Retries, time limits and approvals of steps have no effect.

    Parameters
    ----------
    answers
        Answers to questions: by the text of the question, or a list in the order of the questions. Each answer must be
        one that a person could give.
    agents
        Replies of agents, by name of the agent: one reply for all prompts, a list of replies in order, or a function of
        the prompt.
    signals
        Payloads of signals in the order of arrival, by name of the signal.
    workflows
        Outputs of child workflows, by name of the workflow. Workflow functions without an entry run.
    workspaces
        Objects that `workspace` returns, by name; ``""`` is the workspace of the workflow.
    versions
        Results of `version`, by change id. The default is the newest version.
    now
        Time at which the clock starts. The clock moves only when the function sleeps, or when it waits for a signal
        that does not arrive.
    seed
        Seed of `random`.

    Attributes
    ----------
    calls
        Calls of steps in the order in which they began.
    events
        Application events that `emit` has added.

    Examples
    --------
    >>> import asyncio
    >>> from divebook import step, workflow
    >>> @step
    ... def length(text: str) -> int:
    ...     return len(text)
    >>> @workflow
    ... async def total(ctx, texts: list[str]):
    ...     lengths = await ctx.gather(*[length(text) for text in texts])
    ...     return sum(lengths) if await ctx.confirm("Add them?") else 0
    >>> ctx = Context(answers={"Add them?": "yes"})
    >>> asyncio.run(total.fn(ctx, ["a", "bcd"]))
    4
    >>> ctx.calls[1]
    StepCall(step='length', arguments={'text': 'bcd'})
    """

    def __init__(
        self,
        *,
        answers: Mapping[str, Any] | Sequence[Any] = (),
        agents: Mapping[str, Any] | None = None,
        signals: Mapping[str, Iterable[Any]] | None = None,
        workflows: Mapping[str, Mapping[str, Any]] | None = None,
        workspaces: Mapping[str, Any] | None = None,
        versions: Mapping[str, int] | None = None,
        now: datetime = START,
        seed: int = 0,
    ) -> None:
        if isinstance(answers, str | bytes) or not isinstance(answers, Iterable):
            raise SetupError(f"answers must be a mapping or a list, not {describe(answers)}; write answers=['yes']")
        mappings = {
            "agents": agents,
            "signals": signals,
            "workflows": workflows,
            "workspaces": workspaces,
            "versions": versions,
        }
        for name, value in mappings.items():
            require(value, name, "a mapping by name", fits=isinstance(value, Mapping))
        for name, payloads in (signals or {}).items():
            list_of(payloads, f"signals[{name!r}]", "a list of payloads")
        require(seed, "seed", "an integer", fits=isinstance(seed, int))
        require(now, "now", "a datetime", fits=isinstance(now, datetime))
        self.calls: list[StepCall] = []
        self.events: list[EmittedEvent] = []
        self._answers = dict(answers) if isinstance(answers, Mapping) else deque(answers)
        self._agents = {name: _script(reply) for name, reply in (agents or {}).items()}
        self._outputs: dict[str, Any] = {}
        """Types of the answers of agents that were passed as objects, by name."""
        self._signals = {name: deque(payloads) for name, payloads in (signals or {}).items()}
        self._workflows = dict(workflows or {})
        self._workspaces = dict(workspaces or {})
        self._versions = dict(versions or {})
        self._now = now
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._remembered_calls = []

    @property
    def run_id(self) -> str:
        """Id of the execution: always ``exec_test``."""
        return "exec_test"

    async def now(self) -> datetime:
        """Return the time of the test's clock."""
        return self._now

    async def random(self) -> float:
        """Return the next number of the seeded generator, from 0 up to 1."""
        return self._random.random()

    async def sleep(self, duration: DurationLike) -> None:
        """Move the clock forward, without waiting."""
        self._now += timedelta(seconds=max(0.0, timer_seconds(duration, "the duration of ctx.sleep()")))

    async def version(self, change_id: str, min_version: int, max_version: int) -> int:
        """Return the version that the test has set, or the newest one."""
        version = self._versions.get(change_id, max_version)
        if not min_version <= version <= max_version:
            raise StepError(f"the test sets version {version} of {change_id!r}, outside {min_version} to {max_version}")
        return version

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
        """Return the answer that the test has for the question, checked as the answer of a person is. A question that
        expires and has no answer gets its default.
        """
        if kind not in DEFINABLE:
            raise NotFoundError("kind of question", kind, DEFINABLE)
        schema = None if answer is None else schema_of(answer)
        request = Question("test", kind, question, message=message, data=data, schema=schema)
        request = request._replace(optional=KINDS[kind].optional)
        if isinstance(self._answers, dict):
            has_answer, response = question in self._answers, self._answers.get(question)
        else:
            has_answer, response = bool(self._answers), self._answers.popleft() if self._answers else None
        if not has_answer and expires_in is not None:
            if default is None:
                raise InterruptExpiredError(request.id, question)
            has_answer, response = True, default
        if not has_answer:
            raise SetupError(
                f"the test defines no answer to {question!r}; write Context(answers={{{question!r}: ...}})"
            )
        return dict(opened(checked_answer(request, response, FITTING, 0)))

    async def wait_signal(self, name: str, within: DurationLike | None = None) -> Any:
        """Return the next payload that the test has for the signal."""
        payloads = self._signals.get(name)
        if payloads:
            return payloads.popleft()
        if within is None:
            raise SetupError(f"the test has no more signals {name!r}; write Context(signals={{{name!r}: [...]}})")
        await self.sleep(within)
        limit = timer_seconds(within, "within of ctx.wait_signal()")
        raise OperationError(f"no signal {name!r} arrived within {limit:g} seconds", operation_type="signal")

    async def gather(self, *calls: Awaitable[Any], return_exceptions: bool = False) -> Any:
        """Await the calls concurrently; return a list of their results in the order of the arguments."""
        require_calls(calls)
        return list(await asyncio.gather(*calls, return_exceptions=return_exceptions))

    async def run(self, workflow: str | Workflow, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the outputs that the test has for the workflow, or run its function."""
        name = workflow.name if isinstance(workflow, Workflow) else workflow
        if name in self._workflows:
            return dict(self._workflows[name])
        function = workflow if isinstance(workflow, WorkflowFunction) else WORKFLOW_FUNCTIONS.get(name)
        if function is None:
            hint = f"the test defines no outputs for workflow {name!r}; write Context(workflows={{{name!r}: {{...}}}})"
            raise NotFoundError("workflow", name, [*self._workflows, *WORKFLOW_FUNCTIONS], hint)
        return {RESULT: await self._run_directly(f"workflow {name}", function.function, (self,), dict(inputs or {}))}

    async def continue_as_new(
        self, inputs: Mapping[str, Any] | None = None, *, reason: str = "manual_request"
    ) -> NoReturn:
        """Raise `ContinuedAsNew`."""
        raise ContinuedAsNew(inputs or {}, reason)

    def workspace(self, name: str | None = None) -> WorkspaceHandle:
        """Return the object that the test has for the workspace."""
        if (name or "") not in self._workspaces:
            raise SetupError(
                f"the test has no workspace {name or ''!r}; write Context(workspaces={{{name or ''!r}: ...}})"
            )
        handle: WorkspaceHandle = self._workspaces[name or ""]
        return handle

    def emit(self, name: str, data: Any = None) -> None:
        """Append an application event to `events`."""
        self.events.append(EmittedEvent(name, opened(storable(data, f"data of event {name}"))))

    def _start_step(
        self, step: RecordedFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """Return the coroutine that calls the function of a step."""
        try:
            arguments = step.named(args, kwargs)
        except TypeError as error:
            raise StepError(f"step {step.name}: {error}") from error
        self.calls.append(StepCall(step.name, dict(arguments)))
        if step.takes.key:
            arguments[IDEMPOTENCY_KEY] = f"test-{len(self.calls)}"
        positional, keywords = step.bound(arguments)
        return self._run_directly(f"step {step.name}", step.function, positional, keywords)

    def _start_child(
        self, workflow: WorkflowFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        """Return the coroutine that runs a child workflow and returns its result."""
        return self._child(workflow, workflow.arguments(args, kwargs))

    async def _child(self, workflow: WorkflowFunction[..., Any], inputs: Mapping[str, Any]) -> Any:
        return (await self.run(workflow, inputs))[RESULT]

    async def _run_directly(
        self, label: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        try:
            result = function(*args, **kwargs)
            if asyncio.iscoroutine(result):
                result = await result
        # A run raises the recorded failure, which is an OperationError and of the class that the function raised.
        except Exception as error:
            raise as_recorded(error) from error
        # The caller gets a copy of the value, as from a log.
        return opened(storable(result, f"result of {label}", with_displays))

    def agent(self, agent: Agent[Any] | str) -> AgentHandle[Any]:
        """Return a handle of an agent. Its replies are the replies that the test defined under the name of the
        agent.
        """
        if isinstance(agent, Agent):
            self._outputs[agent.name] = agent.output
        return super().agent(agent)

    async def _ask(self, name: str, prompt: str, output: Any, deps: Any, thread: str | None) -> Any:  # noqa: ARG002
        reply = self._agents.get(name)
        if reply is None:
            raise SetupError(f"the test defines no reply of agent {name!r}; write Context(agents={{{name!r}: ...}})")
        value = reply(prompt)
        answer_type = self._outputs.get(name) if output is None else output
        # A reply may be the value itself, or its plain form.
        return value if answer_type is None else instance_of(answer_type, value)


def _script(reply: Any) -> Callable[[str], Any]:
    """Convert the replies of one agent to a function of the prompt."""
    if callable(reply):
        function: Callable[[str], Any] = reply
        return function
    if not isinstance(reply, list):
        return lambda _: reply
    replies = deque(reply)

    def next_reply(prompt: str) -> Any:
        if not replies:
            raise SetupError(f"the test has no more replies to the prompt {prompt!r:.60}")
        return replies.popleft()

    return next_reply
