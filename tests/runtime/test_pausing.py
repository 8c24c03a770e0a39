"""Pausing: whenever it comes, nothing begins after it, and nothing that is done is done again."""

import pytest

from divebook import Each, Step, Workflow
from divebook.events import catalog
from divebook.projections.spans import spans_of
from divebook.steps.actions import Action
from tests.runtime.worlds import environment

ITEMS = 12
BEGINNINGS = (catalog.IterationStarted, catalog.StepStarted, catalog.OperationStarted, catalog.PathStarted)


class Pausing:
    """An action that pauses its execution in the middle of one of its calls."""

    def __init__(self, at):
        self.at, self.calls, self.execution, self.before = at, [], None, None

    def actions(self, *, repeatable):
        async def work(value):
            self.calls.append(value)
            if len(self.calls) == self.at:
                self.execution.pause()
                self.before = self.execution.state.last_sequence
            return value

        return [Action("work", work, idempotent=repeatable)]


def two_stages(parallel):
    steps = [
        Step("first", action="work", parameters={"value": "${item}"}, each=Each(list(range(ITEMS)), "item", parallel)),
        Step("second", action="work", parameters={"value": "${item}"}, each=Each(["a", "b"], "item", parallel)),
    ]
    return Workflow("stages", steps)


def paused_at(at, workflow, *, repeatable):
    pausing = Pausing(at)
    world = environment(actions=pausing.actions(repeatable=repeatable))
    pausing.execution = world.create(workflow)
    return world, pausing, pausing.execution.start().wait(20)


@pytest.mark.parametrize("repeatable", [False, True], ids=["once", "repeatable"])
@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("at", range(1, ITEMS + 3))
def test_nothing_begins_after_a_pause_whenever_it_comes(at, parallel, repeatable):
    world, pausing, execution = paused_at(at, two_stages(parallel), repeatable=repeatable)
    if execution.status == "completed":  # the pause came when there was nothing left to begin
        assert at == ITEMS + 2
        return
    assert execution.state.shown_status == "paused"
    after = [event.data for event in execution.history(pausing.before)]
    assert [data for data in after if isinstance(data, BEGINNINGS)] == []
    assert _begun(execution) <= at - 1 + parallel
    done = world.resume(execution.id).wait(20)
    assert done.status == "completed"
    assert set(pausing.calls) == {*map(str, range(ITEMS)), "a", "b"}
    if not repeatable:
        assert len(pausing.calls) == ITEMS + 2


def _begun(execution):
    return sum(span.kind == "item" for span in spans_of(execution.history()))


def test_a_paused_each_shows_the_items_that_really_began():
    _, pausing, execution = paused_at(4, two_stages(3), repeatable=False)
    assert _begun(execution) == len(pausing.calls) < ITEMS
    assert len(execution.items) == len(pausing.calls)


def test_a_pause_begins_no_sleep_and_no_wait_for_a_signal_either():
    pausing = Pausing(1)
    steps = [
        Step("split", script="1", next=["work", "sleep"]),
        Step("work", action="work", parameters={"value": "x"}, end=True),
        Step("sleep", seconds=0.001, next="again"),
        Step("again", type="wait", signal="go", end=True),
    ]
    world = environment(actions=pausing.actions(repeatable=False))
    pausing.execution = world.create(Workflow("w", steps))
    execution = pausing.execution.start().wait(20)
    after = [event.data for event in execution.history(pausing.before)]
    assert [data for data in after if isinstance(data, BEGINNINGS)] == []
    assert world.resume(execution.id).wait(20).signal("go").wait(20).status == "completed"
