"""The engine and the envelope judge answers by the same rules."""

from contextlib import nullcontext
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.definitions.json_schemas import FITTING
from divebook.engine.bounds import Exhausted, asked_about
from divebook.errors import InterruptError
from divebook.events.event import to_microseconds
from divebook.pipeline.envelope import FlowInterrupt, InterruptResponse
from divebook.pipeline.envelope.interrupts import accepts_empty_answer, parts_of_response
from divebook.pipeline.envelope.service import DEFAULT_POLICIES
from divebook.questions import InterruptKind, Question, checked_answer
from divebook.questions.answer import PART_TYPES
from divebook.questions.question import KINDS, RAISE, RESOURCE_EXHAUSTED
from tests.envelope.strategies import NOW, responses
from tests.pipeline.worlds import Script, chain, envelope, pipeline


@given(responses)
def test_an_answer_is_empty_by_one_rule(response):
    parts = parts_of_response(response)
    optional = Question("q", "checkpoint", "Seen?", optional=True)
    try:
        is_empty = checked_answer(optional, parts, FITTING, 0) == {}
    except InterruptError:  # it has a control character
        is_empty = False
    assert response.is_empty == is_empty


@given(st.integers(-2, 2))
def test_a_question_expires_at_its_time_everywhere(microseconds):
    now = NOW + timedelta(microseconds=microseconds)
    interrupt = FlowInterrupt("clarification", "q", NOW, expires_at=NOW)
    question = Question("q", "clarification", "Which?", expires_us=to_microseconds(NOW))
    try:
        checked_answer(question, "this", FITTING, to_microseconds(now))
        is_refused = False
    except InterruptError:
        is_refused = True
    assert interrupt.is_expired(now) == is_refused


@given(st.sampled_from([*PART_TYPES]), st.sampled_from(["text", True, 1, 2.5, ["a"]]))
def test_a_part_of_an_answer_has_one_type(part, value):
    question = Question("q", "checkpoint", "Seen?", optional=True)
    checks = (
        lambda: checked_answer(question, {part: value}, FITTING, 0),
        lambda: InterruptResponse.read("q", {part: value}, NOW),
    )
    fits = type(value) is PART_TYPES[part]
    for check in checks:
        with nullcontext() if fits else pytest.raises(InterruptError, match=f"{part} must be"):
            check()


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_bound_that_is_raised_without_a_number_is_doubled_by_one_rule(limit):
    stages = [f"s{number}" for number in range(limit + 2)]
    runner = pipeline(chain(*stages, max_agent_hops=limit, on_exhausted="ask"), Script())
    waiting = runner.run(envelope())
    assert waiting.agent_hop_count == limit
    wording = asked_about(Exhausted("max_agent_hops", limit, limit))
    question = Question("q", RESOURCE_EXHAUSTED, wording.question, data=wording.data)
    raised = checked_answer(question, RAISE, FITTING, 0)["data"]["to"]
    assert runner.resume(waiting, RAISE).max_agent_hops == raised == 2 * max(limit, 1)


def test_the_kinds_say_which_questions_need_an_answer():
    for kind, policy in DEFAULT_POLICIES.items():
        expected = kind == InterruptKind.RESOURCE_EXHAUSTED or KINDS[kind].optional
        assert accepts_empty_answer(kind) == expected == (not policy.require_response), kind
    assert not accepts_empty_answer(RESOURCE_EXHAUSTED, {"limit": 3})
    assert not accepts_empty_answer("a kind of another version")
