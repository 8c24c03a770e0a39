"""An agent with tools is asked in a step: the log has its turn, or it runs and may hand work on to others."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from divebook.agents import Agent, ScriptedModel
from divebook.agents.present import CALL, consumed_by, count_spent, present
from divebook.agents.turn import SPENT, Answer, Assignment
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, Setting
from divebook.engine.records import OperationRecord
from divebook.engine.state import COMPLETED, FAILED, PENDING
from divebook.events.codec import short_hash
from divebook.events.recorded import opened
from divebook.execution.context import StepContext
from divebook.steps.offers import Offers
from divebook.steps.recalling import recall_for
from divebook.steps.threads import BRANCHED
from divebook.steps.turns import TURN, StepTurn, as_asked, run_id_of
from divebook.steps.work import ASSIGN_WORK, work_tool
from divebook.workflow.tools import ToolFunction

SHARE = "share"
"""What the log keeps of a turn that was given a part of what is left to the one that it works for."""
Blocks: TypeAlias = Callable[[Agent, str], Awaitable[Sequence[Mapping[str, Any]]]]
"""Gives the blocks of an agent's own `Context`; what they record has a prefix in front of its keys."""


class Superiors(NamedTuple):
    """The turns that wait for one, and the agents at work in them."""

    within: str | None = None
    """Id of the nearest."""
    agents: tuple[str, ...] = ()


ALONE = Superiors()


def has_hands(agent: Agent, offers: Offers) -> bool:
    """Whether an agent may do more than answer: call tools, or give work to others."""
    return agent.has_hands or bool(offers.subordinates_for(agent.definition))


async def take_turn(
    context: StepContext, agent: Agent, asked: Assignment, offers: Offers, blocks: Blocks, *, chain: Superiors = ALONE
) -> Answer:
    """Return what an agent with tools answers, or one that is to answer with data.

    Parameters
    ----------
    blocks
        Gives what agents that it gives work to know.
    chain
        Who waits for it.
    """
    key = f"{asked.prefix}{TURN}"
    made_with = await _made_with(context, agent, asked, key, offers)
    asked = replace(asked, share=made_with.get(SHARE))
    if asked.thread is not None:
        asked = replace(asked, history=made_with["thread"]["history"])
    setting = Setting(made_with, short_hash(made_with))
    parameters = {"agent": agent.name, **asked.to_dict()}
    taking = _Taking(context, agent, asked, offers, blocks, chain)
    try:
        result = await context.enclosing(
            AGENT_TURN, parameters, taking.run, key=key, setting=setting, within=chain.within
        )
    finally:
        if not taking.has_run:
            for spent in _spent_in(context, context.record_of(key)):
                count_spent(spent)
    if asked.thread is not None and (context.beyond is None or context.beyond.writes):
        await _write_down(context, offers, made_with["thread"], key, result["messages"])
    return Answer(result.get("text", result["output"]), result["output"])


@dataclass
class _Taking:
    """A turn that the log may have already."""

    context: StepContext
    agent: Agent
    asked: Assignment
    offers: Offers
    blocks: Blocks
    chain: Superiors
    has_run: bool = False
    """Whether it ran in this process, to its end or not; else it had ended before."""

    async def run(self, turn: str) -> dict[str, Any]:
        """Begin it, or enter it again; return what it comes to."""
        self.has_run = True
        recall = await recall_for(self.context, self.agent, self.offers, turn)
        means = StepTurn(self.context, self.asked.prefix, turn, self.offers, recall)
        try:
            servers = self.offers.servers_for(self.agent.definition)
            return await self.agent.turn(self.asked, means, self._tools(turn), servers, self.offers.limited)
        finally:
            means.require_going_on()

    def _tools(self, turn: str) -> list[ToolFunction]:
        """Return the tools that its agent names, and that by which it hands work on, if it may and has no such tool."""
        definition, below = self.agent.definition, Superiors(turn, (*self.chain.agents, self.agent.name))
        named = [*self.offers.tools_for(definition)]
        handing = work_tool(
            self.offers.subordinates_for(definition), below.agents, functools.partial(self._hand, below)
        )
        if handing is None or any(tool.name == handing.name for tool in (*named, *self.agent.tools)):
            return named
        return [*named, handing]

    async def _hand(self, below: Superiors, other: Agent, work: str) -> str:
        """Have another agent do a work, in a turn under the key of the call that hands it on."""
        call = CALL.get()
        assert call is not None  # noqa: S101 - the guard around all tools has set it
        prefix = f"{call.turn.context.prefix}{call.key}/"
        given = Assignment(work, context=await self.blocks(other, prefix), prefix=prefix)
        other = as_asked(self.context, other, self.offers)
        return (await take_turn(self.context, other, given, self.offers, self.blocks, chain=below)).text


def _spent_in(context: StepContext, record: OperationRecord | None) -> Iterator[Mapping[str, int]]:
    """Give what a turn has spent that ended before this process took it up: as it says itself, or its requests do."""
    if record is None or record.status not in (COMPLETED, FAILED):
        return
    if record.operation_type == AGENT_TURN and record.status == COMPLETED:
        yield opened(record.result).get(SPENT, {})
    elif record.operation_type == AGENT_TURN:
        for held in context.records_in(record):
            yield from _spent_in(context, held)
    elif record.operation_type == AGENT_RESPONSE:
        yield {"calls": 1} if record.status == FAILED else consumed_by(opened(record.result))


async def _made_with(context: StepContext, agent: Agent, asked: Assignment, key: str, offers: Offers) -> dict[str, Any]:
    """Return what a turn is made with: its places in a script and in a thread stay, whatever process goes on."""
    made_with: dict[str, Any] = {"model": agent.model_name}
    record, above = context.record_of(key), present()
    known = {} if record is None else (await context.start_of(key))[1]
    if above is not None and (SHARE in known or record is None):
        is_again = record is not None and record.status == PENDING
        share = above.share(ASSIGN_WORK, known.get(SHARE), is_again=is_again)
        made_with |= {} if share is None else {SHARE: share}
    if record is None and context.beyond is not None:
        known = context.beyond.setting_of(context.place(key).operation_id)
    if isinstance(agent.model, ScriptedModel) and not agent.model.is_texts:
        made_with["script"] = agent.model.turn(run_id_of(context, key), known.get("script"))
    if asked.thread is not None:
        made_with["thread"] = known.get("thread") or await offers.threads.begin(asked.thread)
    return made_with


async def _write_down(context: StepContext, offers: Offers, thread: Mapping[str, Any], key: str, messages: Any) -> None:
    """Add a turn to its thread, once; the log says where another one was there before."""
    stands_in = await offers.threads.append(thread, run_id_of(context, key), messages, context.execution_id)
    if stands_in != thread["id"]:
        context.emit(BRANCHED, {"thread": thread["id"], "branch": stands_in}, key=f"{key}-branched")
