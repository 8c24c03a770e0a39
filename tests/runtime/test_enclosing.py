"""Operations that hold others: begun once, entered again wherever a process ended, and taken whole once they ended."""

from dataclasses import replace

import pytest

from divebook import Agent, Environment, Retry, ScriptedModel, Step, Workflow
from divebook.engine.lifecycle import violations
from divebook.engine.operations import AGENT_TURN, TOOL_CALL, Setting
from divebook.events import catalog
from divebook.runtime.step import Outcome
from divebook.stores import MemoryStore
from tests.runtime.worlds import event_types, question_of

TURN = Workflow("turn", [Step("turn", prompt="Judge", store="said")])


class Turn:
    """Prompt steps with one operation that holds as many calls as it is told, a question after the first."""

    def __init__(self, calls=3, *, asks=False, fails=0, error=ValueError):
        self.calls, self.asks, self.fails, self.error = calls, asks, fails, error
        self.made, self.entered = [], 0

    def agent_of_step(self, step):
        return self

    async def __call__(self, context):
        async def body(holder):
            self.entered += 1
            return [await self._call(context, number, holder) for number in range(self.calls)]

        parameters = {"agent": "critic", "prompt": "Judge"}
        found = await context.enclosing(AGENT_TURN, parameters, body, key="turn", setting=Setting({"model": "a"}, "0a"))
        return Outcome("+".join(found), found)

    async def _call(self, context, number, holder):
        async def make():
            self.made.append(number)
            if number == self.calls - 1 and self.fails:
                self.fails -= 1
                raise self.error("no paper left")
            return f"page {number}"

        if self.asks and number == 1:
            await context.interrupt("confirmation", "Read on?", key="ask", within=holder)
        parameters = {"agent": "critic", "tool": "read", "arguments": {"page": number}}
        key = f"tool-{number}"
        return await context.operation(TOOL_CALL, parameters, make, key=key, within=holder, done="page {}".format)


def world_of(turn, store=None, workflow=TURN):
    environment = Environment(store=store or MemoryStore(), workflows=[workflow])
    environment.add_step_type("prompt", turn)
    environment.add_agent(Agent("critic", model=ScriptedModel([])))
    return environment


def started(execution):
    return [event.data for event in execution.history() if isinstance(event.data, catalog.OperationStarted)]


def test_an_operation_holds_others_and_is_over_once_it_has_what_they_came_to():
    turn = Turn()
    execution = world_of(turn).start(TURN).wait(20)
    assert execution.variables == {"said": ["page 0", "page 1", "page 2"]}
    outer, *inner = started(execution)
    assert (outer.name, outer.setting, outer.setting_hash, outer.within) == ("critic", {"model": "a"}, "0a", None)
    (began,) = (event.sequence for event in execution.history() if event.data == outer)
    assert {data.within for data in inner} == {began}
    assert event_types(execution).count("operation_completed") == 4


@pytest.mark.usefixtures("replayed")
def test_another_process_enters_it_again_and_makes_no_call_a_second_time():
    turn, later = Turn(asks=True), Turn(asks=True)
    store = MemoryStore()
    execution = world_of(turn, store).start(TURN).wait(20)
    (question,) = execution.open_questions
    assert question.operation_id == started(execution)[0].operation_id
    done = world_of(later, store)
    done.answer(question.id, "yes", execution.id)
    found = done.run_of(execution.id).wait(20)
    assert found.status == "completed", found.error
    assert (turn.made, later.made, later.entered) == ([0], [1, 2], 1)
    assert [data.operation_type for data in started(found)].count(AGENT_TURN) == 1


def test_a_resumption_makes_again_only_the_call_that_failed():
    turn = Turn(fails=1)
    world = world_of(turn)
    execution = world.start(TURN).wait(20)
    assert execution.status == "failed"
    assert "no paper left" in execution.error
    again = world.run_of(execution.id).resume().wait(20)
    assert again.status == "completed", again.error
    assert turn.made == [0, 1, 2, 2]
    assert again.variables == {"said": ["page 0", "page 1", "page 2"]}


def test_an_answer_finds_one_agent_at_work_where_it_asked():
    turn = Turn(asks=True)
    execution = world_of(turn).start(TURN).wait(20)
    done = execution.answer(question_of(execution).id, "yes").wait(20)
    assert done.status == "completed", done.error
    assert (turn.made, turn.entered) == ([0, 1, 2], 1)


def test_what_stands_still_of_an_agent_that_was_made_anew_is_replayed():
    turn, anew = Turn(asks=True), Turn(asks=True)
    world = world_of(turn)
    execution = world.start(TURN).wait(20)
    world.add_step_type("prompt", anew)
    done = execution.answer(question_of(execution).id, "yes").wait(20)
    assert done.status == "completed", done.error
    assert (turn.made, anew.made, anew.entered) == ([0], [1, 2], 1)


def test_a_retry_of_the_step_never_repeats_the_calls_of_an_agent():
    turn = Turn(fails=1)
    tried = Workflow("turn", [Step("turn", prompt="Judge", store="said", retry=Retry(3, seconds=0))])
    execution = world_of(turn, workflow=tried).start(tried).wait(20)
    assert (execution.status, turn.made) == ("failed", [0, 1, 2])


def test_a_person_hears_which_tool_is_of_unknown_outcome_and_says_what_it_gave():
    turn = Turn(fails=1, error=ConnectionResetError)
    execution = world_of(turn).start(TURN).wait(20)
    question = question_of(execution)
    assert question.question == "Did the call to read by critic go through?"
    assert question.message.endswith("no paper left. It was called with page = 2.")
    done = execution.answer(question.id, {"choice": "done", "result": 7}).wait(20)
    assert done.variables == {"said": ["page 0", "page 1", "page 7"]}
    assert turn.made == [0, 1, 2]


def test_a_copy_may_end_inside_it_and_makes_no_copied_call_again():
    turn = Turn()
    world = world_of(turn)
    execution = world.start(TURN).wait(20)
    until = max(event.sequence for event in execution.history() if event.event_type == "operation_started")
    copy = world.run_of(execution.id).fork(until - 1).wait(20)
    assert (copy.status, turn.made) == ("completed", [0, 1, 2, 2])
    assert copy.variables == execution.variables
    assert not list(violations(copy.history()))


def test_what_begins_within_what_is_not_under_way_is_no_sound_log():
    execution = world_of(Turn()).start(TURN).wait(20)
    forged = [replace(event, data=_elsewhere(event.data)) for event in execution.history()]
    assert next(text for _, text in violations(forged)).endswith(
        "starts inside the call of event 1, which is not running"
    )


def _elsewhere(data):
    return replace(data, within=1) if getattr(data, "within", None) else data
