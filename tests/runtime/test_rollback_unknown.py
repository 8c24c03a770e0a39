"""Calls that were cut off and are to be undone: they come to their end, or a person is asked, before that is done.

Nothing that may have taken effect is forgotten: it is undone, or a person has said that it was not done, or the end
names it.
"""

import asyncio
import threading
import time

import pytest

from divebook import Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.events import catalog
from divebook.runtime.manager import is_idle
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.runtime.cancelled_trees import copy_of
from tests.runtime.test_resuming import cut
from tests.runtime.travelling import Travel, trip, undone
from tests.runtime.worlds import becomes, environment

DONE = "went through"
NOT_DONE = "was not made"


def answered(world, execution_id, truth):
    """Answer all that is asked of an execution, as calls in fact were; return it, once it has ended."""
    for _ in range(20):
        execution = world.run_of(execution_id)
        if not execution.open_questions:
            return execution.wait(20)
        asked = execution.open_questions[0]
        assert asked.kind == "outcome_unknown"
        parameters = asked.data["parameters"]
        what = (parameters.get("params") or parameters.get("arguments"))["what"]
        told = {"choice": "done", "result": {"id": f"{what}-1"}} if truth == DONE else {"choice": "fail"}
        execution.answer(asked.id, told, "ann").wait(20)
    raise AssertionError("it asks for ever")


def journey(told):
    """Return a function that books what `trip` does, of which nothing may be done twice."""

    def unbook(what, result):
        told.append(f"cancel {result['id']}")
        assert result["id"] == f"{what}-1"

    @step(rollback=unbook)
    def book(what):
        told.append(f"book {what}")
        return {"id": f"{what}-1"}

    @workflow
    async def trip(ctx):
        await book("train")
        await ctx.gather(book("oslo"), book("rome"))
        raise ValueError("no room")

    return trip


def actions_of(travel, *, idempotent):
    book, cancel, fly = travel.actions()
    return [Action("book", book.function, idempotent=idempotent), cancel, fly]


def begun_in(log):
    """Return what calls have been begun of, and what of them has an end."""
    started = {}
    for event in log:
        if isinstance(event.data, catalog.OperationStarted) and not event.path.startswith(catalog.ROLLBACK_PATH):
            parameters = event.data.parameters
            given = parameters.get("params") or parameters.get("arguments") or {}
            if "what" in given:
                started[event.data.operation_id] = given["what"]
    ended = {event.data.operation_id for event in log if isinstance(event.data, catalog.OperationCompleted)}
    return set(started.values()), {what for key, what in started.items() if key in ended}


@pytest.mark.parametrize("truth", [DONE, NOT_DONE])
@pytest.mark.parametrize("kind", ["in order", "side by side", "may be made twice", "function"])
def test_wherever_the_process_died_a_cancellation_undoes_all_that_took_effect(kind, truth):
    travel = Travel()
    made = journey(travel.told) if kind == "function" else trip(parallel=2 if kind == "side by side" else 1)
    actions = actions_of(travel, idempotent=kind == "may be made twice")
    world, written = environment(made, actions=actions), []
    world.store.subscribe(lambda _, events: written.append(events[-1].sequence))
    execution = world.start("trip").wait(20)
    log = world.store.read(execution.id)
    ends = next(event.sequence for event in log if isinstance(event.data, catalog.RollbackStarted))
    # A commit is there or not: that something has its undoing, and that it is over, come with one.
    for length in (count for count in written if 1 < count < ends):
        begun, ended = begun_in(log[:length])
        again = environment(made, actions=actions, store=cut(world.store, execution, length))
        travel.told.clear()
        again.run_of(execution.id).cancel("enough").wait(20)
        over = answered(again, execution.id, truth)
        assert (over.status, over.state.error) == ("cancelled", "enough"), length
        took_effect = begun if truth == DONE or kind == "may be made twice" else ended
        undone_now = [told.removeprefix("cancel ").removesuffix("-1") for told in travel.told if "cancel" in told]
        assert sorted(undone_now) == sorted(took_effect), length
        booked_again = {told.removeprefix("book ") for told in travel.told if told.startswith("book")}
        assert booked_again <= (begun - ended if kind == "may be made twice" else set()), length
        assert over.state.is_rolled_back == bool(begun), length
        assert again.run_of(execution.id).verify().equal, length
        again.close()


