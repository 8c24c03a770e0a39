"""Replies that were paid and are not used: cut off, refused or broken off streams count in the budgets, once."""

import random

import pytest

from divebook import Agent, Bounds, Each, Environment, ScriptedModel, Step, Workflow
from divebook.agents.budget import TurnBudget
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import Retry
from divebook.projections.spans import spans_of
from divebook.runtime.clock import SystemClock
from tests.agents.payable import BROKEN, CALLS, MOST, OK, REFUSED, SILENT, STREAMED, STUCK, Payable
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment


def run(model, bounds=None, *, is_heard=True, is_turn=False, count=1, parallel=1, **agent):
    """Return the ended run of so many questions to one agent, with a listener or without one."""
    again = Retry(4, seconds=0)
    each = Each(list(range(count)), as_="i", parallel=parallel)
    step = Step("ask", prompt="Write ${i}", agent="a", retry=again, each=each)
    definition = AgentDefinition("a", **agent)
    tools = [look] if is_turn else []
    world = environment(Workflow("w", [step]), agents=[Agent(definition, model=model, tools=tools)])
    execution = world.create("w", bounds=bounds or {})
    if is_heard:
        execution.subscribe_text(lambda _: None)
    return execution.start().wait(20)


def look(place: str) -> str:
    """Look at a place."""
    return place


@pytest.mark.parametrize("is_turn", [False, True])
@pytest.mark.parametrize("kind", STREAMED)
def test_a_stream_that_fails_counts_with_what_it_has_stated(kind, is_turn):
    model = Payable([(kind, 90), (OK, 5)])
    done = run(model, is_turn=is_turn)
    assert (done.status, model.made, model.paid) == ("completed", 2, 95)
    assert (done.usage.input_tokens, done.state.own_usage.cost, done.usage.requests) == (95, 95, 1)
    assert done.state.ledger.reserved_tokens == done.state.ledger.reserved_cost == 0


def test_a_whole_reply_that_is_refused_counts():
    model = Payable([(REFUSED, 90), (OK, 5)])
    done = run(model, is_heard=False)
    assert (done.status, done.usage.input_tokens, done.state.own_usage.cost) == ("completed", 95, 95)


def test_a_stream_that_takes_too_long_counts_with_what_it_has_stated():
    model = Payable([(STUCK, 90), (OK, 5)])
    done = run(model, response_timeout=0.05)
    assert (done.status, done.usage.input_tokens) == ("completed", 95)


class WhenStuck(SystemClock):
    """A clock on which all time limits pass as soon as the model is stuck."""

    def __init__(self, model):
        self.model = model

    async def sleep(self, seconds):
        await self.model.is_stuck.wait()


@pytest.mark.parametrize("tools", [[], ["look"]])
def test_a_stream_that_its_step_cuts_off_counts(tools):
    model = Payable([(STUCK, 90)])
    agent = Agent("a", model=model, tools=[look] if tools else [])
    workflow = Workflow("w", [Step("ask", prompt="Write", agent="a", retry=Retry(1), timeout=60)])
    execution = environment(workflow, agents=[agent], clock=WhenStuck(model)).create("w")
    execution.subscribe_text(lambda _: None)
    done = execution.start().wait(20)
    assert "took longer than its Timeout of 60 seconds" in done.error
    assert (model.made, done.usage.input_tokens, done.state.own_usage.cost) == (1, 90, 90)
    assert done.state.ledger.reserved_tokens == 0


def test_a_stream_that_has_stated_nothing_counts_as_nothing():
    done = run(Payable([(SILENT, 0), (OK, 5)]))
    assert (done.status, done.usage.input_tokens, done.usage.requests) == ("completed", 5, 1)


@pytest.mark.parametrize("bounds", [{"max_tokens": 250}, {"max_cost": 250e-9}])
def test_attempts_that_are_paid_end_at_the_bound(bounds):
    model = Payable([(BROKEN, 80)] * 9)
    done = run(model, {**bounds, "on_exhausted": "fail"})
    assert (done.status, model.made, model.paid) == ("failed", 2, 160)
    assert "160 of 250" in done.error or "$0.00000016 of $0.00000025" in done.error


