"""What may come while an execution is rolled back: the end of its process, failures, people, questions; and copies."""

import asyncio
import contextlib
import threading

import pytest

from divebook import Retry, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.engine.checkpoint import dump_state, load_state
from divebook.errors import ExecutionError, InterruptError
from divebook.events import catalog
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import cut
from tests.runtime.travelling import ALL, Travel, trip, undone
from tests.runtime.worlds import Failing, environment

# --- what may come between -------------------------------------------------------------------------------------------


def test_it_is_undone_wherever_the_process_died():
    travel = Travel()
    world = environment(trip(), actions=travel.actions())
    execution = world.start("trip").wait(20)
    log = world.store.read(execution.id)
    for length in range(2, len(log)):
        again = Travel()
        resumed = environment(actions=again.actions(), store=cut(world.store, execution, length))
        resumed.run_of(execution.id).resume().wait(20)
        ended = resumed.run_of(execution.id)
        assert (ended.status, ended.state.is_rolled_back) == ("failed", True), length
        if isinstance(log[length - 1].data, catalog.RollbackAdded):
            continue  # it is written together with what follows
        before = [e for e in log[:length] if isinstance(e.data, catalog.OperationCompleted)]
        assert again.told == ALL[len(before) :], length
        resumed.close()


def test_what_could_not_be_undone_is_told_and_the_rest_is_undone_and_a_resumption_tries_it_again():
    travel = Travel()
    travel.refusing = {"oslo-1"}
    world = environment(trip(), actions=travel.actions())
    execution = world.start("trip").wait(20)
    assert travel.told == [*ALL[:4], ALL[5]]
    assert "no room" in execution.state.error
    assert "not rolled back: hotels: " in execution.state.error
    assert "no line to oslo-1" in execution.state.error
    travel.refusing.clear()
    world.run_of(execution.id).resume().wait(20)
    ended = world.run_of(execution.id)
    assert (ended.status, travel.told[-1], ended.state.is_rolled_back) == ("failed", "cancel oslo-1", True)
    assert "not rolled back" not in ended.state.error


def test_what_was_rolled_back_cannot_go_on():
    travel = Travel()
    world = environment(trip(), actions=travel.actions())
    execution = world.start("trip").wait(20)
    with pytest.raises(ExecutionError, match="has failed, and its calls are rolled back; start a new execution"):
        world.run_of(execution.id).resume()


def test_a_rollback_is_tried_again_as_it_says():
    tries = []

    def cancel(booking):
        tries.append(booking)
        if len(tries) < 3:
            raise ValueError("busy")

    steps = [
        Step("a", script="{'id': 1}", rollback=undone(retry=Retry(3, seconds=0))),
        Step("b", action="fail"),
    ]
    actions = [Action("cancel", cancel), Failing().action()]
    assert environment(Workflow("w", steps), actions=actions).start("w").wait(20).state.is_rolled_back
    assert tries == [1, 1, 1]


def test_one_that_waits_is_cancelled_and_undone():
    travel = Travel()
    world = environment(trip(Step("ask", ask="Go on?")), actions=travel.actions())
    execution = world.start("trip").wait(20)
    ended = world.run_of(execution.id).cancel("enough").wait(20)
    assert (ended.status, ended.state.error, travel.told) == ("cancelled", "enough", ALL)


def test_one_that_is_cancelled_where_nothing_can_undo_it_is_undone_by_who_resumes_it():
    travel = Travel()
    world = environment(trip(Step("ask", ask="Go on?")), actions=travel.actions())
    execution = world.start("trip").wait(20)
    elsewhere = environment(store=world.store)
    assert elsewhere.run_of(execution.id).cancel("enough").wait(20).status == "interrupted"
    assert travel.told == ALL[:3]
    assert world.run_of(execution.id).resume().wait(20).status == "cancelled"
    assert travel.told == ALL


def holding(travel, reached, let_go):
    """Return actions of which one, that undoes, is held up in the middle."""

    def cancel(booking):
        if booking == "oslo-1" and not let_go.is_set():
            reached.set()
            assert let_go.wait(20)
        travel.told.append(f"cancel {booking}")

    book, _, fly = travel.actions()
    return [book, Action("cancel", cancel, idempotent=True), fly]