def test_the_process_may_die_while_it_is_asked_and_another_one_undoes_it():
    travel = Travel()
    actions = actions_of(travel, idempotent=False)
    world = environment(trip(), actions=actions)
    execution = world.start("trip").wait(20)
    log = world.store.read(execution.id)
    begun = [e.sequence for e in log if isinstance(e.data, catalog.OperationStarted)][1]
    again = environment(actions=actions, store=cut(world.store, execution, begun))
    again.run_of(execution.id).cancel("enough").wait(20)
    travel.told.clear()
    third = environment(actions=actions, store=cut(again.store, execution, len(again.store.read(execution.id))))
    third.run_of(execution.id).resume().wait(20)
    assert travel.told == []
    assert answered(third, execution.id, DONE).state.is_rolled_back
    assert travel.told == ["cancel oslo-1", "cancel train-1"]


# --- what is under way ------------------------------------------------------------------------------------------------


def cancelling(told):
    """Return the action that undoes."""

    def cancel(booking):
        told.append(booking)

    return Action("cancel", cancel)


def slowly(told, reached, *, is_async=True):
    """Return a function that books, and is under way for a while, and what undoes that."""
    go = threading.Event()

    async def book():
        reached.set()
        assert await asyncio.to_thread(go.wait, 20)
        told.append("book")
        return {"id": "slow"}

    def book_in_thread():
        reached.set()
        assert go.wait(20)
        told.append("book")
        return {"id": "slow"}

    return (book if is_async else book_in_thread), go


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_under_way_as_it_is_cancelled_comes_to_its_end_and_is_undone(is_async, idempotent):
    told, reached = [], threading.Event()
    book, go = slowly(told, reached, is_async=is_async)
    actions = [Action("book", book, idempotent=idempotent), cancelling(told)]
    steps = [Step("a", action="book", rollback=undone()), Step("b", script="1")]
    execution = environment(Workflow("w", steps), actions=actions).start("w")
    assert reached.wait(20)
    execution.cancel("enough")
    go.set()
    execution.wait(20)
    assert (execution.status, execution.state.error, told) == ("cancelled", "enough", ["book", "slow"])


def test_what_is_under_way_as_another_path_fails_comes_to_its_end_and_is_undone():
    told, reached = [], threading.Event()
    book, go = slowly(told, reached)

    def fail():
        assert reached.wait(20)
        threading.Timer(0.05, go.set).start()
        raise ValueError("no room")

    actions = [Action("book", book), Action("fail", fail), cancelling(told)]
    steps = [
        Step("both", script="1", next=["book", "fail"]),
        Step("book", action="book", rollback=undone(), end=True),
        Step("fail", action="fail", end=True),
    ]
    execution = environment(Workflow("w", steps), actions=actions).start("w").wait(20)
    assert (execution.status, told) == ("failed", ["book", "slow"])


@pytest.mark.parametrize("how", ["gather", "a time limit of its own"])
def test_what_a_function_breaks_off_comes_to_its_end_and_is_undone(how):
    told, reached = [], threading.Event()
    made, go = slowly(told, reached)

    def unbook(result):
        told.append(result["id"])

    @step(rollback=unbook)
    async def book():
        return await made()

    @step
    async def fail():
        assert await asyncio.to_thread(reached.wait, 20)
        threading.Timer(0.05, go.set).start()
        raise ValueError("no room")

    @step
    async def pause():
        await asyncio.sleep(0.01)

    @workflow
    async def both(ctx):
        if how == "gather":
            await ctx.gather(book(), fail())
        else:
            threading.Timer(0.1, go.set).start()
            left = asyncio.ensure_future(book())
            await pause()
            left.cancel()
            raise TimeoutError("too late")

    execution = environment(both).start("both").wait(20)
    assert (execution.status, told) == ("failed", ["book", "slow"])


