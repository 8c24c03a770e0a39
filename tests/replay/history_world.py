"""What the recorded histories call: actions, tools, agents and workflow functions, which stay as they are.

The logs in ``recorded`` hold digests and lines of these functions: who changes one records its histories anew.
"""

import asyncio
from datetime import UTC, datetime

from divebook import Agent, Environment, ScriptedModel, tool
from divebook.definitions.functions import WORKFLOW_FUNCTIONS, step, workflow
from divebook.definitions.resources import AgentDefinition, ApprovalRule
from divebook.definitions.step import Retry
from divebook.steps.actions import Action

# Recorded errors name lines of this file: a changed number of lines above them breaks recorded histories.
_USAGE = {"input_tokens": 12, "output_tokens": 5}


async def work(x: object = 0) -> int:
    return sum(map(ord, str(x))) % 97


async def broken(x: object = 0) -> str:
    raise ValueError(f"{x} is broken")


async def odd(x: int) -> int:
    if x % 2 == 0:
        raise ValueError(f"{x} is even")
    return x * x


async def kinds() -> dict[str, object]:
    return {"bytes": b"\x00\xff", "when": datetime(2025, 6, 1, tzinfo=UTC), "pair": (1, 2.0)}


async def large() -> list[str]:
    return [f"row {number} of many" for number in range(400)]


async def slow(x: object = 0) -> object:
    for _ in range(20):
        await asyncio.sleep(0)
    return x


async def told(context: object) -> str:
    context.emit("half", {"done": 0.5})
    return "told"


def pay(amount: int, to: str) -> str:
    return f"{to} has {amount}"


class Unsure:
    """Actions that fail at first."""

    def __init__(self) -> None:
        self._flaky = self._mended = 0

    async def flaky(self, x: object = 0) -> str:
        self._flaky += 1
        if self._flaky % 3:
            raise ConnectionError(f"no answer about {x}")
        return f"{x} at last"

    async def mended(self, x: object = 0) -> str:
        self._mended += 1
        if self._mended == 1:
            raise LookupError(f"{x} is not there yet")
        return f"{x} is there"


def actions() -> list[Action]:
    """Return actions, anew for each history."""
    unsure = Unsure()
    repeatable = [Action(one.__name__, one, idempotent=True) for one in (work, slow, unsure.flaky, unsure.mended)]
    once = [Action(one.__name__, one) for one in (broken, odd, kinds, large, told)]
    return [*repeatable, *once, Action("pay", pay, approval=True)]


# --- agents ----------------------------------------------------------------------------------------------------------


@tool
async def weigh(what: str) -> str:
    """Weigh something."""
    return f"{what} weighs {len(what)}"


@tool(approval=True)
async def throw(what: str) -> str:
    """Throw something away."""
    return f"{what} is gone"


@tool
async def lost(what: str) -> str:
    """Look for something that nobody finds."""
    raise LookupError(f"no {what} here")


def _call(name: str, /, **given: object) -> dict[str, object]:
    return {"call": {name: given}}


def agents() -> list[Agent]:
    """Return agents whose models answer from a script, anew for each history."""

    def agent(name, script, tools=(), *, output=None, **more):
        definition = AgentDefinition(name, goal="Judge", **more)
        return Agent(definition, model=ScriptedModel(script, usage=_USAGE), tools=tools, output=output)

    ask_work = _call("assign_work", agent="reader", name="read", description="Read it.", expected_output="a word")
    lost_work = _call("assign_work", agent="loser", name="find", description="Find it.", expected_output="a word")
    of_numbers = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return [
        agent("poet", ["one two", "three"]),
        agent("judge", [_call("weigh", what="stone"), _call("throw", what="stone"), "heavy"], [weigh, throw]),
        agent("pair", [[_call("weigh", what="a"), _call("weigh", what="bcd")], "both"], [weigh]),
        agent("counter", ['{"n": 7}'], output=of_numbers),
        agent("boss", [ask_work, "done"], subordinates=("reader",)),
        agent("reader", ["read"]),
        agent("chief", [lost_work, "done"], subordinates=("loser",)),
        agent("loser", [_call("lost", what="key"), "never"], [lost]),
        agent("friend", [_call("throw", what="a"), _call("throw", what="a"), "gone"], [throw]),
        agent(
            "strict", [_call("throw", what="a"), "kept"], [throw], approvals=(ApprovalRule("throw", outcome="deny"),)
        ),
    ]


# --- workflow functions ----------------------------------------------------------------------------------------------


@step(idempotent=True, retry=Retry(4, seconds=0.0))
async def recorded_measure(n: int) -> int:
    """Measure."""
    return n * 2


@step
async def recorded_failing(n: int) -> int:
    """Fail for two."""
    if n == 2:
        raise ValueError(f"no {n}")
    return n


@workflow
async def recorded_inner(ctx: object, n: int) -> int:
    """Be a child."""
    return await recorded_measure(n)


@workflow
async def recorded_all(ctx, n: int) -> int:
    """Do what workflow functions do."""
    found = await ctx.gather(recorded_measure(n), recorded_measure(n + 1), recorded_measure(n + 2))
    await ctx.sleep(0.5)
    moment, chance = await ctx.now(), await ctx.random()
    ctx.emit("half", {"found": found})
    child = await ctx.run("recorded_inner", {"n": n})
    said = await ctx.ask("How many?")
    sent = await ctx.wait_signal("go")
    return sum(found) + int(moment.timestamp() > 0) + int(chance < 2) + len(str(said)) + sent + len(child)


@workflow
async def recorded_gather(ctx, n: int) -> str:
    """Catch what one of several calls raises."""
    try:
        await ctx.gather(*(recorded_failing(x) for x in range(n)))
    except ValueError as error:
        return str(error)
    return "all"


@workflow
async def recorded_version(ctx, n: int) -> int:
    """Follow a version."""
    version = await ctx.version("rounding", 1, 3)
    return await recorded_measure(n) + version


@workflow
async def recorded_chain(ctx, n: int) -> int:
    """Go on as a new execution until it is 2."""
    if n < 2:
        await ctx.continue_as_new({"n": n + 1})
    return await recorded_measure(n)


@workflow
async def recorded_fails(ctx, n: int) -> int:
    """Fail by itself."""
    await recorded_measure(n)
    raise RuntimeError(f"cannot go on with {n}")


@workflow
async def recorded_abandons(ctx, n: int) -> int:
    """Abandon a sleep and a wait for a signal, and wait for another signal."""
    try:
        await ctx.gather(ctx.sleep(3600), ctx.wait_signal("go"), recorded_failing(n))
    except ValueError:
        return await ctx.wait_signal("go")
    return n


FUNCTIONS = (
    recorded_inner,
    recorded_all,
    recorded_gather,
    recorded_version,
    recorded_chain,
    recorded_fails,
    recorded_abandons,
)
_REGISTERED = {flow.name: WORKFLOW_FUNCTIONS[flow.name] for flow in FUNCTIONS}


def world(store: object = "memory:", **more: object) -> Environment:
    """Return an environment with all that recorded histories call."""
    WORKFLOW_FUNCTIONS.update(_REGISTERED)  # other tests begin without any
    from divebook.definitions.resources import WorkspaceDefinition  # recorded errors name lines of this file
    from tests.replay.history_pipelines import add_pipelines

    desk = WorkspaceDefinition("desk", shell=False)
    made = Environment(store=store, actions=actions(), agents=agents(), workflows=FUNCTIONS, workspaces=[desk], **more)
    add_pipelines(made)
    return made
