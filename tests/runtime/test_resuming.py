"""Going on where a log ends: after a failure, a cancellation, or the end of the process that wrote it."""

import asyncio
import random

import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.engine.evolve import fold
from divebook.errors import DivergenceError, ExecutionError, ExecutionNotFoundError
from divebook.events import catalog
from divebook.stores import MemoryStore
from tests.runtime.worlds import Calls, Failing, Gate, environment, event_types, run


def cut(store, execution, length):
    """Return a store whose log of `execution` ends after `length` events, as if the process had died there."""
    shorter = MemoryStore()
    shorter.append(execution.id, store.read(execution.id)[:length], 0)
    return shorter


def test_a_failed_step_is_tried_again_and_what_succeeded_is_not():
    calls, failing = Calls(), Failing()
    steps = [
        Step("a", action="note", parameters={"value": 1}),
        Step("b", action="fail"),
        Step("c", script="2", store="c"),
    ]
    world = environment(Workflow("w", steps), actions=[calls.action(), failing.action()])
    execution = world.start("w").wait(20)
    failing.broken = False
    resumed = world.run_of(execution.id).resume().wait(20)
    assert (resumed.status, resumed.variables, calls, failing.calls) == ("completed", {"c": 2}, [1], 2)


def test_finished_items_of_a_loop_are_not_run_again():
    calls, failing = Calls(), Failing()

    async def note_then_fail(value):
        calls.append(value)
        if value == "c" and failing.broken:
            raise RuntimeError("boom")
        return value.upper()

    from divebook.steps.actions import Action

    each = Each(["a", "b", "c", "d"], as_="i")
    workflow = Workflow("w", [Step("s", action="act", parameters={"value": "${i}"}, each=each, store="r")])
    world = environment(workflow, actions=[Action("act", note_then_fail)])
    execution = world.start("w").wait(20)
    failing.broken = False
    resumed = world.run_of(execution.id).resume().wait(20)
    assert resumed.variables == {"r": ["A", "B", "C", "D"]}
    assert calls == ["a", "b", "c", "c", "d"]


def test_a_condition_that_failed_is_evaluated_again():
    execution = run(Workflow("w", [Step("a", script="1", next=[("b", "$(state.missing > 1)")]), Step("b", script="2")]))
    assert execution.status == "failed"
    resumed = environment(store=execution.store).run_of(execution.id).resume().wait(20)
    assert event_types(resumed).count("step_started") == 1


BRANCHES = Workflow(
    "w",
    [
        Step("a", action="note", parameters={"value": "a"}, next=["b", "c"]),
        Step("b", action="note", parameters={"value": "b"}, store="b", next="d"),
        Step("c", action="note", parameters={"value": "c"}, each=Each([1, 2], as_="i"), store="c", next="d"),
        Step(
            "d",
            action="note",
            parameters={"value": "${state.b}"},
            join=True,
            store="d",
            next=[("e", "$(state.d == 'b')")],
        ),
        Step("e", type="wait", seconds=0),
        Step("f", script="state.b + state.d", store="f"),
    ],
)


def complete_run():
    calls = Calls()
    world = environment(BRANCHES, actions=[calls.action()])
    return world.start("w").wait(20)


WHOLE = complete_run()


@pytest.mark.parametrize("length", range(1, WHOLE.state.last_sequence))
def test_wherever_the_log_ends_the_rest_comes_to_the_same_and_completed_operations_do_not_run_again(length):
    store = cut(WHOLE.store, WHOLE, length)
    done = sum(
        e.event_type == "operation_completed" and e.data.operation_type == "action_execution"
        for e in store.read(WHOLE.id)
    )
    calls = Calls()
    resumed = Environment(store=store, actions=[calls.action()]).run_of(WHOLE.id).resume().wait(20)
    assert (resumed.status, resumed.variables, resumed.outputs) == (WHOLE.status, WHOLE.variables, WHOLE.outputs)
    assert {path.id: path.status for path in resumed.internals.paths.values()} == {
        path.id: path.status for path in WHOLE.internals.paths.values()
    }
    assert len(calls) == 5 - done


def test_the_definition_of_the_start_is_used_whatever_has_become_of_it():
    failing = Failing()
    world = environment(
        Workflow("w", [Step("a", action="fail"), Step("b", script="'old'", store="v")]), actions=[failing.action()]
    )
    execution = world.start("w").wait(20)
    world.add_workflow(Workflow("w", [Step("a", script="'new'", store="v")]), replace=True)
    failing.broken = False
    assert world.run_of(execution.id).resume().wait(20).variables == {"v": "old"}


def test_a_cancelled_execution_can_be_taken_up_again():
    world = environment(Workflow("w", [Step("a", type="wait", seconds=0), Step("b", script="1", store="b")]))
    execution = world.start("w").wait(20)
    shorter = cut(world.store, execution, 4)
    other = Environment(store=shorter)
    assert other.run_of(execution.id).cancel().wait(20).status == "cancelled"
    assert other.run_of(execution.id).resume().wait(20).variables == {"b": 1}


class StoppedClock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self, now=1_700_000_000_000_000):
        self.time, self.slept = now, []

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += int(seconds * 1_000_000)
        await asyncio.sleep(0)


class FixedChance:
    def __init__(self, seed=1):
        self._random = random.Random(seed)

    def bits(self, count):
        return self._random.getrandbits(count)