@pytest.mark.parametrize("times", [1, 2])
def test_to_cancel_it_while_it_is_undone_changes_nothing(times):
    travel, reached, let_go = Travel(), threading.Event(), threading.Event()
    world = environment(trip(), actions=holding(travel, reached, let_go))
    execution = world.start("trip")
    assert reached.wait(20)
    for _ in range(times):
        execution.cancel("stop it")
    let_go.set()
    execution.wait(20)
    assert (execution.status, travel.told, execution.state.is_rolled_back) == ("failed", ALL, True)
    assert "no room" in execution.state.error


def test_an_impatient_person_who_cancels_it_at_any_moment_has_it_undone_once():
    for pause in (0, 0.001, 0.01):
        travel = Travel()
        world = environment(trip(Step("ask", ask="Go on?")), actions=travel.actions())
        execution = world.start("trip").wait(20)
        for reason in ("first", "second", "third"):
            with contextlib.suppress(ExecutionError):  # it has ended meanwhile
                world.run_of(execution.id).cancel(reason)
            threading.Event().wait(pause)
        ended = world.run_of(execution.id).wait(20)
        assert (ended.status, ended.state.error, travel.told) == ("cancelled", "first", ALL)


def test_one_that_is_paused_while_it_is_undone_can_be_abandoned_and_its_end_says_so():
    travel, reached, let_go = Travel(), threading.Event(), threading.Event()
    world = environment(trip(), actions=holding(travel, reached, let_go))
    execution = world.start("trip")
    assert reached.wait(20)
    execution.pause("for lunch")
    let_go.set()
    execution.wait(20)
    assert execution.refresh().state.shown_status == "paused"
    ended = world.run_of(execution.id).cancel("stop it").wait(20)
    assert (ended.status, ended.state.is_rolled_back) == ("cancelled", False)
    assert ended.state.error.startswith("stop it; not rolled back: ")
    assert "train. Resume the run to roll that back" in ended.state.error
    world.run_of(execution.id).resume().wait(20)
    assert (execution.refresh().status, execution.state.is_rolled_back) == ("failed", True)
    assert sorted({*travel.told}) == sorted(ALL)


def test_a_call_whose_outcome_is_unknown_is_asked_about_and_the_next_waits():
    travel = Travel()
    travel.refusing = {"rome-1"}
    book, cancel, fly = travel.actions()
    world = environment(trip(), actions=[book, Action("cancel", cancel.function), fly])
    execution = world.start("trip").wait(20)
    assert (execution.status, execution.open_questions[0].kind, travel.told) == ("waiting", "outcome_unknown", ALL[:3])
    execution.answer(execution.open_questions[0].id, {"choice": "done", "result": None}, "ann").wait(20)
    assert (world.run_of(execution.id).status, travel.told[3:]) == ("failed", ["cancel oslo-1", "cancel train-1"])


def test_a_call_that_a_person_says_went_through_is_undone_as_well():
    told = []

    def undo(result):
        told.append(result)

    @step(rollback=undo)
    def book():
        raise ConnectionResetError("gone")

    @workflow
    async def once(ctx):
        await book()
        raise ValueError("late")

    execution = environment(once).start("once").wait(20)
    execution.answer(execution.open_questions[0].id, {"choice": "done", "result": 5}, "ann").wait(20)
    assert (execution.refresh().status, told) == ("failed", [5])


def test_bounds_do_not_keep_it_from_being_undone():
    travel = Travel()
    looping = Step("loop", script="1", next="loop")
    bounds = {"max_iterations": 2, "on_exhausted": "fail"}
    world = environment(trip(looping), actions=travel.actions())
    assert world.start("trip", bounds=bounds).wait(20).status == "failed"
    assert travel.told == ALL


