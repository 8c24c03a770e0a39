"""Schedules whose workflows a worker puts into its queue: each due time once, and none holds up another."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from divebook import Environment
from divebook.config.schedules import RETRY_AFTER, Due, Schedules, latest
from divebook.definitions.reader import read_definitions
from divebook.errors import DefinitionError
from divebook.queues import Worker
from divebook.stores import MemoryStore, SqliteStore
from tests.queues.test_enqueued import PATIENCE
from tests.runtime.worlds import becomes

NOON = datetime(2026, 5, 4, 12, 0, 20, tzinfo=UTC)


def defined(name="nightly", workflow="sum", cron="0 12 * * *", more="", inputs=""):
    text = f"""
    Name: {name}
    Workflows: [{{Name: {workflow}, {inputs} Steps: [{{Name: add, Script: "1", Store: n}}]}}]
    Schedules:
      - {{Name: often, Cron: "{cron}", Workflow: {workflow}}}
      {more}
    """
    return read_definitions(text, source_name=f"{name}.yaml")


def scheduled(made, definitions):
    made.define(definitions)
    return Schedules(made, definitions, "q")


def keys(made):
    return sorted(record.key for record in made.store.records())


@pytest.fixture
def made():
    with Environment(store=MemoryStore()) as found:
        yield found


def test_due_schedules_are_enqueued_once(made):
    definitions = defined(cron="* * * * *")
    made.define(definitions)
    with Worker(made, schedules=definitions) as one, Worker(made, schedules=definitions) as other:
        assert becomes(lambda: any(record.status == "completed" for record in made.store.records()))
        assert one.wait_until_idle(PATIENCE)
        assert other.wait_until_idle(PATIENCE)
    assert len(keys(made)) == len(set(keys(made))) >= 1
    assert all(key.startswith("schedule/nightly/sum/often/") for key in keys(made))


def test_what_was_due_before_anybody_saw_the_schedule_is_not_made_up_for(made):
    schedules = scheduled(made, defined(cron="0 0 1 1 *"))
    schedules.enqueue_due(NOON)
    assert keys(made) == []
    schedules.enqueue_due(NOON + timedelta(days=300))
    assert keys(made) == ["schedule/nightly/sum/often/2027-01-01T00:00Z"]


def test_the_latest_due_time_that_was_missed_is_made_up_for_once(made):
    schedules = scheduled(made, defined())
    schedules.enqueue_due(NOON)
    schedules.enqueue_due(NOON + timedelta(days=5, hours=1))
    Schedules(made, defined(), "q").enqueue_due(NOON + timedelta(days=5, hours=2))
    assert keys(made) == [f"schedule/nightly/sum/often/2026-05-0{day}T12:00Z" for day in (4, 9)]


def test_what_was_deleted_is_not_due_again(made):
    schedules = scheduled(made, defined())
    schedules.enqueue_due(NOON)
    (record,) = made.store.records()
    made.store.delete(record.execution_id)
    schedules.enqueue_due(NOON + timedelta(seconds=30))
    assert keys(made) == []


def test_schedules_of_one_name_in_two_definitions_are_two(made):
    for definitions in (defined(), defined("weekly", "other"), defined("weekly", "third")):
        scheduled(made, definitions).enqueue_due(NOON)
    assert {record.workflow_name for record in made.store.records()} == {"sum", "other", "third"}
    one, other = (latest(defined(name, workflow), NOON)[0] for name, workflow in (("a/b", "c"), ("a", "b/c")))
    assert one.key != other.key


def test_a_schedule_that_cannot_be_enqueued_holds_up_no_other(made, caplog):
    bad = "- {Name: bad, Cron: '* * * * *', Workflow: missing}\n      - {Name: off, Enabled: false}"
    schedules, now = scheduled(made, defined(more=bad)), [100.0]
    for seconds in (0, 1, RETRY_AFTER + 1):
        now[0] = 100.0 + seconds
        schedules.enqueue_due(NOON, monotonic=lambda: now[0])
    assert keys(made) == ["schedule/nightly/sum/often/2026-05-04T12:00Z"]
    assert [message.partition(":")[0] for message in caplog.messages] == ["schedule bad", "schedule bad"]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"], ids=["summer time begins", "summer time ends"])
@pytest.mark.parametrize("seed", range(10))
def test_workers_that_are_killed_or_all_away_enqueue_each_due_time_once(tmp_path, monkeypatch, day, seed):
    """Several processes look at chance moments; some are killed after the start and before it is noted."""
    chance, see_to = random.Random(f"{day}/{seed}"), Due.see_to
    crons = {"half": "*/30 * * * *", "night": "30 2 * * *", "hour": "0 * * * *"}
    text = "\n".join(
        f"  - {{Name: {name}, Cron: '{cron}', Zone: Europe/Berlin, Workflow: sum}}" for name, cron in crons.items()
    )
    workflows = "Workflows: [{Name: sum, Steps: [{Name: add, Script: '1', Store: n}]}]"
    definitions = read_definitions(f"Name: nightly\n{workflows}\nSchedules:\n{text}\n", source_name="nightly.yaml")

    def see_to_or_die(due, store):
        if chance.random() < 0.2:
            raise Killed
        see_to(due, store)

    monkeypatch.setattr(Due, "see_to", see_to_or_die)

    def process():
        made = Environment(store=SqliteStore(tmp_path / "runs.db"))
        return made, scheduled(made, definitions)

    processes, now = [process() for _ in range(3)], datetime.fromisoformat(f"{day}T00:00+02:00").astimezone(UTC)
    first, expected, end = now, set(), now + timedelta(hours=5)
    while now < end:
        expected |= {due.key for due in latest(definitions, now) if due.at >= first}
        for number in chance.sample(range(3), 3):
            try:
                processes[number][1].enqueue_due(now)
            except Killed:
                processes[number][0].close()
                processes[number] = process()
        now += timedelta(seconds=chance.randint(20, 1500) if chance.random() < 0.9 else chance.randint(3600, 9000))
    found = keys(processes[0][0])
    for made, _ in processes:
        made.close()
    assert len(found) == len(set(found))
    assert set(found) == expected


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"inputs": "Inputs: [{Name: n}],"}, "schedule 'often': input \"n\" is required by workflow"),
        (
            {"more": "- {Name: bad, Cron: '* * * * *', Workflow: missing}"},
            "schedule 'bad': workflow not found: missing",
        ),
    ],
)
def test_a_worker_does_not_start_with_a_schedule_that_could_never_be_enqueued(made, how, told):
    definitions = defined(**how)
    made.define(definitions)
    worker = Worker(made, schedules=definitions)
    with pytest.raises(DefinitionError) as caught:
        worker.start_thread()
    assert told in str(caught.value)
    assert caught.value.problems[0].line == (6 if "more" in how else 5)
    assert made.queues.workers() == []
