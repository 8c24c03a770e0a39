"""Definitions that were written for, or recorded by, earlier versions: keys renamed since, forms changed since."""

from dataclasses import replace

import pytest

from divebook import Step, Workflow
from divebook.definitions import definition, schema
from divebook.definitions.reader import read_definitions
from divebook.errors import DefinitionError, NewerStoreError
from divebook.events.upcast import FORM


@pytest.fixture
def renamed(monkeypatch):
    """The key `Script` of steps as if it had been called `RunCode` once."""
    keys = tuple(replace(key, formerly=("RunCode",)) if key.name == "Script" else key for key in schema.STEP.keys)
    monkeypatch.setitem(schema.STEP.__dict__, "keys", keys)
    for cached in ("_spellings", "_folded"):
        monkeypatch.delitem(schema.STEP.__dict__, cached, raising=False)
    yield
    for cached in ("_spellings", "_folded"):
        schema.STEP.__dict__.pop(cached, None)


@pytest.mark.parametrize("name", ["RunCode", "run_code"])
def test_a_former_name_is_read_with_a_warning_that_says_the_present_one(renamed, name):
    read = read_definitions(f"Workflows: [{{Name: w, Steps: [{{Name: s, {name}: 1 + 1}}]}}]")
    assert read.workflows[0].steps[0].script == "1 + 1"
    (warning,) = read.warnings
    assert (warning.message, warning.severity) == (f"{name} was renamed to Script", "warning")
    assert warning.hint == "write Script; the old name still works"


def test_both_names_at_once_are_refused(renamed):
    with pytest.raises(DefinitionError, match="given twice"):
        read_definitions("Workflows: [{Name: w, Steps: [{Name: s, Script: '1', RunCode: '2'}]}]")


def title_became_name(data):
    rest = {key: value for key, value in data.items() if key != "title"}
    return {"name": data["title"], **rest}


def test_a_recorded_definition_walks_through_every_change_since(monkeypatch):
    workflow = Workflow("w", [Step("s", script="1")])
    old = {("title" if key == "name" else key): value for key, value in workflow.to_dict().items()}
    assert old[FORM] == 1
    monkeypatch.setattr(definition, "FORMS", (*definition.FORMS, title_became_name))
    assert Workflow.from_dict(old) == workflow
    stored = workflow.to_dict()
    assert stored[FORM] == 2
    assert Workflow.from_dict(stored) == workflow
    assert workflow.fingerprint == Workflow("w", [Step("s", script="1")]).fingerprint
    with pytest.raises(NewerStoreError, match="the definition of workflow 'w' has format version 3"):
        Workflow.from_dict({**stored, FORM: 3})