@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
def test_an_execution_that_it_waits_for_is_undone_first(ends):
    travel, reached = Travel(), threading.Event()

    def late():
        assert reached.wait(20)
        raise ValueError("no room")

    async def reach():
        reached.set()

    inner = Workflow(
        "inner",
        [
            Step("bus", action="book", parameters={"what": "bus"}, rollback=undone()),
            Step("tell", action="reach"),
            Step("ask", ask="Go on?"),
        ],
    )
    outer = Workflow(
        "outer",
        [
            Step("train", action="book", parameters={"what": "train"}, rollback=undone(), next=["call", "fail"]),
            Step("call", workflow="inner", end=True),
            Step("fail", action="late") if ends == "fails" else Step("fail", signal="never"),
        ],
    )
    actions = [*travel.actions(), Action("reach", reach), Action("late", late)]
    execution = environment(inner, outer, actions=actions).start("outer")
    if ends == "is cancelled":
        assert reached.wait(20)
        execution.wait(20).cancel()
    execution.wait(20)
    assert travel.told == ["book train", "book bus", "cancel bus-1", "cancel train-1"]


# --- copies ----------------------------------------------------------------------------------------------------------


def test_a_fork_undoes_what_it_has_done_itself():
    travel = Travel()
    travel.broken = False
    world = environment(trip(), actions=travel.actions())
    execution = world.start("trip").wait(20)
    log = world.store.read(execution.id)
    trained = next(e.sequence for e in log if isinstance(e.data, catalog.StepCompleted))
    travel.told.clear()
    travel.broken = True
    fork = world.run_of(execution.id).fork(at=trained).wait(20)
    assert (fork.status, travel.told) == ("failed", ALL[1:5])


def test_a_what_if_undoes_nothing():
    travel = Travel()
    world = environment(trip(), actions=travel.actions())
    execution = world.start("trip").wait(20)
    travel.told.clear()
    world.run_of(execution.id).what_if({"variables": {"train": {"id": "x"}}})
    assert travel.told == []


@pytest.mark.parametrize("made", [trip(), trip(parallel=2)], ids=["in order", "side by side"])
def test_its_log_is_that_of_its_definition(made):
    travel = Travel()
    travel.refusing = {"oslo-1"}
    world = environment(made, actions=travel.actions())
    execution = world.start("trip").wait(20)
    assert world.run_of(execution.id).verify().equal
    travel.refusing.clear()
    world.run_of(execution.id).resume().wait(20)
    assert world.run_of(execution.id).verify().equal


def test_a_checkpoint_holds_what_is_to_be_undone():
    travel = Travel()
    world = environment(trip(), actions=travel.actions())
    execution = world.start("trip").wait(20)
    log = {event.sequence: event.data for event in world.store.read(execution.id)}
    state = world.run_of(execution.id).state
    assert load_state(dump_state(state), lambda wanted: {number: log[number] for number in wanted}) == state


@pytest.mark.parametrize("again", ["resumed", "tried again by itself"])
def test_an_execution_that_was_undone_begins_anew_where_the_one_that_started_it_goes_on(again):
    travel = Travel()
    inner = Workflow(
        "inner",
        [
            Step("bus", action="book", parameters={"what": "bus"}, rollback=undone()),
            Step("flight", action="fly"),
        ],
    )
    policy = Retry(2, seconds=0) if again == "tried again by itself" else None
    outer = Workflow("outer", [Step("call", workflow="inner", retry=policy), Step("after", action="fly")])
    world = environment(inner, outer, actions=travel.actions())
    execution = world.start("outer").wait(20)
    times = 1 if policy is None else 2
    assert (execution.status, travel.told) == ("failed", ["book bus", "cancel bus-1"] * times)
    travel.broken = False
    travel.told.clear()
    world.run_of(execution.id).resume().wait(20)
    assert (execution.refresh().status, travel.told) == ("completed", ["book bus"])
    assert len(world.store.records(workflow="inner")) == times + 1
    assert world.run_of(execution.id).verify().equal
    log = world.store.read(execution.id)
    state = world.run_of(execution.id).state
    facts = {event.sequence: event.data for event in log}
    assert load_state(dump_state(state), lambda wanted: {number: facts[number] for number in wanted}) == state


