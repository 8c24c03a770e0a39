"""When schedules are due, by the clock that is given."""

import json
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from divebook import Environment, Step, Workflow
from divebook.cli.main import app
from divebook.config.loader import add_values
from divebook.config.schedules import Schedules, coming, latest, latest_due, next_due
from divebook.definitions import Definitions, ScheduleDefinition
from divebook.definitions.reader import definitions_from, read_definitions
from divebook.errors import AlreadyRegisteredError, DefinitionError, Problem
from divebook.notebook.session import Session
from divebook.queues import Worker
from divebook.steps.checks import syntax_problems
from tests.config.zones import CRONS, changes, differences

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


WRONG = [
    (
        {"cron": "often", "workflow": "w"},
        "schedule 's': Cron 'often' is not a valid cron expression: the expression has 1 field",
    ),
    ({"cron": "99 * * * *", "workflow": "w"}, "schedule 's': Cron '99 * * * *' is not a valid cron expression"),
    (
        {"cron": "0 0 30 2 *", "workflow": "w"},
        "schedule 's': Cron '0 0 30 2 *' is not a valid cron expression: no date matches the expression",
    ),
    *(
        ({"cron": cron, "workflow": "w"}, why)
        for cron, why in [
            ("R * * * *", "'R' stands for a random time"),
            ("0 R(1-5) * * *", "a random time"),
            ("0,r 3 * * *", "a random time"),
            ("H * * * *", "a random time"),
            ("* * * * * */10", "the expression has 6 fields"),
            ("0 3 * * * 0 2030", "the expression has 7 fields"),
            ("0 3 * *", "the expression has 4 fields"),
        ]
    ),
    ({"cron": "often", "workflow": "w", "enabled": False}, "Cron 'often' is not a valid cron expression"),
    ({"workflow": "w"}, "schedule 's' has no Cron (add Cron, or Enabled: false)"),
    ({"cron": "", "workflow": "w"}, "schedule 's' has no Cron"),
    ({"cron": "0 * * * *"}, "schedule 's' has no Workflow"),
    *(
        ({"cron": "0 * * * *", "workflow": "w", "zone": zone}, "is not a time zone")
        for zone in ("Europe/Berlinn", "../etc/passwd", "/etc/localtime", "Europe", "", "CEST")
    ),
]
WORKFLOW = Workflow("w", [Step("s", script="1")])


def keys_of(fields):
    return {"Name": "s", **{name.capitalize(): value for name, value in fields.items()}}


def added_in_python(fields):
    with Environment(store="memory:", workflows=[WORKFLOW]) as environment:
        environment.schedules.add(ScheduleDefinition("s", **fields))


def read_from_text(fields):
    read_definitions(json.dumps({"Schedules": [keys_of(fields)]}))


def read_from_plain_data(fields):
    definitions_from({"Schedules": [keys_of(fields)]})


def defined_in_notebook(fields):
    with closing(Session("memory:")) as session:
        session.define([ScheduleDefinition("s", **fields)])


def defined_in_cell(fields):
    with closing(Session("memory:")) as session:
        session.define(json.dumps({"Schedules": [keys_of(fields)]}))


def listed_in_shell(fields):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "jobs.yaml")
        file.write_text(json.dumps({"Schedules": [keys_of(fields)]}), encoding="utf-8")
        result = CliRunner().invoke(app, ["schedule", str(file)], env={"DIVEBOOK_STORE": "memory:"})
    if result.exit_code:
        raise DefinitionError([Problem(" ".join(result.stderr.split()))])


def due_without_check(fields):
    """A schedule of the dialect `dive` is checked when its due times are computed."""
    schedule = ScheduleDefinition("s", **fields, dialect="dive")
    if schedule.enabled:
        coming(Definitions(schedules=(schedule,)), NOON)
    else:
        schedule.require_due_times()


WAYS = [
    *(added_in_python, read_from_text, read_from_plain_data, defined_in_notebook, defined_in_cell),
    *(listed_in_shell, due_without_check),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("fields", "message"), WRONG)
def test_a_schedule_that_cannot_be_due_is_refused_by_every_way_in_with_one_text(fields, message, way):
    with pytest.raises(DefinitionError) as caught:
        way(fields)
    assert message in str(caught.value)
    if way is not added_in_python:
        with pytest.raises(DefinitionError) as first:
            added_in_python(fields)
        assert str(first.value) in str(caught.value)


