"""What one turn of an agent may spend: asked about or failing at, the same on replay, subordinates included."""

import asyncio
from dataclasses import replace

import pytest

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.agents.budget import TurnBudget
from divebook.definitions.reader import definitions_from
from divebook.engine.operations import Reserved
from divebook.errors import BoundExceededError, BoundsError, DefinitionError
from divebook.questions import Question
from divebook.questions.bounds import Bounds, agent_bounds
from divebook.runtime.concurrency import ConcurrentCalls
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment, event_types

ASK = Workflow("w", [Step("ask", prompt="Ask", agent="a", store="r")])
CALLS = [{"call": {"note": {"text": str(number)}}} for number in range(3)]


def agent(note, bounds, **script):
    return Agent("a", model=ScriptedModel([*CALLS, "done"], **script), tools=[note], bounds=bounds)


SPENT = {"usage": {"input_tokens": 6, "output_tokens": 4}, "price": 0.25}


@pytest.mark.parametrize(
    ("bounds", "made"),
    [
        ({"max_llm_calls": 2}, 2),
        ({"max_tokens": 29}, 2),
        ({"max_tokens": 30}, 3),
        ({"max_cost": "0.74"}, 2),
        ({"max_llm_calls": 0}, 0),
    ],
)
def test_a_turn_stops_before_what_it_may_not_spend(note, bounds, made):
    world = environment(agents=[agent(note, {**bounds, "on_exhausted": "fail"}, **SPENT)])
    execution = world.start(ASK).wait(20)
    assert execution.usage.requests == made
    (name,) = bounds
    assert "Agent 'a': Budget reached: " in execution.error
    assert f"Raise `{name}` in the Bounds of agent 'a' and resume." in execution.error


def test_a_person_raises_the_bound_and_nothing_is_made_again(note, noted):
    world = environment(agents=[agent(note, {"max_llm_calls": 2}, **SPENT)])
    execution = world.start(ASK).wait(20)
    (question,) = execution.open_questions
    assert question.question == (
        "Agent 'a': Budget reached: 2 of 2 model calls made. Raise `max_llm_calls` and continue, or stop?"
    )
    assert (question.data["agent"], question.data["limit"]) == ("a", 2)
    done = world.answer(question.id, 4).wait(20)
    assert (done.variables, noted) == ({"r": "done"}, ["0", "1", "2"])
    assert done.state.bounds == Bounds()


def test_a_bound_that_was_raised_may_be_met_again(note):
    world = environment(agents=[agent(note, {"max_llm_calls": 1}, **SPENT)])
    execution = world.start(ASK).wait(20)
    for limit in (2, 3, 4):
        (question,) = execution.open_questions
        execution = world.answer(question.id, limit).wait(20)
    assert execution.variables == {"r": "done"}


def test_who_says_stop_fails_the_step_until_the_agent_may_spend_more(note, noted):
    world = environment(agents=[agent(note, {"max_llm_calls": 1}, **SPENT)])
    execution = world.start(ASK).wait(20)
    done = world.answer(execution.open_questions[0].id, "stop").wait(20)
    assert "Agent 'a': Budget reached: 1 of 1 model calls made." in done.error
    assert "Raise `max_llm_calls` in the Bounds of agent 'a' and resume." in done.error
    assert done.usage.requests == 1
    world.add_agent(agent(note, {"max_llm_calls": 9}, **SPENT), replace=True)
    assert world.run_of(done.id).resume().wait(20).variables == {"r": "done"}
    assert noted == ["0", "1", "2"]


def test_another_process_goes_on_with_what_was_raised(note, noted):
    world = environment(agents=[agent(note, {"max_llm_calls": 2}, **SPENT)])
    execution = world.start(ASK).wait(20)
    done = world.answer(execution.open_questions[0].id, 3).wait(20)
    length = max(e.sequence for e in done.history() if e.event_type == "operation_completed")
    again = environment(store=cut(done.store, done, length), agents=[agent(note, {"max_llm_calls": 2}, **SPENT)])
    resumed = again.run_of(done.id).resume().wait(20)
    assert [asked.data["limit"] for asked in resumed.open_questions] == [3]
    assert noted == ["0", "1", "2"]


def test_every_turn_has_the_whole_bound(note):
    world = environment(agents=[agent(note, {"max_llm_calls": 4}, **SPENT)])
    assert [world.start(ASK).wait(20).status for _ in range(2)] == ["completed", "completed"]


def test_an_agent_that_only_answers_has_bounds_as_well():
    bounded = Agent("a", model=ScriptedModel(["well"], **SPENT), bounds={"max_tokens": 9, "on_exhausted": "fail"})
    execution = environment(agents=[bounded]).start(ASK).wait(20)
    assert "Agent 'a': Budget reached: 0 of 9 tokens used, and the next call needs up to 10." in execution.error
    assert "operation_started" in event_types(execution)
    assert execution.usage.requests == 0


