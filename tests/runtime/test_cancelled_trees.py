"""A cancelled execution takes along all that it has started; `tests.runtime.cancelled_trees` does it 500 times."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from divebook import Environment, Rollback, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.engine.decide import decide_cancellation, decide_leaving
from divebook.errors import CorruptStoreError, ExecutionError, OperationError
from divebook.events import Event, catalog
from divebook.queues import Worker
from divebook.runtime import manager
from divebook.runtime.children import abandoned, all_abandoned, has_ended
from divebook.runtime.loop import ENGINE
from divebook.steps.actions import Action
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.append import Batch, records_of
from divebook.stores.leases import Owner
from tests.runtime.cancelled_trees import copy_of as died
from tests.runtime.cancelled_trees import one_tree
from tests.runtime.worlds import Calls, Gate, becomes, environment

ASKS = Workflow("asks", [Step("ask", type="interrupt", ask="Who?", store="who"), Step("then", action="note")])
SLEEPS = Workflow("sleeps", [Step("sleep", type="wait", seconds=0)])


@pytest.mark.parametrize("seed", range(12))
def test_nothing_of_a_cancelled_tree_runs_or_waits_or_is_called_again(seed, tmp_path):
    faults, seen = one_tree(seed, tmp_path)
    assert (faults, seen["trees"]) == ([], 1)


def chain(depth, bottom):
    """Return workflows of which each starts the next, the last one `bottom`."""
    steps = [Step("below", workflow=bottom if number == depth else f"w{number + 1}") for number in range(1, depth + 1)]
    return [Workflow(f"w{number}", [one]) for number, one in enumerate(steps, 1)]


def statuses(world):
    return sorted({record.status for record in world.store.records()})


def test_cancel_waits_for_everything_below():
    world = environment(*chain(6, "asks"), ASKS, actions=[Calls().action()])
    top = world.start("w1").wait(20)
    assert len(world.store.records()) == 7
    assert top.cancel("enough").wait(20).status == "cancelled"
    assert (statuses(world), world.queues.recoverable(), world.inbox()) == (["cancelled"], [], [])


@pytest.mark.parametrize("level", range(1, 7))
def test_recovery_finishes_the_cancellation_of_a_process_that_died(level):
    """Of so many levels the end was recorded before the process died."""
    calls = Calls()
    world = environment(*chain(6, "asks"), ASKS, actions=[calls.action()])
    top = world.start("w1").wait(20)
    copies = []

    def copy(_execution_id, _events):
        if sum(record.status == "cancelled" for record in world.store.records()) == level and not copies:
            copies.append(died(world.store))

    world.store.subscribe(copy)
    top.cancel().wait(20)
    later = environment(*chain(6, "asks"), ASKS, actions=[calls.action()], store=copies[0])
    left = later.queues.recoverable()
    assert len(left) == 7 - level
    for record in left:
        recovered = later.queues.recover(record.execution_id)
        if recovered.is_live:
            recovered.wait(20)
    assert (statuses(later), later.queues.recoverable(), calls) == (["cancelled"], [], [])


def test_recovery_of_a_cancelled_tree_needs_no_definitions():
    world = environment(*chain(2, "asks"), ASKS, actions=[Calls().action()])
    top, copies = world.start("w1").wait(20), []
    world.store.subscribe(lambda *_: copies.append(died(world.store)))
    top.cancel().wait(20)
    later = Environment(store=copies[0])
    for record in later.queues.recoverable():
        recovered = later.queues.recover(record.execution_id)
        if recovered.is_live:
            recovered.wait(20)
    assert statuses(later) == ["cancelled"]


@pytest.mark.parametrize("way", ["answer", "signal", "resume"])
def test_whatever_comes_for_an_abandoned_execution_cancels_it(way):
    calls = Calls()
    world = environment(*chain(1, "asks"), ASKS, actions=[calls.action()])
    top, copies = world.start("w1").wait(20), []
    world.store.subscribe(lambda *_: copies.append(died(world.store)))
    top.cancel().wait(20)
    later = environment(*chain(1, "asks"), ASKS, actions=[calls.action()], store=copies[0])
    (child,) = [record for record in later.store.records() if record.parent]
    assert child.status == "waiting"
    if way == "answer":
        ((_, question),) = later.inbox()
        with suppress(ExecutionError):  # it has ended before the answer could be taken in
            later.answer(question.id, "ann")
    elif way == "signal":
        with suppress(ExecutionError):
            later.run_of(child.execution_id).signal("go")
    else:
        later.run_of(child.execution_id).resume()
    ended = later.run_of(child.execution_id)
    assert (ended.wait(20).status, calls) == ("cancelled", [])
    assert ended.state.error == f"its parent {top.id} is cancelled"


def test_a_child_that_a_person_resumed_by_itself_goes_on_alone():
    calls = Calls()
    world = environment(*chain(1, "asks"), ASKS, actions=[calls.action()])
    world.start("w1").wait(20).cancel().wait(20)
    (child,) = [record for record in world.store.records() if record.parent]
    assert world.run_of(child.execution_id).resume().wait(20).status == "waiting"
    assert (abandoned(world.store, child.execution_id), all_abandoned(world.store), world.queues.recoverable()) == (
        [],
        [],
        [],
    )
    ((_, question),) = world.inbox()
    assert world.answer(question.id, "ann").wait(20).status == "completed"
    assert calls == [None]


@pytest.mark.parametrize("fails", [False, True])
def test_a_child_whose_call_was_left_early_ends_with_its_parent(fails):
    made, reached = [], asyncio.Event()

    @step(idempotent=True)
    async def slow(number: int) -> int:
        made.append(number)
        reached.set()
        await asyncio.Event().wait()

    @step(idempotent=True)
    async def fail_once_made() -> None:
        await reached.wait()
        raise RuntimeError("enough")

    @workflow
    async def below(ctx):
        await slow(1)

    @workflow
    async def impatient(ctx):
        try:
            await ctx.gather(ctx.run("below"), fail_once_made())  # the failure of the second call leaves the first one
        except OperationError:
            if fails:
                raise

    world = environment(below, impatient)
    assert world.start("impatient").wait(20).status == ("failed" if fails else "completed")
    assert (made, [record.status for record in world.store.records() if record.parent]) == ([1], ["cancelled"])


def test_a_worker_cancels_what_it_claims_of_a_cancelled_tree(tmp_path):
    """The root of the tree was cancelled by a process that died before it came to the child, which a queue has."""
    from divebook.queues import Worker

    calls, copies = Calls(), []
    world = environment(*chain(1, "asks"), ASKS, actions=[calls.action()])
    with Worker(world):
        top = world.enqueue("w1")
        assert top.wait(20).status == "waiting"
        world.store.subscribe(lambda *_: copies.append(died(world.store)))
        top.cancel().wait(20)
    later = environment(*chain(1, "asks"), ASKS, actions=[calls.action()], store=copies[0])
    (child,) = [record for record in later.store.records() if record.parent]
    # Before there is a worker, which may end the child while the signal is on its way.
    later.run_of(child.execution_id).signal("go")
    with Worker(later):
        assert later.run_of(child.execution_id).wait(20).status == "cancelled"
    assert calls == []


def test_a_stale_parent_resumes_no_child_that_another_process_has_cancelled(tmp_path):
    """It took the end of its child for the late word of its own earlier end."""
    calls, reached = Calls(), threading.Event()

    @step(idempotent=True)
    async def slow() -> None:
        reached.set()
        await asyncio.Event().wait()

    @workflow
    async def two(ctx):
        await ctx.gather(ctx.run("asks"), slow())

    first = Environment(store=SqliteStore(tmp_path / "s.db"), workflows=[two, ASKS], actions=[calls.action()])
    second = Environment(store=SqliteStore(tmp_path / "s.db"), workflows=[two, ASKS], actions=[calls.action()])
    top = first.start("two")
    assert reached.wait(20)
    while not first.inbox():
        assert top.is_live
    assert second.run_of(top.id).cancel().wait(20).status == "cancelled"
    assert statuses(second) == ["cancelled"]
    assert isinstance(first.store, SqliteStore)
    assert calls == []


def test_a_copy_of_a_store_has_no_leases():
    world = environment(ASKS, actions=[Calls().action()], store=MemoryStore())
    world.start("asks").wait(20)
    assert died(world.store).live_leases() == []


def test_cancel_waits_for_a_child_that_has_ended_and_still_cancels_its_own_children():
    """The child completes although it has abandoned an execution, whose rollback takes longer than the child."""
    undo, booked = Gate(), asyncio.Event()

    @step(idempotent=True)
    async def hold() -> None:
        booked.set()
        await asyncio.Event().wait()

    @step(idempotent=True)
    async def fail_once_booked() -> None:
        await booked.wait()
        raise RuntimeError("enough")

    @workflow
    async def sleeper(ctx):
        await hold()

    @workflow
    async def impatient(ctx):
        with suppress(OperationError):
            await ctx.gather(ctx.run("books"), fail_once_booked())

    @workflow
    async def top(ctx):
        await ctx.run("impatient")
        await ctx.ask("Which one?")

    books = Workflow("books", [Step("book", action="book", rollback=Rollback("gate")), Step("s", workflow="sleeper")])
    actions = [Action("book", lambda: None, idempotent=True), undo.action()]
    world = environment(sleeper, impatient, top, books, actions=actions)
    root = world.start("top")
    assert undo.reached.wait(20)
    after = []
    cancelling = threading.Thread(target=lambda: after.append((root.cancel().wait(20), statuses(world))))
    cancelling.start()
    assert becomes(lambda: world.store.record(root.id).status == "cancelled")
    cancelling.join(0.3)  # it must not return before the gate is open
    undo.opened.set()
    cancelling.join(20)
    assert set(after[0][1]) <= {"cancelled", "completed"}


def test_a_copy_of_a_store_is_recovered_while_its_source_is_driven_in_the_same_process():
    gate = Gate()
    below = Workflow("below", [Step("a", action="gate")])
    world = environment(Workflow("top", [Step("b", workflow="below")]), below, actions=[gate.action()])
    root = world.start("top")
    assert gate.reached.wait(20)
    copy = died(world.store)
    end = replace(
        copy.read(root.id)[-1],
        id="event_end",
        sequence=copy.record(root.id).last_sequence + 1,
        path="",
        step="",
        data=catalog.ExecutionCancelled("by the test"),
    )
    copy.append(root.id, [end], end.sequence - 1)
    with Environment(store=copy, workflows=[*world.definitions.workflows.values()], actions=[gate.action()]) as later:
        assert [record.workflow_name for record in later.queues.recoverable()] == ["below"]
        for record in later.queues.recoverable():
            later.queues.recover(record.execution_id).wait(20)
        assert set(statuses(later)) == {"cancelled"}
    gate.opened.set()
    assert root.wait(20).status == "completed"


def test_recovery_returns_an_execution_that_was_cancelled_in_the_meantime(monkeypatch):
    gate = Gate()
    books = Workflow("books", [Step("book", action="book", rollback=Rollback("unbook")), Step("s", action="gate")])
    actions = [Action(name, lambda: None, idempotent=True) for name in ("book", "unbook")]
    world = environment(books, actions=[*actions, gate.action()])
    root = world.start("books")
    assert gate.reached.wait(20)
    store = died(world.store)
    first, second = (
        Environment(store=store, workflows=[books], actions=[*actions, gate.action()], name=name) for name in "ab"
    )
    resume = first._control.continue_run

    def cancelled_first(*given, **options):
        second.run_of(root.id).cancel().wait(20)
        return resume(*given, **options)

    monkeypatch.setattr(first._control, "continue_run", cancelled_first)
    assert first.queues.recover(root.id).wait(20).status == "cancelled"
    gate.opened.set()
    root.wait(20)


def test_a_cancellation_with_an_older_lease_leaves_the_other_one_alone(monkeypatch):
    """A thread has acquired the lease, and code on the engine's loop cancels the execution before the thread begins."""
    gate = Gate()
    ask = Step("ask", type="interrupt", ask="Which one?")
    books = Workflow("books", [Step("book", action="book", rollback=Rollback("gate")), ask])
    world = environment(books, actions=[Action("book", lambda: None, idempotent=True), gate.action()])
    root = world.start("books")
    assert root.wait(20).status == "waiting"
    driver = root._driver
    state_under = driver.state_under

    def cancelled_by_the_loop(lease):
        """Cancel the execution on the engine's loop, once, and wait until its rollback runs."""
        monkeypatch.setattr(driver, "state_under", state_under)
        state = state_under(lease)
        ENGINE.call(lambda: root.cancel("by the loop"))
        assert gate.reached.wait(20)
        return state

    monkeypatch.setattr(driver, "state_under", cancelled_by_the_loop)
    root.cancel("by the thread")
    gate.opened.set()
    assert root.wait(20).status == "cancelled"
    assert root.error == "by the loop"
    assert [path.status for path in root.state.undoing] == ["completed"]


