"""Defaults of inputs in the schemas of served tools fit these schemas, and a call without an input has its default."""

import dataclasses
import datetime as dt
import enum
import math
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import jsonschema
import pytest
from pydantic import BaseModel, Field

from divebook import Environment, allow
from divebook.definitions import workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.serve.server import tool_of


@allow
class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@allow
class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


@allow
class Place(NamedTuple):
    row: int
    name: str = "x"


@allow
@dataclasses.dataclass
class Point:
    x: int = 1
    place: Place = Place(1)


@allow
class Model(BaseModel):
    number: int = 1
    point: Point | None = None


class Sized(TypedDict, total=False):
    size: int


DEFAULTS = {
    "named tuple": (Place, Place(1, "y")),
    "flag": (Rights, Rights.READ),
    "flags together": (Rights, Rights.READ | Rights.WRITE),
    "no flag": (Rights, Rights(0)),
    "enum": (Colour, Colour.RED),
    "enum of tuples": (Colour, Colour.PAIR),
    "literal": (Literal["a", 1], "a"),
    "literal of an enum": (Literal[Colour.RED], Colour.RED),
    "union": (int | str, "a"),
    "no model": (Optional[Model], None),  # noqa: UP045 - both spellings are to be read
    "model": (Model | None, Model(number=2, point=Point())),
    "dataclass": (Point, Point(2, Place(3))),
    "typed dict": (Sized, {"size": 1}),
    "constrained": (Annotated[int, Field(ge=1, le=5)], 3),
    "constrained decimal": (Annotated[Decimal, Field(gt=0)], Decimal(2)),
    "decimal": (Decimal, Decimal("1.50")),
    "date": (dt.date, dt.date(2026, 1, 2)),
    "moment": (dt.datetime, dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
    "span": (dt.timedelta, dt.timedelta(minutes=3)),
    "uuid": (uuid.UUID, uuid.UUID(int=5)),
    "set": (set[int], {1, 2}),
    "set of named tuples": (set[Place], {Place(1)}),
    "frozenset": (frozenset[str], frozenset({"a"})),
    "tuple": (tuple[int, str], (1, "a")),
    "long tuple": (tuple[int, ...], (1, 2)),
    "bytes": (bytes, b"ab"),
    "bytes that are no text": (bytes, b"\xff"),
    "list": (list[Place], [Place(1)]),
    "mapping": (dict[str, Place], {"a": Place(1)}),
    "mapping of numbers": (dict[int, str], {1: "a"}),
    "mapping of an enum": (dict[Colour, int], {Colour.RED: 1}),
    "not finite": (float, math.inf),
    "anything": (Any, [1, "a"]),
    "range": (range, range(3)),
}
WITHOUT = {"bytes that are no text", "not finite"}
"""Defaults that have no form which their schema takes: the schema has none, and a call without the input has them."""


@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_default_fits_its_schema_and_a_call_without_it_has_the_default(kind):
    annotation, default = DEFAULTS[kind]

    async def call(ctx, value=default):
        return value

    call.__name__ = call.__qualname__ = "defaults"
    call.__annotations__ = {"value": annotation}
    workflow(call)
    with Environment(store="memory:") as environment:
        definition = WORKFLOW_FUNCTIONS["defaults"]
        schema = tool_of("defaults", definition).input_schema
        published = schema["properties"]["value"]
        assert ("default" not in published) == (kind in WITHOUT | {"range"})
        sent = [{}] + ([{"value": published["default"]}] if "default" in published else [])
        for inputs in sent:
            jsonschema.Draft202012Validator(schema).validate(inputs)
            run = environment.start("defaults", inputs).wait(20)
            assert (run.outputs["result"], type(run.outputs["result"])) == (default, type(default))
