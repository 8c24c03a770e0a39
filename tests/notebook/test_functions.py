"""What the magics do, as functions."""

import pytest

import divebook
from divebook import run, workflow
from divebook.errors import DivebookError, InputError, InterruptError, NotFoundError, SetupError
from divebook.widgets.views import LiveView

ASKING = """\
Workflows:
  - Name: asking
    Steps:
      - {Name: q, Ask: {Question: Go on?, Kind: confirmation}}
      - {Name: end, Script: 1 + 1, Store: n}
"""


def test_questions_are_listed_and_answered(session):
    assert list(divebook.inbox().frame().columns) == [
        "question_id",
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
    (row,) = divebook.inbox().frame().to_dict("records")
    assert (row["execution_id"], row["step"], row["question"]) == (run.id, "q", "Go on?")
    with pytest.raises(InterruptError):
        divebook.answer(row["question_id"], {"no": "answer"})
    assert divebook.answer(row["question_id"], response=True).wait().variables == {"n": 2}
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


def test_inputs_are_a_mapping_keywords_or_in_order(session):
    @workflow
    async def product(ctx, one: int, other: int = 1, note: str = ""):
        return f"{one * other}{note}"

    ways = [
        run(product, one=6, other=7),
        run(product, 6, 7),
        run(product, 6, other=7),
        run(product, {"one": 6}, other=7),
    ]
    assert [each.result() for each in ways] == ["42"] * 4
    # An option of `run` has the name before an input does.
    noted = run(product, {"one": 1, "note": "!"}, note="remark")
    assert (noted.result(), noted.internals.record.note) == ("1!", "remark")
    with pytest.raises(InputError, match='"one" is passed twice'):
        run(product, {"one": 6}, one=7)
    with pytest.raises(InputError, match="too many positional arguments"):
        run(product, 1, 2, "!", 4)
    with pytest.raises(SetupError, match="did you mean 'tags'"):
        run(product, one=1, tgas=["x"])


MISTAKES = {
    "answer": "divebook.answer('ask_none', 'yes')",
    "resume": "divebook.resume('exec_none')",
    "show": "divebook.show('exec_none')",
    "run": "divebook.run('none')",
    "runs": "divebook.runs(status='none')",
    "compare": "divebook.compare('exec_none')",
    "define": "divebook.define(3)",
}


@pytest.mark.parametrize("function", MISTAKES)
def test_a_mistake_in_a_cell_is_shown_in_a_few_lines_with_its_line(cell, shell, function):
    text = f"import divebook\n\n{MISTAKES[function]}"
    with pytest.raises(DivebookError) as caught:
        cell(text)
    first, *_, place, advice = caught.value.shown.strip().splitlines()
    assert first.startswith(type(caught.value).__name__)
    assert (place, advice) == (f"  line 3: {MISTAKES[function]}", "  show the full traceback: %tb Verbose")
    shell.run_line_magic("xmode", "Verbose")
    try:
        with pytest.raises(DivebookError) as caught:
            cell(text)
    finally:
        shell.run_line_magic("xmode", "Context")
    assert "session_functions.py" in caught.value.shown
