"""Executions that are put into queues, and the worker of a process that drives them."""

import asyncio
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from divebook import Environment, Rollback, Step, Workflow
from divebook.errors import (
    ExecutionError,
    ForkedStoreError,
    LeaseHeldError,
    NeedsPersonError,
    SetupError,
    StartKeyTakenError,
    StartKeyWarning,
)
from divebook.events.catalog import ExecutionResumed
from divebook.events.event import type_id
from divebook.queues import Worker
from divebook.runtime.manager import is_elsewhere, wait_elsewhere
from divebook.steps.actions import Action
from divebook.stores import MemoryStore, Owner, open_store
from tests.runtime.worlds import Gate, HeldEnd, becomes

SUM = Workflow("sum", [Step("add", script="inputs.n + 1", store="n")], inputs=["n"])
ASK = Workflow("ask", [Step("ask", ask="Which one?", store="answer")])
PATIENCE = 20


def asked(made):
    """Return the id of the question that somebody asks, once it is asked."""
    assert becomes(made.inbox)
    ((_, question),) = made.inbox()
    return question.id


def environment(*workflows, **given):
    return Environment(store=given.pop("store", None) or MemoryStore(), workflows=workflows or (SUM, ASK), **given)


def types(execution):
    return [event.data.event_type for event in execution.history()]


def test_a_worker_drives_what_is_enqueued():
    with environment() as made:
        first = made.enqueue(SUM, {"n": 1})
        assert (first.status, first.internals.standing, made.store.lease_of(first.id)) == ("enqueued", "enqueued", None)
        with Worker(made) as worker:
            second = made.enqueue("sum", {"n": 2})
            found = [execution.wait(PATIENCE).variables for execution in (first, second)]
            assert worker.wait_until_idle(PATIENCE)
            assert worker.taken == 2
    assert found == [{"n": 2}, {"n": 3}]
    assert types(first)[:4] == ["execution_started", "execution_enqueued", "execution_resumed", "path_started"]


def test_an_enqueued_execution_is_awaited_as_well():
    with environment() as made, Worker(made):

        async def awaited():
            return (await made.enqueue(SUM, {"n": 1})).status

        assert asyncio.run(awaited()) == "completed"


@pytest.mark.parametrize("way", ["wait", "await"])
def test_who_waits_sees_no_end_that_is_not_in_the_store_yet(way, monkeypatch):
    """A worker of the same environment takes up the execution after the wait has begun."""
    is_waiting, store = threading.Event(), HeldEnd()

    def wait_briefly(event, seconds):
        is_waiting.set()
        event.wait(min(seconds, 0.01))

    monkeypatch.setattr("divebook.runtime.manager.interruptible_wait", wait_briefly)
    with environment(store=store) as made, ThreadPoolExecutor() as pool:
        execution = made.enqueue(SUM, {"n": 1})

        async def awaited():
            return await execution

        end = pool.submit(execution.wait, PATIENCE) if way == "wait" else pool.submit(asyncio.run, awaited())
        assert is_waiting.wait(PATIENCE)
        with Worker(made):
            assert store.reached.wait(PATIENCE)
            with pytest.raises(TimeoutError):
                end.result(0.3)
            store.opened.set()
            assert end.result(PATIENCE).status == "completed"


@pytest.mark.parametrize("way", ["wait", "await"])
def test_who_waits_goes_on_waiting_if_a_worker_of_the_same_environment_gives_it_back(way, monkeypatch):
    """The worker takes up the execution and returns it to the queue before the caller looks again."""
    is_waiting, is_taken, is_returned, is_working = (threading.Event() for _ in range(4))

    def wait_until_returned(*args, **options):
        is_waiting.set()
        driving = wait_elsewhere(*args, **options)
        is_taken.set()
        assert is_returned.wait(PATIENCE)
        return driving

    async def work():
        if not is_returned.is_set():
            is_working.set()
            await asyncio.sleep(PATIENCE)

    monkeypatch.setattr("divebook.runtime.run.wait_elsewhere", wait_until_returned)
    actions = [Action("work", work, idempotent=True)]
    with environment(Workflow("w", [Step("a", action="work")]), actions=actions) as made, ThreadPoolExecutor() as pool:
        execution = made.enqueue("w")

        async def awaited():
            return await execution

        end = pool.submit(execution.wait, PATIENCE) if way == "wait" else pool.submit(asyncio.run, awaited())
        assert is_waiting.wait(PATIENCE)
        worker = Worker(made).start_thread()
        assert is_taken.wait(PATIENCE)
        assert is_working.wait(PATIENCE)
        worker.drain()
        is_returned.set()
        with pytest.raises(TimeoutError):
            end.result(0.3)
        with Worker(made):
            assert end.result(PATIENCE).status == "completed"


