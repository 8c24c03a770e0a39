"""What-ifs in a file: what they share with their source is there once, and goes with whoever still needs it."""

import sqlite3
import sys
from contextlib import closing

import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.events.codec import encode_line
from divebook.steps.actions import Action
from divebook.stores.maintenance import check
from divebook.stores.sqlite import SqliteStore

MADE, MANY = 10, 200


async def page(number: int) -> str:
    return f"{number} " * 60


FLOW = Workflow(
    "pages",
    [
        Step(
            "read", action="page", parameters={"number": "$(i)"}, each=Each(f"$(range({MANY}))", as_="i"), store="all"
        ),
        Step("count", script="len(state.all) + inputs.n", store="total"),
    ],
    inputs=["n"],
    outputs=["total"],
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return a file with one execution and its what-ifs, and the bytes of the source and of one what-if."""
    path = tmp_path_factory.mktemp("shared") / "s.db"
    with Environment(store=SqliteStore(path, durability="relaxed"), actions=[Action("page", page)]) as world:
        source = world.start(FLOW, {"n": 1}).wait(30)
        before, lines = used(path), [encode_line(event) for event in source.history()]
        at = next(e.sequence for e in source.history() if e.step == "count") - 1
        found = world.run_of(source.id).what_if({"inputs": {"n": 2}}, at, repeat=MADE)
        assert [each.outputs for each in found] == [{"total": MANY + 2}] * MADE
        assert [encode_line(event) for event in source.history()] == lines
        return path, before, (used(path) - before) / MADE, source.id, [each.run.id for each in found]


def used(path):
    with closing(sqlite3.connect(path)) as connection:
        (pages,) = connection.execute(
            "SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count"
        )
        return pages[0] * 4096


def test_the_prefix_of_a_what_if_is_not_copied(file):
    _, source, each, *_ = file
    sys.stdout.write(f"bytes of a source: {source}, of a what-if of it: {each}\n")
    assert source > 40 * each
    assert each < 3000


def test_a_source_can_be_deleted_and_its_what_ifs_are_read_as_before(file):
    path, _, _, source, names = file
    with SqliteStore(path) as store:
        before = [[encode_line(event) for event in store.read(name)] for name in names]
        store.delete(source)
        assert [[encode_line(event) for event in store.read(name)] for name in names] == before
        assert check(store).ok
