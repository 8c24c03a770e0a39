"""The ways on from a failure: to continue with the edited function, to run again, to open the replay."""

import os
import threading
from copy import copy

import pytest

from divebook.errors import ExecutionFailedError
from divebook.notebook.run_view import _handlers, changed_definitions, follow_run, plan_of, view_of
from divebook.notebook.session import Session
from divebook.steps.actions import Action
from divebook.widgets import views
from divebook.widgets.views import Intents

PATIENCE = 20
CELL = """
from divebook.definitions import step, workflow
MADE = []
@step
def fetch(x):
    MADE.append("fetch")
    return {"label": x}
@step
def parse(answer):
    MADE.append("parse")
    return answer["lable"]
@workflow
async def flow(ctx, n: int = 7):
    return await parse(await fetch(n))
"""


@pytest.fixture
def failed(shell, session):
    shell.run_cell(CELL, store_history=True)
    run = session.start_run("flow", bounds={"max_llm_calls": 40}, tags=["mine"], cell="c1/1").wait(PATIENCE)
    assert run.status == "failed"
    return run


def edit(shell):
    made = shell.user_ns["MADE"]
    shell.run_cell(CELL.replace("lable", "label"), store_history=True)
    shell.user_ns["MADE"] = made


def ways(run):
    return {way["name"]: way for way in follow_run(run).feed.frame()["header"]["ways"]}


def test_before_the_edit_continuing_would_fail_again_and_names_the_line_to_edit(failed):
    fix = ways(failed)["fix"]
    assert (fix["ready"], fix["reused"]) == (False, "1 call")
    assert fix["told"] == (
        "parse has not changed since the failure, so it would fail again. "
        f"Edit {failed.failure.place} and run that cell first."
    )


def test_after_the_edit_continuing_is_ready_and_says_what_it_uses(failed, shell):
    follow_run(failed).feed.frame()
    edit(shell)
    publisher = follow_run(failed)
    publisher.feed.request_refresh()
    fix = next(way for way in publisher.feed.frame()["header"]["ways"] if way["name"] == "fix")
    told = "Continues with the current version of step parse. First, you see a plan of the changes and confirm it."
    assert (fix["ready"], fix["told"]) == (True, told)


def test_a_definition_is_to_be_mended_first_and_then_used(session):
    session.define("Workflows: [{Name: w, Steps: [{Name: s, Script: 1 // 0}]}]")
    run = session.start_run("w").wait(PATIENCE)
    fix = ways(run)["fix"]
    assert not fix["ready"]
    assert fix["told"].startswith("s has not changed since the failure, so it would fail again. Edit ")
    session.define("Workflows: [{Name: w, Steps: [{Name: s, Script: 1 // 1}]}]")
    assert changed_definitions(run) == ["the definition"]
    fix = ways(run)["fix"]
    assert (fix["ready"], fix["told"].partition(".")[0]) == (
        True,
        "Continues with the current version of the definition",
    )


def test_what_a_model_failed_at_may_be_made_again_as_it_is(session):
    session.define(
        "Agents: [{Name: a, Model: scripted}]\nWorkflows: [{Name: w, Steps: [{Name: s, Agent: a, Prompt: Hi}]}]"
    )
    session.follow_script("a", {"error": "the network is down"})
    fix = ways(session.start_run("w").wait(PATIENCE))["fix"]
    assert (fix["ready"], fix["told"]) == (True, "Continue retries the failed call.")


