"""Bounds: kept by reservation before a call, asked about or failing at, the same after a resume."""

import re
from decimal import Decimal

import pytest

from divebook import Agent, Bounds, Each, Environment, ScriptedModel, Step, Workflow
from divebook.engine.bounds import REASONS, Exhausted
from divebook.engine.inbox import ANSWER, Message, answer_payload
from divebook.engine.instructions import Fact
from divebook.errors import BoundsError, InterruptError
from divebook.events.catalog import InterruptResolved
from divebook.runtime import driver
from divebook.runtime.messages import Answering
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.runtime.test_expiring import Watch
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import Calls, environment, event_types

LOOP = Workflow(
    "loop",
    [
        Step("draft", prompt="again", next=["count"]),
        Step(
            "count",
            script="state.get('n', 0) + 1",
            store="n",
            next=[("draft", "$(state.n < 5)"), ("end", "$(state.n > 4)")],
        ),
        Step("end", script="1"),
    ],
)
EACH = Each("$(inputs.items)", as_="i", parallel=200)
ITEMS = Workflow("items", [Step("ask", prompt="${i}", each=EACH)], inputs=["items"])


@pytest.mark.parametrize(
    ("bounds", "advice"),
    [
        ({"max_llm_calls": -1}, "give an integer from 0 to 2**63 - 1 (the nearest is 0), or null for no bound"),
        ({"max_repeats": 0}, "give an integer from 1 to 2**63 - 1 (the nearest is 1), or null for no bound"),
        ({"max_iterations": True}, "give an integer from 0 to 2**63 - 1, or null for no bound"),
        ({"max_seconds": "soon"}, "give a number of seconds, a timedelta, or a string such as '5 min'"),
        ({"max_cost": Decimal("NaN")}, "give US dollars such as 2.50"),
        ({"edges": {"a -> b": -1}}, "(the nearest is 0)"),
        ({"on_exhausted": "stop"}, "write ask or fail"),
        ({"on_exhausted": "asks"}, "write ask or fail; did you mean 'ask'?"),
    ],
)
def test_the_constructor_refuses_a_wrong_bound(bounds, advice):
    with pytest.raises(BoundsError) as caught:
        Bounds(**bounds)
    assert advice in str(caught.value)
    with pytest.raises(BoundsError, match=re.escape(str(caught.value))):
        Bounds.read(bounds)


def test_edges_of_a_bound_have_one_spelling():
    assert Bounds(edges={"a -> b": 2}) == Bounds(edges={"a->b": 2})


def world_with(workflow=LOOP, *, model=None, **settings):
    script = model or ScriptedModel(["ok"], usage={"input_tokens": 6, "output_tokens": 4}, price=0.25)
    return environment(workflow, agents=[Agent("ann", model=script)], **settings), script


def spent(execution):
    envelope = execution.envelope
    return envelope.llm_call_count, envelope.agent_hop_count, envelope.iteration, envelope.token_count


CASES = [
    ({"max_llm_calls": 2}, 2),
    ({"max_agent_hops": 2}, 2),
    ({"max_tokens": 20}, 2),
    ({"max_tokens": 29}, 2),
    ({"max_cost": "0.5"}, 2),
    ({"max_cost": 0.74}, 2),
    ({"max_repeats": 2}, 2),
    ({"edges": {"count->draft": 1}}, 2),
    ({"max_llm_calls": 0}, 0),
    ({"max_cost": 0}, 0),
]


@pytest.mark.parametrize(("bounds", "calls"), CASES)
def test_at_each_bound_it_waits_and_goes_on_once_it_is_raised(bounds, calls):
    world, script = world_with()
    execution = world.start("loop", bounds=bounds).wait(20)
    assert (execution.status, script.calls) == ("waiting", calls)
    (question,) = execution.open_questions
    (name,) = bounds
    assert (question.kind, question.data["bound"]) == ("resource_exhausted", name)
    assert question.data["reason"] == REASONS[name]
    done = world.answer(question.id, 50).wait(20)
    assert (done.status, script.calls) == ("completed", 5)
    assert event_types(done).count("operation_started") == len(set(_operations(done)))


def _operations(execution):
    return [event.data.operation_id for event in execution.history() if event.event_type == "operation_started"]


