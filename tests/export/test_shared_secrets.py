"""Secrets that a run has met are neither in its page nor in its notebook, their logs included."""

import json

import pandas as pd
import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.errors import InvalidEventError
from divebook.stores import MemoryStore
from divebook.stores.embedded import embedded_parts_of
from divebook.text.passwords import REDACTED as HIDDEN
from tests.export.shared_runs import TURN, ended
from tests.planted import told, traces

PASSWORD = "tulips in the window box"
PLANTED = told()


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Return all that is in both files of a run that met every secret, packed parts opened, and the run."""
    folder = tmp_path_factory.mktemp("left")
    texts = [text for text, _ in PLANTED.values()]
    steps = [
        Step("each", each=Each(texts, as_="item"), action="Share.Turn", parameters={"text": "${item}"}, store="turned"),
        Step("held", script="{'api_key': [inputs.password], 'said': 'it is ' + inputs.password}", store="held"),
        Step("fail", script="{}['no ' + inputs.password]"),
    ]
    run = ended(Workflow("leaky", steps, inputs=["password"]), {"password": PASSWORD})
    page, notebook = run.to_html(folder / "run.html"), run.to_notebook(folder / "run.ipynb")
    found = {path.suffix: path.read_text() for path in (page, notebook)}
    for path in (page, notebook):
        carried = embedded_parts_of(path)
        found |= {
            f"{name} of {path.suffix}": json.dumps(carried.data(name)) for name in carried.parts if name != "viewer"
        }
    return found, run, folder


@pytest.mark.parametrize("what", [*PLANTED, "password"])
def test_a_secret_is_in_neither(left, what):
    found, *_ = left
    secret = PASSWORD if what == "password" else PLANTED[what][1]
    assert [where for where, text in found.items() for trace in traces(secret) if trace in text] == []


def test_the_log_is_one_all_the_same(left):
    found, run, folder = left
    assert HIDDEN in found["texts of .html"] + found["log of .html"]
    for name in ("run.html", "run.ipynb"):
        with Environment(store=MemoryStore(), actions=[TURN]) as environment:
            opened = environment.open(folder / name)
            assert [event.event_type for event in opened.history()] == [event.event_type for event in run.history()]
            assert opened.inputs == {"password": HIDDEN}
            assert opened.error == f"KeyError: 'no {HIDDEN}' (step fail)" or HIDDEN in opened.error


def test_a_frame_with_a_secret_in_it_is_left_out_and_another_one_is_not(tmp_path):
    frames = {"open": pd.DataFrame({"n": [1, 2]}), "held": pd.DataFrame({"said": [f"it is {PASSWORD}"]})}
    run = ended(
        Workflow("frames", [Step("a", script="1")], inputs=["password", "open", "held"]),
        {"password": PASSWORD, **frames},
    )
    with Environment(store=MemoryStore()) as environment:
        inputs = environment.open(run.to_html(tmp_path / "run.html")).inputs
    assert inputs["open"].equals(frames["open"])
    assert inputs["held"] == HIDDEN


def test_what_cannot_be_an_event_without_its_secrets_is_not_written(monkeypatch, tmp_path):
    run = ended(Workflow("w", [Step("a", script="1", store="x")], inputs=["n"]), {"n": 1})
    monkeypatch.setattr("divebook.text.redaction.Redactor.under", lambda _self, _name, _value: HIDDEN)
    with pytest.raises(InvalidEventError, match=r"event 1 without its secrets: .*; export the log as JSON lines"):
        run.to_html(tmp_path / "run.html")
    assert [*tmp_path.iterdir()] == []


def test_what_is_named_as_a_secret_is_hidden_too(tmp_path):
    run = ended(Workflow("said", [Step("a", script="'blue heron at noon'", store="x")]))
    page = run.to_html(tmp_path / "run.html", known_secrets=["blue heron at noon"])
    carried = embedded_parts_of(page)
    assert "blue heron" not in json.dumps([carried.data(name) for name in ("texts", "run", "log")])
