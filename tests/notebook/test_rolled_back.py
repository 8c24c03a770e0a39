"""A run that was rolled back, as its cell shows it, and what the cell does when it is run again."""

import itertools

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import ExecutionFailedError
from divebook.notebook import magics
from divebook.notebook.shell_state import FrontEnd
from divebook.projections.failures import kept_in
from divebook.projections.spans import spans_of
from divebook.steps.actions import Action
from divebook.widgets.source import header_of

PLACE = {"notebook": "n.ipynb", "cell": "c1", "source": "s", "kernel": "k"}


@pytest.fixture
def undone(session):
    """Return what was done and undone, by a workflow ``trip`` that fails."""
    told = []

    def note(what):
        told.append(what)
        return what

    def fail():
        raise ValueError("no room")

    steps = [
        Step(
            "a", action="note", parameters={"what": "book"}, rollback={"action": "note", "parameters": {"what": "undo"}}
        ),
        Step("b", action="fail"),
    ]
    actions = [Action("note", note), Action("fail", fail)]
    session.environment.internals.take_in(Environment(actions=actions, workflows=[Workflow("trip", steps)]))
    return told


def test_nothing_is_resumed_of_it_and_the_cell_begins_another(cell, undone, session, monkeypatch):
    counts = itertools.count()
    monkeypatch.setattr(magics, "present_front_end", lambda _: FrontEnd(cell=PLACE, count=next(counts)))
    for _ in range(2):
        with pytest.raises(ExecutionFailedError) as raised:
            cell("%dive run trip")
        assert "resume" not in raised.value.shown
        assert "kept" not in raised.value.shown
    assert undone == ["book", "undo"] * 2
    newest, first = session.environment.store.records(workflow="trip")
    assert newest.execution_id != first.execution_id
    execution = session.environment.run_of(newest.execution_id)
    assert header_of(execution)["commands"] == []
    assert kept_in(spans_of(execution.history())) == ""
