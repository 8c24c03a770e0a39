"""Each run of an agent with tools that a test leaves completed is replayed with all that it could call blocked."""

import socket
import subprocess

import pytest

from divebook import Environment
from divebook.events import catalog
from tests.execution.test_resuming import cut

GONE = {
    "test_changed": "its agents change while a turn waits",
    "test_errors_alike": "its agents have a capability for the time of a test",
    "test_output": "it allows classes for the time of a test",
    "test_recall": "its answers come from stores and folders of a test",
    "test_settings_of_requests": "what its headers name is there for the time of a test",
    "test_wire": "its servers and their keys are there for the time of a test",
}
"""Modules whose runs cannot be had again once a test is over, and why."""


@pytest.fixture(autouse=True)
def replays(request):
    """Replay the last turn of each completed run from its log alone: it comes to the same, and begins nothing."""
    made = []
    begin = Environment.__init__

    def noted(self, *given, **settings):
        begin(self, *given, **settings)
        made.append((self, settings))

    with pytest.MonkeyPatch.context() as noting:
        noting.setattr(Environment, "__init__", noted)
        yield
    if request.module.__name__.rpartition(".")[2] in GONE:
        return
    for world, settings in made:
        for record in [] if world._is_closed else world.store.records():
            _replay(world, settings, world.execution(record.execution_id))


def _replay(world, settings, execution):
    turn = _last_turn(execution) if execution.status == "completed" else None
    if turn is None:
        return
    again = Environment(**{**settings, "store": cut(execution.store, execution, turn.sequence - 1), **_held(world)})
    with pytest.MonkeyPatch.context() as blocking:
        _block(blocking)
        resumed = again.resume(execution.id).wait(30)
    same = [e.data for e in resumed.history() if e.sequence >= turn.sequence - 1 and _is_of(turn, e.data)]
    assert [data.result for data in same] == [turn.data.result], f"{execution.id}: {resumed.error}"
    after = [e.data for e in resumed.history() if e.sequence >= turn.sequence]
    began = next(e.sequence for e in resumed.history() if getattr(e.data, "operation_id", "") == turn.data.operation_id)
    begun = [d.key for d in after if isinstance(d, catalog.OperationStarted) and d.within == began]
    assert begun == []


def _held(world):
    """Return what an environment holds by now, also what was added to it."""
    return {"agents": list(world.agents.values()), "workflows": world.own_workflows, "tools": world.tools.values()}


def _last_turn(execution):
    turns = [e for e in execution.history() if getattr(e.data, "operation_type", "") == "agent_turn"]
    return next((e for e in reversed(turns) if isinstance(e.data, catalog.OperationCompleted)), None)


def _is_of(turn, data):
    return isinstance(data, catalog.OperationCompleted) and data.operation_id == turn.data.operation_id


def _block(blocking):
    from divebook.agents.bound import _Bound

    async def called(self, params, name):
        raise AssertionError(f"{name} was called on replay")

    def reached(*_):
        raise AssertionError("a socket or a program was reached on replay")

    blocking.setattr(_Bound, "_made", called)
    blocking.setattr(socket.socket, "connect", reached)
    blocking.setattr(subprocess.Popen, "__init__", reached)
