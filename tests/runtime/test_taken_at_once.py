"""Executions that two threads take at the same moment: a caller and the engine, which ends a child with its parent."""

from contextlib import suppress

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import ExecutionError
from divebook.runtime.driver import Driver
from divebook.runtime.loop import ENGINE
from divebook.stores import MemoryStore
from tests.runtime.worlds import becomes

ASKING = Workflow("asking", [Step("ask", ask="Go on?", store="answer")])


@pytest.fixture
def world():
    with Environment(store=MemoryStore(), workflows=[ASKING]) as environment:
        yield environment


def meanwhile(monkeypatch, execution_id, work):
    """Have the engine do some work once, when a thread has seen that it does not drive an execution."""
    refresh, done = Driver.refresh, []

    def refreshed(driver):
        state = refresh(driver)
        if driver.id == execution_id and not done and not ENGINE.is_current():
            done.append(execution_id)
            ENGINE.call(work)
        return state

    monkeypatch.setattr(Driver, "refresh", refreshed)
    return done


def cancelled_meanwhile(world, monkeypatch):
    """Return an execution that waits, and that the engine cancels once a thread looks at it; and when that was."""
    execution = world.start(ASKING).wait()
    assert becomes(lambda: not execution.is_live)
    control = world._control
    return execution, meanwhile(
        monkeypatch, execution.id, lambda: control.request_cancel(execution.id, "with its parent")
    )


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("call", ["cancel", "recover"])
def test_an_execution_that_the_engine_cancels_at_that_moment_is_cancelled_once(world, monkeypatch, call, number):
    execution, done = cancelled_meanwhile(world, monkeypatch)
    if call == "cancel":
        with suppress(ExecutionError):  # unless it has ended already
            world.run_of(execution.id).cancel()
    else:
        world.queues.recover(execution.id)
    ended = world.run_of(execution.id).wait(20)
    assert done
    assert ended.status == "cancelled"
    assert [event.event_type for event in ended.history()].count("execution_cancelled") == 1
    assert world.queues.recoverable() == []


@pytest.mark.parametrize("number", range(5))
def test_who_resumes_it_at_that_moment_has_it_running_or_cancelled(world, monkeypatch, number):
    execution, done = cancelled_meanwhile(world, monkeypatch)
    resumed = world.run_of(execution.id).resume().wait(20)
    assert done
    assert resumed.status in ("waiting", "cancelled")
    assert world.queues.recoverable() == []