def test_what_cannot_be_kept_is_asked_about_and_undone_with_what_a_person_says():
    told = []
    actions = [Action("book", lambda: iter([1, 2])), cancelling(told)]
    world = environment(Workflow("w", [Step("a", action="book", rollback=undone())]), actions=actions)
    execution = world.start("w").wait(20)
    (asked,) = execution.open_questions
    assert asked.kind == "outcome_unknown"
    assert "cannot store result" in asked.message
    execution.cancel("enough").wait(20)
    world.run_of(execution.id).answer(asked.id, {"choice": "done", "result": {"id": 7}}, "ann").wait(20)
    assert (world.run_of(execution.id).status, told) == ("cancelled", [7])


# --- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", [DONE, NOT_DONE])
def test_a_question_that_is_open_as_it_is_cancelled_stays_until_it_is_answered(truth):
    told = []

    def book(what):
        raise ConnectionResetError(what)

    actions = [Action("book", book), cancelling(told)]
    made = Workflow("w", [Step("a", action="book", parameters={"what": "bus"}, rollback=undone())])
    world = environment(made, actions=actions)
    execution = world.start("w").wait(20)
    (asked,) = execution.open_questions
    execution.cancel("enough").wait(20)
    assert (execution.status, [q.id for q in world.run_of(execution.id).open_questions]) == ("waiting", [asked.id])
    over = answered(world, execution.id, truth)
    assert (over.status, told) == ("cancelled", ["bus-1"] if truth == DONE else [])
    assert world.run_of(execution.id).verify().equal


def test_nothing_else_begins_while_it_is_asked():
    told = []

    def unbook(result):
        told.append(result)

    @step(rollback=unbook)
    def book():
        raise ConnectionResetError("gone")

    @step
    def after():
        told.append("after")

    @workflow
    async def once(ctx):
        await book()
        await ctx.ask("Go on?")
        await after()

    world = environment(once)
    execution = world.start("once").wait(20)
    execution.cancel("enough").wait(20)
    asked = world.run_of(execution.id).open_questions[0]
    world.run_of(execution.id).answer(asked.id, {"choice": "done", "result": 5}, "ann").wait(20)
    ended = world.run_of(execution.id)
    assert (ended.status, ended.open_questions, told) == ("cancelled", [], [5])


def test_what_nobody_is_asked_about_is_named_at_the_end():
    has_asked = threading.Event()

    def unbook(result):
        del result

    @step(rollback=unbook)
    def book():
        has_asked.set()
        raise ConnectionResetError("gone")

    @step
    async def fail():
        assert await asyncio.to_thread(has_asked.wait, 20)
        await asyncio.sleep(0.1)
        raise ValueError("no room")

    @workflow
    async def both(ctx):
        await asyncio.gather(book(), fail())

    execution = environment(both).start("both").wait(20)
    assert execution.status == "failed"
    assert "ValueError: no room" in execution.state.error
    assert "it is unknown whether it took effect: a call of both" in execution.state.error


@pytest.mark.parametrize("side_by_side", [False, True])
def test_what_is_left_as_if_the_process_had_ended_waits_for_no_call(side_by_side):
    told, reached = [], threading.Event()

    async def book():
        reached.set()
        await asyncio.sleep(60)

    steps = [
        Step("both", script="1", next=["book", "wait"] if side_by_side else "book"),
        Step("book", action="book", rollback=undone(), end=True),
        Step("wait", signal="never", end=True),
    ]
    world = environment(Workflow("w", steps), actions=[Action("book", book), cancelling(told)])
    execution = world.start("w")
    assert reached.wait(20)
    begun = time.monotonic()
    world.close()
    assert time.monotonic() - begun < 5
    assert execution.status == "interrupted"


# --- only the calls with a rollback continue --------------------------------------------------------------------------


BESIDE = ("child", "child beside one that has not begun", "sleep", "signal", "late signal", "question", "call", "again")
"""Kinds of operations that have started beside the call with a rollback, and have not ended."""
WAYS = [(beside, "ctx.gather") for beside in BESIDE] + [(step, "asyncio.gather") for step in BESIDE[-2:]]