def is_accepted(way, fields):
    try:
        way(fields)
    except DefinitionError:
        return False
    return True


PARTS = st.sampled_from(
    ["*", "0", "5", "59", "60", "*/5", "1-3", "3-1", "1,2", "R", "H", "x", "mon", "L", "5#2", "@daily"]
)
CRON_TEXTS = st.lists(PARTS, min_size=1, max_size=6).map(" ".join) | st.text(max_size=12)


@settings(max_examples=200, deadline=None)
@given(CRON_TEXTS, st.sampled_from(["UTC", "Europe/Berlin"]))
def test_what_is_accepted_has_a_due_time_and_the_rest_is_refused_alike(cron, zone):
    fields = {"cron": cron, "workflow": "w", "zone": zone}
    accepted = {way.__name__: is_accepted(way, fields) for way in WAYS if way is not listed_in_shell}
    assert len(set(accepted.values())) == 1, accepted
    try:
        has_due_times = bool(next_due(cron, ZoneInfo(zone), NOON) and latest_due(cron, ZoneInfo(zone), NOON))
    except ValueError:
        has_due_times = False
    assert accepted["added_in_python"] is has_due_times


def test_a_schedule_that_is_switched_off_needs_no_cron_and_no_workflow():
    assert all(is_accepted(way, {"enabled": False}) for way in WAYS)


def test_the_legacy_dialect_accepts_a_schedule_without_due_times_with_a_warning():
    found = read_definitions("Schedules: [{Name: s, Cron: often, Workflow: w}]", dialect="dive")
    assert [(problem.severity, problem.line, problem.key) for problem in found.warnings] == [("warning", 1, "Cron")]


SAMPLE = {
    "Europe/Berlin": 2024,
    "Australia/Lord_Howe": 2024,  # moves by half an hour
    "Antarctica/Troll": 2024,  # by two hours
    "America/Havana": 2024,  # at midnight
    "Pacific/Apia": 2011,  # left out a day
}


@pytest.mark.parametrize("name", SAMPLE)
def test_each_time_of_the_wall_clock_is_due_once(name):
    zone = ZoneInfo(name)
    moved = list(changes(zone, SAMPLE[name], SAMPLE[name]))
    assert moved
    assert [found for change in moved for found in differences(zone, change, looks_every=30)] == []


