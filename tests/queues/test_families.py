"""What an execution of a queue starts, and what it goes on as, belongs to that queue and to the worker that drives it.

`tests/queues/kills.py` has families among what it kills the workers of.
"""

import threading
from dataclasses import replace

import pytest

from divebook import Environment, Rollback, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.engine.decide import decide_opening
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionError, LeaseHeldError
from divebook.events.catalog import ExecutionCancelled, ExecutionPaused, ExecutionResumed, ExecutionStarted
from divebook.events.event import type_id
from divebook.queues import Worker
from divebook.steps.actions import Action
from divebook.stores import MemoryStore, Owner, open_store
from divebook.stores.append import Batch, records_of
from tests.queues.test_enqueued import ASK, PATIENCE, SUM, asked, environment, types
from tests.runtime.worlds import Gate, becomes

GONE = Owner(Owner.current().host, 2**22 + 1, 1, "worker", Owner.current().boot)
OUTER = Workflow("outer", [Step("child", workflow="inner", store="r"), Step("after", script="7", store="n")])
ASKS = Workflow("inner", [Step("ask", ask="Which one?", store="answer"), Step("then", script="1")])
HELD = Workflow("inner", [Step("first", action="gate", store="n"), Step("then", action="more", store="m")])
CHAIN = Workflow(
    "chain",
    [
        Step("pick", script="inputs.n > 1", store="last", next=[("rest", "state.last"), ("again", "not state.last")]),
        Step("again", type="continue_as_new", inputs={"n": "$(inputs.n + 1)"}),
        Step("rest", ask="Which one?", store="answer"),
    ],
    inputs=["n"],
)


def repeatable(gate):
    return replace(gate.action(), idempotent=True)


def dies(worker):
    """Let a worker leave all where it is, as it does that is killed."""
    worker._drains.set()
    for driver in worker._live():
        worker._control.leave(driver)
    assert becomes(lambda: not worker._live())
    worker.drain()


def members(made, execution):
    """Return the executions that came from one, oldest first."""
    found = {execution.id: execution}
    for record in reversed(made.store.records()):
        if record.parent in found:
            found[record.execution_id] = made.run_of(record.execution_id)
    return list(found.values())


def recoveries(execution):
    return [event.data.recovery for event in execution.history() if isinstance(event.data, ExecutionResumed)]


def test_what_begins_in_no_queue_begins_as_ever():
    opening = ExecutionStarted("w", {})
    assert [fact.data for fact in decide_opening(opening, ExecutionState("exec_1"))] == [opening]
    queued = decide_opening(opening, ExecutionState("exec_1", queue="q", priority=3))
    assert [fact.data.event_type for fact in queued] == ["execution_started", "execution_enqueued", "execution_resumed"]
    assert (queued[1].data.queue, queued[1].data.priority, queued[1].data.due) == ("q", 3, None)


@pytest.mark.parametrize(("first", "inputs"), [(OUTER, {}), (CHAIN, {"n": 1})])
def test_a_child_and_a_successor_are_in_the_queue_of_what_they_come_from(tmp_path, first, inputs):
    place = tmp_path / "store.db"
    with environment(OUTER, ASKS, CHAIN, store=open_store(place)) as made:
        execution = made.enqueue(first, inputs, queue="labels", priority=4)
        with Worker(made, ["labels"]):
            question = asked(made)
        family = members(made, execution)
        assert {(member.state.queue, member.state.priority) for member in family} == {("labels", 4)}
        assert len(family) == 2
    with Environment(store=place) as other:  # which has no workflows, and whose worker is none of ours
        other.answer(question, "this")
    with environment(OUTER, ASKS, CHAIN, store=open_store(place)) as made, Worker(made, ["labels"]) as worker:
        found = [made.run_of(member.id).wait(PATIENCE).status for member in family]
        assert worker.wait_until_idle(PATIENCE)
    assert set(found) <= {"completed", "continued_as_new"}


def test_an_answer_from_elsewhere_to_a_child_reaches_the_worker_that_is_there(tmp_path):
    place = tmp_path / "store.db"
    with environment(OUTER, ASKS, store=open_store(place)) as made, Environment(store=place) as other, Worker(made):
        execution = made.enqueue(OUTER)
        other.answer(asked(other), "this")
        assert execution.wait(PATIENCE).variables["n"] == 7


