"""Inputs of workflow functions: made into the types of their annotations, or refused before anything is started."""

import dataclasses
import datetime as dt
import enum
import typing
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import jsonschema
import pandas as pd
import pytest
from pydantic import BaseModel, Field

from divebook import Environment
from divebook.definitions import workflow
from divebook.definitions.functions import bind_inputs
from divebook.errors import DefinitionError, InputError
from divebook.serve.server import tool_of


class Mode(enum.Enum):
    FAST = "fast"


@dataclasses.dataclass
class Item:
    sku: str
    pieces: int = 1


class Model(BaseModel):
    n: int


class Typed(typing.TypedDict):
    x: int
    y: typing.NotRequired[list["Item"]]


class Pair(typing.NamedTuple):
    a: int
    b: str = "q"


TODAY = dt.date(2026, 12, 1)
TYPES = [
    (dt.date, "2026-12-01", TODAY, "soon"),
    (dt.datetime, "2026-12-01T10:00:00", dt.datetime(2026, 12, 1, 10), "soon"),  # noqa: DTZ001
    (dt.timedelta, "PT90S", dt.timedelta(seconds=90), "long"),
    (Mode, "fast", Mode.FAST, "slow"),
    (typing.Literal["a", "b"], "a", "a", "c"),
    (typing.Literal[1, 2], 1, 1, 3),
    (list[Item], [{"sku": "x"}], [Item("x")], [{"skuu": "x"}]),
    (dict[str, Model], {"a": {"n": 1}}, {"a": Model(n=1)}, {"a": {"n": "x"}}),
    (Item, {"sku": "x", "pieces": 3}, Item("x", 3), {"sku": "x", "peices": 3}),
    (Model, {"n": 1}, Model(n=1), {}),
    (Typed, {"x": 1, "y": [{"sku": "x"}]}, {"x": 1, "y": [Item("x")]}, {"x": 1, "z": 2}),
    (list[Typed], [{"x": 1}], [{"x": 1}], [{"x": "one"}]),
    (Pair, [1, "b"], Pair(1, "b"), [1, 2, 3]),
    (typing.Optional[int], None, None, "x"),  # noqa: UP045
    (int | None, 5, 5, "x"),
    (int | str, "5", "5", None),
    (Path, "a/b", Path("a/b"), 5),
    (Decimal, "0.10", Decimal("0.10"), "x"),
    (UUID, str(UUID(int=1)), UUID(int=1), "x"),
    (set[int], [1, 2], {1, 2}, ["x"]),
    (tuple[int, str], [1, "x"], (1, "x"), [1]),
    (typing.Annotated[int, Field(gt=0)], 3, 3, 0),
    (int, 5, 5, None),
    (str, "x", "x", None),
    (float, 2.5, 2.5, None),
    (bool, True, True, None),
    (list, [1], [1], None),
    (dict, {"a": 1}, {"a": 1}, None),
]


def flow_of(annotation, **default):
    async def plan(ctx, given):
        return given

    plan.__annotations__["given"] = annotation
    plan.__defaults__ = tuple(default.values()) or None
    return workflow(plan)


@pytest.mark.parametrize(("annotation", "given", "made", "wrong"), TYPES, ids=lambda value: str(value)[:30])
def test_an_input_is_made_into_its_type_or_refused(annotation, given, made, wrong):
    flow = flow_of(annotation)
    with Environment(store="memory:", workflows=[flow]) as environment:
        for value in (given, made):  # its JSON form, and itself
            run = environment.start(flow, {"given": value}).wait(10)
            assert (run.status, run.outputs) == ("completed", {"result": made})
            assert type(run.outputs["result"]) is type(made)
        begun = len(environment.store.records())
        with pytest.raises(InputError, match="given"):
            environment.start(flow, {"given": wrong})
        assert len(environment.store.records()) == begun
    schema = tool_of("plan", flow).input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"given": given}, schema)
    assert schema["properties"]["given"] not in ({}, None)


