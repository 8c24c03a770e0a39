"""Agents with tools in workflow functions: what a turn leaves behind, and what stops one."""

import pytest

from divebook import Agent, ScriptedModel
from divebook.definitions.functions import step, workflow
from divebook.events import catalog
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import Failing, Gate, environment, question_of

pytestmark = pytest.mark.usefixtures("replayed")
SCRIPT = [[{"call": {"look": {"name": "owl"}}}, {"call": {"look": {"name": "lark"}}}], "two birds"]


IN_TURN = [{"call": {"look": {"name": "owl"}}}, {"call": {"look": {"name": "lark"}}}, "two birds"]


class Book:
    """A tool that notes what it is asked, and may be held up or broken."""

    def __init__(self, gate=None, failing=None):
        self.looked, self._gate, self._failing = [], gate, failing

    def look(self, name: str) -> str:
        """Look a bird up."""
        self.looked.append(name)
        if self._gate is not None and name == "lark":
            self._gate.reached.set()
            assert self._gate.opened.wait(20)
        if self._failing is not None and self._failing.broken and name == "lark":
            raise RuntimeError("no lark")
        return f"{name}: seen"


def world_of(book, store=None, script=SCRIPT):
    agent = Agent("a", model=ScriptedModel(script), tools=[book.look])
    return environment(agents=[agent], **({} if store is None else {"store": store}))


@step
async def note(text):
    return text


def asking(*, changed):
    @workflow("asking")
    async def asking(ctx):
        try:
            said = await ctx.agent("a").run("Which birds?")
        except Exception as error:  # noqa: BLE001 - any failure will do
            said = str(error)
        version = await ctx.version("noted", 1, 2) if changed else 0
        return [said, version, await note("end")]

    return asking


def turns_of(execution):
    events = (event.data for event in execution.history())
    return [data for data in events if getattr(data, "operation_type", None) == "agent_turn"]


@pytest.mark.parametrize("broken", [False, True])
def test_a_turn_that_is_over_is_not_history_ahead_of_what_comes_after_it(broken):
    failing = Failing()
    failing.broken = broken
    asking(changed=False)
    execution = world_of(Book(failing=failing)).start("asking").wait(20)
    ends = (event for event in execution.history() if event.data in turns_of(execution))
    (_, end) = ends
    again = Book(failing=failing)
    asking(changed=True)
    resumed = world_of(again, cut(execution.store, execution, end.sequence)).run_of(execution.id).resume().wait(20)
    assert (resumed.status, again.looked) == ("completed", [])
    assert resumed.outputs["result"][1:] == [2, "end"]


def test_a_pause_waits_for_a_call_of_a_tool_and_not_for_the_turn():
    gate = Gate()
    book = Book(gate)
    world = world_of(book)
    execution = world.start(asking(changed=False))
    assert gate.reached.wait(20)
    execution.pause()
    gate.opened.set()
    paused = execution.wait(20)
    assert paused.state.shown_status == "paused"
    done = world.run_of(execution.id).resume().wait(20)
    assert (done.status, sorted(book.looked)) == ("completed", ["lark", "owl"])
    assert [type(data) for data in turns_of(done)] == [catalog.OperationStarted, catalog.OperationCompleted]


def test_a_cancelled_turn_goes_on_when_it_is_resumed_and_asks_about_the_call_that_was_under_way():
    gate = Gate()
    book = Book(gate)
    world = world_of(book, script=[*map(list, zip(SCRIPT[0])), SCRIPT[1]])  # one after the other
    execution = world.start(asking(changed=False))
    assert gate.reached.wait(20)
    execution.cancel()
    gate.opened.set()
    assert execution.wait(20).status == "cancelled"
    resumed = world.run_of(execution.id).resume().wait(20)
    question = question_of(resumed)
    assert question.question.startswith("Did the call to look")
    assert 'It was called with name = "lark".' in question.message
    done = resumed.answer(question.id, "retry").wait(20)
    assert (done.status, done.outputs["result"][0]) == ("completed", "two birds")
    assert sorted(book.looked) == ["lark", "lark", "owl"]


def test_a_resumption_makes_again_only_the_call_whose_failure_ended_the_turn():
    failing = Failing()
    book = Book(failing=failing)
    world = world_of(book, script=IN_TURN)

    @workflow("plain")
    async def plain(ctx):
        return await ctx.agent("a").run("Which birds?")

    execution = world.start(plain).wait(20)
    assert execution.status == "failed"
    assert "no lark" in execution.error
    failing.broken = False
    done = world.run_of(execution.id).resume().wait(20)
    assert (done.status, done.outputs) == ("completed", {"result": "two birds"})
    assert sorted(book.looked) == ["lark", "lark", "owl"]
