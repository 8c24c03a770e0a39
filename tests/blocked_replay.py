"""Each run of an agent with tools that a test leaves completed is replayed with all that it could call blocked."""

import socket
import subprocess

import pytest

from divebook import Environment
from divebook.events import catalog
from tests.runtime.test_resuming import cut

_RECORDED = "its answers come from another run, which the copy of its own does not hold"
_OTHER = "the environment that it makes last has another agent, or none"
GONE = {
    "test_a_finished_turn_is_not_asked_about": _OTHER,
    "test_a_finished_turn_is_taken_whole_and_runs_no_loop": "it lets no loop run",
    "test_a_what_if_on_another_day_repeats_no_paid_request": _RECORDED,
    "test_a_turn_that_is_begun_anew_is_answered_from_the_same_run": _RECORDED,
    "test_an_agent_without_tools_is_played_again_too": _RECORDED,
    "test_another_agent_model_setting_or_header_is_another_request": _OTHER,
    "test_any_run_is_played_again_with_its_tools_really_called": _RECORDED,
    "test_no_model_is_answered_for_by_the_cached_reply_of_another_one": _OTHER,
    "test_headers_are_looked_up_for_the_request_and_are_in_no_log": _OTHER,
}
"""Tests whose runs cannot be replayed as they stand, and why."""
_MADE = pytest.StashKey()


@pytest.fixture(autouse=True)
def noted_environments(request):
    """Note each environment that a test and its fixtures make, and with what."""
    made = request.node.stash[_MADE] = []
    begin = Environment.__init__

    def noted(self, *given, **settings):
        begin(self, *given, **settings)
        made.append((self, settings))

    with pytest.MonkeyPatch.context() as noting:
        noting.setattr(Environment, "__init__", noted)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Replay the last turn of each completed run from its log alone: it comes to the same, and begins nothing.

    This is done before the test's fixtures are taken down: what its agents are made of is still there.
    """
    result = yield
    if item.originalname in GONE:
        return result
    made = list(item.stash[_MADE])
    for number, (world, settings) in enumerate(made):
        if world._is_closed or any(later.store is world.store for later, _ in made[number + 1 :]):
            continue
        for record in world.store.records():
            _replay(world, settings, world.run_of(record.execution_id))
    return result


def _replay(world, settings, execution):
    turn = _last_turn(execution) if execution.status == "completed" else None
    if turn is None:
        return
    again = Environment(**{**settings, "store": cut(execution.store, execution, turn.sequence - 1), **_held(world)})
    with pytest.MonkeyPatch.context() as blocking:
        _block(blocking)
        resumed = again.run_of(execution.id).resume().wait(30)
    same = [e.data for e in resumed.history() if e.sequence >= turn.sequence - 1 and _is_of(turn, e.data)]
    assert [data.result for data in same] == [turn.data.result], f"{execution.id}: {resumed.error}"
    after = [e.data for e in resumed.history() if e.sequence >= turn.sequence]
    began = next(e.sequence for e in resumed.history() if getattr(e.data, "operation_id", "") == turn.data.operation_id)
    begun = [d.key for d in after if isinstance(d, catalog.OperationStarted) and d.within == began]
    assert begun == []


def _held(world):
    """Return what an environment holds by now, also what was added to it."""
    return {
        "agents": list(world.definitions.agents.values()),
        "workflows": tuple(world.internals.registry.registered_workflows.values()),
        "tools": world.definitions.tools.values(),
    }


def _last_turn(execution):
    turns = [e for e in execution.history() if getattr(e.data, "operation_type", "") == "agent_turn"]
    return next((e for e in reversed(turns) if isinstance(e.data, catalog.OperationCompleted)), None)


def _is_of(turn, data):
    return isinstance(data, catalog.OperationCompleted) and data.operation_id == turn.data.operation_id


def _block(blocking):
    from divebook.agents.durability import _BoundOperation

    async def called(self, params, name):
        raise AssertionError(f"{name} was called on replay")

    def reached(*_):
        raise AssertionError("a socket or a program was reached on replay")

    blocking.setattr(_BoundOperation, "_run_operation", called)
    blocking.setattr(socket.socket, "connect", reached)
    blocking.setattr(subprocess.Popen, "__init__", reached)
