"""What rows and items gave, as it is told: a few values by name, numbers in bins, free text not at all."""

import json

import pandas as pd
import pytest

from divebook.events import Event, catalog
from divebook.events.arrow.tally import MOST_DIFFERENT, ColumnTally
from divebook.events.codec import decode_payload, storable
from divebook.projections.activity import Spreads, spreads_of


def words_of(*cells, name="x"):
    tally = ColumnTally()
    tally.add(cells)
    return [spread.words for spread in spreads_of({name: tally})]


def followed(*facts, spreads=None):
    """Return what follows facts, each with the path that it is of."""
    spreads = spreads or Spreads()
    for number, (fact, path) in enumerate(facts, 1):
        spreads.take(Event(f"event_{number}", "exec_1", number, number, fact, path, "s"))
    return spreads


def rows(**columns):
    frame = pd.DataFrame(columns)
    return catalog.RowsCompleted(0, "op_1", storable(frame, "rows"), len(frame), 0, len(frame)), "main"


def item(value, path="main"):
    return catalog.IterationCompleted(0, {"text": str(value), "value": value}), path


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (["b", "a", "a", None], ["x: a 2, b 1, 1 empty"]),
        ([True, False, True], ["x: True 2, False 1"]),
        ([3, 5, 3, 5000], ["x: 3 2, 5 1, 5,000 1"]),
        (["", "", "a"], ['x: "" 2, a 1']),
        (["a", "a", 1, True], ["x: a 2, 1 1, True 1"]),
        (["a"] * 3 + [0.5, 0.7], ["x: a 3, numbers 2"]),
        (["a", "a", {"b": 1}], ["x: a 2, no single value 1"]),
        ([0.5] * 9, ["x: 0.5 9"]),
        ([0.5] * 9 + [10**400], ["x: 0.5 9, infinite 1"]),
        ([*map(str, [*range(10)] * 3)], ["x: 0 3, 1 3, 2 3, 3 3, 4 3, 5 3, 6 3, 7 3, 2 others 6"]),
        ([*range(100)], ["x: 0 to 99, median about 52"]),
        ([*range(20), None], ["x: 0 to 19, median about 9, 1 empty"]),
        ([at / 100 for at in range(101)], ["x: 0 to 1, median about 0.53"]),
        ([*range(100), 10**400], ["x: 0 to 99, median about 52, 1 infinite"]),
        ([-1e308, 1e308] * 10, ["x: -1e+308 10, 1e+308 10"]),
        ([-1.7e308, *[1.7e308 / at for at in range(1, 10)]], ["x: -1.7e+308 to 1.7e+308, median about 3.371e+307"]),
        ([5e-324, -5e-324, 0.0] * 5, ["x: -4.941e-324 to 4.941e-324, median about 0"]),
        (["every one", "another"], []),
        ([f"text {at}" for at in range(MOST_DIFFERENT + 1)] * 5, []),
        ([f"text {at}" for at in range(100)] + ["text 1"], []),
        ([0.1, 0.2], []),
        ([[1], [1]], []),
        ([None], []),
    ],
)
def test_a_column_is_told_in_words(cells, told):
    assert words_of(*cells) == told


def test_what_people_wrote_is_cut_and_made_visible():
    (words,) = words_of(*["\x1b[31m" + "long " * 50] * 2, name="a\u202eb")
    assert words == "a\\u202eb: \\x1b[31mlong long long long long long long… 2"


def test_a_column_with_the_name_of_a_secret_is_not_told():
    assert words_of("hunter2", "hunter2", name="password") == []
    assert words_of(1, 1, name="max_tokens") == ["max_tokens: 1 2"]


def test_whole_numbers_are_in_bins_of_whole_numbers():
    tally = ColumnTally()
    tally.add([*range(10), *range(10)])
    (spread,) = spreads_of({"n": tally})
    assert [tuple(part) for part in spread.parts] == [(str(at), 2) for at in range(10)]
    tally.add([100])
    (spread,) = spreads_of({"n": tally})
    assert [tuple(part) for part in spread.parts][:2] == [("0 to 7", 16), ("8 to 15", 4)]


def test_at_most_three_columns_are_told_and_free_text_is_none_of_them():
    frame = {"id": list("abcd"), **{name: ["x", "x", "y", "y"] for name in ("one", "two", "three", "four")}}
    assert [spread.name for spread in followed(rows(**frame)).of("s")] == ["one", "two", "three"]


def test_rows_and_items_are_counted_once_somebody_looks():
    spreads = followed(rows(label=["a", "b"]), item({"label": "a"}), item({"result": {"label": "b"}}))
    assert spreads.is_behind
    assert spreads.so_far("s") == ()
    spreads.count(2)
    assert spreads.is_behind
    assert [spread.words for spread in spreads.of("s")] == ["label: a 2, b 2"]
    assert not spreads.is_behind
    assert spreads.of("other") == ()


def test_values_without_names_are_results():
    assert [spread.words for spread in followed(item(3), item(3), item(4)).of("s")] == ["result: 3 2, 4 1"]


def test_a_path_that_enters_a_step_again_begins_anew():
    begun = catalog.StepStarted("action"), "main-2"
    spreads = followed(begun, item("a", "main-1"), item("b", "main-2"), item("b", "main-2"))
    assert [spread.words for spread in spreads.of("s")] == ["result: b 2, a 1"]
    followed(item("c", "main-2"), begun, item("a", "main-2"), spreads=spreads)
    assert [spread.words for spread in spreads.of("s")] == ["result: a 2"]


def test_what_cannot_be_opened_here_is_not_counted():
    record = {"$type": "arrow", "value": {"kind": "pandas.DataFrame", "shape": [1, 1], "layout": {}, "data": "AAAA"}}
    fact = decode_payload(
        "rows_completed", json.dumps({"iteration_index": 0, "operation_id": "o", "rows": 1, "result": record})
    )
    assert followed((fact, "main"), item("a"), item("a")).of("s")[0].words == "result: a 2"
