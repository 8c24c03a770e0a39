"""What is told of a run that was made of another one, or that people spoke of, is told by its files too."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.events.catalog import FORK, WHAT_IF
from divebook.stores import MemoryStore

STEPS = [Step("add", script="inputs.n + 1", store="sum"), Step("more", script="state.sum * 2", store="out")]


def made(kind):
    """Return an execution of a kind, and its environment."""
    environment = Environment(store=MemoryStore(), workflows=[Workflow("sums", STEPS, inputs=["n"])])
    run = environment.start("sums", {"n": 1}).wait(30, check=True)
    if kind == "annotated":
        environment.run_of(run.id).annotate(tags=["kept"], note="read twice", labels={"quality": "good"}, by="Mara")
        return environment.run_of(run.id)
    if kind == FORK:
        return environment.run_of(run.id).fork(change={"inputs": {"n": 5}}).wait(30, check=True)
    found = environment.run_of(run.id).what_if({"inputs": {"n": 5}})
    return found.run


@pytest.mark.parametrize("write", ["to_html", "to_notebook"])
@pytest.mark.parametrize("kind", ["annotated", FORK, WHAT_IF])
def test_what_is_opened_says_what_it_is(kind, write, tmp_path):
    run = made(kind)
    path = getattr(run, write)(tmp_path / ("run.html" if write == "to_html" else "run.ipynb"))
    with Environment(store=MemoryStore()) as environment:
        opened = environment.open(path)
        assert [*opened.history()] == [*run.history()]
        assert (opened.status, opened.variables) == (run.status, run.variables)
        record, before = opened.store.record(opened.id), run.store.record(run.id)
        said = [(one.origin, one.parent, one.tags, one.note, one.opened) for one in (record, before)]
        assert said[0] == said[1]
        assert said[0][0] == (kind if kind != "annotated" else "run")
        assert (said[0][3] == "read twice") == (kind == "annotated")
