import math
from datetime import datetime
from decimal import Decimal

import pytest

from divebook.errors import ScriptError
from divebook.scripting import value_text
from divebook.scripting.values import float_text, in_order, plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (2.0, "2"),
        (1.5, "1.5"),
        ("as is", "as is"),
        ([1, "two", True, None, 2.0], '[1, "two", true, null, 2]'),
        ({"a": 1, "b": [2]}, '{"a": 1, "b": [2]}'),
        ({1: "é", None: {"b", "a"}}, '{"1": "é", "": ["a", "b"]}'),
        ([], "[]"),
        (b"bytes", "bytes"),
        (datetime(2020, 1, 2, 3, 4, 5), "2020-01-02T03:04:05"),  # noqa: DTZ001 - scripts may make such
        ([datetime(2020, 1, 2)], '["2020-01-02T00:00:00"]'),  # noqa: DTZ001 - same
        (Decimal("1.50"), "1.50"),
    ],
)
def test_the_text_of_a_result(value, text):
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (100000.0, "100000"),
        (999999.5, "999999.5"),
        (1e6, "1e+06"),
        (1234567.5, "1.2345675e+06"),
        (1e21, "1e+21"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-2.5, "-2.5"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_floats_are_as_short_as_they_can_be(number, text):
    assert float_text(number) == text


def test_sets_and_tuples_become_lists_in_a_fixed_order():
    assert plain({"b", "a", "c"}) == ["a", "b", "c"]
    assert plain((1, (2, frozenset({4, 3})))) == [1, [2, [3, 4]]]
    assert in_order(["b", 1, None, "a"]) == [None, 1, "a", "b"]


def test_classes_and_exceptions_are_not_results():
    with pytest.raises(ScriptError, match="cannot return int"):
        plain([int])
    with pytest.raises(ScriptError, match="cannot return an exception"):
        plain({"error": ValueError("x")})
    with pytest.raises(ScriptError, match="cannot return Ellipsis"):
        plain(...)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e-4, "0.0001"),
        (math.nextafter(1e-4, 0), "9.999999999999999e-05"),
        (1e6, "1e+06"),
        (math.nextafter(1e6, 0), "999999.9999999999"),
        (-2.0, "-2"),
        (-0.0, "-0"),
    ],
)
def test_floats_have_an_exponent_where_they_are_small_or_large(number, text):
    assert value_text(number) == text
    assert value_text([number]) == f"[{text}]"
