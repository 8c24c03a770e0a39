"""Cells that are counted: the same however they are split, in the same memory whatever they are."""

import math
from decimal import Decimal
from enum import Enum

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divebook.events.arrow.rows import count_frame
from divebook.events.arrow.tally import LONGEST, MOST_BINS, MOST_DIFFERENT, Bins, ColumnTally, exponent_of, place_of


class Mark(Enum):
    """What enums are taken for: their values."""

    GOOD = "good"


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 3),
    st.floats(),
    st.sampled_from(["praise", "blame", "", Mark.GOOD, 10**400, -(10**400), math.inf, Decimal("1.5"), Decimal("sNaN")]),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=2),
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def told(tally):
    return {name: getattr(tally, name) for name in ColumnTally.__slots__ if name != "bins"} | {
        name: getattr(tally.bins, name) for name in Bins.__slots__
    }


def tally_of(cells):
    tally = ColumnTally()
    tally.add(cells)
    return tally


@given(st.lists(st.lists(CELLS, max_size=8), max_size=6))
def test_any_split_of_the_cells_comes_to_the_same(parts):
    whole = told(tally_of([cell for part in parts for cell in part]))
    one_by_one, merged = ColumnTally(), ColumnTally()
    for part in parts:
        one_by_one.add(part)
        merged.merge(tally_of(part))
    assert told(one_by_one) == told(merged) == whole


@given(st.lists(st.lists(CELLS, max_size=8), max_size=6))
def test_frames_are_counted_as_their_cells_are(parts):
    tallies = {}
    for part in parts:
        count_frame(pd.DataFrame({"x": pd.Series(part, dtype=object)}), tallies)
    cells = [cell for part in parts for cell in part]
    assert told(tallies.get("x", ColumnTally())) == told(tally_of(cells))


@given(st.lists(FINITE, min_size=1))
def test_bins_hold_all_numbers_in_constant_memory(numbers):
    bins, by_frame = Bins(), {}
    bins.add(numbers)
    count_frame(pd.DataFrame({"x": pd.array(numbers, dtype="float64")}), by_frame)
    assert bins.count == len(numbers)
    assert len(bins.listed()) <= MOST_BINS
    assert (bins.least, bins.greatest) == (min(numbers), max(numbers))
    assert told(by_frame["x"])["counts"] == bins.counts


@given(FINITE, FINITE, FINITE)
def test_bins_of_a_wider_range_are_no_narrower(one, other, third):
    exponent, wider = (exponent_of(min(ends), max(ends)) for ends in ([one, other], [one, other, third]))
    assert exponent <= wider
    assert place_of(one, exponent) >> (wider - exponent) == place_of(one, wider)


def test_bins_are_as_narrow_as_their_number_allows():
    bins = Bins()
    bins.add([at / 10 for at in range(101)])
    listed = bins.listed()
    assert (listed[0], listed[-1], len(listed)) == ((0.0, 5), (10.0, 1), 21)
    assert bins.listed(1) == [(0.0, 20), (2.0, 20), (4.0, 20), (6.0, 20), (8.0, 20), (10.0, 1)]


def test_long_texts_are_told_apart_and_not_kept():
    tally = tally_of(["a" * 100_000, "a" * 100_000, "a" * 100_000 + "b"])
    assert sorted(tally.texts.values()) == [1, 2]
    assert max(map(len, tally.texts)) < LONGEST + 30


def test_free_text_is_counted_and_forgotten():
    tally = tally_of(map(str, range(MOST_DIFFERENT + 1)))
    assert (tally.texts, tally.text_count) == (None, MOST_DIFFERENT + 1)
    tally.add(["1"])
    assert (tally.texts, tally.text_count) == (None, MOST_DIFFERENT + 2)


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pd.array(["a", None, "a"], dtype="string"), {"texts": {"a": 2}, "empty": 1}),
        (pd.Categorical(["a", None, "b"]), {"texts": {"a": 1, "b": 1}, "empty": 1}),
        (pd.array([True, None, False], dtype="boolean"), {"truths": (1, 1), "empty": 1}),
        (pd.array([True, True, False]), {"truths": (1, 2), "empty": 0}),
        (pd.array([1, None, 3], dtype="Int64"), {"whole": {1: 1, 3: 1}, "empty": 1}),
        (pd.array([1.0, math.nan, math.inf]), {"whole": {1: 1}, "empty": 1, "endless": 1}),
        (pd.to_datetime(["2026-01-01", None, "2026-01-02"]), {"empty": 1, "other": 2}),
        (pd.array([1 + 2j, 3j, 0j]), {"other": 3}),
        (pd.Series([pd.NA, pd.NaT, {"a": 1}], dtype=object), {"empty": 2, "other": 1}),
    ],
)
def test_columns_of_every_type_are_counted(column, wanted):
    tallies = {}
    count_frame(pd.DataFrame({"x": column}), tallies)
    found = told(tallies["x"])
    assert {name: found[name] for name in wanted} == wanted


def test_rows_that_failed_and_columns_beyond_the_first_are_left_out():
    frame = pd.DataFrame({str(at): ["a", "b"] for at in range(100)} | {"error": ["no", None]})
    tallies = {}
    count_frame(frame, tallies)
    assert len(tallies) == 12
    assert tallies["0"].texts == {"b": 1}