def test_one_that_is_not_undone_as_a_whole_is_resumed_with_the_one_that_started_it():
    travel = Travel()
    travel.refusing = {"bus-1"}
    steps = [
        Step("bus", action="book", parameters={"what": "bus"}, rollback=undone()),
        Step("flight", action="fly"),
    ]
    outer = Workflow("outer", [Step("call", workflow="inner")])
    world = environment(Workflow("inner", steps), outer, actions=travel.actions())
    execution = world.start("outer").wait(20)
    travel.refusing.clear()
    travel.broken = False
    world.run_of(execution.id).resume().wait(20)
    assert (execution.refresh().status, travel.told) == ("failed", ["book bus", "cancel bus-1"])
    world.run_of(execution.id).resume().wait(20)
    assert (execution.refresh().status, travel.told[2:]) == ("completed", ["book bus"])


def test_what_is_undone_is_called_so_where_its_run_is_looked_at_or_compared():
    travel = Travel()
    world = environment(trip(), actions=travel.actions())
    first, second = world.start("trip").wait(20), world.start("trip").wait(20)
    for shown in (str(first.inspect()), str(first.compare(second.id))):
        assert "branch" not in shown
    assert "rollback 1" in str(first.inspect())


def test_what_a_person_did_not_want_undone_is_asked_again_as_it_is_resumed():
    travel = Travel()
    book, cancel, fly = travel.actions()
    world = environment(trip(), actions=[book, Action("cancel", cancel.function, approval=True), fly])
    execution = world.start("trip").wait(20)
    answers = iter(["approve", "no", "approve"])
    while execution.open_questions:
        execution.answer(execution.open_questions[0].id, next(answers), "ann").wait(20)
    assert (execution.refresh().status, travel.told) == ("failed", [*ALL[:3], "cancel rome-1", "cancel train-1"])
    assert "not rolled back: hotels: not approved" in execution.state.error
    for answer in ("no", "approve"):
        world.run_of(execution.id).resume().wait(20)
        (asked,) = execution.open_questions
        assert asked.step == "hotels"
        execution.answer(asked.id, answer, "ann").wait(20)
        assert execution.refresh().status == "failed"
    assert (travel.told[-1], execution.state.is_rolled_back) == ("cancel oslo-1", True)
    assert world.run_of(execution.id).verify().equal


# --- questions and children meanwhile --------------------------------------------------------------------------------


class Undoing:
    """A rollback that waits until it is let go."""

    def __init__(self):
        self.reached, self.released = threading.Event(), threading.Event()

    async def cancel(self, result):
        self.reached.set()
        await asyncio.to_thread(self.released.wait, 20)

    def workflow(self, name, more):
        @step(name=f"{name}_pay", rollback=self.cancel)
        def pay():
            return 1

        @workflow(name)
        async def pays(ctx):
            await pay()
            return await more(ctx)

        return pays


def test_a_question_is_withdrawn_while_the_run_that_asked_it_is_rolled_back():
    undoing = Undoing()
    asks = undoing.workflow("asks_and_pays", lambda ctx: ctx.ask("Who?", expires_in=3600))
    with environment(asks) as made:
        run = made.start(asks).wait(20)
        (question,) = run.open_questions
        run.cancel()
        assert undoing.reached.wait(20)
        assert (run.open_questions, made.inbox()) == ([], [])
        assert run.state.deadlines() == []
        assert run._driver.questions[question.id].status == "cancelled"
        with pytest.raises(InterruptError, match=r"it was withdrawn, because execution .* is being rolled back"):
            run.answer(question.id, "ann")
        undoing.released.set()
        assert run.wait(20).status == "cancelled"
        assert run.open_questions == []


def test_nothing_is_driven_again_after_an_environment_was_closed():
    undoing, store = Undoing(), MemoryStore()
    pays = undoing.workflow("pays_and_waits", lambda ctx: ctx.wait_signal("go"))

    @workflow("waits_for_one_that_pays")
    async def parent(ctx):
        await ctx.run("pays_and_waits")

    with environment(pays, parent, store=store) as made:
        run = made.start(parent).wait(20)
        (child,) = run.children
        run.cancel()
        assert undoing.reached.wait(20)
        drives, events = child._driver.drives, len(child.history())
    assert (child._driver.drives, len(store.read(child.id))) == (drives, events)
    undoing.released.set()
    with environment(pays, parent, store=store) as later:
        left = later.run_of(child.id).resume().wait(20)
        (question,) = left.open_questions  # the rollback was running when it was left
        assert left.answer(question.id, {"choice": "done", "result": None}).wait(20).status == "cancelled"
