"""Agents that are passed as objects: their answers have the type of their output."""

import asyncio
from dataclasses import dataclass
from typing import assert_type

import pydantic_ai
from pydantic_ai.models.test import TestModel

from divebook import Agent, Context, Environment, ScriptedModel, testing, workflow


@dataclass
class Ticket:
    team: str
    urgent: bool


writer = Agent("writer", model=ScriptedModel(["Dear customer"]), instructions="Write a mail.")
clerk = Agent("clerk", output=Ticket, model=ScriptedModel(['{"team": "sales", "urgent": true}']))
counter = Agent("counter", output=int, model=ScriptedModel(['{"response": 3}']))
lister = Agent("lister", output=list[str], model=ScriptedModel(['["a"]']))
any_agent: Agent = Agent("any", output={"type": "integer"})
wrapped = Agent.of(pydantic_ai.Agent(TestModel(), output_type=bool, name="wrapped"))


@workflow
async def triage(ctx: Context, mail: str) -> str:
    ticket = await ctx.agent(clerk).run(f"Sort this: {mail}")
    assert_type(ticket, Ticket)
    answer = await ctx.agent(writer).run(f"Answer: {mail}")
    assert_type(answer, str)
    count = await ctx.agent(counter).run("How many?")
    return f"{ticket.team} {answer} {count + 1} {ticket.urgent}"


@workflow
async def overridden(ctx: Context) -> Ticket:
    return await ctx.agent(writer).run("Which team?", output=Ticket)


def types() -> None:
    assert_type(writer, Agent[str])
    assert_type(clerk, Agent[Ticket])
    assert_type(lister, Agent[list[str]])
    assert_type(wrapped, Agent[bool])
    assert_type(clerk.with_settings(temperature=0.0), Agent[Ticket])


if __name__ == "__main__":
    types()
    with Environment(store="memory:", agents=[writer, clerk, counter]) as environment:
        result: str = environment.start(triage, {"mail": "Help!"}).result()
    assert result == "sales Dear customer 4 True"
    ctx = testing.Context(agents={"clerk": {"team": "it", "urgent": False}, "writer": "Hi", "counter": 0})
    assert asyncio.run(triage.fn(ctx, "Help!")) == "it Hi 1 False"