@pytest.mark.parametrize(("bounds", "calls"), CASES)
def test_stop_ends_it_with_the_typed_reason(bounds, calls):
    world, script = world_with()
    execution = world.start("loop", bounds=bounds).wait(20)
    (question,) = execution.open_questions
    done = world.answer(question.id, "stop").wait(20)
    (name,) = bounds
    assert (done.status, done.envelope.terminal_reason, script.calls) == ("failed", REASONS[name], calls)
    assert "Budget reached: " in done.error
    assert question.question.replace(" and continue, or stop?", ".") in done.error


@pytest.mark.parametrize(("bounds", "calls"), CASES)
def test_where_nobody_is_to_be_asked_it_fails_with_the_typed_reason(bounds, calls):
    world, script = world_with()
    done = world.start("loop", bounds={**bounds, "on_exhausted": "fail"}).wait(20)
    (name,) = bounds
    assert (done.status, done.envelope.terminal_reason, script.calls) == ("failed", REASONS[name], calls)


def test_iterations_count_passes_beyond_the_first():
    world, script = world_with()
    execution = world.start("loop", bounds={"max_iterations": 2}).wait(20)
    assert (execution.status, execution.envelope.iteration) == ("waiting", 2)
    assert world.answer(execution.open_questions[0].id, "raise").wait(20).status == "completed"
    assert script.calls == 5


def test_seconds_count_while_it_runs_and_not_while_it_waits():
    clock = Watch()

    async def work(value=None):
        clock.at += 4_000_000

    steps = [
        Step("a", action="work"),
        Step("ask", type="interrupt", ask="Who?"),
        Step("b", action="work"),
        Step("c", action="work"),
        Step("d", script="1"),
    ]
    world = environment(Workflow("w", steps), actions=[Action("work", work, idempotent=True)], clock=clock)
    execution = world.start("w", bounds={"max_seconds": 10}).wait(20)
    clock.at += 3_600_000_000
    execution = world.answer(execution.open_questions[0].id, "ann").wait(20)
    (question,) = execution.open_questions
    assert (question.data["bound"], question.data["used"]) == ("max_seconds", 12.0)
    assert world.answer(question.id, 60).wait(20).status == "completed"


@pytest.mark.parametrize("answer", [1, 2, "2", -5, "much", {"choice": "raise", "to": 1}, 3.5])
def test_a_new_bound_must_be_above_the_old_one(answer):
    world, _ = world_with()
    execution = world.start("loop", bounds={"max_llm_calls": 2}).wait(20)
    with pytest.raises(InterruptError, match="still open"):
        world.answer(execution.open_questions[0].id, answer)
    assert len(world.run_of(execution.id).open_questions) == 1


def test_each_bound_that_is_met_again_asks_again():
    world, script = world_with()
    execution = world.start("loop", bounds={"max_llm_calls": 1}).wait(20)
    asked = []
    while execution.status == "waiting":
        (question,) = execution.open_questions
        asked.append(question.id)
        execution = world.answer(question.id, question.data["limit"] + 1).wait(20)
    assert (execution.status, script.calls, len(set(asked))) == ("completed", 5, 4)


# --- what bounds survive -------------------------------------------------------------------------------------------


def test_bounds_and_counters_survive_a_resume_and_can_be_replaced():
    world, script = world_with()
    execution = world.start("loop", bounds={"max_llm_calls": 2}).wait(20)
    later = Environment(store=world.store, agents=[Agent("ann", model=script)])
    again = later.run_of(execution.id).resume().wait(20)
    assert (again.status, script.calls, len(again.open_questions)) == ("waiting", 2, 1)
    (question,) = again.open_questions
    stopped = later.answer(question.id, "stop").wait(20)
    assert stopped.status == "failed"
    asked = later.run_of(execution.id).resume().wait(20)
    assert (asked.status, script.calls) == ("waiting", 2)
    assert asked.open_questions[0].id != question.id
    later.run_of(execution.id).cancel().wait(20)
    done = later.run_of(execution.id).resume({"max_llm_calls": 5}).wait(20)
    assert (done.status, script.calls, done.envelope.llm_call_count) == ("completed", 5, 5)


