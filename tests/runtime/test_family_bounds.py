"""Bounds on how many executions one may start, and on how many levels, in whichever process the tree continues."""

import threading

import pytest

from divebook import Each, Environment, Step, Workflow
from divebook.definitions.functions import workflow
from divebook.errors import BoundExceededError
from divebook.questions.bounds import DEFAULT_MAX_DEPTH, Bounds
from divebook.queues import Worker
from divebook.runtime import manager
from divebook.stores import MemoryStore, SqliteStore
from tests.runtime.worlds import Calls, becomes, environment

LEAF = Workflow("leaf", [Step("one", script="1")])


def deep():
    """Return a workflow that starts itself without an end."""

    @workflow("deep")
    async def deep(ctx, level: int = 0):
        return await ctx.run("deep", {"level": level + 1})

    return deep


def wide():
    """Return a workflow that starts so many others, of which one after the other, or all at once."""

    @workflow("wide")
    async def wide(ctx, count: int, at_once: bool = False, below: str = "leaf"):
        if at_once:
            await ctx.gather(*(ctx.run(below) for _ in range(count)))
        else:
            for _ in range(count):
                await ctx.run(below)

    return wide


def count(world):
    return len(world.store.records())


def test_a_workflow_that_starts_itself_ends_with_the_default_bound():
    world = environment(deep())
    ended = world.start("deep").wait(120)
    assert (ended.status, count(world)) == ("failed", DEFAULT_MAX_DEPTH + 1)
    assert ended.error.startswith(f"max_depth is reached: execution {ended.id} of 'deep' may have at most 100 levels")
    assert "bounds={'max_depth': 200}" in ended.error


@pytest.mark.parametrize("levels", [0, 1, 3])
def test_depth_is_raised_on_request_and_what_was_done_stays(levels):
    world = environment(deep())
    ended = world.start("deep", bounds={"max_depth": levels}).wait(30)
    assert (ended.status, count(world)) == ("failed", levels + 1)
    further = world.run_of(ended.id).resume({"max_depth": levels + 2}).wait(30)
    assert (further.status, count(world)) == ("failed", levels + 3)


def test_the_error_has_its_typed_reason_and_can_be_caught_and_replays_alike():
    caught = []

    @workflow
    async def careful(ctx):
        try:
            await ctx.run("leaf")
        except BoundExceededError as error:
            caught.append((error.bound, error.reason))
        return (await ctx.ask("Go on?")) or "yes"

    world = environment(LEAF, careful)
    asks = world.start("careful", bounds={"max_depth": 0}).wait(20)
    assert asks.status == "waiting"
    later = environment(LEAF, careful, store=world.store)
    ((_, question),) = later.inbox()
    assert later.answer(question.id, "yes").wait(20).status == "completed"
    assert set(caught) == {("max_depth", "max_depth_exceeded")}
    failed = world.start(wide(), {"count": 1}, bounds={"max_depth": 0}).wait(20)
    assert failed.envelope.terminal_reason == "max_depth_exceeded"


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("most", [0, 1, 5])
def test_descendants_are_counted_exactly_in_one_process(most, at_once):
    world = environment(LEAF, wide())
    ended = world.start("wide", {"count": 12, "at_once": at_once}, bounds={"max_descendants": most}).wait(30)
    assert (ended.status, count(world)) == ("failed", most + 1)
    assert f"may have at most {most} executions below it, and has {most}." in ended.error
    for _ in range(12 if at_once else 1):  # each resumption makes one failure again
        further = world.run_of(ended.id).resume({"max_descendants": 12}).wait(30)
        if further.status == "completed":
            break
    assert (further.status, count(world)) == ("completed", 13)


def test_items_of_a_step_count():
    each = Step("all", workflow="leaf", each=Each(list(range(9)), parallel=4))
    world = environment(LEAF, Workflow("items", [each]))
    ended = world.start("items", bounds={"max_descendants": 4}).wait(20)
    assert (ended.status, count(world)) == ("failed", 5)


def test_those_of_children_count_and_two_that_start_each_other_are_one_tree():
    ping, pong = (Workflow(name, [Step("s", workflow=other)]) for name, other in (("ping", "pong"), ("pong", "ping")))
    world = environment(ping, pong)
    assert world.start("ping", bounds={"max_descendants": 6}).wait(30).status == "failed"
    assert count(world) == 7


def test_a_bound_of_a_child_holds_below_that_child():
    tight = Workflow("tight", [Step("all", workflow="leaf", each=Each([1, 2, 3]))], bounds={"max_descendants": 2})
    world = environment(LEAF, tight, wide())
    ended = world.start("wide", {"count": 1, "below": "tight"}).wait(20)
    assert (ended.status, count(world)) == ("failed", 4)
    assert "of 'tight' may have at most 2 executions below it" in ended.error


