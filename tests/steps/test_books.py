"""Books: begun once by whoever writes first, also while the store lets nothing through."""

import threading

import pytest

from divebook import Environment
from divebook.stores import MemoryStore
from tests.runtime.worlds import Busy, question_of
from tests.steps.test_approval import Till


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_book_that_a_busy_store_holds_up_is_waited_for(refusals):
    till = Till(Busy())
    run = till.asked()
    books = till.world._policy._log
    begin = books._begin

    def held_up(key):
        till.store.refusals = refusals
        return begin(key)

    books._begin = held_up
    run = run.answer(question_of(run).id, {"approved": True, "data": {"rule": {"scope": "always"}}}).wait(20)
    assert (run.status, till.paid, len(till.world.rules)) == ("completed", [(5, "ann")] * 2, 1)


def test_two_who_write_first_at_once_write_into_one_book():
    store = MemoryStore()
    worlds = [Environment(store=store) for _ in range(4)]
    ready = threading.Barrier(4)

    def write(world, number):
        ready.wait(20)
        world.internals.registry.threads.write("t", f"k{number}", {"after": None, "chunks": [[]]}, "ann")

    writers = [threading.Thread(target=write, args=(world, number)) for number, world in enumerate(worlds)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert len(store.records(origin="book")) == 1
    assert sorted(worlds[0].threads["t"].branches) == ["t", "t~2", "t~3", "t~4"]
