"""Signals: kept until taken, in the order of the log, from whatever process they come."""

import math

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.functions import workflow
from divebook.engine.inbox import SIGNAL, Message, facts_of
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionError, SetupError
from divebook.runtime.messages import this_person
from tests.runtime.test_expiring import Watch, settled
from tests.runtime.worlds import Calls, Gate, becomes, environment, event_types

WAIT = Workflow("w", [Step("wait", type="wait", signal="go", store="payload")])


def test_a_wait_step_takes_the_payload():
    world = environment(WAIT)
    execution = world.start("w").wait(20)
    assert (execution.status, execution.open_questions, execution.state.wake_at) == ("waiting", [], None)
    done = world.run_of(execution.id).signal("go", {"n": [1]}).wait(20)
    assert (done.status, done.variables) == ("completed", {"payload": {"n": [1]}})


def test_other_signals_do_not_wake_it_and_are_kept():
    world = environment(WAIT)
    execution = world.start("w").wait(20)
    assert world.run_of(execution.id).signal("stay", 1).wait(20).status == "waiting"
    assert dict(execution.state.signals) == {"stay": (1,)}
    assert world.run_of(execution.id).signal("go", 2).wait(20).variables == {"payload": 2}


def test_signals_that_come_before_the_wait_are_taken_in_order():
    gate = Gate()
    steps = [Step("slow", action="gate"), *(Step(f"w{n}", type="wait", signal="go", store=f"v{n}") for n in range(3))]
    world = environment(Workflow("w", steps), actions=[gate.action()])
    execution = world.start("w")
    assert gate.reached.wait(20)
    for number in range(3):
        world.run_of(execution.id).signal("go", number)
    gate.opened.set()
    assert execution.wait(20).variables == {"v0": 0, "v1": 1, "v2": 2}
    assert event_types(execution).count("signal_received") == 3


def test_two_waiters_get_one_signal_each():
    steps = [
        Step("s", script="1", next=["a", "b"]),
        Step("a", type="wait", signal="go", store="a", next=["end"]),
        Step("b", type="wait", signal="go", store="b", next=["end"]),
        Step("end", script="1", join=True),
    ]
    world = environment(Workflow("w", steps))
    execution = world.start("w").wait(20)
    execution = world.run_of(execution.id).signal("go", 1).wait(20)
    assert (execution.status, list(execution.variables.values())) == ("waiting", [1])
    done = world.run_of(execution.id).signal("go", 2).wait(20)
    assert (done.status, sorted(done.variables.values())) == ("completed", [1, 2])


def test_strands_of_a_function_get_one_signal_each():
    @workflow("two_strands")
    async def two_strands(ctx):
        return await ctx.gather(ctx.wait_signal("go"), ctx.wait_signal("go"), ctx.wait_signal("stop"))

    world = environment()
    execution = world.start(two_strands).wait(20)
    for name, payload in (("stop", "c"), ("go", "a"), ("go", "b")):
        execution = world.run_of(execution.id).signal(name, payload).wait(20)
    assert sorted(execution.outputs["result"][:2]) == ["a", "b"]
    assert execution.outputs["result"][2] == "c"


def test_an_environment_over_the_same_store_sends():
    calls = Calls()
    steps = [Step("note", action="note"), *WAIT.steps]
    world = environment(Workflow("w", steps), actions=[calls.action()])
    execution = world.start("w").wait(20)
    other = Environment(store=world.store, actions=[calls.action()])
    assert other.run_of(execution.id).signal("go", "x").wait(20).variables == {"payload": "x"}
    assert (len(calls), world.run_of(execution.id).status) == (1, "completed")


