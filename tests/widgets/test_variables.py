"""Variables as they are now: short, with type and size, and never gone through whole."""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

import divebook
from divebook import Step, Workflow
from divebook.engine.maps import Map
from divebook.engine.state import ExecutionState
from divebook.events.arrow.foreign import Arrow
from divebook.events.values import normalize
from divebook.text.redaction import Redactor
from divebook.widgets import variables_and_files as variables
from divebook.widgets.feed import Feed
from divebook.widgets.recording import CleanRun
from divebook.widgets.source import source_of
from divebook.widgets.variables_and_files import HEAD, MOST_VARIABLES, TEXT, Setters, VariableReader, shorter
from tests.runtime.worlds import run

SETS = Workflow(
    "w", [Step("list", script="1", store="rows"), Step("tell", script="2", store="report")], inputs=["folder"]
)


def state_with(inputs=None, **values):
    held = {name: normalize(value, name) for name, value in values.items()}
    return ExecutionState("exec_1", inputs=inputs or {}, variables=Map(held))


def views_of(inputs=None, workflow=SETS, **values):
    views = VariableReader(workflow, Redactor()).of(state_with(inputs, **values), Setters())
    return {view["name"]: view for view in views}


def shown(**values):
    ((_, view), *_) = views_of(workflow=Workflow("w", [Step("s", script="1")]), **values).items()
    return view["type"], view["size"], view["text"]


def test_inputs_come_first_and_what_steps_are_still_to_set_says_so():
    views = views_of({"folder": "site-packages"}, rows=[], extra=1)
    assert [(view["name"], view["source"], view["text"]) for view in views.values()] == [
        ("folder", "input", "site-packages"),
        ("rows", "list", "[]"),
        ("report", "tell", "not set yet"),
        ("extra", "", "1"),
    ]


@dataclass
class Bird:
    name: str


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("owl", ("text", "3", "owl")),
        ([], ("list", "0", "[]")),
        (["a", "b"], ("list", "2", '["a", "b"]')),
        ({"a": 1}, ("mapping", "1", '{"a": 1}')),
        (True, ("yes or no", "", "true")),
        (2.5, ("number", "", "2.5")),
        (None, ("nothing", "", "null")),
        (datetime(2026, 1, 2, tzinfo=UTC), ("datetime", "", "2026-01-02 00:00:00+00:00")),
        (np.arange(3), ("ndarray", "3", "ndarray 3")),
    ],
)
def test_a_value_has_a_type_and_a_size(value, told):
    assert shown(x=value) == told


def test_an_instance_of_an_allowed_class_shows_its_fields():
    divebook.allow(Bird)
    assert shown(x=Bird("owl")) == ("Bird", "", '{"name": "owl"}')


def test_a_frame_shows_its_head():
    frame = pd.DataFrame({"bird": ["owl", None, "lark", "wren", "tit", "kite"], "seen": [1.5, 2, 3, 4, 5, 6]})
    view = views_of(rows=frame)["rows"]
    assert (view["type"], view["size"], view["total"], view["text"]) == ("DataFrame", "6 x 2", 6, "")
    assert view["columns"] == ["bird", "seen"]
    assert (len(view["rows"]), view["rows"][:2]) == (HEAD, [["owl", "1.5"], ["", "2.0"]])


def test_a_list_of_records_shows_its_head_as_well():
    view = views_of(rows=[{"a": number} for number in range(50)] + [{"b": 1}])["rows"]
    assert (view["type"], view["size"], view["columns"], view["total"]) == ("list", "51", ["a"], 51)
    assert view["rows"] == [["0"], ["1"], ["2"], ["3"], ["4"]]


def test_a_frame_that_cannot_be_shown_says_why():
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    assert "several columns with the same name" in views_of(rows=frame)["rows"]["text"]


def test_a_table_that_is_too_large_is_not_opened(monkeypatch):
    monkeypatch.setattr(variables, "LARGEST", 10)
    monkeypatch.setattr(Arrow, "to_python", lambda _: pytest.fail("it was opened"))
    view = views_of(rows=pd.DataFrame({"a": range(100)}))["rows"]
    assert (view["size"], view["rows"]) == ("100 x 1", [])


class Counted(list):
    """A list that counts which of its parts are looked at."""

    looked_at = 0

    def __getitem__(self, part):
        found = super().__getitem__(part)
        Counted.looked_at += len(found)
        return found

    def __iter__(self):
        pytest.fail("it was gone through")


def test_a_large_value_is_not_gone_through():
    (view, *_) = VariableReader(SETS, Redactor()).of(
        ExecutionState("e", inputs={"x": Counted(range(10**6))}), Setters()
    )
    assert view["size"] == "1,000,000"
    assert view["text"].endswith('"… 999,980 more"]')
    assert Counted.looked_at < 100


def test_a_long_text_is_cut():
    view = views_of(rows="a" * 10**6)["rows"]
    assert view["size"] == "1,000,000"
    assert len(view["text"]) < TEXT + 50


def test_a_value_that_stays_is_looked_at_once(monkeypatch):
    made, state = VariableReader(SETS, Redactor()), state_with(rows=["a"])
    first = made.of(state, Setters())
    monkeypatch.setattr(variables, "_short", lambda *_: pytest.fail("it was looked at again"))
    assert made.of(state, Setters())[0] is first[0]


def test_secrets_are_not_shown():
    views = views_of({"password": "hunter2"}, rows=[{"token": "abc", "bird": "owl"}], extra={"deep": {"api_key": "k"}})
    assert views["password"]["text"] == "[redacted]"
    assert views["rows"]["rows"] == [["[redacted]", "owl"]]
    assert '"api_key": "[redacted]"' in views["extra"]["text"]


def test_very_many_variables_are_cut():
    assert len(views_of(**{f"v{number}": number for number in range(1000)})) == MOST_VARIABLES


def test_what_does_not_fit_keeps_name_type_and_size():
    views = list(views_of(rows="a" * 100, extra="b" * 100).values())
    assert [view["text"] for view in shorter(views, 150)] == ["a" * 100, "not set yet", ""]
    assert shorter(views, 150)[-1]["size"] == "100"


def test_a_view_that_has_them_is_not_told_again():
    feed = Feed(source_of(run(SETS, {"folder": "x"})))
    first = feed.variables("v", 0)
    assert [view["name"] for view in first["variables"]] == ["folder", "rows", "report"]
    assert feed.variables("v", first["version"]) == {**first, "variables": None}


def test_a_variable_that_several_steps_set_names_the_one_that_set_it_last():
    steps = [
        Step("first", script="1", store="x", next="double"),
        Step("double", script="state.x * 2", store="x", next="add"),
    ]
    done = run(Workflow("w", [*steps, Step("add", script="state.x + 3", store="x")]))
    feed = Feed(source_of(done))
    feed.frame()
    (told,) = feed.variables("v", 0)["variables"]
    assert (told["name"], told["text"], told["source"]) == ("x", "5", "add")
    saved = CleanRun(done, [*done.history()], Redactor()).recording(events=100, texts=100)
    assert saved["variables"] == [told]
