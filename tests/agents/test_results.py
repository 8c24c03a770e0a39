"""Whatever a tool returns, its call has been made: the log and the model get it, as far as JSON has words for it."""

import datetime as dt
import enum
import json
import math
import pathlib
import threading
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pydantic_ai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai.messages import ToolReturn

from divebook import Agent, ScriptedModel
from divebook.agents.scripted_model import ScriptedFunction
from divebook.agents.signatures import plain_result
from divebook.events.codec import storable
from tests.agents.test_tool_limits import returns_of
from tests.agents.test_turns import ASK
from tests.odd_results import OPENED, UNSTORABLE
from tests.runtime.worlds import environment


@dataclass
class Bird:
    name: str
    weight: float = math.nan


class Model(BaseModel):
    weight: float = math.inf


class Unsayable:
    def __repr__(self):
        raise RuntimeError("no words")


@dataclass
class Unset:
    """Has a field that nothing sets."""

    name: str = field(init=False)


class Broken(list):
    """A list that is read only when its items are asked for, and cannot be."""

    def __iter__(self):
        raise RuntimeError("no items")


class BrokenMapping(dict):
    """The same as a mapping."""

    def items(self):
        raise RuntimeError("no items")


class Unbound:
    """A value whose attributes raise."""

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


def cycle():
    found = {"name": "owl"}
    found["next"] = [found]
    return found


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


RETURNED = {
    **{kind: (make, None) for kind, make in UNSTORABLE.items()},
    "not finite": (lambda: [math.nan, -math.inf, 1.5], [None, None, 1.5]),
    "in a dataclass": (lambda: Bird("owl"), {"name": "owl", "weight": None}),
    "in a model": (Model, {"weight": None}),
    "bytes": (lambda: {"text": b"owl", "raw": b"\xff"}, {"text": "owl", "raw": "/w=="}),
    "set": (lambda: {1}, [1]),
    "cycle": (cycle, None),
    "deep": (lambda: nested(100_000), None),
    "almost too deep": (lambda: nested(197), None),
    "not unicode": (lambda: {"\ud800": "a\ud800"}, {"\\ud800": "a\\ud800"}),
    "large": (lambda: [10**30, {"n": 10**30}], [10**30, {"n": 10**30}]),
    "too large": (lambda: [10**6000, 1], ["int, whose message cannot be read: ValueError", 1]),
    "any object": (lambda: [Unsayable(), 1], ["Unsayable, whose message cannot be read: RuntimeError", 1]),
    "field that is not set": (Unset, None),
    "field that is not set, inside": (lambda: {"n": 1, "bird": Unset()}, None),
    "list that raises": (Broken, None),
    "list that raises, inside": (lambda: [Broken([1]), Unsayable(), Unset()], None),
    "mapping that raises": (lambda: BrokenMapping(a=Unsayable()), None),
    "attributes that raise": (Unbound, None),
    "lock": (threading.Lock, None),
    "generator": (lambda: (n for n in range(2)), [0, 1]),
    "like a file": (lambda: {"kind": "binary", "data": "%%%"}, {"kind": "binary", "data": "%%%"}),
    "like what comes with more": (lambda: {"kind": "tool-return", "return_value": 1}, None),
    "with what comes with it": (lambda: ToolReturn({"a": b"\xff"}, metadata=Unsayable()), {"a": "/w=="}),
}


@pytest.fixture(autouse=True)
def _close():
    with OPENED:
        yield


@pytest.mark.parametrize("kind", ["ours", "ours, in a thread", "the library's"])
@pytest.mark.parametrize(("make", "seen"), RETURNED.values(), ids=RETURNED)
def test_a_call_that_returned_has_been_made_whatever_it_returned(make, seen, kind):
    calls = []

    def look(name: str):
        """Look a bird up."""
        calls.append(name)
        return make()

    async def look_soon(name: str):
        """Look a bird up."""
        return look(name)

    looks = look if kind == "ours, in a thread" else look_soon
    script = ScriptedModel([{"call": {looks.__name__: {"name": "owl"}}}, "done"])
    agent = Agent("a", model=script, tools=[looks])
    if kind == "the library's":
        agent = pydantic_ai.Agent(ScriptedFunction(script), name="a", tools=[looks])
    execution = environment(agents=[agent]).start(ASK).wait(20)
    assert (execution.error, execution.variables, calls) == (None, {"birds": "done"}, ["owl"])
    (returned,) = returns_of(execution, 2)
    if seen is not None:
        assert returned == seen
    assert execution.messages.iloc[-1].text == "done"
    assert list(execution.tool_calls.status) == ["completed"]


class Colour(enum.Enum):
    RED = "red"


AS_DATA = [
    (np.int64(1), 1),
    (np.bool_(True), True),
    (np.float32(0.5), 0.5),
    (np.float64("nan"), None),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.datetime64("2026-01-02T03:04:05"), "2026-01-02T03:04:05"),
    ([np.int64(1), {"n": np.float64(2.5)}], [1, {"n": 2.5}]),
    (pd.NaT, None),
    (pd.NA, None),
    (pd.Timestamp("2026-01-02"), "2026-01-02T00:00:00"),
    (pd.Series([1, 2]), [1, 2]),
    (pd.DataFrame({"a": [1, 2], "b": ["x", None]}), [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    ({"rows": pd.DataFrame({"a": [1.5, float("nan")]})}, {"rows": [{"a": 1.5}, {"a": None}]}),
    (dt.date(2026, 1, 2), "2026-01-02"),
    (dt.timedelta(minutes=90), "PT1H30M"),
    (Decimal("1.50"), "1.50"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (pathlib.PurePosixPath("a/b"), "a/b"),
    (Colour.RED, "red"),
    (Fraction(1, 3), "1/3"),
]


@pytest.mark.parametrize(("value", "data"), AS_DATA, ids=lambda part: str(part)[:40])
def test_a_result_reaches_the_model_as_data(value, data):
    made = plain_result(value)
    assert made == data
    assert type(made) is type(data)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_yet_to_be_awaited_is_awaited(is_async):
    async def find(name):
        return f"{name}: seen"

    def look(name: str):
        """Look a bird up."""
        return find(name)

    async def look_soon(name: str):
        """Look a bird up."""
        return find(name)

    looks = look_soon if is_async else look
    script = ScriptedModel([{"call": {looks.__name__: {"name": "owl"}}}, "done"])
    execution = environment(agents=[Agent("a", model=script, tools=[looks])]).start(ASK).wait(20)
    assert returns_of(execution, 2) == ["owl: seen"]


ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=9)
ODD = st.sampled_from([Unsayable, Bird, Model, object, threading.Lock, lambda: 10**5000, lambda: 1j, range]).map(
    lambda make: make("owl") if make is Bird else make(3) if make is range else make()
)
VALUES = st.recursive(
    ATOMS | ODD,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(st.characters()) | st.integers() | st.booleans(), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_all_becomes_plain_data_that_a_log_can_hold_and_stays_so(value):
    made = plain_result(value)
    assert storable(made, "result") == made
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert plain_result(made) == made


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_what_json_can_say_is_returned_as_it_is(value):
    assert plain_result(value) == value
