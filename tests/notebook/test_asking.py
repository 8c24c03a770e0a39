"""Questions in a notebook: listed, answered, given up front, shown with the run."""

import pytest

import divebook
from divebook.notebook.commands import parse, split

DEPLOY = """Workflows:
- Name: deploy
  Outputs: [{Name: sure}]
  Steps:
  - {Name: version, Ask: {Question: "Which <version>?"}, Store: version}
  - {Name: sure, Ask: {Question: "Deploy ${state.version}?", Kind: confirmation, ExpiresIn: 2h}, Store: sure}
"""
WAIT = "Workflows: [{Name: wait, Steps: [{Name: wait, Type: wait, Signal: go, Store: payload}]}]"


@pytest.fixture
def session():
    from divebook.notebook.session import open_session, reset_session

    yield open_session("memory:")
    reset_session()


def test_a_run_shows_its_question_and_later_who_answered(session):
    run = divebook.run(DEPLOY).wait()
    assert "asks: Which <version>? (clarification: text)" in str(run)
    run.answer(run.open_questions[0].id, "1.2", by="ann").wait()
    assert "answered: 1.2 (by ann at " in str(run)
    assert "confirmation: yes or no, until 2" in str(run)
    html = run._repr_html_()
    assert "Which &lt;version&gt;?" in html
    assert "<version>" not in html


def test_answers_up_front_are_given_by_whoever_waits(session):
    run = divebook.run(DEPLOY, answers={"version": "3", "sure:1": True}).wait()
    assert (run.status, run.outputs) == ("completed", {"sure": True})


async def _awaited(run):
    return await run


def test_whoever_awaits_gives_them_as_well(session):
    import asyncio

    run = asyncio.run(_awaited(divebook.run(DEPLOY, answers={"version": "3", "sure": False})))
    assert run.outputs == {"sure": False}


def test_the_inbox_and_answers_are_functions_too(session):
    divebook.run(DEPLOY).wait()
    (question,) = divebook.inbox().frame().to_dict("records")
    assert divebook.answer(question["question_id"], "4", by="bob").wait().status == "waiting"
    (question,) = divebook.inbox().frame().to_dict("records")
    assert question["question"] == "Deploy 4?"


@pytest.mark.usefixtures("notebook_words")
def test_the_listing_says_what_to_type(session):
    from divebook.notebook.report import questions

    run = divebook.run(DEPLOY).wait()
    told = str(questions(session.environment))
    assert f"to answer: %dive answer {run.open_questions[0].id}@{run.id} TEXT" in told
    assert f"({run.id}, step version)" in told


def test_bounds_are_shown_with_what_is_spent(session):
    run = divebook.run(DEPLOY, bounds={"max_llm_calls": 7, "max_cost": "2.50"}).wait()
    assert "0 of 7 model calls, 0 of 2.50 US dollars" in str(run)


def test_a_signal_carries_a_run_on(session):
    run = divebook.run(WAIT).wait()
    assert repr(run) == f"<Run {run.id} of 'wait': waiting for the signal 'go'>"
    assert "waits for the signal 'go'\nto send it: run.signal('go')" in str(run)
    assert "to continue" not in str(run)
    assert "<code>run.signal(&#x27;go&#x27;)</code>" in run._repr_html_()
    assert run.signal("go", {"a": 1}).wait().variables == {"payload": {"a": 1}}


def test_answers_on_the_line_of_a_magic():
    words = split("deploy --answer version='two words' --answer sure=true --answer n:2={a: [1]}")
    arguments = parse(words, {}, {"--answer": "answer"}, inputs=True)
    assert arguments.several("answer") == ["version='two words'", "sure=true", "n:2={a: [1]}"]