class Side:
    """A workflow function with a call that has a rollback and something else beside it, both cut off by a death."""

    def __init__(self, beside, gathering, *, idempotent):
        self.told, self.is_cut_off = [], True

        def unbook(result):
            self.told.append(f"unbook {result}")

        @step(rollback=unbook, idempotent=idempotent)
        async def book():
            await self.make("book")
            return 5

        @step(idempotent=beside != "call")
        async def pay():
            await self.make("pay")

        @workflow
        async def child(ctx):
            await pay()
            await pay()

        @workflow
        async def parent(ctx):
            other = {
                "child": lambda: ctx.run("child"),
                "child beside one that has not begun": lambda: ctx.gather(ctx.run("child"), ctx.run("child")),
                "sleep": lambda: ctx.sleep(3600),
                "signal": lambda: ctx.wait_signal("go"),
                "late signal": lambda: ctx.wait_signal("go", within=0),
                "question": lambda: ctx.ask("Who?", expires_in=3600),
            }.get(beside, pay)
            if gathering == "ctx.gather":
                await ctx.gather(other(), book())
            else:
                await asyncio.gather(other(), book())
            await pay()

        self.definitions = [parent, child]

    async def make(self, what):
        self.told.append(what)
        if self.is_cut_off:
            await asyncio.sleep(60)

    def left(self, beside):
        """Return a store with an execution whose process died while both were under way, and its id."""
        world = environment(*self.definitions)
        execution = world.start("parent")
        count = {"child beside one that has not begun": 3}.get(beside, 2)
        made = {"book", "pay"} if "child" in beside or beside in {"call", "again"} else {"book"}
        assert becomes(lambda: sum(map(is_begin, execution.history())) >= count and made <= set(self.told))
        store = copy_of(world.store)
        world.close()
        self.told.clear()
        self.is_cut_off = False
        return store, execution.id


def is_begin(event):
    return isinstance(event.data, catalog.OperationStarted | catalog.InterruptRaised)


@pytest.mark.parametrize(("beside", "gathering"), WAYS)
def test_only_what_is_to_be_settled_continues(beside, gathering):
    side = Side(beside, gathering, idempotent=True)
    store, name = side.left(beside)
    with environment(*side.definitions, store=store) as after:
        ended = after.run_of(name).cancel("enough").wait(20)
        assert (ended.status, ended.error, side.told) == ("cancelled", "enough", ["book", "unbook 5"])
        assert not [event for event in ended.history() if event.event_type == "interrupt_raised"][
            beside == "question" :
        ]
        assert {record.status for record in after.store.records()} == {"cancelled"}
        assert after.queues.recoverable() == []


@pytest.mark.parametrize(("beside", "gathering"), WAYS)
def test_only_the_call_that_is_to_be_settled_is_asked_about(beside, gathering):
    side = Side(beside, gathering, idempotent=False)
    store, name = side.left(beside)
    with environment(*side.definitions, store=store) as after:
        waiting = after.run_of(name).cancel("enough").wait(20)
        (asked,) = [question for question in waiting.open_questions if question.kind == "outcome_unknown"]
        assert "book" in asked.question
        # It waits for the answer only: neither a timer nor a worker drives it again.
        assert (waiting.status, waiting.state.is_asleep, after.queues.recoverable()) == ("waiting", False, [])
        assert waiting.state.wake_at is None or beside == "question"
        assert is_idle(waiting.state, after.store)
    with environment(*side.definitions, store=store) as third:
        third.run_of(name).answer(asked.id, {"choice": "done", "result": 7}, "ann").wait(20)
        ended = third.run_of(name)
        assert (ended.status, ended.error, side.told) == ("cancelled", "enough", ["unbook 7"])
        assert {record.status for record in third.store.records()} == {"cancelled"}


