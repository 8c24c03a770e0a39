"""Workflows that fail, each in its own way, and the same definitions written elsewhere: lines shifted, file renamed.

``python -m tests.replay.failing`` verifies each with every change of its layout, and with a really different error.
"""

import asyncio
import importlib.util
import sys
import tempfile
from pathlib import Path

from divebook import Agent, Environment, ScriptedModel
from divebook.definitions.reader import read_definitions
from divebook.steps.actions import Action
from divebook.stores import MemoryStore

HEAD = """\
Workflows:
- Name: child
  Steps:
  - {Name: inner, Script: "[1][5]"}
- Name: w
  Inputs: [{Name: n, Default: 3}]
  Steps:
  - Name: first
    Script: inputs.n * 2
    Store: x
"""

YAML = {
    "script": ('  - {Name: a, Script: "1/0", Store: y}\n', "1/0", "[][0]"),
    "script of several lines": ("  - Name: a\n    Script: |\n      y = 1\n      y / 0\n", "y / 0", "y / None"),
    "script that raises": ("""  - {Name: a, Script: "raise ValueError('no')"}\n""", "'no'", "'not now'"),
    "undefined variable": ('  - {Name: a, Script: "state.z + 1"}\n', "state.z", "state.q"),
    "undefined name": ('  - {Name: a, Script: "zed + 1"}\n', "zed", "zod"),
    "script out of time": ('  - {Name: a, Script: "while True: pass", Timeout: 0.05}\n', "while True: pass", "1/0"),
    "template": ('  - {Name: a, Prompt: "Say ${state.z}"}\n', "state.z", "state.q"),
    "condition": (
        '  - {Name: a, Script: "1", Next: [{Step: b, Condition: "$(1/0)"}]}\n  - {Name: b, Script: "2"}\n',
        "1/0",
        "[][1]",
    ),
    "items": (
        '  - {Name: a, Script: "1 / (item - 2)", Each: {Items: "$([1, 2, 3])", As: item}}\n',
        "item - 2",
        "item - 3",
    ),
    "items at once": (
        '  - {Name: a, Script: "1 / (item - 2)", Each: {Items: "$([1, 2, 3])", As: item, Parallel: 2}}\n',
        "1 / (item - 2)",
        "[][item]",
    ),
    "two items at once": (
        '  - {Name: a, Script: "1 / (item - 2)", Each: {Items: "$([1, 2])", As: item, Parallel: 2}}\n',
        "1 / (item - 2)",
        "[][item]",
    ),
    "items that cannot be made": ('  - {Name: a, Script: "1", Each: {Items: "$(1/0)", As: item}}\n', "1/0", "[][0]"),
    "action": ("  - {Name: a, Action: broken, Parameters: {x: here}}\n", "here", "there"),
    "action with items": (
        '  - {Name: a, Action: broken, Parameters: {x: "$(item)"}, Each: {Items: "$([1])", As: item}}\n',
        "[1]",
        "[2]",
    ),
    "action out of time": ("  - {Name: a, Action: slow, Timeout: 0.05}\n", "Action: slow", "Action: broken"),
    "retried action": (
        "  - {Name: a, Action: broken, Retry: {Attempts: 3, Seconds: 0}}\n",
        "Attempts: 3",
        "Attempts: 2",
    ),
    "retried script": ('  - {Name: a, Script: "1/0", Retry: {Attempts: 3, Seconds: 0}}\n', "1/0", "[][0]"),
    "wrong parameters": ("  - {Name: a, Action: broken, Parameters: {y: 1}}\n", "{y: 1}", "{z: 1}"),
    "caught and failed again": (
        """  - {Name: a, Script: "1/0", Catch: [{Step: c, Store: problem}]}
  - {Name: c, Script: "raise ValueError(state.problem['message'])"}
""",
        "['message']",
        "['type']",
    ),
    "child": ("  - {Name: a, Workflow: child}\n", "Workflow: child", 'Script: "1/0"'),
    "branches": (
        """  - {Name: a, Script: "1", Next: [{Step: b}, {Step: c}]}
  - {Name: b, Script: "1/0", End: true}
  - {Name: c, Script: "2", End: true}
""",
        "1/0",
        "[][0]",
    ),
    "bound": ("  - {Name: a, Prompt: Say something, Agent: m}\n", "Prompt: Say something, Agent: m", 'Script: "1/0"'),
    "output that does not fit": ("  - {Name: a, Prompt: Count, Agent: counter}\n", "Count", "Recount"),
    "seconds": ('  - {Name: a, Seconds: "${1/0}"}\n', "1/0", "[][0]"),
    "question": ('  - {Name: a, Ask: {Question: "Is ${state.z} right?"}}\n', "state.z", "state.q"),
    "emit": ('  - {Name: a, Script: "1", Store: z}\n  - {Name: b, Prompt: "${state.z.q.r}"}\n', "z.q.r", "z.q.s"),
}
"""By name: steps, and a replacement that makes them fail differently."""