def test_a_timer_goes_on_from_when_it_was_set():
    clock = StoppedClock()
    world = environment(Workflow("w", [Step("a", type="wait", seconds=3600)]), clock=clock, chance=FixedChance())
    execution = world.start("w").wait(20)
    store = cut(world.store, execution, 4)
    assert store.read(execution.id)[-1].data.operation_type == "timer"
    later = StoppedClock(store.read(execution.id)[-1].recorded_at + 3_000_000_000)
    resumed = Environment(store=store, clock=later, chance=FixedChance(2)).run_of(execution.id).resume().wait(20)
    assert (resumed.status, later.slept) == ("completed", [600])


def test_a_timer_whose_time_is_over_fires_at_once_and_once():
    clock = StoppedClock()
    world = environment(Workflow("w", [Step("a", type="wait", seconds=60)]), clock=clock, chance=FixedChance())
    execution = world.start("w").wait(20)
    later = StoppedClock(clock.time + 10**12)
    resumed = (
        Environment(store=cut(world.store, execution, 4), clock=later, chance=FixedChance(2))
        .run_of(execution.id)
        .resume()
        .wait(20)
    )
    assert later.slept == []
    assert event_types(resumed).count("operation_completed") == 1


def test_an_operation_that_the_definition_no_longer_asks_for_is_a_divergence():
    failing = Failing()
    each = Each(["a", "b"], as_="i")
    steps = [Step("s", action="fail", parameters={"value": "${i}"}, each=each)]
    failing.broken = False
    world = environment(Workflow("w", steps), actions=[failing.action()])
    execution = world.start("w").wait(20)
    events = world.store.read(execution.id)
    index = next(n for n, e in enumerate(events) if e.event_type == "operation_completed")
    other = Workflow("w", [Step("s", action="fail", parameters={"value": "other"}, each=each)])
    started = events[0].data
    changed = catalog.ExecutionStarted("w", {}, other.to_dict(), started.fingerprint)
    store = MemoryStore()
    from dataclasses import replace

    store.append(execution.id, [replace(events[0], data=changed), *events[1 : index + 1]], 0)
    resumed = Environment(store=store, actions=[failing.action()]).run_of(execution.id).resume().wait(20)
    assert resumed.status == "failed"
    assert "the code no longer matches the log at step 's', item 0, call 1" in resumed.error
    assert DivergenceError.__name__


def test_a_completed_execution_is_returned_as_it_is():
    before = WHOLE.store.read(WHOLE.id)
    again = environment(store=WHOLE.store).run_of(WHOLE.id).resume().wait(20)
    assert (again.id, again.status) == (WHOLE.id, "completed")
    assert WHOLE.store.read(WHOLE.id) == before


def test_a_completed_execution_gets_no_other_bounds_and_is_not_tried_again():
    world = environment(store=WHOLE.store)
    with pytest.raises(ExecutionError, match="has completed"):
        world.run_of(WHOLE.id).resume({"max_llm_calls": 9})
    with pytest.raises(ExecutionError, match="has completed"):
        world.run_of(WHOLE.id).retry()


def test_what_runs_here_already_is_returned_as_it_is_unless_its_bounds_are_to_change():
    gate = Gate()
    world = environment(Workflow("w", [Step("a", action="gate")]), actions=[gate.action()])
    execution = world.start("w")
    assert gate.reached.wait(20)
    resumed = world.run_of(execution.id).resume()
    with pytest.raises(ExecutionError, match="is already running in this process; wait for it or cancel it"):
        world.run_of(execution.id).resume({"max_llm_calls": 3})
    gate.opened.set()
    assert resumed.wait(20).status == "completed"
    assert "execution_resumed" not in event_types(execution)


def test_an_unknown_execution_is_told():
    with pytest.raises(ExecutionNotFoundError):
        environment().run_of("exec_nobody").resume()


def test_a_past_execution_answers_like_a_live_one():
    past = environment(store=WHOLE.store).run_of(WHOLE.id[:14])
    assert past.state == fold(WHOLE.id, WHOLE.history())
    assert (past.status, past.variables, past.workflow) == (WHOLE.status, WHOLE.variables, WHOLE.workflow)
    assert past.wait(1) is past


def test_waiting_for_what_nobody_drives_says_what_to_do():
    store = cut(WHOLE.store, WHOLE, 5)
    with pytest.raises(ExecutionError, match=r"is interrupted: .* to continue: run\.resume"):
        environment(store=store).run_of(WHOLE.id).wait(1)


def test_an_execution_can_be_awaited_inside_a_running_loop():
    async def main():
        world = environment(Workflow("w", [Step("a", script="1", store="n")]))
        execution = world.start("w")
        assert await execution is execution
        return world.start("w").wait(20).variables, execution.variables

    assert asyncio.run(main()) == ({"n": 1}, {"n": 1})


def test_to_stop_awaiting_does_not_stop_the_execution():
    gate = Gate()

    async def main():
        world = environment(Workflow("w", [Step("a", action="gate")]), actions=[gate.action()])
        execution = world.start("w")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_awaited(execution), 0.01)
        gate.opened.set()
        return (await execution).status

    assert asyncio.run(main()) == "completed"


async def _awaited(execution):
    return await execution
