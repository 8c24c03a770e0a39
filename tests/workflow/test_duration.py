"""Durations as people write them."""

import pytest

from divebook.workflow.duration import parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30s", 30),
        ("1m30s", 90),
        (30, 30),
        (1.9, 1),
        ("1.5h", 5400),
        ("250ms", 0.25),
        (" 2m ", 120),
        (".5s", 0.5),
        (0, 0),
    ],
)
def test_durations(value, seconds):
    assert parse_duration(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["soon", "", "30", "30 s", "-1s", -1, "1x", "1m 30s", float("nan"), float("inf")])
def test_what_is_no_duration(value):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(value)