def test_the_bounds_of_an_agent_count_them_too_and_alike_after_a_kill():
    """An agent asks twice: its first request breaks off once, and what that has cost leaves too little for a third."""
    bounds, again = Bounds(max_tokens=230), Retry(3, seconds=0)
    workflow = Workflow("w", [Step("ask", prompt="Write", agent="a", retry=again, store="p")])

    def agents(model):
        return [Agent("a", model=model, bounds=bounds, tools=[look])]

    model = Payable([(BROKEN, 80), (CALLS, 60), (OK, 60)])
    execution = environment(workflow, agents=agents(model)).create("w")
    execution.subscribe_text(lambda _: None)
    asked = execution.start().wait(20)
    (question,) = asked.open_questions
    assert (model.made, asked.usage.input_tokens) == (2, 140)
    assert "140 of 230 tokens used" in question.question
    for length in range(1, len(asked.history()) + 1):
        store = cut(asked.store, asked, length)
        before = Environment(store=store).run_of(asked.id).usage.input_tokens
        later = Payable([(CALLS, 60)] * 2 if before < 140 else [(OK, 60)])
        again = Environment(store=store, agents=agents(later)).run_of(asked.id).resume().wait(20)
        (asks,) = again.open_questions or (None,)
        if before in (80, 140) and asks.kind != "outcome_unknown":  # which is asked of a call that was under way
            assert asks.question == question.question, length
        assert again.usage.input_tokens == before + later.paid
        assert again.state.ledger.reserved_tokens == 0


@pytest.mark.parametrize(("bounds", "made"), [({"max_tokens": 250}, 2), ({"max_llm_calls": 3}, 3)])
def test_the_bounds_of_an_agent_end_attempts_that_are_paid(bounds, made):
    """Each attempt has to be admitted, in whatever process it is made; the attempts of one request were one to it."""
    workflow = Workflow("w", [Step("ask", prompt="Write", agent="a", retry=Retry(9, seconds=0), store="p")])

    def agents(model):
        return [Agent("a", model=model, bounds=bounds, tools=[look])]

    model = Payable([(BROKEN, 80)] * made)
    execution = environment(workflow, agents=agents(model)).create("w")
    execution.subscribe_text(lambda _: None)
    asked = execution.start().wait(20)
    (question,) = asked.open_questions
    assert (model.made, asked.usage.input_tokens) == (made, 80 * made)
    assert "160 of 250 tokens used" in question.question or "3 of 3 model calls made" in question.question
    ends = [event.sequence for event in asked.history() if event.event_type in ("operation_failed", "step_retried")]
    for length in ends[-2:]:
        again = (
            Environment(store=cut(asked.store, asked, length), agents=agents(Payable()))
            .run_of(asked.id)
            .resume()
            .wait(20)
        )
        assert [other.question for other in again.open_questions] == [question.question]
    done = asked.answer(question.id, 999).wait(20)
    assert (done.status, done.usage.requests, done.verify().equal) == ("completed", 1, True)


@pytest.mark.parametrize("seed", range(30))
def test_streams_at_once_spend_no_more_than_their_bound_and_each_counts_once(seed):
    chance = random.Random(seed)
    count, parallel = chance.randint(1, 6), chance.randint(1, 5)
    plan = [(chance.choice((OK, OK, *STREAMED)), chance.randint(1, MOST)) for _ in range(chance.randint(0, 2 * count))]
    model, limit = Payable(plan), chance.randint(MOST, MOST * count)
    name = chance.choice(("max_tokens", "max_cost"))
    done = run(model, {name: limit if name == "max_tokens" else limit * 1e-9}, count=count, parallel=parallel)
    while done.open_questions and done.open_questions[0].kind == "resource_exhausted":
        assert done.usage.input_tokens == done.state.own_usage.cost == model.paid <= limit
        limit += MOST * 4
        done = done.answer(done.open_questions[0].id, limit if name == "max_tokens" else limit * 1e-9).wait(20)
    assert done.usage.input_tokens == done.state.own_usage.cost == model.paid <= limit
    assert done.state.ledger.reserved_tokens == done.state.ledger.reserved_cost == 0


ASK = Workflow("w", [Step("ask", prompt="Write", agent="a", store="p")])


def bounded(model, bounds, attempts=1, store=None, **settings):
    """Return an environment with an agent that has bounds, and a tool so that it answers in a turn."""
    definition = AgentDefinition("a", retry=Retry(attempts, seconds=0), bounds=bounds, **settings)
    given = {} if store is None else {"store": store}
    return environment(ASK, agents=[Agent(definition, model=model, tools=[look])], **given)


