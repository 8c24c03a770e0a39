"""Logs that no engine wrote: each hides at most itself, and what its sound beginning tells can still be looked at."""

import random

import pytest

from divebook import Step, Workflow
from divebook.analysis.lists import questions_frame, runs_frame
from divebook.config.answers import recover_automatically
from divebook.definitions.step import Each
from divebook.errors import DivebookError, StoreError
from divebook.events import Event
from divebook.events.codec import event_from_dict, event_to_dict
from divebook.stores import SqliteStore
from tests.runtime.worlds import Calls, environment

ASKING = Workflow(
    "asking",
    [
        Step("note", action="note", parameters={"value": 1}, store="n"),
        Step("each", script="item + 1", each=Each([1, 2], as_="item"), store="all"),
        Step("ask", ask="Go?", store="a"),
    ],
)
JUNK = (None, -1, 10**15, 0.5, "", "\0", [], {}, [[]], {"x": {}}, True)
FORGED = 300


def forged(events: list[Event], chance: random.Random, name: str) -> list[Event]:
    """Return a log with one field of one event replaced, or with one event missing."""
    records = [event_to_dict(event) for event in events]
    changed = chance.choice(records)
    if chance.random() < 0.2:
        records.remove(changed)
    else:
        place = changed["data"]
        while isinstance(inner := place.get(field := chance.choice([*place, "path", "step"])), dict) and inner:
            place = inner
        target = changed if field in ("path", "step") else place
        target[field] = chance.choice(JUNK)
    return [
        event_from_dict(record | {"execution_id": name, "sequence": number}) for number, record in enumerate(records, 1)
    ]


@pytest.fixture
def world_of_forged(tmp_path):
    """A store with one execution that asks, and hundreds of forged copies of it."""
    world = environment(ASKING, actions=[Calls().action()], store=SqliteStore(tmp_path / "s.db"))
    asking = world.start("asking").wait(20)
    chance, names = random.Random("forged"), []
    for number in range(FORGED):
        name = f"exec_forged_{number}"
        try:
            world.store.append(name, forged(asking.history(), chance, name), 0)
        except DivebookError:  # most of them: a field of a wrong type is never written
            continue
        names.append(name)
    assert len(names) > FORGED / 4
    with world.store:
        yield world, asking, names


def test_a_forged_log_hides_nothing_but_itself(world_of_forged):
    world, asking, names = world_of_forged
    assert asking.id in {execution_id for execution_id, _ in world.inbox()}
    assert len(world.store.records()) == len(names) + 1
    assert len(runs_frame(world.store.records(), world.store)) == len(names) + 1
    assert asking.id in set(questions_frame(world.inbox())["execution_id"])
    records = world.queues.recoverable()
    recovered = recover_automatically(world, records)
    assert len(recovered.resumed) + len(recovered.refused) + recovered.untried == len(records)
    for execution in recovered.resumed:
        try:
            execution.wait(20)
        except DivebookError:
            continue
    assert asking.answer(asking.open_questions[0].id, "yes").wait(20).status == "completed"


def test_a_forged_log_is_a_corrupt_log(world_of_forged):
    world, _, names = world_of_forged
    told = 0
    for name in names:
        try:
            execution = world.run_of(name)
        except StoreError:
            continue
        told += execution.internals.damage is not None
    assert told > 0
