"""Runs in saved notebooks: what an output holds, how it is switched off, and opening it without the store."""

import json

import pytest
from IPython.core.error import UsageError

import divebook
from benchmarks import forged
from divebook.errors import DivebookError, SavedRunError
from divebook.notebook.saved_notebook import open_notebook
from divebook.widgets import views
from divebook.widgets.recording import MIME, pack, unpack

WORKFLOW = (
    "Workflows: [{Name: sum, Inputs: [{Name: api_key, Default: ''}], Steps: [{Name: add, Script: 1 + 1, Store: n}]}]"
)
SECRET = "hunter2hunter2"


@pytest.fixture
def run(session):
    session.define(WORKFLOW)
    return session.start_run("sum", {"api_key": SECRET}).wait()


def notebook(tmp_path, *data):
    """Write a notebook with one output for each bundle."""
    outputs = [{"output_type": "display_data", "metadata": {}, "data": bundle} for bundle in data]
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": "", "outputs": outputs}
    path = tmp_path / "old.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}))
    return path


def test_an_output_holds_the_run_and_no_secret(run):
    bundle = run.internals.static_bundle()
    assert set(bundle) == {"text/plain", "text/html", MIME}
    assert bundle[MIME]["execution_id"] == run.id
    assert SECRET not in json.dumps(bundle)


@pytest.mark.parametrize("way", ["variable", "config", "run"])
def test_the_data_can_be_switched_off(session, run, way, monkeypatch):
    if way == "variable":
        monkeypatch.setenv("DIVEBOOK_NOTEBOOK_DATA", "off")
    elif way == "config":
        session.define("Config: {NotebookData: off}")
    else:
        run.internals.options.keeps_data = False
    assert set(run.internals.static_bundle()) == {"text/plain", "text/html"}


def test_a_run_that_was_saved_shows_what_was_answered(session, tmp_path):
    session.define("Workflows: [{Name: ask, Steps: [{Name: name, Ask: Which name?, Store: it}]}]")
    run = session.start_run("ask").wait()
    run.answer(run.open_questions[0].id, "ann", "bob").wait()
    shown = str(open_notebook(notebook(tmp_path, run.internals.static_bundle()))[0])
    assert "asked: Which name?\nanswered: ann (by bob at " in shown
    assert "asked: Which name?\nanswered: ann (by bob at " in str(run)


def test_the_magic_switches_it_off(cell):
    cell("%%dive\n" + WORKFLOW)
    assert MIME in cell("%dive run sum")[0].internals.static_bundle()
    assert MIME not in cell("%dive run sum --no-data")[0].internals.static_bundle()


def test_a_switch_that_is_neither_on_nor_off_is_refused(run, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_NOTEBOOK_DATA", "maybe")
    with pytest.raises(DivebookError, match="DIVEBOOK_NOTEBOOK_DATA cannot be 'maybe'"):
        run.internals.static_bundle()


def test_a_notebook_alone_gives_the_run_back(run, tmp_path):
    (opened,) = divebook.notebook.saved_notebook.open_notebook(notebook(tmp_path, run.internals.static_bundle()))
    assert (opened.id, opened.workflow, opened.status) == (run.id, "sum", "completed")
    assert opened.variables == {"n": 2}
    assert opened.inputs == {"api_key": "[redacted]"}
    assert list(opened.events.type) == list(run.events.type)
    assert opened.steps.drop(columns="output").equals(run.steps.drop(columns="output"))
    assert opened.operations.operation_id.equals(run.operations.operation_id)
    assert opened.state_at(1)["variables"] == {}
    assert opened.state_at(len(opened.events))["variables"] == {"n": 2}


def test_an_answer_in_a_notebook_of_an_older_version_is_read_in_todays_words(session, tmp_path):
    asking = session.start_run(session.workflow(divebook.Workflow("w", [divebook.Step("s", ask="Which?")]))).wait()
    bundle = asking.answer(asking.open_questions[0].id, "this").wait().internals.static_bundle()
    recording = unpack(bundle[MIME]["recording"])
    assert recording["questions"][0]["status"] == "resolved"
    recording["questions"][0]["status"] = "completed"  # what it was called before
    for name in ("doing", "since_us", "worked_us", "waited_us", "paused_us", "stretches", "progress"):
        del recording["header"][name]  # which nobody knew
    del recording["spans"]["item"], recording["variables"]
    old = {**bundle, MIME: {**bundle[MIME], "recording": pack(recording)}}
    (opened,) = divebook.notebook.saved_notebook.open_notebook(notebook(tmp_path, old))
    assert opened.questions[0]["status"] == "resolved"


def test_a_failure_in_a_notebook_of_an_older_version_says_nothing_of_what_it_means(session, tmp_path):
    failed = session.start_run(session.workflow(divebook.Workflow("w", [divebook.Step("s", script="1 // 0")]))).wait()
    bundle = failed.internals.static_bundle()
    recording = unpack(bundle[MIME]["recording"])
    (shown,) = recording["failures"]["shown"]
    assert shown.pop("means") == "A number was divided by zero."
    old = {**bundle, MIME: {**bundle[MIME], "recording": pack(recording)}}
    (opened,) = divebook.notebook.saved_notebook.open_notebook(notebook(tmp_path, old))
    assert opened.steps.error_type[0] == "ZeroDivisionError"


def test_an_opened_run_shows_itself_and_can_be_saved_again(run, tmp_path):
    opened = open_notebook(notebook(tmp_path, run.internals.static_bundle()))[run.id[:10]]
    bundle = opened._repr_mimebundle_()
    assert bundle[MIME] == run.internals.static_bundle()[MIME] | {"recording": bundle[MIME]["recording"]}
    assert "from a saved notebook" in bundle["text/plain"]
    assert "add" in str(opened)


def test_the_latest_output_of_a_run_counts(run, session, tmp_path):
    other = session.start_run("sum").wait()
    old = run.internals.static_bundle()
    old[MIME] |= {"status": "running"}
    opened = open_notebook(notebook(tmp_path, old, other.internals.static_bundle(), run.internals.static_bundle()))
    assert [(one.id, one.status) for one in opened] == [(run.id, "completed"), (other.id, "completed")]


def test_what_cannot_be_opened_is_told_beside_the_others(run, tmp_path):
    opened = open_notebook(notebook(tmp_path, run.internals.static_bundle(), {MIME: {"format": 1}}))
    assert len(opened) == 1
    assert opened.problems == ("run.execution_id is missing",)
    assert "cannot be opened: run.execution_id is missing" in repr(opened)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("<script>", "is not a notebook"),
        ("[" * 100_000, "is not a notebook"),
        ("[]", "no cell output contains data of a run"),
        ('{"cells": [1, {"outputs": 3}, {"outputs": [null, {"data": []}]}]}', "no cell output contains data of a run"),
        (
            json.dumps({"cells": [{"outputs": [{"data": {MIME: "<img src=x onerror=alert(1)>"}}]}]}),
            "which is not a valid value",
        ),
    ],
)
def test_a_file_that_holds_no_run_is_refused_with_a_sentence(tmp_path, content, why):
    path = tmp_path / "x.ipynb"
    path.write_text(content)
    with pytest.raises(SavedRunError, match=why):
        open_notebook(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SavedRunError, match=r"nowhere\.ipynb cannot be read"):
        open_notebook(tmp_path / "nowhere.ipynb")


