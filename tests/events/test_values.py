"""What a log can hold."""

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from divebook.errors import UnstorableValueError
from divebook.events.codec import MAX_PAYLOAD_BYTES, by_hash, canonical_hash, decode, digest_of, encode, storable
from divebook.events.values import normalize


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, "x", None, True]},
        2**80,
        -(2**70),
        b"\x00\xff",
        datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001 - naive ones are kept naive
        date(2026, 1, 2),
        time(3, 4, 5, 6),
        timedelta(days=2, microseconds=3),
        Decimal("1.10"),
        math.inf,
        -math.inf,
        {"$type": "int", "value": "not ours"},
        {"deep": {"$type": {"$type": 1}}},
    ],
)
def test_values_come_back_as_they_were(value):
    back = decode(encode(normalize({"value": value})))["value"]
    assert back == value
    assert str(back) == str(value)


def test_not_a_number_comes_back():
    assert math.isnan(decode(encode(normalize([math.nan])))[0])


def test_tuples_become_lists_and_copies_are_made():
    original = {"rows": [(1, 2)]}
    plain = normalize(original)
    original["rows"].append(3)
    assert plain == {"rows": [[1, 2]]}


def test_numpy_scalars_become_numbers():
    numpy = pytest.importorskip("numpy")
    assert normalize([numpy.int64(3), numpy.float64(0.5), numpy.bool_(True)]) == [3, 0.5, True]


class Thing:
    def __repr__(self):
        return "secret"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rows": [1, 2, 3, {"when": Thing()}]}, r"outputs\.rows\[3\]\.when"),
        ({1: "x"}, r"outputs\[1\]: keys must be text, not int"),
        ({"s": {1, 2}}, r"outputs\.s: set is not plain data; use sorted"),
        ([Path("/x")], r"outputs\[0\].*use str\(value\)"),
        ([iter([])], r"outputs\[0\].*use list\(value\)"),
        (["ok", "\ud800"], r"outputs\[1\]: str is not valid UTF-8"),
    ],
)
def test_what_cannot_be_stored_is_named_with_its_path_and_a_way_out(value, message):
    with pytest.raises(UnstorableValueError, match=message):
        storable(value, "outputs")


def test_a_value_that_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(UnstorableValueError, match="is it part of itself"):
        normalize(loop)


def test_a_huge_value_is_refused_with_a_way_out():
    with pytest.raises(UnstorableValueError, match=r"outputs: 67,108,866 bytes .* store it as a document"):
        storable("x" * MAX_PAYLOAD_BYTES, "outputs")


def test_the_hash_does_not_depend_on_the_order_of_keys():
    assert canonical_hash({"a": 1, "b": [1, 2]}) == canonical_hash({"b": [1, 2], "a": 1})
    assert canonical_hash({"a": 1}) != canonical_hash({"a": "1"})


def test_the_hash_of_what_is_kept_by_its_hash_is_that_of_its_content():
    kept = by_hash({"tools": [1, {"$type": "x"}, b"\x00"]})
    again = decode(encode({"a": kept}))["a"]
    assert (again, digest_of(again)) == (kept, digest_of(kept))
    assert again.open() == {"tools": [1, {"$type": "x"}, b"\x00"]}
    assert canonical_hash({"a": kept}) == canonical_hash({"a": again}) != canonical_hash({"a": by_hash({"tools": []})})
    assert str(kept) == "dict of 1, kept by its hash"


def test_what_cannot_be_kept_by_its_hash_is_refused_with_its_place():
    with pytest.raises(UnstorableValueError, match=r"tools\.a"):
        by_hash({"a": object()}, "tools")
