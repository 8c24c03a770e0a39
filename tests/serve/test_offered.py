"""What a served workflow gives to a client: results in JSON by one rule, whatever they are."""

import dataclasses
import datetime as dt
import enum
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from uuid import UUID

import pandas as pd
import pytest

from divebook import Environment, allow
from divebook.definitions import workflow
from divebook.events.codec import json_form
from divebook.serve.server import result_of


@allow
class Mode(enum.Enum):
    FAST = "fast"


@allow
@dataclasses.dataclass
class Item:
    sku: str
    day: dt.date


@workflow
async def passed(ctx, given):
    return given


DAY = dt.date(2026, 12, 1)
FORMS = [
    (DAY, "2026-12-01"),
    (dt.datetime(2026, 12, 1, tzinfo=dt.UTC), "2026-12-01T00:00:00+00:00"),
    (dt.time(10, 30), "10:30:00"),
    (dt.timedelta(minutes=1.5), "PT90S"),
    (-dt.timedelta(microseconds=1), "-PT0.000001S"),
    (Decimal("0.10"), "0.10"),
    (Fraction(1, 3), "1/3"),
    (float("nan"), None),
    (float("-inf"), None),
    (2**70, 2**70),
    (b"\x00\xff", "AP8="),
    (Mode.FAST, "fast"),
    (Item("x", DAY), {"sku": "x", "day": "2026-12-01"}),
    ((1, {2}), [1, [2]]),
    ({1: "a", (1, 2): "b", DAY: "c"}, {"1": "a", "[1, 2]": "b", "2026-12-01": "c"}),
    (range(3), [0, 1, 2]),
    (range(10**9), "range(0, 1000000000, 1)"),
    (Path("a/b"), "a/b"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (pd.DataFrame({"a": [1, 2], "b": [DAY, None]}), [{"a": 1, "b": "2026-12-01"}, {"a": 2, "b": None}]),
]


@pytest.mark.parametrize(("value", "form"), FORMS, ids=lambda value: str(value)[:25])
def test_a_result_that_json_lacks_is_given_in_its_json_form(value, form):
    assert json_form([value]) == [form]
    run = Environment(store="memory:", workflows=[passed]).start(passed, {"given": value}).wait(10)
    result = result_of(run)
    assert result.structured_content["outputs"] == {"result": form}
    assert json.loads(result.content[0].text, parse_constant=pytest.fail) == {"result": form}
