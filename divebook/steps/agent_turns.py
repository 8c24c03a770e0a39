"""Calls of agents from a step: a single request, or a recorded turn with tools and delegation.

`ask_agent` is the only way to ask an agent from a step. Each request to its model is recorded, counted and retried as
an operation of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio.to_thread

from divebook.agents import Agent, ScriptedModel
from divebook.agents.cache import Cached, Cassette, lasting
from divebook.agents.models import RECORDED
from divebook.agents.running_turn import CALL, consumed_by, count_spent, present
from divebook.agents.turn import SPENT, AgentTask, Answer
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, RunOperation, Setting
from divebook.engine.state import OperationRecord
from divebook.events.catalog import COMPLETED, FAILED, PENDING
from divebook.events.codec import short_hash
from divebook.events.recorded import opened
from divebook.projections.model_requests import RequestView
from divebook.runtime.context import StepContext
from divebook.steps.conversations import BRANCHED
from divebook.steps.step_turn import TURN, AgentServices, StepTurn, agent_for_run, run_id_of
from divebook.workflow.step import (
    Retry,
)
from divebook.workflow.tools import ToolFunction

if TYPE_CHECKING:
    from divebook.agents.request_record import ResponseSource
from divebook.steps.delegation import ALONE, ASSIGN_WORK, DelegationChain, work_tool


async def ask_agent(
    context: StepContext, agent: Agent, task: AgentTask, services: AgentServices, blocks: Blocks | None = None
) -> Answer:
    """Return an agent's answer.

    Parameters
    ----------
    services
        What its environment gives it.
    blocks
        Gives what agents that it gives work to know; by default nothing.
    """
    agent = agent_for_run(context, agent, services)
    has_turn = context.record_of(f"{task.prefix}{TURN}") is not None  # with tools, which it may have no more
    if has_turn or uses_tools(agent, services) or task.output is not None or task.thread is not None:
        return await run_turn(context, agent, task, services, blocks or _none)
    # A step with a Retry of its own tries the whole step again; both together would multiply the requests.
    operation = context.operation if context.step.retry is not None else _with_retries(context, agent.retry)
    text = await agent.respond(
        task.prompt, operation, content=task.content, context=task.context, date=context.started_at
    )
    return Answer(text, text)


async def run_turn(
    context: StepContext,
    agent: Agent,
    task: AgentTask,
    services: AgentServices,
    blocks: Blocks,
    *,
    chain: DelegationChain = ALONE,
) -> Answer:
    """Return the answer of an agent with tools, or with structured output or a conversation.

    Parameters
    ----------
    blocks
        Gives what agents that it gives work to know.
    chain
        Who waits for it.
    """
    key = f"{task.prefix}{TURN}"
    conditions = await _turn_conditions(context, agent, task, key, services)
    task = replace(task, share=conditions.get(SHARE))
    if task.thread is not None:
        task = replace(task, history=conditions["thread"]["history"])
    setting = Setting(conditions, short_hash(conditions))
    parameters = {"agent": agent.name, **task.to_dict()}
    recorded_turn = _RecordedTurn(context, agent, task, services, blocks, chain)
    try:
        result = await context.enclosing(
            AGENT_TURN, parameters, recorded_turn.run, key=key, setting=setting, within=chain.within
        )
    finally:
        if not recorded_turn.has_run:
            for spent in _consumption_of(context, context.record_of(key)):
                count_spent(spent)
    if task.thread is not None and (context.miss_policy is None or context.miss_policy.writes):
        await _append_to_thread(context, services, conditions["thread"], key, result["messages"])
    return Answer(result.get("text", result["output"]), result["output"])


async def response_source_for(
    context: StepContext, agent: Agent, services: AgentServices, turn: str
) -> ResponseSource | None:
    """Return the source of responses besides the model, for the turn whose operation has the id `turn`; None if there
    is none.

    Raises
    ------
    ExecutionNotFoundError
        It is to answer as a run did that is not there.
    """
    if agent.model_name.startswith(RECORDED):
        run = agent.model_name.removeprefix(RECORDED)
        requests = await anyio.to_thread.run_sync(services.requests_of, run)  # the log may be long
        return Cassette(agent.model_name, agent.name, _at(context, requests, turn))
    if agent.definition.cache is None:
        return None
    return Cached(services.responses, lasting(agent.definition.cache))


def _at(context: StepContext, requests: Sequence[RequestView], turn: str) -> list[RequestView]:
    """Return the requests of the same turn in another run, or those that agents without tools made in the same step."""
    same = [request for request in requests if request.span.within == turn]
    place = context.place("", 0)
    where = place.path, place.step, place.visit, place.iteration_index
    plain = [request for request in requests if request.span.within is None]
    return same or [
        request
        for request in plain
        if (request.span.path, request.span.step, request.span.visit, request.span.iteration) == where
    ]


SHARE = "share"
"""Key in the setting of a turn for the part of the budget that the delegating turn assigned to it."""


Blocks: TypeAlias = Callable[[Agent, str], Awaitable[Sequence[Mapping[str, Any]]]]
"""Returns the content blocks of an agent's own `Context`. Their operations have a prefix before their keys."""