@pytest.mark.parametrize("way", ["wait", "await"])
def test_waiting_follows_a_drive_that_begins_when_another_has_just_ended(way, monkeypatch):
    """A worker continues the execution between the end of one drive and the next look of the caller."""
    before, after = Gate(), Gate()
    is_waiting = threading.Event()

    def look_when_continued(driver):
        if is_waiting.is_set() and not driver.is_live and not after.reached.is_set():
            made.answer(asked(made), "this")
            assert after.reached.wait(PATIENCE)
        found = is_elsewhere(driver)
        is_waiting.set()
        return found

    monkeypatch.setattr("divebook.runtime.run.is_elsewhere", look_when_continued)
    steps = [Step("before", action="before"), Step("ask", ask="Which one?"), Step("after", action="after")]
    actions = [before.action("before"), after.action("after")]
    flow = Workflow("w", steps)
    with environment(flow, actions=actions) as made, Worker(made), ThreadPoolExecutor() as pool:
        execution = made.enqueue("w")
        assert before.reached.wait(PATIENCE)

        async def awaited():
            return await execution

        end = pool.submit(execution.wait, PATIENCE) if way == "wait" else pool.submit(asyncio.run, awaited())
        assert is_waiting.wait(PATIENCE)
        before.opened.set()
        with pytest.raises(TimeoutError):
            end.result(0.3)
        after.opened.set()
        assert end.result(PATIENCE).status == "completed"


def test_an_await_that_times_out_leaves_no_thread_behind():
    """`asyncio.run` waits for the threads of its loop."""
    with environment() as made:
        execution = made.enqueue(SUM, {"n": 1})

        async def awaited():
            return await execution

        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(awaited(), 0.05))
        assert execution.status == "enqueued"


def test_to_wait_has_a_bound_and_the_execution_stays_enqueued():
    with environment() as made:
        execution = made.enqueue(SUM, {"n": 1})
        with pytest.raises(TimeoutError, match=r"is enqueued after 0 s, and continues: call wait\(\) again"):
            execution.wait(0)


def test_with_a_key_it_is_enqueued_once():
    with environment() as made:
        first = made.enqueue(SUM, {"n": 1}, key="monday")
        with pytest.warns(StartKeyWarning, match="n: 1, now 7"):
            assert made.enqueue(SUM, {"n": 7}, key="monday").id == first.id
        assert [known.execution_id for known in made.queues.queued()] == [first.id]
        with pytest.raises(StartKeyTakenError):
            made.enqueue(ASK, key="monday")


def test_nothing_begins_before_its_time():
    with environment() as made:
        later = made.enqueue(SUM, {"n": 1}, at=datetime.now().astimezone() + timedelta(hours=1))
        earlier = made.enqueue(SUM, {"n": 1}, at=datetime.now().astimezone() - timedelta(hours=1))
        with Worker(made) as worker:
            assert earlier.wait(PATIENCE).status == "completed"
            assert worker.wait_until_idle(PATIENCE)
        assert later.refresh().status == "enqueued"
        assert later.state.wake_at == later.state.due_us is not None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"queue": ""}, "a queue name must be a word, not ''; write queue='labels'"),
        ({"queue": 3}, "a queue name must be a word, not 3"),
        ({"priority": 1.5}, "a priority must be an integer from -1,000,000 to 1,000,000, not 1.5; write priority=0"),
        ({"priority": 10**9}, "a priority must be an integer"),
        ({"at": "tomorrow"}, "at must be a datetime, not 'tomorrow'; write at="),
        ({"at": datetime.min}, "at must be a time that clocks can show, not 0001-01-01T00:00:00"),  # noqa: DTZ901 - local
        (
            {"at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=12)))},
            "at must be a time that clocks can show, not 9",
        ),
    ],
)
def test_what_cannot_be_enqueued_is_told_and_leaves_nothing(given, told):
    with environment() as made:
        with pytest.raises(SetupError) as caught:
            made.enqueue(SUM, {"n": 1}, **given)
        assert told in str(caught.value)
        assert made.store.records() == []


