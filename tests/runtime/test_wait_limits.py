"""Time limits of `Execution.wait`, rows of a map and workers: seconds, or no limit; any other value is refused."""

import math

import numpy as np
import pandas as pd
import pytest

from divebook import Step, Workflow
from divebook.errors import SetupError
from divebook.mapping import mapped
from divebook.queues import Worker
from tests.runtime.worlds import Gate, environment

ASKING = Workflow("asking", [Step("ask", ask="Go on?", store="answer")])
NOT_SECONDS = [math.nan, np.float32("nan"), "5", True, [1], 1j]


def double(row):
    return row["x"] * 2


@pytest.mark.parametrize("timeout", NOT_SECONDS, ids=repr)
def test_a_wait_refuses_what_is_no_number_of_seconds(timeout):
    world = environment()
    world.add_workflow(ASKING)
    execution = world.start(ASKING)
    rows = mapped(world, pd.DataFrame({"x": [1]}), double)
    with Worker(world) as worker:
        for wait in (execution.wait, rows.wait, worker.wait_until_idle):
            with pytest.raises(
                SetupError, match="timeout must be a number of seconds, a timedelta, or a string such as"
            ):
                wait(timeout)
    assert execution.wait(math.inf).status == "waiting"


@pytest.mark.parametrize("timeout", [None, math.inf, 1e300, 10**400, 5, np.int64(5), np.float32(5)], ids=repr)
def test_a_wait_takes_numbers_of_all_kinds(timeout):
    assert environment().start(ASKING).wait(timeout).status == "waiting"


@pytest.mark.parametrize("timeout", [0, -1, -math.inf])
def test_a_deadline_that_has_passed_ends_the_wait_at_once(timeout):
    gate = Gate()
    execution = environment(actions=[gate.action()]).start(Workflow("held", [Step("hold", action="gate")]))
    assert gate.reached.wait(20)
    with pytest.raises(TimeoutError, match="after 0 s"):
        execution.wait(timeout)
    gate.opened.set()
    assert execution.wait().status == "completed"
