"""When schedules are due, by the clock that is given."""

from datetime import datetime, timedelta, timezone

import pytest

from divebook.config.schedules import coming, latest
from divebook.errors import SetupError
from divebook.workflow.reader import read_definitions

ZONE = timezone(timedelta(hours=2))
NOON = datetime(2026, 3, 4, 12, 0, 30, tzinfo=ZONE)


def schedules(*lines):
    return read_definitions("Schedules:\n" + "".join(f"  - {{{line}}}\n" for line in lines))


def test_the_next_due_times_come_in_their_order():
    found = schedules("Name: day, Cron: '0 18 * * *', Workflow: w", "Name: hour, Cron: '0 * * * *', Workflow: v")
    assert [(due.schedule, due.at.hour) for due in coming(found, NOON)] == [("hour", 13), ("day", 18)]


@pytest.mark.parametrize(("cron", "key"), [("0 12 * * *", "2026-03-04T10:00Z"), ("0 13 * * *", "2026-03-03T11:00Z")])
def test_only_the_latest_due_time_counts_and_its_key_is_in_utc(cron, key):
    assert [due.key for due in latest(schedules(f"Name: s, Cron: '{cron}', Workflow: w"), NOON)] == [
        f"schedule//w/s/{key}"  # of a definition without a name
    ]


def test_what_is_switched_off_is_never_due():
    found = schedules("Name: s, Cron: '0 * * * *', Workflow: w, Enabled: false")
    assert coming(found, NOON) == latest(found, NOON) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Name: s, Cron: 'often', Workflow: w", "Cron 'often' is wrong"),
        ("Name: s, Workflow: w", "has no Cron"),
        ("Name: s, Cron: '0 * * * *'", "has no Workflow"),
    ],
)
def test_a_schedule_that_cannot_be_kept_says_why(line, message):
    with pytest.raises(SetupError, match=message):
        coming(schedules(line), NOON)