@pytest.mark.parametrize(
    ("queues", "options", "told"),
    [
        ("labels", {}, "queues must be a list of names, not 'labels'; write queues=['labels']"),
        ([], {}, "queues must be a list of names"),
        ([" "], {}, "queues must be a list of names, not [' ']"),
        (["q"], {"name": " "}, "the name of a worker must be a string, not ' '; remove it"),
        (["q"], {"parallel": 0}, "parallel must be an integer from 1 to"),
    ],
)
def test_a_worker_says_what_it_cannot_be_made_of(queues, options, told):
    with environment() as made, pytest.raises(SetupError) as caught:
        Worker(made, queues, **options)
    assert told in str(caught.value)


def test_a_worker_is_started_once_and_has_something_to_run():
    with environment() as made, Worker(made) as worker, pytest.raises(SetupError, match="was already started"):
        worker.start_thread()
    with Environment(store="memory:") as empty, pytest.raises(SetupError, match="has no workflows"):
        Worker(empty).start_thread()


@pytest.mark.parametrize("workflow", [3, None, ""])
def test_what_is_no_workflow_is_not_enqueued(workflow):
    with environment() as made, pytest.raises(SetupError, match=r"workflow is required, not .*; name one of: sum, ask"):
        made.enqueue(workflow)


@pytest.mark.parametrize("patience", [float("nan"), -5, "long", None, True])
def test_patience_is_a_number_of_seconds(patience):
    refused = pytest.raises(SetupError, match=r"patience (is|must be) a number of sec")
    with environment() as made, Worker(made) as worker, refused:
        worker.drain(patience)