def uses_tools(agent: Agent, services: AgentServices) -> bool:
    """Return True if an agent may call tools or delegate work, so that it needs a turn."""
    return agent.has_hands or bool(services.subordinates_for(agent.definition))


@dataclass
class _RecordedTurn:
    """Turn whose result may already be in the log."""

    context: StepContext
    agent: Agent
    task: AgentTask
    services: AgentServices
    blocks: Blocks
    chain: DelegationChain
    has_run: bool = False
    """True if the turn ran in this process, even if it failed. False if its result came from the log."""

    async def run(self, turn: str) -> dict[str, Any]:
        """Start or resume the turn; return its result."""
        self.has_run = True
        response_source = await response_source_for(self.context, self.agent, self.services, turn)
        turn_context = StepTurn(self.context, self.task.prefix, turn, self.services, response_source)
        try:
            servers = self.services.servers_for(self.agent.definition)
            return await self.agent.turn(self.task, turn_context, self._tools(turn), servers, self.services.limited)
        finally:
            turn_context.raise_suspension()

    def _tools(self, turn: str) -> list[ToolFunction]:
        """Return the tools that the agent names, and the delegation tool if it has subordinates and no tool of that
        name.
        """
        definition = self.agent.definition
        below = DelegationChain(turn, (*self.chain.agents, self.agent.name))
        tools = [*self.services.tools_for(definition)]
        work = work_tool(
            self.services.subordinates_for(definition), below.agents, functools.partial(self._delegate, below)
        )
        if work is None or any(tool.name == work.name for tool in (*tools, *self.agent.tools)):
            return tools
        return [*tools, work]

    async def _delegate(self, below: DelegationChain, other: Agent, work: str) -> str:
        """Ask another agent to do a task, in a turn below the key of the call that delegates it."""
        call = CALL.get()
        assert call is not None  # noqa: S101 - the guard around all tools has set it
        prefix = f"{call.turn.context.prefix}{call.key}/"
        task = AgentTask(work, context=await self.blocks(other, prefix), prefix=prefix)
        other = agent_for_run(self.context, other, self.services)
        return (await run_turn(self.context, other, task, self.services, self.blocks, chain=below)).text


def _consumption_of(context: StepContext, record: OperationRecord | None) -> Iterator[Mapping[str, int]]:
    """Yield the consumption of a turn that ended before this process resumed it.

    A completed turn states it in its result. For a failed turn it is the sum over the requests and subordinate turns
    inside it, which are visited recursively.
    """
    if record is None or record.status not in (COMPLETED, FAILED):
        return
    if record.operation_type == AGENT_TURN and record.status == COMPLETED:
        yield opened(record.result).get(SPENT, {})
    elif record.operation_type == AGENT_TURN:
        for held in context.records_in(record):
            yield from _consumption_of(context, held)
    elif record.operation_type == AGENT_RESPONSE:
        yield {"calls": 1} if record.status == FAILED else consumed_by(opened(record.result))


async def _turn_conditions(
    context: StepContext, agent: Agent, task: AgentTask, key: str, services: AgentServices
) -> dict[str, Any]:
    """Return the setting of a turn: model, share of the budget, position in a script, and position in a conversation.

    A recorded turn keeps the recorded values in every process. Without a record, a replay policy may supply those of
    the original run. The share of a turn that is run again is computed anew, because the bounds of the delegating agent
    may have been raised.
    """
    conditions: dict[str, Any] = {"model": agent.model_name}
    record = context.record_of(key)
    above = present()
    recorded = {} if record is None else (await context.start_of(key))[1]
    if above is not None and (SHARE in recorded or record is None):
        is_again = record is not None and record.status == PENDING
        share = above.share(ASSIGN_WORK, recorded.get(SHARE), is_again=is_again)
        conditions |= {} if share is None else {SHARE: share}
    if record is None and context.miss_policy is not None:
        recorded = context.miss_policy.setting_of(context.place(key).operation_id)
    if isinstance(agent.model, ScriptedModel) and not agent.model.is_texts:
        conditions["script"] = agent.model.turn(run_id_of(context, key), recorded.get("script"))
    if task.thread is not None:
        conditions["thread"] = recorded.get("thread") or await services.threads.begin(task.thread)
    return conditions


async def _append_to_thread(
    context: StepContext, services: AgentServices, thread: Mapping[str, Any], key: str, messages: Any
) -> None:
    """Append a turn to its conversation, once. If another turn was appended there before, record which branch this turn
    is on.
    """
    stands_in = await services.threads.append(thread, run_id_of(context, key), messages, context.execution_id)
    if stands_in != thread["id"]:
        context.emit(BRANCHED, {"thread": thread["id"], "branch": stands_in}, key=f"{key}-branched")


async def _none(*_: object) -> Sequence[Mapping[str, Any]]:
    return ()


def _with_retries(context: StepContext, policy: Retry) -> RunOperation:
    """Return a function like the context's `operation` that makes one operation for each attempt that the policy
    allows.
    """

    async def operation(
        operation_type: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str | None = None,
        **options: Any,
    ) -> Any:
        name = context.next_key() if key is None else key

        async def attempt(failures: int) -> Any:
            return await context.operation(operation_type, parameters, call, key=name, attempt=failures, **options)

        return await context.retried(name, policy, attempt)

    return operation
