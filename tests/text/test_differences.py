"""Texts and values beside each other: nothing is lost, whatever stands in them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.text.format import ADDED, MOST_WORDS, NOTHING, REMOVED, alike, marked, parts, pieces

WORDS = st.text(alphabet="ab .\n\u202eé", max_size=30)


@given(WORDS, WORDS)
def test_each_text_can_be_read_from_its_pieces(before, after):
    found = pieces(before, after)
    assert "".join(piece.text for piece in found if piece.sign != ADDED) == before
    assert "".join(piece.text for piece in found if piece.sign != REMOVED) == after


@pytest.mark.parametrize("count", [MOST_WORDS - 10, MOST_WORDS * 4])
def test_a_long_text_is_compared_in_a_moment(count):
    words = [f"w{number}" for number in range(count)]
    found = pieces(" ".join(words), " ".join([*words[:5], "new", *words[5:]]))
    assert [piece.text for piece in found if piece.sign != "same"] == ["new "]


def test_all_that_a_long_text_has_between_its_ends_is_replaced():
    old, new = (" ".join(f"{letter}{number}" for number in range(MOST_WORDS)) for letter in "ab")
    assert [piece.sign for piece in pieces(f"head {old} tail", f"head {new} tail")] == ["same", REMOVED, ADDED, "same"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_values_are_alike_where_no_part_differs(one, other):
    assert alike(one, one)
    assert alike(one, other) == (not list(parts(one, other)))


NUMBERS = ["sNaN", "NaN", "-NaN", "NaN7", "1", "1.0", "Infinity"]


@pytest.mark.parametrize("one", NUMBERS)
@pytest.mark.parametrize("other", NUMBERS)
def test_decimals_that_are_no_numbers_are_compared_as_they_are_written(one, other):
    same = one == other or {one, other} == {"1", "1.0"}
    assert alike([Decimal(one)], [Decimal(other)]) == same
    assert bool(list(parts({"a": Decimal(one)}, {"a": Decimal(other)}))) != same


def test_what_is_missing_is_not_none():
    assert [part[1:] for part in parts({"a": None}, {})] == [(None, NOTHING)]
    assert marked("", "new") == "{+new+}"