WITH_OTHERS = [
    [{"max_llm_calls": 1}, {"max_llm_calls": 2}, {"max_llm_calls": 1}, {"max_llm_calls": 9}],
    [{"max_cost": "0.25"}, {"max_cost": "0.5"}, {"max_cost": "0.50"}, {}],
    [{"max_repeats": 1}, {"max_tokens": 5}, {"edges": {"count->draft": 1}}, {"edges": {"count->draft": 9}}],
]


@pytest.mark.parametrize("others", WITH_OTHERS)
def test_a_resumption_with_other_bounds_leaves_no_question_about_the_former_ones(others):
    world, _ = world_with()
    execution = world.start("loop", bounds={"max_llm_calls": 2}).wait(20)
    question_ids = [execution.open_questions[0].id]
    for bounds in others:
        execution = execution.resume(bounds).wait(20)
        question_ids += [question.id for question in execution.open_questions]
        assert len(execution.open_questions) == (execution.status == "waiting")
        if execution.open_questions:
            assert execution.open_questions[0].data["bound"] in bounds
        assert [question.id for _, question in world.inbox()] == question_ids[-1:] * (execution.status == "waiting")
    assert execution.status == "completed"
    assert "answered: resumed with a new bound" in str(execution)
    assert execution.verify()


@pytest.mark.parametrize("is_ended", [False, True], ids=["waiting", "cancelled"])
@pytest.mark.parametrize("decision", [{"decision": "stop"}, {"decision": "raise", "data": {"to": 9}}])
def test_an_answer_that_nobody_has_read_counts_more_than_a_resumption_with_other_bounds(decision, is_ended):
    world, script = world_with()
    execution = world.start("loop", bounds={"max_llm_calls": 2}).wait(20)
    (question,) = execution.open_questions
    if is_ended:
        execution.cancel().wait(20)
    # As a process does that dies before it continues the execution.
    world.store.post(Message(execution.id, ANSWER, question.id, answer_payload(decision, "ann"), "ann 1", 1))
    execution.resume({"max_llm_calls": 3}).wait(20)
    does_stop = decision["decision"] == "stop"
    assert (execution.status, script.calls) == (("failed", 2) if does_stop else ("completed", 5))
    assert [e.data.response for e in execution.history() if e.event_type == "interrupt_resolved"] == [decision]
    assert not world.store.has_untaken(execution.id)
    assert execution.verify()


def test_an_answer_after_a_resumption_with_other_bounds_elsewhere_is_refused():
    store = MemoryStore()
    world, _ = world_with(store=store)
    elsewhere, _ = world_with(store=store)
    execution = world.start("loop", bounds={"max_llm_calls": 2}).wait(20)
    (question,) = execution.open_questions
    assert elsewhere.run_of(execution.id).resume({"max_llm_calls": 3}).wait(20).status == "waiting"
    with pytest.raises(InterruptError, match=r"already answered, with .*'resumed'"):
        execution.answer(question.id, {"decision": "stop"})
    assert not store.has_untaken(execution.id)
    assert not store.orphans()
    assert execution.answer(execution.refresh().open_questions[0].id, 9).wait(20).status == "completed"


def test_an_answer_to_a_question_that_was_settled_elsewhere_without_a_message_is_refused(monkeypatch):
    store = MemoryStore()
    world, _ = world_with(store=store)
    elsewhere, _ = world_with(store=store)
    execution = world.start("loop", bounds={"max_llm_calls": 2}).wait(20)
    (question,) = execution.open_questions
    # Elsewhere, a version runs that records the answer of a resumption without a message.
    settled = Fact(InterruptResolved(question.id, {"decision": "resumed"}), question.path, question.step)
    monkeypatch.setattr(Answering, "answer_by_bounds", lambda *_: False)
    reopen_log = driver.Driver._reopen_log

    def reopen_and_settle(*arguments):
        journal, first = reopen_log(*arguments)
        return journal, (*first, settled)

    monkeypatch.setattr(driver.Driver, "_reopen_log", reopen_and_settle)
    assert elsewhere.run_of(execution.id).resume({"max_llm_calls": 3}).wait(20).status == "waiting"
    monkeypatch.undo()
    with pytest.raises(InterruptError, match=r"already answered, with .*'resumed'"):
        execution.answer(question.id, {"decision": "stop"})
    assert not store.has_untaken(execution.id)


