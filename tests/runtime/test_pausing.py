"""Pausing: whenever it comes, nothing begins after it, and nothing that is done is done again."""

import asyncio
import threading

import pytest

from divebook import Each, Step, Workflow
from divebook.events import catalog
from divebook.projections.spans import spans_of
from divebook.runtime.driver import Driver
from divebook.steps.actions import Action
from tests.runtime.worlds import environment, question_of

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
    done = world.run_of(execution.id).resume().wait(20)
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
    assert world.run_of(execution.id).resume().wait(20).signal("go").wait(20).status == "completed"


@pytest.mark.parametrize("check", [1, 2])
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("has_message", [False, True])
def test_a_pause_that_comes_at_the_end_is_recorded(monkeypatch, check, is_after, has_message):
    """A driver looks for messages once more after its runner has stopped; a pause may come before or after each look.

    The second look is made under a new lease, after a message was found.
    """
    has_news = Driver._has_news
    reached, go_on = threading.Event(), threading.Event()
    looks = []

    async def hold():
        reached.set()
        assert await asyncio.to_thread(go_on.wait, 20)

    async def held(driver, calls):
        looks.append(driver.id)
        is_chosen = len(looks) == check
        if is_chosen and not is_after:
            await hold()
        answer = await has_news(driver, calls)
        if is_chosen and is_after:
            await hold()
        return answer or (len(looks) == 1 and check == 2)

    monkeypatch.setattr(Driver, "_has_news", held)
    world = environment()
    run = world.start(Workflow("w", [Step("ask", type="interrupt", ask={"question": "Which?"})]))
    assert reached.wait(20)
    assert run.is_live
    if has_message:
        run.signal("unread", 1)
    run.pause("enough")
    go_on.set()
    run._driver.driving().result(20)
    assert run.state.paused == "enough"
    assert sum(isinstance(event.data, catalog.ExecutionPaused) for event in run.history()) == 1
    monkeypatch.undo()
    resumed = world.run_of(run.id).resume()
    resumed._driver.driving().result(20)
    question = question_of(resumed)
    assert resumed.answer(question.id, "this").wait(20).status == "completed"


@pytest.mark.parametrize("is_after", [False, True])
def test_a_pause_after_the_end_has_nothing_to_pause(monkeypatch, is_after):
    give_back = Driver._give_back
    reached, go_on = threading.Event(), threading.Event()

    async def held(driver, *given, **options):
        if is_after:
            await give_back(driver, *given, **options)
        reached.set()
        assert await asyncio.to_thread(go_on.wait, 20)
        if not is_after:
            await give_back(driver, *given, **options)

    monkeypatch.setattr(Driver, "_give_back", held)
    run = environment().start(Workflow("w", [Step("a", script="1")]))
    assert reached.wait(20)
    run.pause()
    go_on.set()
    run._driver.driving().result(20)
    assert run.status == "completed"
    assert not any(isinstance(event.data, catalog.ExecutionPaused) for event in run.history())
