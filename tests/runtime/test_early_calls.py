"""A call that is declared idempotent may begin before its start is in the log: a few calls, or a few milliseconds."""

import asyncio
import itertools

import pytest

from divebook import Context, Environment, Rollback, Step, Workflow, step, workflow
from divebook.events import catalog
from divebook.runtime.journal import EARLY_MICROSECONDS, MOST_EARLY_CALLS
from divebook.steps import Action
from divebook.stores import SqliteStore

CALLS = 60


class Watched:
    """Actions that note at each call how many calls had begun, and how many starts and ends the store had."""

    def __init__(self, store):
        self.store = store
        self.begun_calls = 0
        self.observations = []

    def note(self, name):
        self.begun_calls += 1
        records = self.store.records()
        events = [event.data for event in self.store.read(records[0].execution_id)] if records else []
        starts = sum(isinstance(data, catalog.OperationStarted) for data in events)
        ends = sum(isinstance(data, catalog.OperationCompleted) for data in events)
        self.observations.append((name, self.begun_calls, starts, ends))

    async def early(self):
        self.note("early")
        return 1

    async def once(self):
        self.note("once")
        return 1

    async def keyed(self, idempotency_key=""):
        self.note("keyed")
        return 1

    async def undo(self, **_given):
        return None

    def actions(self):
        return [
            Action("early", self.early, idempotent=True),
            Action("once", self.once),
            Action("keyed", self.keyed),
            Action("undo", self.undo),
        ]


@pytest.fixture(params=["full", "relaxed"])
def watched(request, tmp_path):
    with SqliteStore(tmp_path / "log.db", durability=request.param) as store:
        yield Watched(store)


def run(watched, steps, **options):
    with Environment(store=watched.store, actions=watched.actions(), **options) as world:
        return world.start(Workflow("w", steps)).wait(check=True)


def chain(*actions):
    return [Step(f"s{number}", action=action) for number, action in enumerate(actions)]


def test_idempotent_calls_begin_a_few_calls_ahead_of_the_log(watched):
    run(watched, chain(*["early"] * CALLS))
    ahead = [begun - starts for _, begun, starts, _ in watched.observations]
    assert len(ahead) == CALLS
    assert 0 < max(ahead) <= MOST_EARLY_CALLS


def test_every_other_call_begins_when_all_before_it_is_in_the_log(watched):
    run(watched, chain(*itertools.islice(itertools.cycle(["early", "early", "once", "keyed"]), CALLS)))
    for name, begun, starts, ends in watched.observations:
        if name != "early":
            assert (starts, ends) == (begun, begun - 1), f"call {begun}"


def test_the_end_of_a_call_that_must_not_be_repeated_is_in_the_log_before_the_next_call(watched):
    run(watched, chain(*["once", "early"] * (CALLS // 2)))
    for name, begun, _, ends in watched.observations:
        assert ends >= begun - 1, f"call {begun}, {name}"


def test_the_result_of_a_call_with_a_key_is_in_the_log_before_an_idempotent_call(watched):
    run(watched, chain(*["keyed", "early"] * (CALLS // 2)))
    assert all(ends >= begun - 1 for name, begun, _, ends in watched.observations if name == "early")


def test_a_random_number_is_in_the_log_before_an_idempotent_call_uses_it(watched):
    drawn = []

    @step(idempotent=True)
    async def pay(number: int) -> int:
        events = watched.store.read(watched.store.records()[0].execution_id)
        drawn.append(sum(isinstance(event.data, catalog.RandomGenerated) for event in events))
        return number

    @workflow
    async def paying(ctx: Context) -> int:
        return sum([await pay(int(1000 * await ctx.random())) for _ in range(5)])

    with Environment(store=watched.store, workflows=[paying]) as world:
        world.start(paying).wait(check=True)
    assert drawn == [1, 2, 3, 4, 5]


def test_the_execution_is_in_the_store_before_its_first_call(watched):
    run(watched, chain(*["early"] * 3))
    assert watched.observations[0] == ("early", 1, 1, 0)


def test_a_call_that_can_be_rolled_back_never_begins_early(watched):
    steps = [Step(f"s{number}", action="early", rollback=Rollback("undo")) for number in range(CALLS)]
    run(watched, steps)
    assert all(starts == begun for _, begun, starts, _ in watched.observations)


class SlowClock:
    """A clock by which each look takes longer than a call may be ahead of the log."""

    def __init__(self):
        self.present = 1_790_000_000_000_000

    def now(self):
        self.present += EARLY_MICROSECONDS
        return self.present

    async def sleep(self, _seconds):
        await asyncio.sleep(0)


def test_a_call_waits_for_the_log_when_an_earlier_one_began_long_ago(watched):
    run(watched, chain(*["early"] * CALLS), clock=SlowClock())
    assert max(begun - starts for _, begun, starts, _ in watched.observations) == 1


def test_functions_and_items_begin_early_as_well(watched):
    names = []

    @step(idempotent=True)
    async def early(number: int) -> int:
        watched.note("early")
        names.append(number)
        return number

    @workflow
    async def calling(_ctx: object) -> int:
        return sum([await early(number) for number in range(CALLS)])

    with Environment(store=watched.store, workflows=[calling]) as world:
        assert world.start(calling).wait(check=True).result() == sum(range(CALLS))
    assert 0 < max(begun - starts for _, begun, starts, _ in watched.observations) <= MOST_EARLY_CALLS
    assert names == list(range(CALLS))


def test_a_log_with_early_calls_is_that_of_calls_that_waited(watched, tmp_path):
    """Only ids and times of the two logs differ."""

    def shape(store, execution):
        return [
            (event.data.event_type, event.path, event.step, getattr(event.data, "operation_id", None))
            for event in store.read(execution.id)
        ]

    early = shape(watched.store, run(watched, chain(*["early"] * 20)))
    with SqliteStore(tmp_path / "other.db") as store:
        other = Watched(store)
        with Environment(store=store, actions=[Action("early", other.early)]) as world:
            waited = world.start(Workflow("w", chain(*["early"] * 20))).wait(check=True)
        assert shape(store, waited) == early
