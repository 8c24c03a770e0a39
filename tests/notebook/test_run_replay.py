"""The replay of a run in a notebook: the methods of a replayer, and a view that follows them."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.notebook.view_output import RunReplay
from divebook.widgets import views as module


@pytest.fixture
def seen(monkeypatch):
    """Return the replay of a run, and what its view sends."""
    monkeypatch.setattr(module, "built", lambda name: f"/* {name} */")
    environment = Environment(store="memory:")
    steps = [Step("a", script="1", store="n"), Step("b", script="state.n + 1", store="n")]
    run = environment.start(Workflow("w", steps)).wait()
    replay, told = RunReplay(run, "w", run.internals.static_bundle), []
    monkeypatch.setattr(replay, "send", told.append)
    yield replay, told
    replay.close()


def test_the_view_goes_where_a_cell_has_moved_the_replay(seen):
    replay, told = seen
    assert replay.run_to(changed="n").variables == {"n": 1}
    assert replay.run_to(changed="n") is replay
    assert replay.step_back().variables == {"n": 1}
    assert [message["type"] for message in told] == ["go"] * 3
    assert told[-1]["sequence"] == replay.position
    assert replay.run_to(error=True) is None
    assert len(told) == 3  # it has stayed


def test_a_page_that_comes_later_goes_there_once_it_has_all_events(seen):
    replay, told = seen
    ask = {"type": "events", "view": "v", "after": 0, "stop": 100}
    replay._receive(replay, ask, [])
    assert [message["type"] for message in told] == ["events"]
    replay.seek(5)
    told.clear()
    replay._receive(replay, {**ask, "stop": 3}, [])
    replay._receive(replay, ask, [])
    assert [message["type"] for message in told] == ["events", "events", "go"]
    assert told[-1] == {"type": "go", "sequence": 5}


def test_the_methods_go_on_from_where_somebody_went_in_a_page(seen):
    replay, told = seen
    replay._receive(replay, {"type": "at", "view": "v", "sequence": 4}, [])
    assert (replay.position, told) == (4, [])  # the page is there already
    assert replay.step_forward().position == 5
    replay._receive(replay, {"type": "at", "view": "v", "sequence": 10_000}, [])
    assert replay.position == replay.total


def test_a_page_gets_the_timeline_and_the_graph_beside_it(seen):
    replay, told = seen
    replay._receive(replay, {"type": "picture", "view": "v"}, [])
    (picture,) = told
    assert (picture["type"], [step["name"] for step in picture["graph"]["steps"]]) == ("welcome", ["a", "b"])
    assert picture["total"] == len(picture["spans"]["id"]) > 0