def test_the_plan_says_what_is_left_of_many_items(session):
    step = "{Name: s, Action: part, Parameters: {n: $(%s)}, Each: {Items: $(inputs.rows), As: row}}"
    items = f"Workflows: [{{Name: w, Inputs: [{{Name: rows}}], Steps: [{step}]}}]"
    session.environment._registry.custom_actions["part"] = Action("part", lambda n: 1 // n)
    session.define(items % "row")
    run = session.start_run("w", {"rows": [1, 2, 0, 4, 5]}).wait(PATIENCE)
    assert ways(run)["fix"]["reused"] == "2 items and 2 calls"
    assert plan_of(run) == ""
    session.define(items % "row or 1")
    assert "2 operations reused, 1 live, then unknown: 2 items of s" in plan_of(run)


def test_a_run_that_has_not_failed_has_none(session):
    session.define("Workflows: [{Name: w, Steps: [{Name: s, Script: 1 // 1}]}]")
    assert ways(session.start_run("w").wait(PATIENCE)) == {}


class Page:
    """A browser that shows the view of a run."""

    def __init__(self, run):
        self.heard, self.news = [], threading.Condition()
        self.view = view_of(run)

    def hear(self, message):
        with self.news:
            self.heard.append(message)
            self.news.notify_all()

    def says(self, **message):
        self.view._receive(self.view, message, [])

    def until(self, test):
        with self.news:
            assert self.news.wait_for(lambda: any(map(test, self.heard)), PATIENCE)
            return next(filter(test, self.heard))


@pytest.fixture
def page(failed, monkeypatch):
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    pages = []
    monkeypatch.setattr(views.LiveView, "send", lambda _, message: pages[0].hear(message) if pages else None)
    pages.append(Page(failed))
    pages[0].says(type="hello", view="v", feed="", since=0)
    yield pages[0]
    pages[0].view.close()


def test_continuing_is_planned_first_and_makes_what_failed_again_and_nothing_else(failed, page, shell):
    edit(shell)
    before = copy(failed)
    page.says(type="control", id="i0", command="plan")
    plan = page.until(lambda message: message["type"] == "ack")
    assert (plan["accepted"], plan["text"].splitlines()[0]) == (
        True,
        f"plan to continue {before.id} of 'flow': 1 operation reused, 1 live, then unknown: later calls of flow",
    )
    assert shell.user_ns["MADE"] == ["fetch", "parse"]
    page.says(type="control", id="i1", command="fix")
    assert page.until(lambda message: message.get("id") == "i1")["accepted"]
    page.until(lambda m: m["type"] == "welcome" and m["header"]["execution_id"] == failed.id)
    failed.wait(PATIENCE)
    record = failed.environment.store.record(failed.id)
    assert (record.parent, record.origin, failed.status, failed.outputs["result"]) == (
        before.id,
        "resume",
        "completed",
        7,
    )
    assert shell.user_ns["MADE"] == ["fetch", "parse", "parse"]
    assert (failed.failure, before.refresh().status) == (None, "failed")


def test_what_was_not_edited_is_taken_up_itself_and_needs_no_consent(failed, page, shell):
    before = failed.id
    page.says(type="control", id="i0", command="plan")
    assert page.until(lambda message: message["type"] == "ack")["text"] == ""
    page.says(type="control", id="i1", command="fix")
    assert page.until(lambda message: message.get("id") == "i1")["accepted"]
    assert (failed.wait(PATIENCE).id, shell.user_ns["MADE"]) == (before, ["fetch", "parse", "parse"])


def test_running_again_is_a_new_run_that_the_same_view_shows(failed, page, shell):
    edit(shell)
    before = copy(failed)
    page.says(type="control", id="i1", command="again")
    assert page.until(lambda message: message["type"] == "ack")["accepted"]
    assert failed.id != before.id
    shown = page.until(
        lambda message: message.get("header", {}).get("execution_id") == failed.id and message["type"] == "welcome"
    )
    assert shown["since"] == 0
    failed.wait(PATIENCE)
    assert (failed.status, failed.inputs, before.refresh().status) == ("completed", {"n": 7}, "failed")
    with pytest.raises(ExecutionFailedError, match="KeyError: 'lable'"):
        before.wait(check=True)


def test_running_again_starts_as_the_run_was_started(failed):
    before = failed.history()[0].data
    after = failed.again().history()[0].data
    kept = ("bounds", "identity", "model", "tags", "note", "notebook", "cell", "inputs")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert (before.tags, before.bounds, before.cell) == (["mine"], {"max_llm_calls": 40}, "c1/1")


class Broken:
    """An action that fails until it is mended, and then takes until it is let go on."""

    def __init__(self):
        self.is_mended, self.goes_on, self.calls = False, threading.Event(), 0

    def __call__(self, value):
        self.calls += 1
        if not self.is_mended:
            raise KeyError(value)
        assert self.goes_on.wait(PATIENCE)
        return value


def kernel(store, action):
    session = Session(str(store))
    session.define("Workflows: [{Name: w, Steps: [{Name: a, Action: note, Parameters: {value: b}, Store: n}]}]")
    session.environment._registry.custom_actions["note"] = Action("note", action)
    return session


def press(*runs):
    """Press "Fix and continue" in a view of each of them at once; return what each page is told."""
    told, together = [], threading.Barrier(len(runs))

    def pressed(run):
        intents = Intents(_handlers(run, lambda: None), told.append, executor=Here())
        together.wait(PATIENCE)
        intents.take({"type": "control", "id": "i1", "command": "fix"})

    threads = [threading.Thread(target=pressed, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return told


class Here:
    """An executor that does at once what it is given."""

    def submit(self, call, *given):
        call(*given)


def test_of_two_pages_of_a_kernel_that_continue_at_once_both_show_the_one_run_that_goes_on(tmp_path):
    action = Broken()
    first = kernel(tmp_path / "s.db", action)
    run = first.start_run("w").wait(PATIENCE)
    other = first.environment.run_of(run.id)
    action.is_mended = True
    told = press(run, other)
    assert [ack["accepted"] for ack in told] == [True, True]
    action.goes_on.set()
    assert (run.wait(PATIENCE).status, other.wait(PATIENCE).status, action.calls) == ("completed", "completed", 2)


def test_of_two_kernels_one_continues_and_the_other_is_told_who_and_later_shows_the_end(tmp_path):
    action = Broken()
    first, second = (kernel(tmp_path / "s.db", action) for _ in range(2))
    run = first.start_run("w").wait(PATIENCE)
    other = second.environment.run_of(run.id)
    action.is_mended = True
    told = {ack["accepted"]: ack["text"] for ack in press(run, other)}
    assert f"(process {os.getpid()} on " in told[False]
    assert told[False].endswith(", so it was not started again. Run the cell again to see the run")
    action.goes_on.set()
    winner, loser = (run, other) if run.is_live else (other, run)
    assert winner.wait(PATIENCE).status == "completed"
    (late,) = press(loser)
    assert (late["accepted"], loser.status, loser.variables, action.calls) == (True, "completed", {"n": "b"}, 2)
    assert follow_run(loser).feed.frame()["header"]["status"] == "completed"


def test_of_two_pages_that_continue_at_once_with_an_edit_one_new_run_goes_on(tmp_path):
    action = Broken()
    first, second = (kernel(tmp_path / "s.db", action) for _ in range(2))
    run = first.start_run("w").wait(PATIENCE)
    same = first.environment.run_of(run.id)
    other = second.environment.run_of(run.id)
    action.is_mended = True
    for session in (first, second):
        session.define("Workflows: [{Name: w, Steps: [{Name: a, Action: note, Parameters: {value: c}, Store: n}]}]")
    told = press(run, same, other)
    assert any(ack["accepted"] for ack in told)
    assert all(", so it was not started again" in ack["text"] for ack in told if not ack["accepted"])
    action.goes_on.set()
    for one in (run, same, other):
        one.wait(PATIENCE)
    records = first.environment.store.records(origin="resume")
    assert [(record.status, record.workflow_name) for record in records] == [("completed", "w")]
    assert action.calls == 2
