"""Arguments that a card shows can be given back, as they are or edited."""

import datetime as dt
import enum
import json
from dataclasses import dataclass
from decimal import Decimal

import pandas as pd
import pytest
from pydantic import BaseModel

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, allow, tool
from divebook.events.codec import encode_shown
from divebook.steps.actions import Action


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: float
    tag: str | None = None


class Inner(BaseModel):
    n: int
    day: dt.date


class Outer(BaseModel):
    inner: Inner
    colours: list[Colour] = []


VALUES = {
    "model": Outer(inner=Inner(n=1, day=dt.date(2026, 1, 2)), colours=[Colour.RED]),
    "dataclass": Point(1.0),
    "enum": Colour.RED,
    "date": dt.date(2026, 1, 2),
    "datetime": dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC),
    "duration": dt.timedelta(hours=1),
    "decimal": Decimal("1.10"),
    "bytes": b"ab\0",
    "frame": pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
    "nested": {"p": [Point(2.0), {"day": dt.date(2026, 1, 2)}], "n": None},
    "integer": 10**30,
    "infinite": float("inf"),
    "controls": "a\x1bb",
    "long": "y" * 120_000,
}
CALL = Workflow("w", [Step("s", action="go", parameters={"v": "$(inputs.v)", "n": 1}, store="o")], inputs=["v"])


def is_same(one, other):
    return type(one) is type(other) and (one.equals(other) if isinstance(one, pd.DataFrame) else one == other)


@pytest.fixture
def called():
    """Return a function that answers a question about a call with what is made of its arguments."""
    for cls in (Outer, Inner, Point, Colour):
        allow(cls)
    got = {}

    def go(v, n):
        got.update(v=v, n=n)

    world = Environment(store="memory:", actions=[Action("go", go, approval=True)])

    def call(value, answered):
        run = world.start(CALL, {"v": value}).wait(60)
        question = run.open_questions[0]
        parameters = answered(question.data["parameters"])
        run.answer(question.id, {"approved": True, "data": {"parameters": parameters}}).wait(60)
        assert run.status == "completed", run.error
        return dict(got)

    yield call
    world.close()


FORMS = {
    "as it is": lambda parameters: parameters,
    "as text": lambda parameters: json.loads(encode_shown(parameters)),
    "as JSON": lambda parameters: json.loads(encode_shown(parameters, tagged=True)),
    "edited": lambda parameters: {**json.loads(encode_shown(parameters)), "n": 2},
}


@pytest.mark.parametrize("form", FORMS)
def test_arguments_of_any_kind_can_be_given_back(called, form):
    for name, value in VALUES.items():
        got = called(value, FORMS[form])
        assert is_same(got["v"], value), name
        assert got["n"] == (2 if form == "edited" else 1)


def test_a_text_in_place_of_a_date_or_decimal_is_read_as_one(called):
    def edited(text):
        return lambda parameters: {**parameters, "v": text}

    assert called(VALUES["date"], edited("2027-03-04"))["v"] == dt.date(2027, 3, 4)
    assert called(VALUES["datetime"], edited("2027-03-04T05:06:00+00:00"))["v"].year == 2027
    assert called(VALUES["decimal"], edited("2.20"))["v"] == Decimal("2.20")


TAKEN = []


def of_model(outer: Outer) -> str:
    """Take a model."""
    TAKEN.append(outer)
    return "done"


def of_many(point: Point, colour: Colour, day: dt.date, more: int | None = None) -> str:
    """Take several."""
    TAKEN.append((point, colour, day, more))
    return "done"


@pytest.mark.parametrize(
    ("function", "arguments", "edits"),
    [
        (of_model, {"outer": {"inner": {"n": 1, "day": "2026-01-02"}, "colours": ["red"]}}, {}),
        (of_many, {"point": {"x": 1}, "colour": "red", "day": "2026-01-02"}, {"more": 5}),
    ],
)
def test_arguments_that_are_shown_can_be_given_back(function, arguments, edits):
    taken = []
    for is_given_back in (False, True):
        TAKEN.clear()
        model = ScriptedModel([{"call": {function.__name__: arguments}}, "done"])
        rules = [{"tool": function.__name__, "outcome": "ask"}]
        with Environment(
            store="memory:", agents=[Agent("a", model=model, tools=[tool(function)], approvals=rules)]
        ) as world:
            run = world.start(Workflow("w", [Step("s", agent="a", prompt="x")])).wait(60)
            question = run.open_questions[0]
            data = {"data": {"parameters": {**question.data["parameters"], **edits}}} if is_given_back else {}
            run.answer(question.id, {"approved": True, **data}).wait(60)
            assert run.status == "completed", run.error
        taken += TAKEN
    assert taken[0] == taken[1] if not edits else taken[0][:3] == taken[1][:3]
    assert not edits or taken[1][3] == 5
