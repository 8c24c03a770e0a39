"""One answer for all questions that a step asks alike."""

import pytest

from divebook import Each, Step, Workflow
from divebook.errors import InterruptError
from tests.runtime.worlds import environment, question_of


def test_one_answer_is_given_to_all_that_ask_alike_and_its_changes_to_none_of_them():
    each = Each(["a", "b"], as_="item", parallel=2)
    schema = {"type": "object"}
    ask = {"kind": "confirmation", "question": "Delete ${item}?", "schema": schema}
    other = Step("ask", type="interrupt", ask={"question": "Why?"}, store="answer")
    world = environment(
        Workflow("w", [Step("ask", type="interrupt", ask=ask, each=each, store="answers")]), Workflow("v", [other])
    )
    first, second, unlike = (world.start(name).wait(20) for name in ("w", "w", "v"))
    named = first.open_questions[0].id
    went_on = world.answer(f"{named}@{first.id}", {"approved": True, "data": {"n": 1}}, alike=True, by="ann")
    assert sorted(one.wait(20).id for one in went_on) == sorted((first.id, second.id))
    given = [question.response for one in went_on for question in one.state.interrupts.values()]
    assert sorted(map(str, given)) == ["{'approved': True, 'data': {'n': 1}}", *["{'approved': True}"] * 3]
    assert [one.status for one in (first.refresh(), second.refresh(), unlike.refresh())] == [
        "completed",
        "completed",
        "waiting",
    ]


def test_a_question_about_one_run_alone_has_an_answer_of_its_own():
    ask = {"kind": "resource_exhausted", "question": "Go on?"}
    world = environment(Workflow("w", [Step("ask", type="interrupt", ask=ask)]))
    execution = world.start("w").wait(20)
    with pytest.raises(InterruptError, match="needs a separate answer"):
        world.answer(question_of(execution).id, "stop", alike=True)
