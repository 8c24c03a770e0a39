"""Times that people read are on their own clock, and say on which."""

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from divebook.text.format import json_time, local_clock, local_time, local_zone, rfc3339

MOMENT = datetime(2026, 7, 2, 23, 4, 5, 678_000, tzinfo=UTC)


@pytest.fixture
def zone(monkeypatch):
    """Return ``zone(name)``, which sets the clock of this process."""

    def set_to(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_to
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("name", "whole", "clock", "short"),
    [
        ("UTC", "2026-07-02 23:04:05 UTC", "23:04:05.678", "UTC"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "2026-07-03 01:04:05 CEST", "01:04:05.678", "CEST"),
        ("<-03>3", "2026-07-02 20:04:05 -03", "20:04:05.678", "-03"),
    ],
)
def test_times_are_local_and_say_their_zone(zone, name, whole, clock, short):
    zone(name)
    assert (local_time(MOMENT), local_clock(MOMENT), local_zone(MOMENT)) == (whole, clock, short)
    assert json_time(MOMENT) == "2026-07-02T23:04:05.678Z"


@pytest.mark.parametrize(
    "moment", [MOMENT, MOMENT.astimezone(timezone(timedelta(hours=2))), MOMENT.replace(tzinfo=None)]
)
def test_a_time_as_rfc_3339_is_in_utc(moment):
    assert rfc3339(moment) == "2026-07-02T23:04:05.678000Z"
    assert rfc3339(moment, "milliseconds") == json_time(moment) == "2026-07-02T23:04:05.678Z"