@pytest.mark.parametrize(
    ("annotation", "text", "made"),
    [
        (list[Item], '[{"sku": "x"}]', [Item("x")]),
        (Item, '{"sku": "x"}', Item("x")),
        (int | None, "5", 5),
        (int | None, "null", None),
        (typing.Literal[1, 2], "2", 2),
        (dt.date, "2026-12-01", TODAY),
        (str | None, "5", "5"),
        (tuple[int, ...], "[1, 2]", (1, 2)),
    ],
)
def test_a_text_of_a_command_line_is_read_as_the_type_says(annotation, text, made):
    assert bind_inputs(flow_of(annotation), {"given": text}, coerce_text=True) == {"given": made}


@pytest.mark.parametrize(
    "default",
    [
        TODAY,
        Decimal("0.01"),
        Mode.FAST,
        Item("x"),
        Path("a"),
        float("nan"),
        2**200,
        (1, 2),
        {1: "a"},
        b"x",
        UUID(int=1),
    ],
    ids=repr,
)
def test_a_default_may_be_of_any_kind_of_value(default, tmp_path):
    flow = flow_of(type(default), default=default)
    with Environment(store=tmp_path / "runs.db", workflows=[flow]) as environment:
        run = environment.start(flow).wait(10)
        assert repr(run.outputs["result"]) == repr(default)
    with Environment(store=tmp_path / "runs.db") as environment:
        again = environment.run_of(run.id)
        assert again.workflow.fingerprint == flow.fingerprint
        assert repr(again.outputs["result"]) == repr(default)
    schema = tool_of("plan", flow).input_schema["properties"]["given"]
    # JSON has no NaN, and keys of its objects are strings, so no default in JSON is this one.
    is_exact = default == default and default != {1: "a"}
    assert ("default" in schema) is is_exact


def test_a_default_that_cannot_be_recorded_is_named():
    with pytest.raises(DefinitionError, match="default of input 'given': object is not plain data"):
        flow_of(int, default=object())


def test_none_fits_an_input_whose_default_it_is():
    flow = flow_of(int, default=None)
    assert bind_inputs(flow, {"given": None}) == bind_inputs(flow, {}) == {"given": None}


def test_a_frame_is_an_instance_or_refused():
    flow = flow_of(pd.DataFrame)
    frame = pd.DataFrame({"a": [1]})
    assert bind_inputs(flow, {"given": frame})["given"] is frame
    with pytest.raises(InputError, match="instance of DataFrame"):
        bind_inputs(flow, {"given": [{"a": 1}]})


def test_a_child_and_a_successor_have_inputs_of_their_types():
    @workflow
    async def inner(ctx, day: dt.date, items: list[Item] = ()):
        return [day, items]

    @workflow
    async def outer(ctx):
        made = await ctx.run("inner", {"day": "2026-12-01", "items": [{"sku": "x"}]})
        kept = await ctx.run("inner", {"day": TODAY, "items": [Item("y")]})
        return [made["result"], kept["result"]]

    run = Environment(store="memory:", workflows=[inner, outer]).start("outer").wait(10)
    assert run.outputs["result"] == [[TODAY, [Item("x")]], [TODAY, [Item("y")]]]


def test_an_annotation_that_is_a_text_and_defined_later_is_read_when_it_is_used():
    @workflow
    async def late(ctx, given: "Later"):  # noqa: F821
        return given

    globals()["Later"] = enum.Enum("Later", {"ON": "on"})
    try:
        assert bind_inputs(late, {"given": "on"})["given"].name == "ON"
    finally:
        del globals()["Later"]


def test_two_types_of_one_name_are_served_under_two_names():
    class Inside:
        @dataclasses.dataclass
        class Item:
            price: int

    @workflow
    async def both(ctx, one: list[Item], two: list[Inside.Item]):
        return None

    schema = tool_of("both", both).input_schema
    jsonschema.validate({"one": [{"sku": "x"}], "two": [{"price": 1}]}, schema)
    for wrong in ({"one": [{"price": 1}], "two": []}, {"one": [], "two": [{"sku": "x"}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
