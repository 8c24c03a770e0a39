"""An execution that has ended leaves memory: nothing that each of them brings along stays.

``python -m benchmarks.soak`` shows the same of 200,000.
"""

import asyncio
import gc
import json
import threading
import weakref
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import soak
from benchmarks.soak import ALLOWANCE, LIVES, Look, World, grown, run
from benchmarks.soak import LOOKS as SIGHTS
from divebook.runtime.loop import ENGINE
from divebook.stores import SqliteStore

FILES = Path("/proc/self/fd")
TIMES = 12
FEW = TIMES // 2
"""More than what a pool or a cache may have grown by meanwhile, and less than one for each execution."""


@pytest.fixture
def world(tmp_path):
    with SqliteStore(tmp_path / "executions.db", durability="relaxed") as store:
        made = World(store)
        yield made
        made.environment.close()


def present():
    """Count the objects of our own classes, and what the process holds."""
    tasks = ENGINE.call(lambda: len(asyncio.all_tasks(ENGINE.loop)))
    gc.collect()
    kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    objects = {name: count for name, count in kinds.items() if name.startswith("divebook.")}
    files = len(list(FILES.iterdir())) if FILES.exists() else 0
    return objects | {"threads": threading.active_count(), "tasks": tasks, "files": files}


def live(world, life, times):
    async def lives():
        for _ in range(times):
            await life(world)

    asyncio.run(lives())


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_nothing_stays_of_an_execution_that_has_ended(world, life):
    live(world, life, 3)
    before = present()
    live(world, life, TIMES)
    assert {name: count for name, count in present().items() if count > before.get(name, 0) + FEW} == {}


def test_an_execution_that_has_ended_is_held_by_nobody_else(world):
    execution = world.environment.start("plain").wait()
    held = weakref.ref(execution._driver)
    assert world.environment.run_of(execution.id)._driver is held()
    del execution
    live(world, World.plain, 1)  # what the loop has last done, it holds until it does something else
    gc.collect()
    assert held() is None


def test_what_is_held_goes_on_telling_what_it_came_to(world):
    environment = world.environment
    done, failed = environment.start("plain").wait(), environment.start("fails").wait()
    live(world, World.plain, 3)
    assert (done.status, done.variables, len(done.history())) == (
        "completed",
        {"x": 1, "y": 1},
        done.state.last_sequence,
    )
    assert (failed.status, "as planned" in failed.error) == ("failed", True)
    assert failed.resume().wait().status == "failed"


def test_what_nobody_holds_is_found_in_the_store(world):
    environment = world.environment
    ended, asking = environment.start("plain").wait().id, environment.start("asks").wait().id
    gc.collect()
    assert environment.run_of(ended).variables == {"x": 1, "y": 1}
    assert [record.execution_id for record in environment.store.records()] == [asking, ended]
    ((found, question),) = environment.inbox()
    assert found == asking
    assert environment.answer(question.id, True).wait().status == "completed"


LOOKS = [Look(1_000 * number, 50_000_000, 20, 8, 0) for number in range(1, 9)]


def test_what_grows_is_told_from_what_does_not():
    assert grown(LOOKS) == []
    leaks = {
        "memory": [each._replace(memory=ALLOWANCE // 3000 * each.executions) for each in LOOKS],
        **{
            name: [each._replace(**{name: each.executions}) for each in LOOKS] for name in ("files", "threads", "tasks")
        },
    }
    for name, looks in leaks.items():
        (finding,) = grown(looks)
        assert finding.startswith(f"{name} grow by ")


def test_one_odd_look_is_no_growth():
    odd = LOOKS[-1]._replace(memory=90_000_000, files=60, threads=30, tasks=30)
    assert grown([*LOOKS[:-1], odd]) == []


def test_a_short_soak_finds_nothing(tmp_path, capsys):
    with SqliteStore(tmp_path / "executions.db", durability="relaxed") as store:
        assert run(store, 42) == []
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["soak"] for line in said] == [*["progress"] * SIGHTS, "done"]
    assert said[-1]["completed"] + said[-1]["failed"] + said[-1]["cancelled"] >= 42


def test_a_life_that_goes_wrong_is_a_finding_and_the_others_go_on(world, monkeypatch):
    async def broken(world):
        raise ValueError("as planned")

    monkeypatch.setattr(soak, "_ROUND", [World.plain, broken])
    soaking = soak.Soaking(world)
    asyncio.run(soaking.run(10, lambda _: None))
    assert {*soaking.faults} == {"broken: ValueError: as planned"}
    assert soaking.ends["completed"] > 0
