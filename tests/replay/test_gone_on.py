"""Going on to its end: what its plan costs, what died or was deleted meanwhile, and the children that had failed."""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.definitions.definition import InputDefinition
from divebook.questions.bounds import NANODOLLARS
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.replay.test_going_on import ACTIONS, MADE, call, failed, gone_on


@pytest.fixture
def world():
    MADE.clear()
    with Environment(store=MemoryStore(), actions=ACTIONS) as made:
        yield made


def paid(last="note"):
    """Return a workflow in which an agent is asked for each of five items, the third of which fails, and once more."""
    one = Step("one", prompt="About $(item)", agent="writer", each=Each("$(range(5))", as_="item"), store="all")
    end = Step("end", prompt="In all", agent="writer", store="end")
    return Workflow("paid", [replace(one, next=["c"]), call("c", 3, "end", action=last), end])


def test_the_plan_costs_what_going_on_then_costs():
    agents = [Agent("writer", model=ScriptedModel(["so"], price=0.25))]
    with Environment(store=MemoryStore(), actions=ACTIONS, agents=agents) as world:
        source = failed(world, paid("refuse"))
        plan, again = gone_on(world, source, paid())
        assert (plan.reused, plan.behind, plan.cost) == (5, ("end",), 0.25)
        assert plan.summary == "5 operations reused, 1 live, about $0.25, then unknown: end"
        assert again.state.own_usage.cost == plan.cost * NANODOLLARS


def test_items_that_are_still_to_begin_cost_as_those_that_are_done():
    agents = [Agent("writer", model=ScriptedModel(["so", "so", {"error": "overloaded"}], price=0.25))]
    with Environment(store=MemoryStore(), actions=ACTIONS, agents=agents) as world:
        source = failed(world, paid())
        world.add_agent(Agent("writer", model=ScriptedModel(["so"], price=0.25)), replace=True)
        plan, again = gone_on(world, source, paid("odd"))
        assert (plan.reused, len(plan.live), plan.items, plan.cost) == (2, 1, {"one": 2}, 1.0)
        assert plan.summary == "2 operations reused, 1 live, about $1.00, then unknown: 2 items of one, c and end"
        assert again.state.own_usage.cost == plan.cost * NANODOLLARS


def test_a_source_that_is_deleted_meanwhile_takes_its_results_along_and_not_what_is_shared(world):
    def definition(front, last):
        steps = [*front, call("b", 2, "c"), call("c", 3, action=last)]
        return Workflow("asks", [call("z", 0, steps[0].name), *steps])

    source = failed(world, definition([], "refuse"))
    asked = Step("sure", ask="Sure?", next=["b"])
    plan, again = gone_on(world, source, definition([asked], "note"))
    assert (plan.reused, plan.asked, plan.at_hand, again.status) == (1, ("sure",), 1, "waiting")
    world.store.delete(source.id)
    again.answer(again.open_questions[0].id, "yes").wait(20)
    assert (again.status, MADE) == ("completed", [2, 3])
    assert again.variables["z"] == 0


KILLED = """
import os, signal, sys
from divebook import Environment, Step, Workflow
from divebook.steps import Action
def made(x, idempotency_key=""):
    with open(os.environ["MADE_AT"], "a") as file:
        file.write(f"{x}\\n")
    if os.environ.get("DIES") == str(x):
        os.kill(os.getpid(), signal.SIGKILL)
    if x < 0:
        raise ValueError(x)
    return x
def pay(third):
    steps = [(n, Step(n, action="made", parameters={"x": x}, next=after)) for n, x, after in
             (("a", 1, ["b"]), ("b", 2, ["c"]), ("c", third, ["d"]), ("d", 4, ["e"]), ("e", 5, []))]
    return Workflow("pay", [step for _, step in steps])
def world(store):
    return Environment(store=store, actions=[Action("made", made)])
if __name__ == "__main__":
    environment = world(sys.argv[1])
    environment.add_workflow(pay(3))
    environment.run_of(sys.argv[2]).resume(definition="new").wait(20)
    environment.close()
"""