def test_a_worker_is_idle_only_when_what_it_goes_on_as_has_ended():
    gate = Gate()
    chain = Workflow("chain", [*CHAIN.steps[:2], Step("rest", action="gate")], inputs=["n"])
    with environment(chain, actions=[gate.action()]) as made, Worker(made) as worker:
        made.enqueue(chain, {"n": 1})
        assert gate.reached.wait(PATIENCE)
        assert not worker.wait_until_idle(0.2)
        gate.opened.set()
        assert worker.wait_until_idle(PATIENCE)
        assert {record.status for record in made.store.records()} == {"completed", "continued_as_new"}


@pytest.mark.parametrize("nested", [False, True])
def test_a_worker_that_drains_lets_nothing_more_begin_in_what_its_executions_have_started(nested):
    gate, more = Gate(), Gate()
    middle = Workflow("middle", [Step("child", workflow="inner", store="r")])
    outer = Workflow("outer", [Step("child", workflow="middle" if nested else "inner", store="r"), OUTER.steps[1]])
    with environment(outer, middle, HELD, actions=[gate.action(), more.action("more")]) as made:
        worker = Worker(made).start_thread()
        execution = made.enqueue(outer)
        assert gate.reached.wait(PATIENCE)
        family = members(made, execution)
        assert set(worker.driving) == {member.id for member in family}
        assert (len(family), len(worker._heads())) == (2 + nested, 1)
        draining = threading.Thread(target=worker.drain)
        draining.start()
        assert becomes(lambda: all(member._driver._paused for member in map(made.run_of, worker.driving)))
        gate.opened.set()
        draining.join(PATIENCE)
        assert not more.reached.is_set()
        assert {member.refresh().status for member in family} <= {"enqueued", "waiting"}
        more.opened.set()
        with Worker(made):
            assert execution.wait(PATIENCE).variables["n"] == 7
    assert types(family[-1]).count("operation_completed") == 2


def test_word_of_a_child_that_ends_while_its_worker_drains_begins_nothing_there():
    gate, more = Gate(), Gate()
    inner = Workflow("inner", [Step("ask", ask="Which one?", store="answer"), Step("call", action="gate")])
    outer = Workflow("outer", [Step("child", workflow="inner"), Step("after", action="more", store="n")])
    with environment(outer, inner, actions=[gate.action(), more.action("more")]) as made:
        execution, worker = made.enqueue(outer), Worker(made).start_thread()
        question = asked(made)
        assert becomes(lambda: not worker.driving)
        made.answer(question, "this")  # the child alone goes on; what has started it rests
        assert gate.reached.wait(PATIENCE)
        assert becomes(lambda: len(worker.driving) == 1)
        draining = threading.Thread(target=worker.drain)
        draining.start()
        assert becomes(lambda: not worker.is_running)
        gate.opened.set()
        draining.join(PATIENCE)
        assert [member.refresh().status for member in members(made, execution)][1] == "completed"
        assert (more.reached.wait(0.3), worker.driving) == (False, [])
        more.opened.set()
        with Worker(made):
            assert execution.wait(PATIENCE).status == "completed"


def test_what_is_claimed_at_this_moment_is_taken_for_left_by_nobody(monkeypatch):
    with environment() as made:
        execution = made.enqueue(SUM, {"n": 1})
        claim, resumed = made.store.claim, []

        def resume():
            try:
                resumed.append(made._control.continue_run(execution.id))
            except LeaseHeldError as error:
                resumed.append(error)

        def claimed(*given, **options):
            leases = claim(*given, **options)
            other = threading.Thread(target=resume)
            other.start()
            other.join(0.1)  # it has found the lease of this process, which nothing drives yet
            return leases

        monkeypatch.setattr(made.store, "claim", claimed)
        leases = made._control.queues.claim(["default"], {"sum": SUM.fingerprint}, 1)
        assert becomes(lambda: resumed)
        assert isinstance(resumed[0], LeaseHeldError)
        made._control.queues.take_up(leases[0], Worker(made))
        assert execution.wait(PATIENCE).status == "completed"