@pytest.mark.parametrize("bounds", [{"max_tokens": 250}, {"max_cost": 250e-9}, {"max_llm_calls": 2}])
@pytest.mark.parametrize("attempts", [1, 2])
def test_what_a_failed_turn_has_spent_counts_after_it_is_resumed(bounds, attempts):
    """A resumption repeats the last attempt. The agent has to pay for it as well as for those before."""
    made = 2 // attempts
    model = Payable([(REFUSED, 80)] * 2)
    world = bounded(model, bounds, attempts)
    execution = world.start("w").wait(20)
    for _ in range(made - 1):
        assert execution.status == "failed"
        execution = world.run_of(execution.id).resume().wait(20)
    assert (execution.status, model.paid, execution.usage.input_tokens) == ("failed", 160, 160)
    for store in (world.store, cut(world.store, execution, len(execution.history()))):
        asked = bounded(model, bounds, attempts, store).run_of(execution.id).resume().wait(20)
        (question,) = asked.open_questions
        amounts = ("160 of 250 tokens", "$0.00000016 of $0.00000025", "2 of 2 model calls")
        assert any(amount in question.question for amount in amounts)
        assert model.made == 2
    done = asked.answer(question.id, 999).wait(20)
    assert (done.status, model.made, done.verify().equal) == ("completed", 3, True)


def test_a_delegated_turn_that_is_resumed_counts_for_who_delegated_it():
    order = {"agent": "reader", "name": "n", "description": "Read.", "expected_output": "e"}
    model = Payable([(REFUSED, 90)])
    agents = [
        Agent(
            AgentDefinition("a", is_supervisor=True, bounds={"max_tokens": 150}),
            model=ScriptedModel([{"call": {"assign_work": order}}, "done"]),
        ),
        Agent(AgentDefinition("reader", retry=Retry(1)), model=model, tools=[look]),
    ]
    world = environment(ASK, agents=agents)
    failed = world.start("w").wait(20)
    assert (failed.status, model.made) == ("failed", 1)
    (question,) = world.run_of(failed.id).resume().wait(20).open_questions
    assert "Agent 'a': Budget reached: 90 of 150 tokens used" in question.question


@pytest.fixture
def budgets(monkeypatch):
    """All budgets of turns that are made."""
    made = []
    begin = TurnBudget.__init__

    def noted(self, *given, **named):
        begin(self, *given, **named)
        made.append(self)

    monkeypatch.setattr(TurnBudget, "__init__", noted)
    return made


def test_a_request_that_is_answered_from_the_cache_after_it_failed_counts_what_it_has_cost(budgets):
    world = bounded(Payable([(REFUSED, 90), (OK, 60)]), {"max_tokens": 999}, cache="1d")
    failed = world.start("w").wait(20)
    assert (failed.status, world.start("w").wait(20).status) == ("failed", "completed")
    resumed = world.run_of(failed.id).resume().wait(20)
    assert "cached_response" in [span.type for span in spans_of(resumed.history())]
    assert (resumed.usage.input_tokens, budgets[-1].consumed.tokens, budgets[-1].consumed.calls) == (90, 90, 1)


def answered(execution, chance):
    """Answer all questions of a run: about calls that were under way, and about an agent that was changed."""
    while execution.open_questions:
        question = execution.open_questions[0]
        choice = chance.choice(question.data["choices"]) if question.kind == "agent_changed" else "retry"
        execution = execution.answer(question.id, {"choice": choice}).wait(20)
    return execution


@pytest.mark.parametrize("seed", range(16))
def test_the_budget_of_an_agent_is_what_its_turn_has_cost_however_often_it_is_resumed(seed, budgets):
    """Requests fail, are retried, resumed and cut off anywhere, and the agent changes in between; the last process has
    counted each request once.
    """
    chance = random.Random(seed)
    model = Payable([(chance.choice([REFUSED, REFUSED, CALLS]), chance.randrange(1, 100)) for _ in range(12)])
    attempts = chance.randrange(1, 4)
    bounds = {"max_tokens": 10**6, "max_cost": 1}
    world = bounded(model, bounds, attempts, instructions="0")
    execution = world.start("w").wait(20)
    for number in range(99):
        if execution.status == "completed":
            break
        store = world.store
        if chance.random() < 0.5:
            store = cut(store, execution, chance.randrange(2, len(execution.history()) + 1))
        world = bounded(model, bounds, attempts, store, instructions=str(number * (chance.random() < 0.4)))
        execution = answered(world.run_of(execution.id).resume().wait(20), chance)
    assert execution.status == "completed"
    consumed = budgets[-1].consumed
    assert (consumed.tokens, consumed.cost) == (execution.usage.input_tokens, execution.state.own_usage.cost)