@pytest.fixture
def berlin(monkeypatch):
    """Set the machine's clock to Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def enqueued(definitions, start, hours):
    """Return the due times that a worker enqueues that looks every minute, in the order in which it does."""
    environment = Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1")])])
    schedules, seen = Schedules(environment, definitions, "default"), []
    for minute in range(hours * 60):
        now = (start + timedelta(minutes=minute)).astimezone()
        schedules.enqueue_due(now, monotonic=lambda minute=minute: minute * 60.0)
        keys = {record.key for record in environment.store.records()}
        seen += sorted(keys - set(seen))
    return [key.rpartition("/")[2] for key in seen]


@pytest.mark.parametrize(
    ("cron", "day", "keys"),
    [
        ("0 12 * * *", datetime(2024, 10, 26, 21, tzinfo=UTC), ["2024-10-27T11:00Z"]),
        ("30 2 * * *", datetime(2024, 10, 26, 21, tzinfo=UTC), ["2024-10-27T00:30Z"]),
        ("30 2 * * *", datetime(2024, 3, 30, 21, tzinfo=UTC), ["2024-03-31T01:00Z"]),
    ],
)
def test_a_worker_enqueues_each_due_time_once_when_the_clock_of_the_machine_is_moved(berlin, cron, day, keys):
    assert enqueued(schedules(f"Name: n, Cron: '{cron}', Workflow: w"), day, 15) == keys


def test_the_zone_of_a_schedule_is_not_that_of_the_machine(berlin):
    definitions = schedules(
        "Name: a, Cron: '0 9 * * *', Workflow: w, Zone: Asia/Tokyo", "Name: b, Cron: '0 9 * * *', Workflow: w"
    )
    due = coming(definitions, datetime(2024, 6, 1, 12, tzinfo=UTC).astimezone())
    assert [(one.schedule, one.at.isoformat()) for one in due] == [
        ("a", "2024-06-02T09:00:00+09:00"),
        ("b", "2024-06-02T09:00:00+02:00"),
    ]


@pytest.mark.parametrize("year", [1, 1900, 1960, 1969])
@pytest.mark.parametrize("name", ["Europe/Berlin", "Africa/Monrovia", "UTC"])
def test_a_clock_before_1970(year, name):
    now = datetime(year, 6, 1, 12, 30, tzinfo=UTC)
    for cron in CRONS:
        before, after = latest_due(cron, ZoneInfo(name), now), next_due(cron, ZoneInfo(name), now)
        assert now - timedelta(days=8) < before.astimezone(UTC) <= now < after.astimezone(UTC) < now + timedelta(days=8)


def test_a_schedule_that_is_seen_before_1970_is_enqueued():
    definitions = schedules("Name: n, Cron: '*/30 * * * *', Workflow: w, Zone: UTC")
    assert enqueued(definitions, datetime(1969, 12, 31, 23, 29, tzinfo=UTC), 1) == [
        "1969-12-31T23:30Z",
        "1970-01-01T00:00Z",
    ]


GIVEN = "{at: $(schedule.due), day: 'of ${schedule.due[:10]}', by: ['${schedule.name}', '$${x}'], n: 3}"


def test_inputs_of_a_schedule_are_filled_in_with_its_due_time():
    inputs = [{"name": name} for name in ("at", "day", "by", "n")]
    workflow = Workflow("w", [Step("s", script="inputs.day", store="day")], inputs=inputs, outputs=["day"])
    environment = Environment(store="memory:", workflows=[workflow])
    definitions = schedules(f"Name: n, Cron: '0 12 * * *', Workflow: w, Zone: Asia/Tokyo, Inputs: {GIVEN}")
    Schedules(environment, definitions, "default").require_sound(NOON)
    seen = Schedules(environment, definitions, "default")
    seen.enqueue_due(datetime(2026, 3, 4, 2, 59, tzinfo=UTC))
    seen.enqueue_due(datetime(2026, 3, 4, 3, 0, 30, tzinfo=UTC))
    [record] = environment.store.records()
    assert environment.run_of(record.execution_id).inputs == {
        "at": "2026-03-04T12:00:00+09:00",
        "day": "of 2026-03-04",
        "by": ["n", "${x}"],
        "n": 3,
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{x: '${state.a}'}", 'undefined variable "state"'),
        ("{x: ['${HOME}']}", "write $${HOME} for the text ${HOME}"),
        ("{x: $(schedule.due +)}", "invalid syntax"),
    ],
)
def test_a_mistake_in_the_inputs_of_a_schedule_is_found_where_it_is_read(given, message):
    [problem] = syntax_problems(schedules(f"Name: n, Cron: '0 12 * * *', Workflow: w, Inputs: {given}"))
    assert message in f"{problem.message}; {problem.hint}"
    assert problem.line == 2


def test_a_mistake_in_the_inputs_of_a_schedule_is_found_where_python_adds_it():
    with Environment(store="memory:") as environment, pytest.raises(DefinitionError, match="undefined variable"):
        environment.schedules.add(ScheduleDefinition("s", "0 12 * * *", "w", inputs={"x": "${state.a}"}))


@pytest.mark.parametrize("given", ["{}", "{y: 1}", "{x: 1, y: 2}"])
def test_inputs_that_do_not_fit_keep_the_worker_from_starting(given):
    environment = Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1")], inputs=["x"])])
    definitions = schedules(f"Name: n, Cron: '0 12 * * *', Workflow: w, Inputs: {given}")
    with pytest.raises(DefinitionError, match="input"):
        Schedules(environment, definitions, "default").require_sound(NOON)


def test_schedules_that_are_declared_in_python():
    workflow = Workflow("w", [Step("s", script="1")])
    nightly = ScheduleDefinition("n", cron="* * * * *", workflow="w", zone="UTC")
    environment = Environment(store="memory:")
    add_values(environment, [workflow, nightly])
    assert tuple(environment.schedules) == (nightly,)
    with pytest.raises(AlreadyRegisteredError, match="n"):
        environment.schedules.add(nightly)
    with Worker(environment, schedules=environment.schedules) as worker:
        assert worker.wait_until_idle(20)
    [record] = environment.store.records()
    assert record.key.startswith("schedule//w/n/")


@pytest.mark.parametrize("cron", ["@hourly", "@daily", " 0  3 * * MON-FRI ", "0 0 L * *", "0 0 * MAR,APR THU"])
def test_other_ways_to_write_a_time_stay(cron):
    (due,) = latest(schedules(f"Name: n, Cron: '{cron}', Workflow: w"), NOON)
    assert due.at <= NOON