def test_a_workflow_whose_child_is_not_resumed_need_not_be_defined():
    side = Side("child", "ctx.gather", idempotent=True)
    store, name = side.left("child")
    records = [record for record in store.records() if record.execution_id == name]
    alone = MemoryStore()
    for record in records:
        alone.append(name, store.read(record.execution_id), 0)
    with environment(side.definitions[0], store=alone) as after:
        assert after.run_of(name).cancel("enough").wait(20).status == "cancelled"
        assert side.told == ["book", "unbook 5"]


def test_a_call_of_unknown_outcome_is_settled_where_its_path_waits_for_something_else_too():
    """The call ended without being asked about, since its path was cancelled at that moment."""
    told, reached, go = [], threading.Event(), threading.Event()

    def unbook(result):
        told.append(result)

    @step(rollback=unbook)
    async def book():
        reached.set()
        await asyncio.to_thread(go.wait, 20)
        raise ConnectionResetError("gone")

    @workflow
    async def both(ctx):
        await ctx.gather(ctx.wait_signal("never"), ctx.ask("Who?"), book())

    world = environment(both)
    execution = world.start("both")
    assert reached.wait(20)
    execution.cancel("enough")
    go.set()
    waiting = execution.wait(20)
    (asked,) = [question for question in waiting.open_questions if question.kind == "outcome_unknown"]
    waiting.answer(asked.id, {"choice": "done", "result": 5}, "ann").wait(20)
    assert (world.run_of(execution.id).status, told) == ("cancelled", [5])


@pytest.mark.parametrize("waits_for", ["sleep", "question"])
def test_changed_code_that_waits_before_the_call_to_be_settled_fails(waits_for):
    """Only the call may continue before the rollback, and the changed code waits before it requests the call."""
    told, is_changed = [], []

    def unbook(result):
        told.append(f"unbook {result}")

    @step(rollback=unbook)
    async def book(what):
        if what == "hotel":
            await asyncio.sleep(60)
        return what

    @workflow
    async def changing(ctx):
        await book("train")
        if is_changed:
            await (ctx.sleep(3600) if waits_for == "sleep" else ctx.ask("Who?"))
        await book("hotel")

    world = environment(changing)
    execution = world.start("changing")
    assert becomes(lambda: {"train", "hotel"} <= begun_in(execution.history())[0])
    store = copy_of(world.store)
    world.close()
    is_changed.append(True)
    with environment(changing, store=store) as after:
        ended = after.run_of(execution.id).cancel("enough").wait(20)
        assert (ended.status, told) == ("cancelled", ["unbook train"])
        assert ended.error.endswith("because it is unknown whether it took effect: a call of changing")
        (failed,) = [event.data for event in ended.history() if event.event_type == "step_failed"]
        assert "the code requests another call first" in failed.error


def test_a_child_whose_rollback_waits_for_a_person_is_not_recovered_again_and_again():
    """Its parent has been cancelled, and the process died while the call that undoes the booking was under way."""
    is_unbooking, is_booked = threading.Event(), threading.Event()
    undone, copies = [], []

    async def unbook():
        undone.append("unbook")
        if not is_unbooking.is_set():
            is_unbooking.set()
            await asyncio.sleep(60)

    @step(rollback=unbook)
    async def book():
        pass

    @workflow
    async def child(ctx):
        await book()
        is_booked.set()
        await ctx.ask("Who?")

    @workflow
    async def parent(ctx):
        await ctx.run("child")

    store = MemoryStore()
    with environment(parent, child, store=store) as world:
        execution = world.start("parent")
        assert is_booked.wait(20)
        execution.cancel("enough")
        assert is_unbooking.wait(20)
        becomes(lambda: store.record(execution.id).status == "cancelled")
        copies.append(copy_of(store))
    with environment(parent, child, store=copies[0]) as later:
        (record,) = later.queues.recoverable()
        waiting = later.queues.recover(record.execution_id).wait(20)
        (question,) = [question for question in waiting.open_questions if question.kind == "outcome_unknown"]
        assert later.queues.recoverable() == []
        later.answer(question.id, "retry").wait(20)
        assert {record.status for record in later.store.records()} == {"cancelled"}
        assert (undone, later.queues.recoverable()) == (["unbook", "unbook"], [])
