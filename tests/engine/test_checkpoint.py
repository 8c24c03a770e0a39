"""Checkpoints hold a state exactly, wherever the log stands."""

import json

import pytest

from divebook import Each, Retry, Step, Workflow
from divebook.engine.checkpoint import dump_state, load_state
from divebook.engine.evolve import evolve
from divebook.engine.state import ExecutionState
from tests.execution.test_resuming import WHOLE
from tests.execution.test_unknown_outcomes import Bank
from tests.execution.worlds import environment


def waiting_execution():
    each = Each([1, 2], as_="i", parallel=2)
    step = Step("a", action="pay", parameters={"amount": 1}, retry=Retry(3, seconds=0), each=each)
    return environment(actions=[Bank(TimeoutError("broken off")).pay()]).start(Workflow("w", [step])).wait(20)


@pytest.mark.parametrize("execution", [WHOLE, waiting_execution()], ids=["branches", "questions"])
def test_every_state_along_a_log_comes_back(execution):
    state = ExecutionState(execution.id)
    for event in execution.history():
        state = evolve(state, event)
        again = load_state(dump_state(state))
        assert again == state
        assert vars(again).keys() == vars(state).keys()


def test_a_checkpoint_of_another_version_is_ignored():
    data = json.loads(dump_state(WHOLE.state))
    assert load_state(json.dumps({**data, "version": 99}).encode()) is None
    assert load_state(json.dumps({**data, "state": {"teleported": 1}}).encode()) is None
    assert load_state(b"[]") is None
