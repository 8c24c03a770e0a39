"""Logs of all kinds driven again: of crashes, agents, forks, resumptions, older versions and other systems."""

from pathlib import Path
from random import Random

import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.agents import Agent, ScriptedModel
from divebook.definitions.functions import step, workflow
from divebook.definitions.step import Retry
from divebook.definitions.tools import tool
from divebook.replay.tape import Tape
from divebook.replay.verify import drive
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from divebook.stores.transfer import import_
from tests.simulation.machine import Machine, VirtualLoop
from tests.simulation.process import Inbox
from tests.simulation.simulation import Simulation, functions_of

RECORDED = Path(__file__).parents[1]
CALLS = []


@pytest.fixture(autouse=True)
def _fresh():
    CALLS.clear()


# --- crashes ---------------------------------------------------------------------------------------------------------


def driven(subject, log):
    """Drive a log of a simulated execution, on a clock that does not wait; return what it did otherwise first."""
    loop, tape = VirtualLoop(Machine(Random(1))), Tape(log)
    try:
        loop.run_until_complete(drive(tape, len(log), subject.services(Inbox()), lambda _: subject.workflow))
    finally:
        loop.close()
    return tape.first


@pytest.mark.parametrize("first", [1, 13])
def test_logs_of_killed_and_resumed_executions_are_equal(first):  # traps 6, 7 and 8
    resumed = 0
    for seed in range(first, first + 12):
        simulation = Simulation(seed)
        simulation.run()
        for subject in simulation.subjects:
            log = list(simulation.disk.read(subject.id))
            resumed += any(event.event_type == "execution_resumed" for event in log)
            with functions_of(simulation.subjects):
                assert driven(subject, log) is None, seed
    assert resumed > 5, "else nothing was resumed"


# --- resumptions -----------------------------------------------------------------------------------------------------


async def flawed(x: object = 0) -> str:
    """Fail the first time."""
    CALLS.append(x)
    if len(CALLS) == 1:
        raise LookupError("not yet")
    return f"{x} at last"


def test_a_failed_execution_that_was_resumed_is_equal_stretch_by_stretch():  # trap 7
    made_of = Workflow("again", [Step("one", script="1", store="a"), Step("two", action="flawed", store="b")])
    with Environment(store=MemoryStore(), actions=[Action("flawed", flawed)]) as world:
        execution = world.start(made_of).wait(20)
        assert execution.status == "failed"
        assert world.run_of(execution.id).verify().equal
        execution = world.run_of(execution.id).resume().wait(20)
        assert execution.status == "completed"
        found = world.run_of(execution.id).verify()
        assert found.equal, str(found)
        assert len(CALLS) == 2


def test_a_cancelled_execution_is_equal_as_far_as_it_came():  # trap 8
    made_of = Workflow("left", [Step("ask", ask="Really?", store="said"), Step("two", script="2")])
    with Environment(store=MemoryStore()) as world:
        execution = world.start(made_of).wait(20)
        world.run_of(execution.id).cancel().wait(20)
        assert world.run_of(execution.id).verify().equal


def test_an_item_that_waits_and_begins_again_with_its_answer_is_equal():  # trap 5
    asked = Step("ask", ask="How is ${name}?", each=Each(["a", "b"], as_="name"), store="said")
    with Environment(store=MemoryStore()) as world:
        execution = world.start(Workflow("items", [asked, Step("len", script="len(state.said)")])).wait(20)
        while execution.open_questions:
            execution.answer(execution.open_questions[0].id, "fine").wait(20)
        begun = [e.data.iteration_index for e in execution.history() if e.event_type == "iteration_started"]
        assert len(begun) > 2
        found = world.run_of(execution.id).verify()
        assert found.equal, str(found)


@step
async def slow(n: int) -> int:
    """Be called."""
    CALLS.append(n)
    if n == 2:
        raise ValueError(f"no {n}")
    return n


@workflow
async def gathers_verified(ctx, n: int) -> str:
    """Catch what one of several calls raises."""
    try:
        await ctx.gather(*(slow(x) for x in range(n)))
    except ValueError as error:
        return str(error)
    return "all"


def test_strands_end_in_the_order_of_the_log():  # trap 4
    with Environment(store=MemoryStore(), workflows=[gathers_verified]) as world:
        execution = world.start("gathers_verified", {"n": 5}).wait(20)
        assert execution.status == "completed", execution.error
        for _ in range(3):
            found = world.run_of(execution.id).verify()
            assert found.equal, str(found)


# --- forks and what-ifs ----------------------------------------------------------------------------------------------