def test_all_paths_that_share_a_question_are_asked_about_the_new_bound():
    names = [f"p{number}" for number in range(4)]
    steps = [
        Step("s", script="1", next=names),
        *(Step(name, prompt=name, next=["end"]) for name in names),
        Step("end", script="1", join=True),
    ]
    world, script = world_with(Workflow("w", steps))
    execution = world.start("w", bounds={"max_llm_calls": 2}).wait(20)
    execution.resume({"max_llm_calls": 1}).wait(20)
    (question,) = execution.open_questions
    assert (execution.status, question.data["limit"], len(question.waiting)) == ("waiting", 1, 2)
    # The answered question about a limit that returns is not taken for the answer.
    world.answer(question.id, 3).wait(20)
    (question,) = execution.resume({"max_llm_calls": 1}).wait(20).open_questions
    assert (question.data["limit"], len(question.waiting), script.calls) == (1, 1, 3)
    assert (world.answer(question.id, 4).wait(20).status, script.calls) == ("completed", 4)


def test_attempts_count():
    class Flaky(ScriptedModel):
        def reply(self, prompt):
            text = super().reply(prompt)
            if self.calls < 3:
                raise RuntimeError("busy")
            return text

    model = Flaky(["ok"])
    workflow = Workflow("w", [Step("ask", prompt="hello", retry={"attempts": 5, "seconds": 0})])
    world, _ = world_with(workflow, model=model)
    execution = world.start("w", bounds={"max_llm_calls": 2}).wait(20)
    assert (execution.status, model.calls, execution.envelope.llm_call_count) == ("waiting", 2, 2)
    done = world.answer(execution.open_questions[0].id, 3).wait(20)
    assert (done.status, model.calls, done.envelope.agent_hop_count) == ("completed", 3, 1)


def test_a_model_without_a_price_cannot_have_its_cost_bounded():
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    calls = Calls()

    async def answer(messages, info):
        calls.append(1)
        return ModelResponse(parts=[TextPart("hi")])

    agent = Agent("ann", model=FunctionModel(answer, model_name="home-grown"))
    workflow = Workflow("w", [Step("ask", prompt="hello", retry=3)])
    done = environment(workflow, agents=[agent]).start("w", bounds={"max_cost": 1}).wait(20)
    assert (done.status, done.envelope.terminal_reason, len(calls)) == ("failed", "max_cost_exceeded", 0)
    assert "no price is known" in done.error
    assert (
        environment(workflow, agents=[agent]).start("w", bounds={"max_tokens": 10_000}).wait(20).status == "completed"
    )


def test_a_loop_that_branches_on_its_way_is_found_to_repeat_itself():
    steps = [
        Step("draft", prompt="again", next=["count"]),
        Step("count", script="state.get('n', 0) + 1", store="n", next=[("draft", "$(state.n < 5)"), "aside"]),
        Step("aside", script="1"),
    ]
    world, script = world_with(Workflow("loop", steps))
    done = world.start("loop", bounds={"max_repeats": 3, "on_exhausted": "fail"}).wait(20)
    assert (done.status, script.calls, done.envelope.terminal_reason) == ("failed", 3, "max_repeats_exceeded")


# --- side by side --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds", [{"max_llm_calls": 37}, {"max_tokens": 370}, {"max_tokens": 379}, {"max_cost": "9.25"}]
)
def test_two_hundred_calls_at_once_never_overshoot(bounds):
    world, script = world_with(ITEMS)
    execution = world.start("items", {"items": list(range(200))}, bounds=bounds).wait(60)
    assert (execution.status, script.calls, len(execution.open_questions)) == ("waiting", 37, 1)
    assert execution.state.own_usage.cost <= 9.25e9
    later = Environment(store=world.store, agents=[Agent("ann", model=script)])
    assert later.run_of(execution.id).resume().wait(60).status == "waiting"
    assert script.calls == 37
    (question,) = later.run_of(execution.id).open_questions
    done = later.answer(question.id, 100_000).wait(60)
    assert (done.status, script.calls) == ("completed", 200)


