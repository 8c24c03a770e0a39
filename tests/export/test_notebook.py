"""Notebooks of runs: told in sections, opened again as the run, and run again with the same outputs."""

import json

import nbformat
import pytest

from divebook import Environment
from divebook.errors import InvalidEventError, StoreError
from divebook.notebook.saved_notebook import open_notebook
from divebook.stores import MemoryStore
from tests.export.shared_runs import asking, failing, many
from tests.export.test_page import FRAMES


@pytest.fixture
def environment():
    with Environment(store=MemoryStore()) as made:
        yield made


def sections(notebook):
    return [cell.source.removeprefix("## ") for cell in notebook.cells if cell.source.startswith("## ")]


def shown(notebook):
    return {cell.source: cell.outputs[0]["data"] for cell in notebook.cells if cell.cell_type == "code"}


@pytest.mark.parametrize("make", [asking, failing, lambda: many(60, 90)], ids=["asking", "failing", "many"])
def test_what_is_opened_has_the_events_and_frames_of_what_was_written(make, environment, tmp_path):
    run = make()
    opened = environment.open(run.to_notebook(tmp_path / "run.ipynb"))
    assert [*opened.history()] == [*run.history()]
    for frame in FRAMES:
        assert getattr(opened, frame).equals(getattr(run, frame)), frame


def test_it_tells_the_run_in_sections_with_frames(tmp_path):
    run = asking()
    notebook = nbformat.read(run.to_notebook(tmp_path / "run.ipynb"), 4)
    nbformat.validate(notebook)
    parts = ["Inputs", "Definition", "Steps", "Items", "Model calls", "Questions and answers", "Cost"]
    assert sections(notebook) == [*parts, "Outputs"]
    found = shown(notebook)
    assert json.loads(found["run.inputs"]["text/plain"]) == {"topic": "a sea"}
    assert json.loads(found["run.outputs"]["text/plain"]) == run.outputs
    assert "yes, very much so" in found["run.questions"]["text/html"]
    assert "&lt;b&gt;well" in found["run.questions"]["text/html"]
    assert not {"\x1b", "\u202e"} & {*json.dumps(found, ensure_ascii=False)}
    assert "Prompt: Say ${state.doubled}" in "".join(cell.source for cell in notebook.cells)


def test_failures_have_a_section(tmp_path):
    notebook = nbformat.read(failing().to_notebook(tmp_path / "run.ipynb"), 4)
    assert sections(notebook) == ["Inputs", "Definition", "Steps", "Failures", "Cost", "Variables"]
    (told,) = (data for source, data in shown(notebook).items() if "failures" in source)
    assert "KeyError: answer" in told["text/plain"]


def test_the_replay_is_in_the_first_output(tmp_path):
    run = asking()
    (saved,) = open_notebook(run.to_notebook(tmp_path / "run.ipynb"))
    assert (saved.id, saved.state_at(5)["status"]) == (run.id, "running")


def test_the_log_outlasts_cleared_outputs_and_another_layout(environment, tmp_path):
    run, path = asking(), tmp_path / "run.ipynb"
    notebook = nbformat.read(run.to_notebook(path), 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    path.write_text(json.dumps(notebook, indent=7, sort_keys=True))
    assert [*environment.open(path).history()] == [*run.history()]


@pytest.mark.parametrize("part", ["log", "texts"])
def test_a_changed_part_is_named(part, environment, tmp_path):
    path = asking().to_notebook(tmp_path / "run.ipynb")
    notebook = json.loads(path.read_text())
    held = notebook["metadata"]["divebook"]["parts"]
    held[part]["data"] = held[part]["data"].swapcase()
    path.write_text(json.dumps(notebook))
    with pytest.raises(InvalidEventError, match=rf"the part '{part}' is damaged: its checksum is \w+, expected \w+"):
        environment.open(path)
    del held[part]
    path.write_text(json.dumps(notebook))
    with pytest.raises(InvalidEventError, match=r"must have the parts 'texts' and 'log', but has \['\w+'\]"):
        environment.open(path)


@pytest.mark.parametrize("held", [[], {"form": 1}, {"form": 1, "parts": {"log": 1}}, "x", {"form": 1, "parts": []}])
def test_metadata_of_another_form_is_refused(held, environment, tmp_path):
    path = tmp_path / "run.ipynb"
    path.write_text(json.dumps({"cells": [], "metadata": {"divebook": held}}))
    with pytest.raises((InvalidEventError, StoreError), match=r"run\.ipynb"):
        environment.open(path)


def test_a_notebook_that_carries_nothing_says_so(environment, tmp_path):
    path = tmp_path / "run.ipynb"
    path.write_text(json.dumps({"cells": [], "metadata": {}}))
    with pytest.raises(InvalidEventError, match="contains no log"):
        environment.open(path)