def test_forks_and_what_ifs_are_equal_each_with_what_was_otherwise():  # traps 20 and 21
    text = "import random, time\nint(time.time()) % 5 + random.randint(1, 9) + inputs.n"
    made_of = Workflow("branching off", [Step("a", script=text, store="a"), Step("b", action="flawed")], inputs=["n"])
    with Environment(store=MemoryStore(), actions=[Action("flawed", flawed, idempotent=True)]) as world:
        CALLS.append("before")
        source = world.start(made_of, {"n": 1}).wait(20)
        fork = world.run_of(source.id).fork(change={"variables": {"a": 5}}).wait(20)
        found = world.run_of(source.id).what_if({"inputs": {"n": 2}}).run
        for execution in (source, fork, found):
            verified = world.run_of(execution.id).verify()
            assert verified.equal, str(verified)


# --- agents ----------------------------------------------------------------------------------------------------------


@tool
async def weigh(what: str) -> str:
    """Weigh something."""
    CALLS.append(what)
    return f"{what} weighs {len(CALLS)}"


@tool(approval=True)
async def throw(what: str) -> str:
    """Throw something away."""
    CALLS.append(what)
    return f"{what} is gone"


def call(name, what):
    return {"call": {name: {"what": what}}}


def judging(*script, store, instructions="Judge well", prompt="Judge ${inputs.what}", tools=(weigh, throw)):
    agent = Agent("judge", model=ScriptedModel([*script]), tools=[*tools], instructions=instructions)
    asked = Step("ask", agent="judge", prompt=prompt, store="said", retry=Retry(2, seconds=0.0))
    flow = Workflow("judged", [asked], inputs=["what"], outputs=["said"])
    return Environment(store=store, agents=[agent], workflows=[flow])


def judged(store):
    """Have an agent judge, which weighs, and throws away with a person's leave."""
    world = judging(call("weigh", "a"), call("throw", "a"), "heavy", store=store)
    execution = world.start("judged", {"what": "a"}).wait(20)
    execution.answer(execution.open_questions[0].id, True).wait(20)
    assert execution.status == "completed", execution.error
    return world, execution


def test_turns_of_agents_are_equal_without_a_request_or_a_call_of_a_tool(monkeypatch):
    world, execution = judged(MemoryStore())
    with world:
        CALLS.clear()
        monkeypatch.setattr(ScriptedModel, "reply_to", lambda *_: pytest.fail("a model was asked"))
        found = world.run_of(execution.id).verify()
        assert (found.equal, CALLS) == (True, []), str(found)
        assert dict(found.answered) == {"agent_response": 3, "tool_call": 2, "question": 1}


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"instructions": "Judge badly"}, "operation_started"),
        ({"tools": (weigh,)}, "operation_started"),
    ],
    ids=["instructions", "tools"],
)
def test_another_agent_differs_where_it_asks_its_model(changed, where):  # trap 19
    world, execution = judged(MemoryStore())
    with world, judging("never asked", store=world.store, **changed) as other:
        found = other.run_of(execution.id).verify()
        assert found.divergence is not None
        assert (found.divergence.event_type, found.divergence.step) == (where, "ask"), str(found)


# --- older versions and other systems --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dive-2025-06-13", "dive-2025-06-20", "seed-catalogue"])
def test_logs_of_other_systems_hold_no_definition_and_never_count_as_equal(name):
    with Environment(store=MemoryStore()) as world:
        found = world.run_of(import_(RECORDED / f"events/recorded/{name}.jsonl", world.store)).verify()
        assert (found.outcome, found.unchecked) == ("not checked", ("no definition is recorded in its log",))


def test_a_damaged_log_is_checked_as_far_as_it_is_sound_and_never_counts_as_equal(tmp_path):
    import sqlite3

    place = tmp_path / "s.db"
    with Environment(store=place) as world:
        execution = world.start(Workflow("one", [Step(f"s{n}", script=f"{n}") for n in range(9)])).wait(20)
    with sqlite3.connect(place) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert "events" in tables or "records" in tables, tables
        table = "records" if "records" in tables else "events"
        last = connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0]
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column = next(name for name in ("payload", "data", "facts", "body") if name in columns)
        connection.execute(f"UPDATE {table} SET {column} = zeroblob(9) WHERE rowid = ?", (last,))
    with Environment(store=place) as world:
        found = world.run_of(execution.id).verify()
        assert (found.outcome, found.divergence) == ("not checked", None), str(found)
        assert "damaged after event" in found.unchecked[0]
