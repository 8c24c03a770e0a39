"""What the magics do, as functions."""

import pytest

import divebook
from divebook.errors import InterruptError, NotFoundError
from divebook.widgets.views import LiveView

ASKING = """\
Workflows:
  - Name: asking
    Steps:
      - {Name: q, Ask: {Question: Go on?, Kind: confirmation}}
      - {Name: end, Script: 1 + 1, Store: n}
"""


def test_questions_are_listed_and_answered(session):
    assert list(divebook.inbox().columns) == [
        "interrupt_id",
        "execution_id",
        "path",
        "step",
        "kind",
        "question",
        "status",
        "asked",
        "expires",
        "settled",
        "waited",
        "answer",
        "answered_by",
    ]
    run = divebook.run(ASKING).wait()
    (row,) = divebook.inbox().to_dict("records")
    assert (row["execution_id"], row["step"], row["question"]) == (run.id, "q", "Go on?")
    with pytest.raises(InterruptError):
        divebook.answer(row["interrupt_id"], {"no": "answer"})
    assert divebook.answer(row["interrupt_id"], response=True).wait().variables == {"n": 2}
    assert len(divebook.inbox()) == 0


def test_a_run_is_found_and_taken_up_again(session):
    run = divebook.run("Workflows: [{Name: w, Steps: [{Name: s, Script: 1 / 0}]}]").wait()
    assert divebook.show(run.id[:20]).id == run.id
    assert divebook.resume(run.id).wait().status == "failed"
    with pytest.raises(NotFoundError):
        divebook.show("exec_none")


def test_a_run_shows_itself_as_a_widget(session):
    run = divebook.run(ASKING).wait()
    shown, again = run._display_(), run.view()
    try:
        assert isinstance(shown, LiveView)
        assert isinstance(again, LiveView)
        assert shown.model_id != again.model_id
    finally:
        shown.close()
        again.close()