def test_a_signal_from_elsewhere_reaches_the_process_that_drives():
    gate = Gate()
    steps = [
        Step("s", script="1", next=["slow", "wait"]),
        Step("slow", action="gate", next=["end"]),
        Step("wait", type="wait", signal="go", store="payload", next=["end"]),
        Step("end", script="1", join=True),
    ]
    world = environment(Workflow("w", steps), actions=[gate.action()])
    execution = world.start("w")
    assert gate.reached.wait(20)
    Environment(store=world.store, actions=[gate.action()]).run_of(execution.id).signal("go", 7)
    assert becomes(lambda: "payload" in execution.variables)
    gate.opened.set()
    assert execution.wait(20).status == "completed"


def test_a_wait_ends_in_time_with_a_failure_that_can_be_caught():
    steps = [
        Step("wait", type="wait", signal="go", seconds=60, catch={"step": "late", "errors": ["TimeoutError"]}),
        Step("late", script="'late'", store="r"),
    ]
    clock = Watch()
    world = environment(Workflow("w", steps), clock=clock)
    execution = world.start("w").wait(20)
    assert execution.status == "waiting"
    clock.at += 61_000_000
    done = settled(world, execution)
    assert (done.status, done.variables) == ("completed", {"r": "late"})


def test_a_signal_in_time_is_taken_and_a_later_process_counts_from_the_first_wait():
    steps = [Step("wait", type="wait", signal="go", seconds=60, store="r")]
    clock = Watch()
    world = environment(Workflow("w", steps), clock=clock)
    execution = world.start("w").wait(20)
    later = Watch()
    later.at = clock.at + 61_000_000
    done = Environment(store=world.store, clock=later).run_of(execution.id).resume().wait(20)
    assert (done.status, "no signal 'go' came within 60 seconds" in done.error) == ("failed", True)


def test_nobody_takes_signals_of_what_has_ended():
    world = environment(Workflow("w", [Step("s", script="1")]))
    execution = world.start("w").wait(20)
    with pytest.raises(ExecutionError, match="is completed"):
        world.run_of(execution.id).signal("go")
    with pytest.raises(SetupError, match="needs a name"):
        world.run_of(execution.id).signal("")


@pytest.mark.parametrize("duration", ["x", "5 mins", math.nan, True, [5]], ids=repr)
def test_what_is_no_duration_is_refused_with_what_to_write(duration):
    @workflow
    async def sleeper(ctx):
        await ctx.sleep(duration)

    @workflow
    async def waiter(ctx):
        await ctx.wait_signal("go", within=duration)

    expected = "must be a number of seconds, a timedelta, or a string such as '5 min', not"
    for name, call in (("sleeper", "ctx.sleep() "), ("waiter", "within of ctx.wait_signal() ")):
        execution = environment().start(name).wait(20)
        assert (execution.status, call + expected in execution.error) == ("failed", True)


def signals_in(world, execution_id):
    return [e.data for e in world.store.read(execution_id) if e.event_type == "signal_received"]


@pytest.mark.parametrize("by", [None, "ann", "ann event 7", "exec_of_another_run"])
def test_the_log_names_the_sender_of_a_signal_and_nothing_else(by):
    world = environment()
    waits = world.start(WAIT).wait(20)
    world.run_of(waits.id).signal("go", 1, by=by)
    world.run_of(waits.id).wait(20)
    assert [data.source for data in signals_in(world, waits.id)] == [by or this_person()]


def test_the_end_of_a_child_is_sent_by_that_child():
    world = environment(Workflow("asks", [Step("ask", type="interrupt", ask="Who?")]))
    parent = world.start(Workflow("w", [Step("below", workflow="asks")])).wait(20)
    ((child, question),) = world.inbox()
    world.answer(question.id, "ann").wait(20)
    world.run_of(parent.id).wait(20)
    assert [(data.signal_type, data.source) for data in signals_in(world, parent.id)] == [(child, child)]


def test_signals_that_an_older_version_has_sent_name_their_sender_as_well():
    state = ExecutionState("exec_1")
    old = Message("exec_1", SIGNAL, "k", {"name": "go", "payload": 1}, "ann@host event_01k8", 1, 1)
    assert [fact.data.source for fact in facts_of(state, [old])] == ["ann@host"]