def test_a_second_cancellation_before_the_rollback_does_not_end_it(monkeypatch):
    """The first cancellation has begun, and has recorded nothing yet."""
    undone = Calls()
    ask = Step("ask", type="interrupt", ask="Which one?")
    books = Workflow("books", [Step("book", action="book", rollback=Rollback("note")), ask])
    world = environment(books, actions=[Action("book", lambda: None, idempotent=True), undone.action()])
    root = world.start("books")
    assert root.wait(20).status == "waiting"
    wait_end = root._driver.parked_run.wait_end

    async def cancelled_again():
        monkeypatch.setattr(root._driver.parked_run, "wait_end", wait_end)
        root.cancel("again")
        await wait_end()

    monkeypatch.setattr(root._driver.parked_run, "wait_end", cancelled_again)
    root.cancel("enough")
    assert (root.wait(20).status, root.error, undone) == ("cancelled", "enough", [None])
    assert root.state.is_rolled_back


def test_two_processes_that_cancel_at_once_roll_back(monkeypatch):
    """The first one, which is gone by now, has begun the rollback after the second one had looked at the execution."""
    undone = Calls()
    ask = Step("ask", type="interrupt", ask="Which one?")
    books = Workflow("books", [Step("book", action="book", rollback=Rollback("note")), ask])
    world = environment(books, actions=[Action("book", lambda: None, idempotent=True), undone.action()])
    root = world.start("books")
    assert root.wait(20).status == "waiting"
    driver = root._driver
    state_under = driver.state_under

    def rolled_back_since(lease):
        monkeypatch.setattr(driver, "state_under", state_under)
        state = state_under(lease)
        facts = [*decide_leaving(state, "by the first").facts, *decide_cancellation(state, "by the first").facts]
        events = [
            Event(f"event_{number}", root.id, state.last_sequence + number, state.last_us, fact.data, fact.path)
            for number, fact in enumerate(facts, 1)
        ]
        world.store.append(root.id, events, state.last_sequence, lease.token)
        return driver.refresh().state

    monkeypatch.setattr(driver, "state_under", rolled_back_since)
    root.cancel("by the second")
    assert (root.wait(20).status, root.error, undone) == ("cancelled", "by the first", [None])
    assert root.state.is_rolled_back


