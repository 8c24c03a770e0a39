"""A cell whose definition was edited offers what can be reused; without a choice it is a new run, and nothing waits."""

import pytest

from divebook.errors import CodeChangedError, ExecutionError
from divebook.notebook import code_change_choice
from divebook.notebook.run_view import continue_failed
from divebook.notebook.session import current_session
from tests.notebook.test_edits import HERE, Page

ACTIONS = """
from divebook import action
MADE = []
@action
def note(x):
    MADE.append(x)
    if x == 3:
        raise ValueError("three")
    return x
"""
ROW = """\
%%dive workflow row
Steps:
  - {Name: a, Action: note, Parameters: {x: 1}, Store: a}
  - {Name: b, Action: note, Parameters: {x: 2}, Store: b}
  - {Name: c, Action: note, Parameters: {x: 3}, Store: c}
"""
CORRECTED = ROW.replace("x: 3", "x: 30")
PLAN = "2 operations reused, 1 live"


def start(**wishes):
    session = current_session()
    return session.start_at(HERE, session.workflow("row"), {}, **wishes).wait(20)


@pytest.fixture
def failed(cell, shell):
    cell(ACTIONS)
    cell(ROW)
    run = start()
    assert run.status == "failed"
    shell.user_ns["MADE"].clear()
    cell(CORRECTED)
    return run


def test_without_a_choice_it_is_a_new_run_that_says_what_would_have_been_reused(failed, shell):
    run = start(on_edit="again")
    assert (run.status, run.id != failed.id, shell.user_ns["MADE"]) == ("completed", True, [1, 2, 30])
    advice = f"To continue the earlier run instead, add --changed reuse: {PLAN}"
    assert run.internals.options.remark.endswith(advice)


def test_what_is_the_same_is_reused_and_the_cell_holds_the_run_that_goes_on(failed, shell):
    run = start(on_edit="reuse")
    assert (run.status, shell.user_ns["MADE"]) == ("completed", [30])
    told = f"since run {failed.id} of this cell; the new run {run.id} continues that run from event "
    assert told in run.internals.options.remark
    record = run.store.record(run.id)
    assert (record.origin, record.parent, record.cell) == ("resume", failed.id, "c1/1")
    assert start(on_edit="ask").id == run.id
    assert shell.user_ns["MADE"] == [30]


def test_what_was_continued_from_its_card_is_what_the_cell_shows_from_then_on(failed, shell):
    continued = continue_failed(failed)
    assert (continued.wait(20).status, continued != failed, shell.user_ns["MADE"]) == ("completed", True, [30])
    assert start(on_edit="ask").id == continued.id
    assert shell.user_ns["MADE"] == [30]


@pytest.mark.parametrize(
    ("pressed", "made"), [("reuse", [30]), ("again", [1, 2, 30]), (None, [1, 2, 30])], ids=["reuse", "again", "none"]
)
def test_a_person_is_offered_the_plan_and_nobody_is_waited_for_long(failed, shell, monkeypatch, pressed, made):
    with pytest.raises(CodeChangedError) as caught:
        start(on_edit="ask")
    assert caught.value.choices == {"reuse": PLAN, "again": "runs everything again in a new run"}
    assert caught.value.default == "again"
    assert shell.user_ns["MADE"] == []
    Page(monkeypatch, pressed)
    assert code_change_choice.wait_for_choice(caught.value).wait(20).status == "completed"
    assert shell.user_ns["MADE"] == made


def test_an_offer_that_is_shown_and_not_taken_up_is_a_new_run(failed, shell, monkeypatch):
    monkeypatch.setattr(code_change_choice, "CHOICE_TIMEOUT", 0.0)
    with pytest.raises(CodeChangedError) as caught:
        start(on_edit="ask")
    page = Page(monkeypatch, "seen")
    shown = page._shown

    def unpressed(error):
        output = shown(error)
        output.choice = ""
        return output

    monkeypatch.setattr(code_change_choice, "ChoiceOutput", unpressed)
    code_change_choice.wait_for_choice(caught.value).wait(20)
    assert shell.user_ns["MADE"] == [1, 2, 30]


def test_a_run_that_waits_is_cancelled_by_nobody_but_a_person(cell, shell):
    cell(ACTIONS)
    asks = ROW.replace("{Name: c,", "{Name: who, Ask: Who?, Store: who}\n  - {Name: c,")
    cell(asks)
    waiting = start()
    assert waiting.status == "waiting"
    shell.user_ns["MADE"].clear()
    cell(asks.replace("x: 3", "x: 30"))
    told = r"To continue it with the new definition: .* --definition new\. To start a new run: add --new$"
    with pytest.raises(ExecutionError, match=told):
        start(on_edit="again")
    with pytest.raises(CodeChangedError) as caught:
        start(on_edit="ask")
    assert caught.value.default is None
    run = start(on_edit="reuse")
    assert (run.status, shell.user_ns["MADE"], waiting.refresh().status) == ("waiting", [], "cancelled")


def test_where_only_scripts_would_be_reused_nothing_is_offered(cell):
    cell("%%dive workflow row\nSteps: [{Name: a, Script: 1, Store: a}, {Name: b, Script: 2, Store: b}]")
    old = start()
    cell("%%dive workflow row\nSteps: [{Name: a, Script: 1, Store: a}, {Name: b, Script: 3, Store: b}]")
    run = start(on_edit="ask")
    assert (run.id != old.id, run.variables["b"], run.internals.options.remark) == (True, 3, "")
