"""An execution that goes on as a new one, with a fresh log."""

import pytest

from divebook import Environment
from divebook.definitions import step, workflow
from divebook.errors import ExecutionError
from divebook.runtime.loop import ENGINE
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment, event_types
from tests.store.remote import Gate, RemoteStore


@pytest.fixture
def counting():
    """Return a workflow that counts to `until`, two at a time, and what was counted."""
    counted = []

    @step(idempotent=True)
    async def count(number: int) -> int:
        counted.append(number)
        return number

    @workflow("counting")
    async def counting(ctx, start: int = 0, until: int = 5):
        last = await count(start + 1)
        if last < until:
            await ctx.continue_as_new({"start": last}, reason="max_events_reached")
        return last

    return counting, counted


def chain(world, execution):
    """Return an execution and those as which it went on."""
    found = [execution]
    while (following := found[-1].state.continued_as) is not None:
        found.append(world.run_of(following).wait(20))
    return found


def test_it_ends_and_a_new_one_goes_on_with_other_inputs(counting):
    definition, counted = counting
    world = environment()
    runs = chain(world, world.start(definition, {"until": 3}).wait(20))
    assert [run.status for run in runs] == ["continued_as_new", "continued_as_new", "completed"]
    assert [run.inputs["start"] for run in runs] == [0, 1, 2]
    assert runs[-1].outputs == {"result": 3}
    assert counted == [1, 2, 3]
    last = runs[0].history()[-1].data
    assert (last.event_type, last.new_execution_id) == ("execution_continue_as_new", runs[1].id)
    assert (last.reason, last.new_inputs) == ("max_events_reached", {"start": 1, "until": 3})
    assert runs[1].history()[0].data.parent == runs[0].id


def test_wherever_it_died_there_is_one_successor(counting):
    definition, _ = counting
    world = environment()
    runs = chain(world, world.start(definition, {"until": 2}).wait(20))
    for length in range(3, runs[0].state.last_sequence - 2):  # the last three come in one commit
        store = cut(world.store, runs[0], length)
        copied(world.store, store, runs[1])
        again = environment(store=store)
        resumed = again.run_of(runs[0].id).resume().wait(20)
        assert (resumed.status, resumed.state.continued_as) == ("continued_as_new", runs[1].id), length
        assert len(again.store.records()) == 2


def test_who_resumes_the_predecessor_resumes_a_successor_that_had_just_begun(counting):
    definition, _ = counting
    world = environment()
    runs = chain(world, world.start(definition, {"until": 2}).wait(20))
    store = cut(world.store, runs[0], runs[0].state.last_sequence - 4)  # it has not recorded that the successor exists
    store.append(runs[1].id, world.store.read(runs[1].id)[:1], 0)
    again = environment(store=store)
    resumed = again.run_of(runs[0].id).resume().wait(20)
    assert (resumed.state.continued_as, again.run_of(runs[1].id).wait(20).status) == (runs[1].id, "completed")


def copied(source, target, execution):
    """Copy a whole log into another store."""
    target.append(execution.id, source.read(execution.id), 0)


def test_nothing_follows_it(counting):
    definition, _ = counting
    world = environment()
    execution = world.start(definition, {"until": 2}).wait(20)
    for attempt in (execution.resume, execution.cancel):
        with pytest.raises(Exception, match="continued_as_new"):
            attempt()


def test_who_is_waited_for_cannot_go_on_as_a_new_one(counting):
    @workflow("outer")
    async def outer(ctx):
        return await ctx.run("counting")

    world = environment()
    failed = world.start(outer).wait(20)
    assert failed.status == "failed"
    assert "cannot continue as a new one" in failed.error


def test_what_is_left_of_the_bounds_goes_with_it(counting):
    definition, _ = counting
    world = environment()
    runs = chain(world, world.start(definition, {"until": 2}, bounds={"max_llm_calls": 7}).wait(20))
    assert runs[1].envelope.max_llm_calls == 7


def test_another_process_may_follow_it(counting):
    definition, _ = counting
    world = environment()
    first = world.start(definition, {"until": 2}).wait(20)
    found = Environment(store=world.store).run_of(first.state.continued_as)
    assert found.inputs == {"start": 1, "until": 2}
    assert "operation_started" in event_types(found)


class SlowSuccessors(RemoteStore):
    """A store whose commit of the first events of a successor can be delayed, before the server has it or after."""

    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.is_written_first = False

    def _write(self, batches):
        beginnings = [batch.beginning for batch in batches if batch.beginning is not None]
        is_successor = any((beginning.key or "").startswith("continues/") for beginning in beginnings)
        if is_successor and not self.is_written_first:
            self.gate.pass_through()
        answer = super()._write(batches)
        if is_successor and self.is_written_first:
            self.gate.pass_through()
        return answer


@pytest.mark.parametrize("is_written_first", [False, True])
@pytest.mark.parametrize("request_name", ["cancel", "pause"])
def test_a_request_during_the_start_of_the_successor_comes_too_late(counting, request_name, is_written_first):
    definition, counted = counting
    store = SlowSuccessors()
    store.is_written_first = is_written_first
    world = environment(store=store)
    with store.gate.closed():
        run = world.start(definition, {"until": 2})
        assert store.gate.reached.wait(20)
        getattr(run, request_name)()
        # The request is forwarded on the engine's loop, which has handled it after the next call there.
        ENGINE.call(lambda: None)
        assert run.is_live
    runs = chain(world, run.wait(20))
    assert [each.status for each in runs] == ["continued_as_new", "completed"]
    assert len(world.store.records()) == 2
    assert counted == [1, 2]


def test_a_predecessor_that_is_left_during_the_start_of_its_successor_finds_it_again(counting):
    definition, counted = counting
    store = SlowSuccessors()
    world = environment(store=store)
    with store.gate.closed():
        run = world.start(definition, {"until": 2})
        assert store.gate.reached.wait(20)
        ENGINE.call(run._driver.leave)
    with pytest.raises(ExecutionError, match="resume it"):
        run.wait(20)
    runs = chain(world, world.run_of(run.id).resume().wait(20))
    assert [each.status for each in runs] == ["continued_as_new", "completed"]
    assert len(world.store.records()) == 2
    assert counted == [1, 2]