def test_a_cancellation_reaches_what_a_completed_child_has_abandoned():
    """The process died when the child in the middle had completed, before its own child was cancelled."""

    @workflow
    async def waiter(ctx):
        await ctx.wait_signal("never")

    @workflow
    async def middle(ctx):
        with suppress(OperationError):
            await ctx.gather(ctx.run("waiter"), fails_at_once())

    @step(idempotent=True)
    async def fails_at_once():
        raise TimeoutError("late")

    @workflow
    async def top(ctx):
        await ctx.run("middle")
        await ctx.wait_signal("never")

    world = environment(top, middle, waiter)
    root = world.start("top")
    assert becomes(lambda: "cancelled" in statuses(world))
    store = MemoryStore()
    for record in reversed(world.store.records()):
        events = world.store.read(record.execution_id)
        is_waiter = record.workflow_name == "waiter"
        events = [event for event in events if not (is_waiter and event.event_type.endswith("_cancelled"))]
        store.append_all([Batch(record.execution_id, 0, records_of(events), status="waiting" if is_waiter else None)])
    with environment(top, middle, waiter, store=store) as later:
        assert statuses(later) == ["completed", "running", "waiting"]
        later.run_of(root.id).cancel("enough").wait(20)
        assert statuses(later) == ["cancelled", "completed"]