def test_what_a_definition_bounds():
    found = definitions_from({"Agents": [{"Name": "a", "Bounds": {"MaxCost": 0.5, "MaxLLMCalls": 3}}]})
    assert found.agents[0].bounds == {"max_cost": "0.5", "max_llm_calls": 3}
    with pytest.raises(DefinitionError, match="the bounds of an agent can be max_cost"):
        definitions_from({"Agents": [{"Name": "a", "Bounds": {"MaxIterations": 3}}]})
    with pytest.raises(BoundsError, match="max_seconds"):
        agent_bounds({"max_seconds": 3})


class Nobody:
    """A turn without another call under way, in which no person can be asked."""

    async def wait_beside_others(self, change):
        return False

    async def question(self, *_, **__):
        raise AssertionError


NOTHING = Reserved()


def admit(budget, reserved=NOTHING):
    asyncio.run(budget.admit(Nobody(), reserved))


def two_below(**bounds):
    """Return the budget of an agent, and of two to which it handed work."""
    above = TurnBudget("chief", Bounds(**bounds, on_exhausted="fail"))
    return above, TurnBudget("left", Bounds(), above), TurnBudget("right", Bounds(), above)


def test_work_that_is_handed_on_counts_for_who_hands_it_on():
    above, one, other = two_below(max_llm_calls=2)
    for budget in (one, other):
        admit(budget)
        with budget.holding(Reserved()):
            budget.spend({"input_tokens": 3})
    with pytest.raises(BoundExceededError, match="Agent 'chief': Budget reached: 2 of 2 model calls made"):
        admit(one)
    assert (above.consumed.tokens, one.consumed.tokens) == (6, 3)


def test_side_by_side_they_never_overshoot():
    _, one, other = two_below(max_tokens=10)
    with (
        one.holding(Reserved(6)),
        pytest.raises(BoundExceededError, match="6 reserved by calls under way, and the next call needs up to 5"),
    ):
        admit(other, Reserved(5))
    admit(other, Reserved(5))


def test_while_a_bound_above_is_asked_about_those_below_may_be_reached():
    chief = TurnBudget("chief", Bounds(max_llm_calls=0))
    middle = TurnBudget("middle", Bounds(max_llm_calls=1, on_exhausted="fail"), chief)
    one, other = TurnBudget("one", Bounds(), middle), TurnBudget("other", Bounds(), middle)

    class Person:
        def recorded_question(self, key):
            return None

        async def question(self, *_, **__):
            other.holding(Reserved()).__enter__()
            return Question("id", "resource_exhausted", "?", response={"decision": "raise", "data": {"to": 5}})

    with pytest.raises(BoundExceededError, match="Agent 'middle': Budget reached: 1 of 1 model calls made"):
        asyncio.run(one.admit(Person(), Reserved()))


def test_a_request_waits_for_what_another_one_of_its_agent_gives_back():
    async def both():
        strands = ConcurrentCalls(ConcurrentCalls.unwind)
        _, one, other = two_below(max_tokens=10)
        with strands.side_by_side(2) as strand, one.holding(Reserved(6)):

            async def request():
                with strand():
                    await other.admit(strands, Reserved(5))
                    return other.line[1].consumed.held_tokens

            waiting = asyncio.ensure_future(request())
            await asyncio.sleep(0)
            assert (waiting.done(), strands.running) == (False, 1)
        return await waiting

    assert asyncio.run(both()) == 0


def test_a_request_that_nothing_can_make_room_for_is_refused():
    """The other one waits for a person: nothing of its reservation comes back before that."""

    async def refused():
        strands = ConcurrentCalls(lambda _: None)
        _, one, other = two_below(max_tokens=10)
        with strands.side_by_side(2) as strand, one.holding(Reserved(6)):

            async def request():
                with strand():
                    await other.admit(strands, Reserved(5))

            waiting = asyncio.ensure_future(request())
            await asyncio.sleep(0)
            parked = asyncio.ensure_future(strands.park(lambda: False))
            with pytest.raises(BoundExceededError, match="6 reserved by calls under way"):
                await waiting
            parked.cancel()

    asyncio.run(refused())


def test_a_question_about_a_bound_keeps_its_recorded_wording(note):
    """A log whose question was worded by an earlier version goes on with the answer that it was given."""
    world = environment(agents=[agent(note, {"max_llm_calls": 2}, **SPENT)])
    asked = world.start(ASK).wait(20)

    def as_earlier(event):
        if event.event_type != "interrupt_raised":
            return event
        old = "agent 'a': max_llm_calls is reached, at most 2 allowed. Raise the bound and go on, or stop?"
        return replace(event, data=replace(event.data, question=old))

    store = MemoryStore()
    store.append(asked.id, [as_earlier(event) for event in asked.history()], 0)
    later = environment(store=store, agents=[agent(note, {"max_llm_calls": 2}, **SPENT)])
    waiting = later.run_of(asked.id).resume().wait(20)
    assert waiting.open_questions[0].question.startswith("agent 'a': max_llm_calls is reached")
    done = later.answer(waiting.open_questions[0].id, 9).wait(20)
    assert done.variables == {"r": "done"}