def test_what_was_killed_while_it_went_on_is_gone_on_with_and_no_second_one_begins(tmp_path, monkeypatch):
    file, made, store = tmp_path / "killed.py", tmp_path / "made.txt", str(tmp_path / "s.db")
    file.write_text(KILLED)
    monkeypatch.setenv("MADE_AT", str(made))
    spec = importlib.util.spec_from_file_location("killed", file)
    killed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(killed)
    with killed.world(store) as world:
        source = world.start(killed.pay(-3)).wait(20)
    assert source.status == "failed"
    command = [sys.executable, str(file), store, source.id]
    assert subprocess.run(command, env={**os.environ, "DIES": "4"}, check=False).returncode == -signal.SIGKILL
    with killed.world(store) as world:
        world.add_workflow(killed.pay(3))
        again = world.run_of(source.id).resume(definition="new").wait(20)
        assert [record.execution_id for record in world.store.records(origin="resume")] == [again.id]
        assert again.status == "completed"
    assert made.read_text().split() == ["1", "2", "-3", "3", "4", "4", "5"]


def nested(third, last, front=()):
    """Return a parent whose child has a child: four calls in it, of which one fails, and what is then left."""
    inner = Workflow("inner", [call("i", 1, "j"), call("j", 2, "k"), call("k", 3, action=third)], outputs=["k"])
    outer = Workflow("outer", [call("o", 7, "run"), Step("run", workflow="inner", store="run")], outputs=["run"])
    first = front[0].name if front else "sub"
    steps = [call("a", 0, first), *front, Step("sub", workflow="outer", store="sub", next=["c"]), call("c", last)]
    return inner, outer, Workflow("parent", steps)


@pytest.mark.parametrize("front", [(), (Step("new", script="1", next=["sub"]),)], ids=["same", "inserted"])
def test_a_child_that_failed_uses_what_it_had_done_and_so_does_its_own(world, front):
    for definition in nested("refuse", 9):
        world.add_workflow(definition)
    source = failed(world, definition)
    for definition in nested("note", 10, front):
        world.add_workflow(definition, replace=True)
    plan, again = gone_on(world, source)
    assert (again.status, MADE) == ("completed", [3, 10])
    (child,) = world.store.records(parent=source.id, origin="child")
    assert plan.children == (child.execution_id,)
    assert f"reused: the child execution {child.execution_id}" in plan.lines
    assert world.run_of(child.execution_id).status == "failed"
    assert world.run_of(again.id).verify().divergence is None
    (begun,) = world.store.records(parent=again.id, origin="child")
    assert world.run_of(begun.execution_id).verify().divergence is None


def test_a_child_that_was_deleted_is_begun_from_nothing(world):
    for definition in nested("refuse", 9):
        world.add_workflow(definition)
    source = failed(world, definition)
    for definition in nested("note", 10):
        world.add_workflow(definition, replace=True)
    for record in world.store.records(origin="child"):
        world.store.delete(record.execution_id)
    assert world.run_of(source.id).resume(definition="new").wait(20).status == "completed"
    assert MADE == [7, 1, 2, 3, 10]


def test_a_child_with_another_input_uses_what_it_had_done_without_it(world):
    def inner(action, *inputs):
        return Workflow("inner", [call("i", 1, "k"), call("k", 2, action=action)], inputs=[*inputs])

    outer = Workflow("outer", [Step("run", workflow="inner")])
    world.add_workflow(inner("refuse"))
    source = failed(world, outer)
    world.add_workflow(inner("note", InputDefinition("more", "int", default=5)), replace=True)
    plan, again = gone_on(world, source, replace(outer, steps=(*outer.steps, Step("last", script="1"))))
    assert (again.status, MADE, len(plan.children)) == ("completed", [2], 1)
    (child,) = world.store.records(parent=again.id)
    assert world.run_of(child.execution_id).inputs == {"more": 5}


def test_items_that_failed_beside_the_first_one_are_live_and_not_reused(world):
    def definition(shift):
        given = f"$(item + {shift} if item in (2, 3) else item)"
        return Workflow("items", [call("s", given, action="even", each=Each("$(range(4))", as_="item", parallel=4))])

    failing = asyncio.Barrier(2)

    async def even(x: int) -> int:
        if x in (2, 3):
            async with failing:
                raise ValueError(x)
        MADE.append(x)
        return x

    with Environment(store=MemoryStore(), actions=[Action("even", even)]) as own:
        source = failed(own, definition(0))
        plan, again = gone_on(own, source, definition(10))
        assert (again.status, sorted(MADE)) == ("completed", [12, 13])
    assert plan.summary == "2 operations reused, 2 live"
    assert plan.lines[3] == "live: action even (step s), 2 times"