def test_the_count_survives_the_process(tmp_path):
    gate = []

    @workflow("slow")
    async def slow(ctx, n: int):
        for number in range(n):
            await ctx.run("leaf")
            if number == 2:
                gate.append(await ctx.ask("Go on?"))

    world = environment(LEAF, slow, store=SqliteStore(tmp_path / "s.db"))
    begun = world.start("slow", {"n": 20}, bounds={"max_descendants": 5}).wait(20)
    assert (begun.status, count(world)) == ("waiting", 4)
    later = environment(LEAF, slow, store=SqliteStore(tmp_path / "s.db"))
    ((_, question),) = later.inbox()
    assert later.answer(question.id, "yes").wait(20).status == "failed"
    assert count(later) == 6


def test_the_count_survives_a_queue_and_its_workers(tmp_path):
    world = environment(LEAF, wide(), store=SqliteStore(tmp_path / "s.db"))
    queued = world.enqueue("wide", {"count": 9}, bounds={"max_descendants": 4})
    with Worker(world):
        assert queued.wait(30).status == "failed"
    assert count(world) == 5


def test_what_continues_as_new_has_what_is_left_and_a_loop_of_that_alone_is_not_bounded():
    @workflow("poll")
    async def poll(ctx, rounds: int, children: int):
        for _ in range(children):
            await ctx.run("leaf")
        if rounds:
            await ctx.continue_as_new({"rounds": rounds - 1, "children": children})

    world = environment(LEAF, poll)
    last = world.start("poll", {"rounds": 9, "children": 2}, bounds={"max_descendants": 5}).wait(20)
    while last.state.continued_as:
        last = world.run_of(last.state.continued_as)
        last.wait(20)
    assert last.status == "failed"
    assert sum(record.workflow_name == "leaf" for record in world.store.records()) == 5
    free = environment(LEAF, poll)
    last = free.start("poll", {"rounds": 12, "children": 0}, bounds={"max_depth": 0, "max_descendants": 0}).wait(20)
    while last.state.continued_as:
        last = free.run_of(last.state.continued_as)
        last.wait(20)
    assert (last.status, count(free)) == ("completed", 13)


def test_a_fork_counts_what_it_shares_with_its_source():
    world = environment(LEAF, wide())
    source = world.start("wide", {"count": 4}, bounds={"max_descendants": 3}).wait(20)
    assert source.status == "failed"
    failed_at = max(event.sequence for event in source.history() if event.event_type == "operation_completed")
    before = count(world)
    fork = world.run_of(source.id).fork(failed_at)
    assert fork.wait(20).status == "failed"
    assert count(world) == before + 1


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_several_processes_pass_a_limit_by_no_more_than_is_documented(processes, tmp_path):
    """Each environment has counts of its own, as each process does."""
    path, most = tmp_path / "s.db", 150
    world = environment(LEAF, store=SqliteStore(path))
    root = world.start("leaf", bounds={"max_descendants": most}).wait(20)
    finds = [environment(store=SqliteStore(path))._control.find for _ in range(processes)]
    counters = [manager.FamilyBounds(SqliteStore(path), find) for find in finds]
    admitted, lock = [], threading.Lock()

    def admit(counter, name):
        try:
            for number in range(2 * most):
                counter.admit(f"exec_{name}_{number}", root.id)
                with lock:
                    admitted.append(name)
        except BoundExceededError:
            return

    threads = [threading.Thread(target=admit, args=(one, name)) for name, one in enumerate(counters)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most <= len(admitted) <= most * processes  # none of them is written: the store has nothing to count


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_stores_count_what_is_below(store, tmp_path):
    made = MemoryStore() if store == "memory" else SqliteStore(tmp_path / "s.db")
    world = environment(LEAF, wide(), store=made)
    outer = world.start("wide", {"count": 2, "below": "leaf"}).wait(20)
    assert (made.descendants(outer.id), made.descendants("exec_none")) == (2, 0)


def test_bounds_of_executions_are_read_as_any_others():
    assert Bounds.read({"MaxDepth": 3, "max_descendants": 0}).to_dict() == {"max_depth": 3, "max_descendants": 0}


def test_one_line_at_exit_for_a_whole_tree(capsys):
    from divebook.runtime.driver import MOST_LINES, ExitNotice

    class Left:
        status, is_live, first_commit, store = "running", True, None, Environment(store="memory:").store

        def __init__(self, name, started_by=None):
            self.id, self.started_by = name, started_by

    farewell = ExitNotice()
    tree = [Left("exec_0"), *(Left(f"exec_{n}", f"exec_{n - 1}") for n in range(1, 40)), Left("exec_x", "exec_gone")]
    for left in tree:
        farewell.add(left)
    farewell.print_running()
    told = capsys.readouterr().err.splitlines()
    assert [line.split(".")[0] for line in told] == [
        "divebook: the process ends while execution exec_0 is running (and 39 executions that it started)",
        "divebook: the process ends while execution exec_x is running",
    ]
    many = [Left(f"exec_{n:03}") for n in range(MOST_LINES + 5)]
    for left in many:
        farewell.add(left)
    farewell.print_running()
    assert len(capsys.readouterr().err.splitlines()) == MOST_LINES + 1


def test_a_call_that_was_refused_leaves_nothing_to_recover():
    world = environment(LEAF, wide(), actions=[Calls().action()])
    world.start("wide", {"count": 3, "at_once": True}, bounds={"max_descendants": 1}).wait(20)
    assert becomes(lambda: not world.queues.recoverable())
