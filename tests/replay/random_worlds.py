"""Random workflows over actions that count their calls and answer differently each time, and one Python workflow."""

import asyncio
import random
from collections import Counter

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import step, workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.definitions.step import Ask, Catch, Retry
from divebook.steps.actions import Action
from divebook.stores import MemoryStore

CALLS = Counter()
"""Calls that reached the outside, by name."""


async def work(x: object = 0) -> int:
    CALLS["work"] += 1
    await asyncio.sleep(0)
    return sum(map(ord, str(x))) % 97


async def tick() -> int:
    CALLS["tick"] += 1
    return CALLS["tick"]


async def flaky(x: object = 0) -> int:
    CALLS["flaky"] += 1
    if CALLS["flaky"] % 2:
        raise RuntimeError(f"flaky {x}")
    return 5


async def broken(x: object = 0) -> int:
    CALLS["broken"] += 1
    raise ValueError(f"broken {x}")


ACTIONS = [Action(function.__name__, function) for function in (work, tick, flaky, broken)]
CLOCK = "import random, time\nint(time.time()) % 5 + random.randint(1, 9) + state.{known}"


@step
async def measure(n: int) -> int:
    CALLS["measure"] += 1
    await asyncio.sleep(0)
    return n * 2 + CALLS["measure"]


@workflow
async def inner(ctx, n: int):
    return await measure(n)


@workflow
async def outer(ctx, n: int):
    measured = await ctx.gather(measure(n), measure(n), measure(n + 2))
    await ctx.sleep(0.001)
    moment, chance = await ctx.now(), await ctx.random()
    found = await ctx.run("inner", {"n": measured[0]})
    said = await ctx.ask("How many?")
    sent = await ctx.wait_signal("go")
    return [*measured, moment.isoformat(), chance, said, sent, len(found)]


def random_workflow(seed):
    """Return blocks in a row, each of which stores a variable that later ones read."""
    rng = random.Random(seed)
    steps, known = [Step("start", script="inputs.n + 1", store="v0")], ["v0"]
    for number in range(1, rng.randint(4, 9)):
        steps += _block(rng, f"s{number}", f"v{number}", rng.choice(known))
        known.append(f"v{number}")
    steps.append(Step("last", script=" + ".join(f"state.{name}" for name in known), store="total"))
    return Workflow(f"random{seed}", steps, inputs=["n"], outputs=["total"])


def _block(rng, name, var, known):
    ref = f"$(state.{known})"
    match rng.choice(
        ["work", "script", "clock", "each", "parallel", "branch", "flaky", "catch", "ask", "tick", "model"]
    ):
        case "work":
            return [Step(name, action="work", parameters={"x": ref}, store=var)]
        case "script":
            return [Step(name, script=f"state.{known} * 2 + 1", store=var)]
        case "clock":
            return [Step(name, script=CLOCK.format(known=known), store=var)]
        case "each" | "parallel" as kind:
            loop = Each(f"$([1, state.{known}, 3, state.{known}])", as_="item", parallel=3 if kind == "parallel" else 1)
            calls = Step(name, action="work", parameters={"x": "$(item)"}, each=loop, store=f"l{name}")
            return [calls, Step(f"{name}sum", script=f"sum(state.l{name})", store=var)]
        case "branch":
            left = Step(f"{name}l", action="work", parameters={"x": ref}, store=f"{var}l", next=[f"{name}j"])
            right = Step(f"{name}r", action="tick", store=f"{var}r", next=[f"{name}j"])
            join = Step(f"{name}j", script=f"state.{var}l + state.{var}r", store=var, join=True)
            return [Step(name, script="1", next=[f"{name}l", f"{name}r"]), left, right, join]
        case "flaky":
            return [Step(name, action="flaky", retry=Retry(4, seconds=0.001), store=var)]
        case "catch":
            tried = Step(name, action="broken", catch=Catch(f"{name}c", store=f"e{name}"), end=True)
            return [tried, Step(f"{name}c", script="7", store=var)]
        case "ask":
            asked = Ask(question=f"How many after ${{state.{known}}}?", schema={"type": "integer"})
            return [Step(name, type="interrupt", ask=asked, store=var)]
        case "tick":
            return [Step(name, action="tick", store=var)]
        case _:
            prompt = Step(name, prompt=f"Count ${{state.{known}}}", store=f"t{name}")
            return [prompt, Step(f"{name}len", script=f"len(state.t{name})", store=var)]


FUNCTIONS = {name: WORKFLOW_FUNCTIONS[name] for name in ("inner", "outer")}
"""What the decorators have registered, for whichever module of tests imports this first."""


def environment(*workflows):
    WORKFLOW_FUNCTIONS.update(FUNCTIONS)
    agent = Agent("model", model=ScriptedModel(["a number"]))
    return Environment(store=MemoryStore(), workflows=workflows, actions=ACTIONS, agents=[agent])


def ran(world, definition, n=3):
    """Run a workflow to its end; return the execution, with no call counted."""
    CALLS.clear()
    execution = world.start(definition, {"n": n}).wait(20)
    while execution.status == "waiting":
        for question in execution.open_questions:
            world.answer(question.id, 4 if question.schema else "four", execution)
        if definition is outer and not execution.open_questions:
            world.run_of(execution.id).signal("go", 2)
        execution.wait(20)
    assert execution.status == "completed", execution.error
    CALLS.clear()
    return execution