@pytest.mark.parametrize("level", [1, 2])
def test_an_unreadable_log_below_an_ended_parent_hides_no_other_execution(level, monkeypatch):
    calls, copies = Calls(), []
    world = environment(*chain(2, "asks"), ASKS, actions=[calls.action()])
    top = world.start("w1").wait(20)
    world.store.subscribe(lambda *_: copies.append(died(world.store)))
    top.cancel().wait(20)
    store, below = copies[0], [record.execution_id for record in reversed(world.store.records()) if record.parent]

    def damaged(read):
        def reading(execution_id, *args, **options):
            if execution_id == below[level - 1]:
                raise CorruptStoreError("damaged")
            return read(execution_id, *args, **options)

        return reading

    monkeypatch.setattr(store, "read", damaged(store.read))
    monkeypatch.setattr(store, "read_records", damaged(store.read_records))
    later = environment(*chain(2, "asks"), ASKS, SLEEPS, actions=[calls.action()], store=store)
    assert {record.execution_id for record in later.queues.recoverable()} == set(below)
    with pytest.raises(CorruptStoreError, match="damaged"):
        later.queues.recover(below[level - 1])
    other = later.enqueue("sleeps")
    with Worker(later):
        assert other.wait(20).status == "completed"


def test_a_child_that_begins_while_its_parent_is_cancelled_elsewhere_ends_with_it(monkeypatch):
    """What drives the parent learns that it has lost its lease while it looks whether the parent has ended."""
    gate = Gate()

    @workflow
    async def sleeper(ctx):
        await ctx.sleep(3600)

    @workflow
    async def both(ctx):
        async def hold_twice():
            await hold()
            await hold()  # its start cannot be written

        await ctx.gather(ctx.run("sleeper"), hold_twice())

    @step
    def hold() -> None:
        assert gate.opened.wait(20)

    class OnAServer(MemoryStore):
        local = False
        root = ""

        def append_all(self, batches):
            if self.root and any(batch.execution_id != self.root for batch in batches):
                root, self.root = self.root, ""
                lease = self.acquire(root, Owner("elsewhere", 1, 1, "another process"), instead_of=self.lease_of(root))
                last = self.read(root)[-1]
                end = Event(
                    "event_end", root, last.sequence + 1, last.recorded_at, catalog.ExecutionCancelled("elsewhere")
                )
                self.append(root, [end], last.sequence, lease.token)
            return super().append_all(batches)

    store = OnAServer()
    world = environment(sleeper, both, store=store)
    root = world.create("both")

    def slow(store, parent_id):
        monkeypatch.undo()
        gate.opened.set()
        assert becomes(lambda: not root._driver.can_record)
        for _ in range(20):
            ENGINE.call(lambda: None)  # the code of the parent is left meanwhile
        return has_ended(store, parent_id)

    monkeypatch.setattr(manager, "has_ended", slow)
    store.root = root.id
    root.start()
    assert becomes(lambda: len(world.store.records()) == 2)
    assert becomes(lambda: statuses(world) == ["cancelled"])
