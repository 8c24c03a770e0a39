"""The executions of the chaos: their workflows, the calls they make, and the file outside that counts these."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from divebook import Agent, Each, Environment, Retry, ScriptedModel, Step, Workflow
from divebook.agents.scripted import ScriptedCall, ScriptedReply
from divebook.definitions.definition import InputDefinition
from divebook.definitions.functions import step, workflow
from divebook.definitions.tools import ToolFunction, tool
from divebook.events.event import MICROSECONDS
from divebook.runtime.clock import SystemClock
from divebook.steps.actions import Action
from divebook.steps.function import Context
from divebook.stores import EventStore

QUICK, SLOW = 0.001, 0.05
SIGNAL, CALLS, AGENT = "go", "calls", "hurried"
IDEMPOTENT = frozenset({"looked"})
"""Labels of calls that are simply made again where their outcome is not known."""


@dataclass(frozen=True)
class Folder:
    """Where a chaos keeps its files; the store may lie on a small disk of its own, which the others must not fill."""

    path: Path
    disk: Path

    @property
    def store(self) -> Path:
        """The one store."""
        return self.disk / "store.db"

    @property
    def exports(self) -> Path:
        """Logs of executions."""
        return self.path / "exports"

    @property
    def backups(self) -> Path:
        """Copies of the store."""
        return self.path / "backups"

    def say(self, name: str, *words: object) -> None:
        """Append a line to one of the files in one piece, whoever else writes to it."""
        line = "\t".join(map(str, words)) + "\n"
        file = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, line.encode())
        os.close(file)

    def said(self, name: str) -> list[list[str]]:
        """Return the words of the lines of a file."""
        file = self.path / name
        return [line.split("\t") for line in file.read_text().splitlines()] if file.exists() else []


class JumpingClock(SystemClock):
    """A clock that somebody sets now and then."""

    offset = 0

    def now(self) -> int:
        """Return microseconds since 1970, by this clock."""
        return super().now() + self.offset

    def jump(self, random: Random) -> None:
        """Set it somewhere else."""
        self.offset = round(random.choice((0, 0, 1, -1)) * random.choice((1, 60, 3600, 86_400)) * MICROSECONDS)


def workflows() -> list[Workflow]:
    """Return the workflows of this process, that of a function registered."""
    inputs = [InputDefinition("token", required=True)]
    each, retry = Each([1, 2, 3], as_="item", parallel=2), Retry(3, seconds=QUICK, jitter=0)
    order = [
        call("first", next=["left", "right"]),
        call("left", "left-${item}", each=each, next="looked"),
        Step("right", ask="Go on?", store="said", next="looked"),
        call("looked", action="idempotent", join=True),
        Step("hold", "wait", signal=SIGNAL),
        Step("pause", "wait", seconds=SLOW),
        call("last"),
    ]
    child = Step("child", "workflow", workflow="quick", inputs={"token": "${inputs.token}.child"})
    return [
        Workflow("order", order, inputs=inputs),
        Workflow("quick", [call("one"), call("flaky", action="flaky", retry=retry), call("two")], inputs=inputs),
        Workflow("parent", [call("before"), child, call("after")], inputs=inputs),
        Workflow("agent", [Step("turn", prompt="${inputs.token}", agent=AGENT, store="said")], inputs=inputs),
    ]


def call(name: str, label: str = "", *, action: str = "call", **settings: Any) -> Step:
    """Return a step that makes one call."""
    return Step(name, action=action, parameters={"token": "${inputs.token}", "label": label or name}, **settings)


def environment(folder: Folder, store: EventStore, clock: SystemClock | None = None) -> Environment:
    """Return the environment of one process."""
    counted = Counted(folder)
    actions = [
        Action("call", counted.make),
        Action("idempotent", counted.make, idempotent=True),
        Action("flaky", counted.now_and_then),
    ]
    counted.register()
    agents = [Agent(AGENT, model=Hurried(HURRIED), tools=counted.tools())]
    return Environment("chaos", store=store, workflows=workflows(), actions=actions, agents=agents, clock=clock)


class Hurried(ScriptedModel):
    """Calls tools with the token that it is asked about, so that their calls are counted as its own."""

    def reply_to(self, prompt: str, run_id: str | None, answered: int) -> ScriptedReply:
        """Return the reply to a request."""
        reply = super().reply_to(prompt, run_id, answered)
        calls = (ScriptedCall(called.tool, {"token": prompt, **called.arguments}) for called in reply.calls)
        return replace(reply, calls=tuple(calls))


HURRIED = [
    [{"call": {"pay": {"label": "side-1"}}}, {"call": {"look": {"label": "looked"}}}],
    {"call": {"pay": {"label": "end"}}},
    "done",
]
"""What the agent does."""


class Counted:
    """Calls that write themselves down."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._random = folder, Random(os.getpid())

    async def make(self, token: str, label: str) -> str:
        """Make a call that takes a moment before and after its effect."""
        await asyncio.sleep(self._random.choice((0, 0, QUICK, SLOW)))
        self._folder.say(CALLS, token, label)
        await asyncio.sleep(self._random.choice((0, 0, QUICK)))
        return f"{token} {label}"

    async def now_and_then(self, token: str, label: str) -> str:
        """Fail before there is any effect, or make a call."""
        if self._random.random() < 0.4:
            raise RuntimeError("not yet")
        return await self.make(token, label)

    def tools(self) -> list[ToolFunction]:
        """Return the tools of the agent."""

        @tool
        async def pay(token: str, label: str) -> str:
            """Pay."""
            return await self.make(token, label)

        @tool(idempotent=True)
        async def look(token: str, label: str) -> str:
            """Look."""
            return await self.make(token, label)

        return [pay, look]

    def register(self) -> None:
        """Have this process know the workflow that is a function."""

        @step
        async def pay(token: str, label: str) -> str:
            return await self.make(token, label)

        @step(idempotent=True)
        async def look(token: str, label: str) -> str:
            return await self.make(token, label)

        @workflow("scripted")
        async def scripted(ctx: Context, token: str) -> Any:
            await pay(token, "begin")
            both = await ctx.gather(pay(token, "side-1"), look(token, "looked"))
            said = await ctx.ask("Sure?")
            await ctx.sleep(SLOW)
            return [*both, said, await pay(token, "end")]
