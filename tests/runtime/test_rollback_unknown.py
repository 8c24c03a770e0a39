"""Calls that were cut off and are to be undone: they come to their end, or a person is asked, before that is done.

Nothing that may have taken effect is forgotten: it is undone, or a person has said that it was not done, or the end
names it.
"""

import asyncio
import threading
import time

import pytest

from divebook import Step, Workflow
from divebook.events import catalog
from divebook.steps.actions import Action
from divebook.workflow.functions import step, workflow
from tests.runtime.test_resuming import cut
from tests.runtime.travelling import Travel, trip, undone
from tests.runtime.worlds import environment

DONE = "went through"
NOT_DONE = "was not made"


def answered(world, execution_id, truth):
    """Answer all that is asked of an execution, as calls in fact were; return it, once it has ended."""
    for _ in range(20):
        execution = world.execution(execution_id)
        if not execution.interrupts:
            return execution.wait(20)
        asked = execution.interrupts[0]
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
        again.execution(execution.id).cancel("enough").wait(20)
        over = answered(again, execution.id, truth)
        assert (over.status, over.state.error) == ("cancelled", "enough"), length
        took_effect = begun if truth == DONE or kind == "may be made twice" else ended
        undone_now = [told.removeprefix("cancel ").removesuffix("-1") for told in travel.told if "cancel" in told]
        assert sorted(undone_now) == sorted(took_effect), length
        booked_again = {told.removeprefix("book ") for told in travel.told if told.startswith("book")}
        assert booked_again <= (begun - ended if kind == "may be made twice" else set()), length
        assert over.state.is_rolled_back == bool(begun), length
        assert again.verify(execution.id).equal, length
        again.close()


def test_the_process_may_die_while_it_is_asked_and_another_one_undoes_it():
    travel = Travel()
    actions = actions_of(travel, idempotent=False)
    world = environment(trip(), actions=actions)
    execution = world.start("trip").wait(20)
    log = world.store.read(execution.id)
    begun = [e.sequence for e in log if isinstance(e.data, catalog.OperationStarted)][1]
    again = environment(actions=actions, store=cut(world.store, execution, begun))
    again.execution(execution.id).cancel("enough").wait(20)
    travel.told.clear()
    third = environment(actions=actions, store=cut(again.store, execution, len(again.store.read(execution.id))))
    third.resume(execution.id).wait(20)
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
    (asked,) = execution.interrupts
    assert asked.kind == "outcome_unknown"
    assert "cannot store result" in asked.message
    execution.cancel("enough").wait(20)
    world.execution(execution.id).answer(asked.id, {"choice": "done", "result": {"id": 7}}, "ann").wait(20)
    assert (world.execution(execution.id).status, told) == ("cancelled", [7])


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
    (asked,) = execution.interrupts
    execution.cancel("enough").wait(20)
    assert (execution.status, [q.id for q in world.execution(execution.id).interrupts]) == ("waiting", [asked.id])
    over = answered(world, execution.id, truth)
    assert (over.status, told) == ("cancelled", ["bus-1"] if truth == DONE else [])
    assert world.verify(execution.id).equal


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
    asked = world.execution(execution.id).interrupts[0]
    world.execution(execution.id).answer(asked.id, {"choice": "done", "result": 5}, "ann").wait(20)
    ended = world.execution(execution.id)
    assert (ended.status, ended.interrupts, told) == ("cancelled", [], [5])


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
    assert "nobody knows whether it took effect: a call of both" in execution.state.error


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
    assert execution.status == "running"
