"""Durations, written and read by people."""

import pytest

from divebook.text.format import GO_PART, between, parse_duration, seconds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("30s", 30),
        ("1m30s", 90),
        (30, 30),
        (1.9, 1),
        ("1.5h", 5400),
        ("250ms", 0.25),
        (" 2m ", 120),
        (".5s", 0.5),
        ("30d", 30 * 86400),
        ("5 min", 300),
        ("1 h 30 min", 5400),
        ("1m 30s", 90),
        (0, 0),
    ],
)
def test_durations(value, expected):
    assert parse_duration(value) == pytest.approx(expected)


@pytest.mark.parametrize("value", ["soon", "", "30", "5 mins", "30  s", "-1s", -1, "1x", float("nan"), float("inf")])
def test_what_is_no_duration(value):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(value)


@pytest.mark.parametrize("value", ["30 s", "5 min", "1m 30s"])
def test_durations_of_the_dialect_dive_have_no_spaces(value):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(value, GO_PART)
    assert parse_duration("1m30s", GO_PART) == 90


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ms"), (0.25, "250 ms"), (59.94, "59.9 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (3700, "1 h 01 min")],
)
def test_durations_read_well(value, text):
    assert seconds(value) == text


def test_an_open_end_has_no_duration():
    assert between(None, None) == ""