def test_no_worker_begins_to_drive_what_is_being_cancelled(monkeypatch):
    with environment() as made:
        execution = made.enqueue(SUM, {"n": 1})
        (lease,) = made._control.queues.claim(["default"], {"sum": SUM.fingerprint}, 1)
        acquire = made.store.acquire
        taking = threading.Thread(target=lambda: made._control.queues.take_up(lease, Worker(made)))

        def acquired(*given, **options):
            if "instead_of" in options:  # `cancel` has found that nothing drives the execution
                taking.start()
                taking.join(0.1)
            return acquire(*given, **options)

        monkeypatch.setattr(made.store, "acquire", acquired)
        assert execution.cancel().wait(PATIENCE).status == "cancelled"
        taking.join(PATIENCE)
        assert types(execution) == ["execution_started", "execution_enqueued", "execution_cancelled"]


def test_what_a_draining_execution_begins_is_given_back_at_once():
    gate = Gate()
    with environment(HELD, actions=[gate.action(), Gate().action("more")]) as made:
        first, second = (made._control.create(HELD, ExecutionStarted("inner", {})) for _ in range(2))
        first._paused = ("worker drains", True)
        second.inherit_queue(first)
        assert second._paused == first._paused
        first._paused = ("lunch", False)
        third = made._control.create(HELD, ExecutionStarted("inner", {}))
        third.inherit_queue(first)
        assert third._paused is None


def test_a_child_that_ends_its_worker_again_and_again_is_left_to_a_person():
    gate = Gate()
    flow = Workflow("inner", [Step("call", action="gate")])
    with environment(OUTER, flow, actions=[repeatable(gate)]) as made:
        execution = made.enqueue(OUTER)
        for _ in range(2):
            gate.reached.clear()
            worker = Worker(made).start_thread()
            assert gate.reached.wait(PATIENCE)
            dies(worker)
        child = members(made, execution)[1]
        assert recoveries(child) == [None, 1]
        with Worker(made) as third:
            assert becomes(lambda: child.id in third._refused)
            (queued,) = [one for one in made.queues.queued() if one.execution_id == child.id]
            assert becomes(lambda: "made no progress" in (made.queues.workers()[0].why_not(queued) or ""))
        gate.opened.set()
        assert made.run_of(child.id).resume().wait(PATIENCE).status == "completed"


def test_what_ends_its_worker_before_anything_is_written_is_counted():
    with environment() as made:
        execution = made.enqueue(SUM, {"n": 1})
        made.store.claim(["default"], {"sum": SUM.fingerprint}, GONE, 1)
        with Worker(made):
            assert execution.wait(PATIENCE).status == "completed"
        assert recoveries(execution) == [1]


def test_what_only_waits_for_its_children_has_not_ended_its_worker():
    with environment(OUTER, ASKS) as made:
        execution = made.enqueue(OUTER)
        with Worker(made):
            question = asked(made)
        assert becomes(lambda: made.store.lease_of(execution.id) is None)
        made.store.acquire(execution.id, GONE)
        with Worker(made):
            made.answer(question, "this")
            assert execution.wait(PATIENCE).status == "completed"
        assert set(recoveries(execution)) == {None}


