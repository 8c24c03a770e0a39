"""What is taken up by itself, how often, and what needs a person."""

import pytest

from divebook import Step, Workflow
from divebook.config.answers import MAX_RESUMED, recover_automatically
from divebook.errors import ExecutionError, NeedsPersonError
from divebook.events import catalog
from divebook.events.event import MICROSECONDS, Event
from divebook.notebook.recovery import MAX_LISTED, _recovered_lines, listing
from divebook.runtime.clock import Ids, SystemChance, SystemClock
from divebook.runtime.queueing import RESUMPTIONS, next_attempt
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.runtime.worlds import environment

WORK = Workflow("w", [Step("a", action="work", store="n")])
NOW = 1_800_000_000 * MICROSECONDS


class Watch(SystemClock):
    """A clock that stands still."""

    time = NOW

    def now(self):
        return self.time


def work():
    return Action("work", lambda: 1, idempotent=True)


def killed(store, *recoveries, name="exec_1"):
    """Write the log of an execution whose process has died in step a, and again after each of these recoveries."""
    ids = Ids(SystemClock(), SystemChance())
    payloads = [catalog.ExecutionStarted("w", {}, WORK.to_dict(), WORK.fingerprint)]
    payloads += [catalog.ExecutionResumed("running", recovery=recovery) for recovery in recoveries]
    events = [Event(ids.event(NOW), name, number, NOW, data) for number, data in enumerate(payloads, start=1)]
    store.append(name, events, 0)
    return name


def world_after(*recoveries):
    world = environment(actions=[work()], clock=Watch())
    return world, killed(world.store, *recoveries)


@pytest.mark.parametrize("made", range(RESUMPTIONS.attempts))
def test_each_attempt_waits_longer_than_the_one_before(made):
    world, name = world_after(*range(1, made + 1))
    pause = int(RESUMPTIONS.delay(made)) * MICROSECONDS
    world._clock.time = NOW + pause - 1
    if made:
        with pytest.raises(
            ExecutionError, match=f"resumed {made} times automatically and made no progress. The next attempt is"
        ):
            world.queues.recover(name)
    world._clock.time = NOW + pause
    recovered = world.queues.recover(name).wait(20)
    resumed = [event.data for event in recovered.history() if isinstance(event.data, catalog.ExecutionResumed)]
    assert (recovered.status, resumed[-1].recovery) == ("completed", made + 1)


def test_what_never_gets_on_needs_a_person_who_can_resume_it():
    world, name = world_after(1, 2, 3)
    world._clock.time = NOW + 10**6 * MICROSECONDS
    with pytest.raises(NeedsPersonError, match=f"{name} needs a person: it was resumed 3 times automatically"):
        world.queues.recover(name)
    assert world.run_of(name).resume().wait(20).status == "completed"


@pytest.mark.parametrize("last", [(None,), (1, 2, 3, None)])
def test_attempts_are_counted_anew_after_a_person(last):
    world, name = world_after(*last)
    assert world.queues.recover(name).wait(20).status == "completed"


def test_attempts_are_counted_anew_once_it_got_on():
    world, name = world_after(1, 2, 3)
    failing = environment(store=world.store, actions=[Action("work", lambda: 1 / 0, idempotent=True)], clock=Watch())
    assert failing.run_of(name).resume().wait(20).status == "failed"
    assert next_attempt(world.store, name, NOW) == 1


def test_many_interrupted_executions_are_recovered_lines_some_at_a_time_and_a_poisoned_log_hides_itself_alone():
    world = environment(actions=[work()], clock=Watch())
    names = [killed(world.store, *(1, 2, 3)[: number % 4], name=f"exec_{number}") for number in range(200)]
    foreign = catalog.ExecutionStarted("w", {})
    world.store.append("exec_bad", [Event("event_" + "0" * 26, "exec_bad", 1, NOW, foreign)], 0)
    records = world.queues.recoverable()
    assert len(records) == len(names) + 1
    recovered = recover_automatically(world, records)
    assert len(recovered.resumed) == MAX_RESUMED
    assert len(recovered.resumed) + len(recovered.refused) + recovered.untried == len(records)
    assert {execution.wait(20).status for execution in recovered.resumed} == {"completed"}


def test_a_long_list_of_interrupted_executions_ends_with_how_many_more_there_are():
    world = environment(actions=[work()], clock=Watch())
    for number in range(MAX_LISTED + 7):
        killed(world.store, name=f"exec_{number}")
    lines = listing(world.store, world.queues.recoverable()).splitlines()
    assert lines[-2:] == [
        "  page 1 of 2 (57 runs); to show page N: divebook recover --page N",
        "to resume one run: divebook recover ID; to resume all: divebook recover --all",
    ]
    assert len(lines) == MAX_LISTED + 3
    assert len(listing(world.store, world.queues.recoverable(), 2).splitlines()) == 7 + 3
    assert listing(world.store, world.queues.recoverable(), 3) == "there is no page 3"


class Counting(MemoryStore):
    """Counts what is read of logs."""

    reads = 0

    def _read(self, *given):
        self.reads += 1
        return super()._read(*given)


def test_thousands_of_interrupted_executions_take_a_page_of_work_and_a_line():
    world = environment(store=Counting(), actions=[work()], clock=Watch())
    for number in range(5000):
        killed(world.store, name=f"exec_{number}")
    records = world.queues.recoverable()
    world.store.reads = 0
    recovered = recover_automatically(world, records)
    assert world.store.reads < 20 * MAX_RESUMED
    assert (len(recovered.resumed), recovered.waiting) == (MAX_RESUMED, 5000 - MAX_RESUMED)
    assert _recovered_lines(recovered) == [
        "resumed 50 runs; to list them: divebook.runs(); 4,950 interrupted runs remain; to list them: divebook recover"
    ]
    assert {execution.wait(20).status for execution in recovered.resumed} == {"completed"}
    assert len(world.queues.recoverable()) == 5000 - MAX_RESUMED