def test_hostile_texts_are_shown_as_texts(run, tmp_path):
    bundle = run.internals.static_bundle()
    bundle[MIME] |= {"workflow": "<script>alert(1)</script>\x1b[31m\u202e", "store": "\x1b]0;x"}
    shown = open_notebook(notebook(tmp_path, bundle))[0]._repr_mimebundle_()
    assert "<script>" not in shown["text/html"]
    assert "\x1b" not in shown["text/plain"]
    assert "\u202e" not in shown["text/plain"]


def test_the_magic_opens_a_file_and_a_single_run(cell, session, tmp_path, monkeypatch):
    session.define(WORKFLOW)
    run = session.start_run("sum").wait()
    path = notebook(tmp_path, run.internals.static_bundle())
    assert [one.id for one in cell(f"%dive open {path}")[0]] == [run.id]
    assert cell(f"%dive open {path} {run.id}")[0].id == run.id
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    assert len(cell("%dive open")[0]) == 1


def test_without_a_file_and_a_front_end_that_tells_the_magic_asks_for_one(cell, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    with pytest.raises(UsageError, match="pass the path: %dive open FILE"):
        cell("%dive open")


def test_a_replay_answers_for_live_and_saved_runs_alike(run, tmp_path, monkeypatch):
    monkeypatch.setattr(views, "STATIC", tmp_path)
    (tmp_path / "replay.js").write_text("export default {}")
    (tmp_path / "replay.css").write_text("")
    sent = []
    monkeypatch.setattr(views.ReplayView, "send", lambda _, message: sent.append(message))
    for one in (run, open_notebook(notebook(tmp_path, run.internals.static_bundle()))[0]):
        view = one.replay()
        for message in (
            {"type": "events", "view": "v", "after": 0, "stop": 100},
            {"type": "state", "view": "v", "sequence": 8},
            {"type": "state", "view": "v", "sequence": 99},
            {"type": "nonsense"},
        ):
            view._receive(view, message, [])
        view.close()
    mine, saved = sent[: len(sent) // 2], sent[len(sent) // 2 :]
    assert len(sent) == 8  # nonsense is answered as well
    assert mine[0]["events"]["time"] == saved[0]["events"]["time"]
    assert mine[1]["state"]["variables"] == saved[1]["state"]["variables"] == {"n": 2}
    assert mine[2]["state"] is saved[2]["state"] is None
    assert saved[2]["error"].startswith("event 99 is not in the notebook, which contains 9 events ")


def test_a_forged_output_is_refused_or_shown_and_hides_no_other(tmp_path):
    good = forged.sound()  # `python -m benchmarks.forged` tries 1,500
    seeds = [300, 441, 509, 578, 592, 683, 817, 1127, 1157, *range(40)]
    assert [told for seed in seeds if (told := forged.finding(good, seed, tmp_path))] == []


def test_an_unknown_column_is_ignored(tmp_path):
    data = forged.sound()
    recording = unpack(data["recording"])
    recording["spans"]["x"] = 1
    path = notebook(tmp_path, {MIME: {**data, "recording": pack(recording)}})
    assert open_notebook(path)[0].status == "completed"