def test_a_worker_cancels_what_waits_for_an_answer_below_a_parent_that_has_ended():
    with environment(OUTER, ASKS) as made:
        execution = made.enqueue(OUTER)
        with Worker(made):
            asked(made)
            assert becomes(lambda: made.store.leases() == [])
        # As if the process had died between the end of the parent and the cancellation of the child.
        last = list(execution.refresh().history())[-1]
        name = type_id("event", last.recorded_at // 1000, 2**60)
        end = replace(last, id=name, sequence=last.sequence + 1, path="", step="", data=ExecutionCancelled("enough"))
        lease = made.store.acquire(execution.id, GONE)
        batch = Batch(execution.id, last.sequence, records_of([end]), lease.token)
        assert made.store.append_all([batch]) == [None]
        with Worker(made):
            assert becomes(lambda: made.inbox() == [])
        child = members(made, execution)[1]
        assert (child.status, child.error) == ("cancelled", f"its parent {execution.id} is cancelled")


def test_who_resumes_an_execution_takes_up_what_it_has_started():
    gate = Gate()
    flow = Workflow("inner", [Step("call", action="gate")])
    store = MemoryStore()
    with environment(OUTER, flow, actions=[repeatable(gate)], store=store) as made:
        execution = made.enqueue(OUTER)
        worker = Worker(made).start_thread()
        assert gate.reached.wait(PATIENCE)
        dies(worker)
    gate.opened.set()
    with environment(OUTER, flow, actions=[repeatable(gate)], store=store) as other:  # and no worker
        assert other.run_of(execution.id).resume().wait(PATIENCE).status == "completed"


def test_what_a_child_has_done_is_undone_before_what_started_it_has():
    told = []

    def undo(value):
        told.append(value)

    def made_by(name):
        return Step("make", script=f"'{name}'", rollback=Rollback("undo", {"value": "$(result)"}))

    inner = Workflow("inner", [made_by("inner"), *ASK.steps])
    outer = Workflow("outer", [made_by("outer"), Step("child", workflow="inner")])
    with environment(outer, inner, actions=[Action("undo", undo)]) as made:
        execution = made.enqueue(outer)
        with Worker(made):
            asked(made)
        made.run_of(execution.id).cancel()
        with Worker(made):
            assert execution.wait(PATIENCE).status == "cancelled"
            assert becomes(lambda: len(told) == 2)
        assert {member.refresh().status for member in members(made, execution)} == {"cancelled"}
    assert told == ["inner", "outer"]


def test_one_waits_for_a_child_at_work_and_not_for_one_that_asks(tmp_path):
    place, gate = tmp_path / "store.db", Gate()
    flow = Workflow("inner", [Step("call", action="gate"), *ASK.steps])
    with (
        environment(OUTER, flow, actions=[gate.action()], store=open_store(place)) as made,
        Worker(made),
        Environment(store=place, workflows=[OUTER, flow], actions=[Gate().action()]) as other,
    ):
        execution = other.enqueue(OUTER)
        assert gate.reached.wait(PATIENCE)
        with pytest.raises(TimeoutError):
            execution.wait(0.3)
        gate.opened.set()
        assert execution.wait(PATIENCE).status == "waiting"
        assert [question.question for _, question in other.inbox()] == ["Which one?"]


def test_one_waits_for_what_sleeps(tmp_path):
    place = tmp_path / "store.db"
    flow = Workflow("naps", [Step("nap", seconds=0.5), Step("add", script="1", store="n")])
    with (
        environment(flow, store=open_store(place)) as made,
        Worker(made),
        Environment(store=place, workflows=[flow]) as other,
    ):
        assert other.enqueue(flow).wait(PATIENCE).variables == {"n": 1}


def test_what_waits_in_a_queue_can_be_paused_and_goes_on_when_it_is_resumed():
    with environment() as made:
        execution = made.enqueue(SUM, {"n": 1}).pause("lunch")
        assert (execution.internals.standing, made.queues.queued()) == ("paused", [])
        assert [one.execution_id for one in made.queues.queued(withheld=True)] == [execution.id]
        assert isinstance(execution.history()[-1].data, ExecutionPaused)
        with Worker(made) as worker:
            assert worker.wait_until_idle(PATIENCE)
            assert execution.wait(PATIENCE).state.shown_status == "paused"  # which is no reason to wait on
        assert execution.resume().wait(PATIENCE).status == "completed"
        assert made.queues.queued(withheld=True) == []
        with pytest.raises(ExecutionError, match="is completed, and it is not running in this process"):
            execution.pause()


def test_what_waits_for_an_answer_can_be_paused_as_well():
    with environment() as made:
        execution = made.enqueue(ASK)
        with Worker(made):
            question = asked(made)
        assert becomes(lambda: made.store.lease_of(execution.id) is None)
        made.run_of(execution.id).pause()
        with Worker(made) as worker:
            made.answer(question, "this")
            assert worker.wait_until_idle(PATIENCE)
        assert made.run_of(execution.id).resume().wait(PATIENCE).status == "completed"


@step
async def told(n):
    return n


@workflow
async def passed_on(ctx, n):
    if await told(n) < 3:
        await ctx.continue_as_new({"n": n + 1})
    return n


def test_a_function_that_goes_on_as_new_stays_in_its_queue():
    with Environment(store="memory:") as made, Worker(made) as worker:
        execution = made.enqueue(passed_on, {"n": 1}, queue="default")
        assert execution.wait(PATIENCE).status == "continued_as_new"
        assert worker.wait_until_idle(PATIENCE)
        assert [member.state.queue for member in members(made, execution)] == ["default"] * 3