@pytest.mark.parametrize("length", [60, 150, 260])
def test_a_kill_in_the_middle_leads_to_no_overshoot(length):
    world, _ = world_with(ITEMS)
    execution = world.start("items", {"items": list(range(200))}, bounds={"max_llm_calls": 60}).wait(60)
    begun = [e for e in execution.history()[:length] if e.event_type == "operation_started"]
    models = sum(e.data.operation_type == "agent_response" for e in begun)
    fresh = ScriptedModel(["ok"])
    later = Environment(store=cut(execution.store, execution, length), agents=[Agent("ann", model=fresh)])
    resumed = later.run_of(execution.id).resume().wait(60)
    assert (resumed.status, resumed.envelope.llm_call_count) == ("waiting", 60)
    assert fresh.calls <= 60 - models + sum(_unended(execution.history()[:length]).values())


def _unended(events):
    started = {e.data.operation_id: 1 for e in events if e.event_type == "operation_started"}
    for event in events:
        if event.event_type == "operation_completed":
            started.pop(event.data.operation_id, None)
    return started


def test_one_question_is_shared_by_all_paths_that_meet_the_bound():
    names = [f"p{number}" for number in range(6)]
    steps = [
        Step("s", script="1", next=names),
        *(Step(name, prompt=name, next=["end"]) for name in names),
        Step("end", script="1", join=True),
    ]
    world, script = world_with(Workflow("w", steps))
    execution = world.start("w", bounds={"max_llm_calls": 2}).wait(20)
    (question,) = execution.open_questions
    assert (execution.status, script.calls, len(question.waiting)) == ("waiting", 2, 4)
    done = world.answer(question.id, 6).wait(20)
    assert (done.status, script.calls) == ("completed", 6)


def test_a_shared_question_that_is_answered_with_stop_stops_all_paths():
    names = [f"p{number}" for number in range(4)]
    steps = [
        Step("s", script="1", next=names),
        *(Step(name, prompt=name, next=["end"], catch="end") for name in names),
        Step("end", script="1", join=True),
    ]
    world, script = world_with(Workflow("w", steps, continue_on_failure=True))
    execution = world.start("w", bounds={"max_llm_calls": 1}).wait(20)
    done = world.answer(execution.open_questions[0].id, "stop").wait(20)
    assert (done.status, script.calls, done.envelope.terminal_reason) == ("failed", 1, "max_llm_calls_exceeded")


def test_reservations_of_a_failed_call_are_given_back():
    class Breaking(ScriptedModel):
        def reply(self, prompt):
            super().reply(prompt)
            raise RuntimeError("down")

    model = Breaking(["x"], usage={"input_tokens": 10})
    workflow = Workflow("w", [Step("ask", prompt="a", catch="more"), Step("more", script="1")])
    world, _ = world_with(workflow, model=model)
    done = world.start("w", bounds={"max_tokens": 15}).wait(20)
    assert (done.status, done.state.ledger.reserved_tokens) == ("completed", 0)


def test_an_action_is_not_bounded_by_calls_of_models():
    calls = Calls()
    world = environment(Workflow("w", [Step("a", action="note")]), actions=[calls.action()], store=MemoryStore())
    assert world.start("w", bounds={"max_llm_calls": 0, "max_tokens": 0}).wait(20).status == "completed"
    assert len(calls) == 1


def test_no_more_items_are_begun_once_nothing_is_left_for_them():
    step = Step("p", agent="a", prompt="hi", each=Each(list(range(500)), as_="i", parallel=8))
    world = environment(Workflow("each", [step]), agents=[Agent("a", model=ScriptedModel(["x"]))])
    execution = world.start("each", bounds={"max_llm_calls": 20}).wait(20)
    assert execution.status == "waiting"
    assert sum(event.event_type == "iteration_started" for event in execution.history()) <= 20 + 2 * 8


def test_a_bound_tells_what_is_spent_what_is_reserved_and_what_the_next_call_would_need():
    found = Exhausted("max_cost", "0.5", "0.1", reserved="0.3", needed="0.2")
    assert str(found) == (
        "Budget reached: $0.10 of $0.50 spent, $0.30 reserved by calls under way, and the next call needs up to $0.20. "
        "Raise `max_cost`, or lower `MaxTokens`."
    )