FUNCTION = '''\
import asyncio

from divebook import action
from divebook.definitions import step, workflow


@step
async def broken_step(n: int) -> int:
    """Fail."""
    raise LookupError(f"no {n}")


@workflow(name="inner_failing")
async def inner_failing(ctx, n: int):
    return 1 / (n - n)


@workflow(name="failing")
async def failing(ctx, n: int):
'''
FUNCTIONS = {
    "own code": ("    return 1 / (n - n)\n", "1 / (n - n)", "[][n]"),
    "own code raises": ("    raise ValueError('no')\n", "'no'", "'never'"),
    "step": ("    return await broken_step(n)\n", "broken_step(n)", "broken_step(n + 1)"),
    "step, then own code": (
        """    try:
        await broken_step(n)
    except LookupError as error:
        raise ValueError('no') from error
""",
        "'no'",
        "'never'",
    ),
    "steps at once": (
        "    return await ctx.gather(broken_step(n), broken_step(2))\n",
        "broken_step(n)",
        "broken_step(9)",
    ),
    "version": ("    await ctx.version('change', 1, 2)\n    return 1 / (n - n)\n", "1 / (n - n)", "[][n]"),
    "child": ("    return await ctx.run('inner_failing', {'n': n})\n", "{'n': n}", "{'n': n + 1}"),
    "inputs of a child": ("    return await ctx.run('inner_failing', {'m': n})\n", "'m'", "'k'"),
    "unknown workflow": ("    return await ctx.run('nowhere', {'n': n})\n", "'nowhere'", "'anywhere'"),
    "wrong use of the context": ("    return await ctx.sleep('long')\n", "'long'", "'longer'"),
    "result that cannot be stored": ("    return {'a': [object()]}\n", "'a'", "'b'"),
    "script": ("    await ctx.now()\n    return n.nothing\n", "n.nothing", "n.something"),
}
LAYOUTS = {
    "comments above": lambda text: "# a comment\n# another one\n\n" + text,
    "blank lines between": lambda text: text.replace(
        "\n  - Name: first", "\n\n\n  # the first\n  - Name: first"
    ).replace("\n@workflow", "\n# a comment\n\n@workflow"),
    "as it was": lambda text: text,
}


async def broken(x: object = 0) -> int:
    """Fail."""
    raise ValueError(f"{x} is broken")


async def slow() -> int:
    """Take longer than the step may."""
    await asyncio.sleep(20)
    return 1


RACES = {"items at once"}
"""A what-if computes scripts again, and whether the third item starts before the second one fails is a matter of time.

With two items both always start, so "two items at once" compares all that a what-if does."""


def environment():
    counter = ScriptedModel(["many"] * 9)
    agents = [Agent("counter", model=counter, output=int), Agent("m", model=ScriptedModel(["x"]))]
    actions = [Action("broken", broken), Action("slow", slow, idempotent=True)]
    return Environment(store=MemoryStore(), actions=actions, agents=agents)


def read(text, source):
    return {found.name: found for found in read_definitions(text, source_name=source).workflows}


def imported(text, path):
    """Import a module of workflow functions, which replace those of the same names."""
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("failing_functions", path)
    module = sys.modules["failing_functions"] = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before


def check_definition(name):
    """Run a definition that fails; assert that its layout makes no difference and another error does."""
    steps, old, new = YAML[name]
    with environment() as world:
        for workflow in read(HEAD + steps, "first.yaml").values():
            world.add_workflow(workflow)
        bounds = {"max_llm_calls": 0, "on_exhausted": "fail"} if name == "bound" else None
        run = world.start("w", bounds=bounds).wait(90)
        assert run.status == "failed", run.status
        assert world.run_of(run.id).verify().equal, world.run_of(run.id).verify()
        for layout in LAYOUTS.values():
            other = read(layout(HEAD + steps), "elsewhere/second.yaml")
            world.add_workflow(other["child"], replace=True)
            assert world.run_of(run.id).verify(other["w"]).equal, world.run_of(run.id).verify(other["w"])
        found = world.run_of(run.id).what_if()
        if name in RACES:
            assert found.run.error == run.error, found
        else:
            assert found.comparison.is_same, found
        other = read((HEAD + steps).replace(old, new), "first.yaml")
        assert world.run_of(run.id).verify(other["w"]).divergence is not None


def check_function(name, folder):
    """Do the same with a workflow function."""
    body, old, new = FUNCTIONS[name]
    imported(FUNCTION + body, folder / "first.py")
    with environment() as world:
        run = world.start("failing", {"n": 3}).wait(90)
        assert run.status == "failed", run.status
        assert world.run_of(run.id).verify().equal, world.run_of(run.id).verify()
        for number, layout in enumerate(LAYOUTS.values()):
            imported(layout(FUNCTION + body), folder / f"second{number}.py")
            assert world.run_of(run.id).verify().equal, world.run_of(run.id).verify()
        imported(FUNCTION + body.replace(old, new), folder / "first.py")
        assert world.run_of(run.id).verify().divergence is not None


if __name__ == "__main__":
    for name in YAML:
        check_definition(name)
    with tempfile.TemporaryDirectory() as folder:
        for name in FUNCTIONS:
            check_function(name, Path(folder))
    sys.stdout.write(f"{len(YAML) + len(FUNCTIONS)} failing workflows verified in {len(LAYOUTS)} layouts each\n")