def test_no_two_workers_that_are_there_have_one_name():
    with environment() as made, Worker(made, name="gpu-1") as worker:
        with pytest.raises(SetupError, match="a worker 'gpu-1' already exists"):
            Worker(made, name="gpu-1").start_thread()
        assert [known.id for known in made.queues.workers()] == ["gpu-1"]
        worker.drain()
        with Worker(made, name="gpu-1"):
            assert [known.id for known in made.queues.workers()] == ["gpu-1"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_worker_of_a_forked_process_says_that_its_store_is_none(tmp_path):
    with environment(store=open_store(tmp_path / "store.db")) as made, Worker(made) as worker:
        assert worker.wait_until_idle(PATIENCE)
        with warnings.catch_warnings(action="ignore"):  # Python's, of threads
            child = os.fork()
        if not child:
            with suppress(BaseException):
                worker.drain()
                assert not worker.is_running
                with pytest.raises(ForkedStoreError):
                    Worker(made).start_thread()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert [known.id for known in made.queues.workers()] == [worker.name]


def test_what_a_worker_has_to_say_of_its_store_is_said_once(caplog):
    with environment() as made:
        worker = Worker(made)
        for trouble in ("busy", "busy", "out of reach", "out of reach"):
            worker._warn(trouble)
    assert [message.rpartition(": ")[2] for message in caplog.messages] == ["busy", "out of reach"]


def test_it_can_be_cancelled_while_it_waits_for_a_worker():
    with environment() as made:
        execution = made.enqueue(SUM, {"n": 1}).cancel("no longer wanted")
        assert (execution.wait().status, made.queues.queued()) == ("cancelled", [])


def test_what_waits_in_a_queue_is_nothing_to_recover():
    with environment() as made:
        made.enqueue(SUM, {"n": 1})
        assert made.queues.recoverable() == []


def test_an_answer_from_anywhere_reaches_the_worker(tmp_path):
    place = tmp_path / "store.db"
    with environment(ASK, store=open_store(place)) as working, Environment(store=place) as asking:
        with Worker(working):
            execution = working.enqueue(ASK)
            assert execution.wait(PATIENCE).status == "waiting"
            (question,) = execution.open_questions
            assert asking.run_of(execution.id).wait(PATIENCE).status == "waiting"  # that it rests is known at once
            answered = asking.answer(question.id, "this one")  # which has no workflows, and needs none
            assert answered.wait(PATIENCE).variables == {"answer": "this one"}
        assert types(answered).count("execution_resumed") == 2


def test_what_is_cancelled_from_anywhere_is_rolled_back_by_the_worker(tmp_path):
    place, told = tmp_path / "store.db", []

    def undo(value):
        told.append(value)

    steps = [Step("make", script="7", rollback=Rollback("undo", {"value": "$(result)"})), *ASK.steps]
    makes = Workflow("makes", steps)
    actions = [Action("undo", undo)]
    with environment(makes, actions=actions, store=open_store(place)) as working, Environment(store=place) as other:
        worker = Worker(working).start_thread()
        execution = working.enqueue(makes)
        assert execution.wait(PATIENCE).status == "waiting"
        assert other.run_of(execution.id).cancel().wait(PATIENCE).status == "cancelled"
        worker.drain()
    assert told == [7]


def test_what_a_person_pauses_workers_leave_alone_until_it_is_resumed():
    gate = Gate()
    flow = Workflow("held", [Step("wait", action="gate", store="n")])
    with environment(flow, actions=[gate.action()]) as made, Worker(made) as worker:
        execution = made.enqueue(flow)
        assert gate.reached.wait(PATIENCE)
        made.run_of(execution.id).pause("lunch")
        gate.opened.set()
        assert becomes(lambda: made.store.lease_of(execution.id) is None)
        assert worker.wait_until_idle(PATIENCE)
        status = execution.refresh().state.shown_status
        assert (status, made.queues.queued()) in (("paused", []), ("completed", []))
        if status == "paused":
            assert execution.resume().wait(PATIENCE).status == "completed"


def test_a_worker_that_drains_gives_back_what_it_drives():
    gate = Gate()
    flow = Workflow("held", [Step("first", script="1", store="a"), Step("wait", action="gate", store="n")])
    with environment(flow, actions=[gate.action()]) as made:
        worker = Worker(made).start_thread()
        execution = made.enqueue(flow)
        assert gate.reached.wait(PATIENCE)
        assert worker.driving == [execution.id]
        assert [known.id for known in made.queues.workers()] == [worker.name]
        draining = threading.Thread(target=worker.drain)
        draining.start()
        gate.opened.set()  # a call that may not be made twice is waited for
        draining.join(PATIENCE)
        assert (worker.driving, made.queues.workers(), made.store.lease_of(execution.id)) == ([], [], None)
        if execution.refresh().status == "enqueued":
            assert [known.execution_id for known in made.queues.queued()] == [execution.id]
            with Worker(made):
                execution.wait(PATIENCE)
        assert execution.refresh().status == "completed"
        assert types(execution).count("operation_started") == 2


def test_one_that_drains_without_patience_breaks_off_what_it_drives(caplog):
    gate = Gate()
    flow = Workflow("held", [Step("wait", action="gate", store="n")])
    with environment(flow, actions=[gate.action()]) as made:
        worker = Worker(made).start_thread()
        execution = made.enqueue(flow)
        assert gate.reached.wait(PATIENCE)
        worker.drain(patience=0)
        gate.opened.set()
        assert becomes(lambda: worker.driving == [])
        assert made.run_of(execution.id).status in ("interrupted", "enqueued", "waiting")
        assert f"has waited 0 s and stopped execution {execution.id} of 'held'" in caplog.text


def test_two_workers_of_one_environment_have_executions_of_their_own():
    gate = Gate()
    flow = Workflow("held", [Step("wait", action="gate", store="n")])
    with environment(flow, actions=[gate.action()]) as made, Worker(made, parallel=1) as first:
        held = made.enqueue(flow)
        assert becomes(lambda: first.driving == [held.id])
        with Worker(made, parallel=1) as second:
            other = made.enqueue(flow)
            assert becomes(lambda: second.driving == [other.id])
            gate.opened.set()
        assert {held.wait(PATIENCE).status, other.wait(PATIENCE).status} <= {"completed", "enqueued"}


def test_what_is_enqueued_before_one_waits_is_waited_for():
    with environment() as made, Worker(made) as worker:
        for number in range(20):
            execution = made.enqueue(SUM, {"n": number})
            assert worker.wait_until_idle(PATIENCE)
            assert execution.refresh().status == "completed"
        worker.drain()
        assert (worker.is_running, worker.wait_until_idle()) == (False, False)


def test_a_worker_whose_store_is_closed_says_so():
    made = environment()
    worker = Worker(made).start_thread()
    assert worker.wait_until_idle(PATIENCE)
    made.store.close()
    assert becomes(lambda: not worker.is_running)
    assert not worker.wait_until_idle()
    made.close()
    worker.drain()


def test_a_worker_drives_no_more_at_once_than_it_may():
    gate = Gate()
    flow = Workflow("held", [Step("wait", action="gate", store="n")])
    with environment(flow, actions=[gate.action()]) as made:
        executions = [made.enqueue(flow) for _ in range(5)]
        with Worker(made, parallel=2) as worker:
            assert becomes(lambda: [execution.refresh().status for execution in executions].count("enqueued") == 3)
            assert len(worker.driving) == 2
            gate.opened.set()
            assert {execution.wait(PATIENCE).status for execution in executions} == {"completed"}


def test_what_a_worker_cannot_run_is_left_to_others():
    changed = Workflow("sum", [Step("add", script="inputs.n + 2", store="n")])
    with environment() as made, Environment(store=made.store, workflows=[changed]) as other:
        execution = made.enqueue(SUM, {"n": 1})
        with Worker(other) as worker:
            assert worker.wait_until_idle(PATIENCE)
            (queued,), (there,) = made.queues.queued(), made.queues.workers()
            assert there.why_not(queued) == "has a different definition of 'sum'"
        with Worker(made):
            assert execution.wait(PATIENCE).variables == {"n": 2}


def test_what_died_again_and_again_without_progress_is_left_to_a_person(caplog):
    with environment() as made:
        execution = made.enqueue(SUM, {"n": 1})
        made.store.append(execution.id, _resumed(execution, 3, None), 2)
        for recovery in (1, 2, 3):
            made.store.append(execution.id, _resumed(execution, 3 + recovery, recovery), 2 + recovery)
        with Worker(made) as worker:
            assert becomes(lambda: made.queues.queued() == [])
            assert worker.taken == 0
            assert [one.execution_id for one in made.queues.queued(withheld=True)] == [execution.id]
        assert "needs a person: it was resumed 3 times automatically" in caplog.text
        assert execution.refresh().resume().wait(PATIENCE).status == "completed"


def test_a_person_who_resumes_at_once_is_not_overridden_by_the_worker_that_gave_up(monkeypatch):
    with environment(ASK) as made:
        execution = made.enqueue(ASK)
        made.store.append(execution.id, _resumed(execution, 3, None), 2)
        for recovery in (1, 2, 3):
            made.store.append(execution.id, _resumed(execution, 3 + recovery, recovery), 2 + recovery)
        (lease,) = made._control.queues.claim(["default"], {"ask": ASK.fingerprint}, 1)
        withhold, states = made.store.withhold, []

        def withheld(execution_id):
            states.append(made.store.live_lease_of(execution_id) == lease)
            withhold(execution_id)

        monkeypatch.setattr(made.store, "withhold", withheld)
        with pytest.raises(NeedsPersonError):
            made._control.queues.take_up(lease, Worker(made))
        # While the lease is held, nobody can resume it.
        assert (states, made.store.lease_of(execution.id)) == ([True], None)
        assert made.run_of(execution.id).resume().wait(PATIENCE).status == "waiting"
        assert [one.execution_id for one in made.queues.queued()] == [execution.id]


def test_an_imported_fork_of_what_was_in_a_queue_continues_where_it_is_answered(tmp_path):
    with environment() as made, Worker(made):
        source = made.enqueue(ASK).wait(PATIENCE)
        made.run_of(source.id).export(tmp_path / "log.jsonl")
    with environment() as target, Worker(target):
        fork = target.open(tmp_path / "log.jsonl", as_fork=True, keep=True)
        answered = target.answer(fork.open_questions[0].id, "this", fork.id)
        assert answered.wait(PATIENCE).variables == {"answer": "this"}


def _resumed(execution, sequence, recovery):
    first = next(iter(execution.history()))
    name = type_id("event", first.recorded_at // 1000, sequence + 2**60)
    return [replace(first, id=name, sequence=sequence, data=ExecutionResumed("running", recovery=recovery))]


def test_what_cannot_be_taken_up_is_given_back(caplog):
    flow = Workflow("calls", [Step("call", action="missing")])
    with Environment(store="memory:", workflows=[SUM]) as made:
        made.add_workflow(flow)
        held = Workflow("calls", flow.steps)
        with Environment(store=made.store, workflows=[held], actions=[Gate().action("missing")]) as able:
            execution = able.enqueue(held)
        with Worker(made) as worker:
            assert becomes(lambda: "could not be resumed" in caplog.text)
            assert worker.wait_until_idle(PATIENCE)
            (queued,), (there,) = made.queues.queued(), made.queues.workers()
            assert 'action "missing" of step "call" not found' in there.why_not(queued)
        assert (execution.refresh().status, made.store.lease_of(execution.id)) == ("enqueued", None)


def test_only_a_pending_execution_is_enqueued():
    with environment() as made:
        execution = made.start(SUM, {"n": 1}).wait()
        with pytest.raises(ExecutionError, match="is completed; only a pending execution can be enqueued"):
            made._control.queues.enqueue(execution._driver, None)


def test_what_a_worker_has_claimed_is_resumed_by_nobody_else():
    with environment() as made:
        execution = made.enqueue(SUM, {"n": 1})
        made.store.claim(["default"], {"sum": SUM.fingerprint}, Owner("there", 1, 1, "w"), 1)
        with pytest.raises(LeaseHeldError, match="driven by w"):
            execution.resume()
