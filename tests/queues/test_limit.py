"""The limit on automatic resumptions: which deaths of a process count, and what resets the count."""

from itertools import product

import pytest

from divebook import Step, Workflow
from divebook.engine.evolve import fold
from divebook.engine.inbox import ANNOTATION, ANSWER, SIGNAL, Message
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionError, NeedsPersonError
from divebook.events import catalog
from divebook.events.event import MICROSECONDS, Event
from divebook.queues import Worker
from divebook.runtime.children import children_to_continue
from divebook.runtime.clock import Ids, SystemChance, SystemClock
from divebook.runtime.queueing import CODE_SECONDS, RESUMPTIONS, attempts_made, may_have_worked, next_attempt
from divebook.stores import MemoryStore, Owner
from divebook.stores.append import Batch, records_of
from tests.engine.history import begun, state_after
from tests.queues.test_enqueued import ASK, PATIENCE, SUM, environment
from tests.runtime.worlds import becomes

GONE = Owner(Owner.current().host, 2**22 + 1, 1, "worker", Owner.current().boot)
DAY = 86_400
TIMERS = ("timer", "signal", "child")
WAITS = (*TIMERS, "question")
CALLS = ("none", "running", "turn", "asked about", "before", "after")
MESSAGES = ("none", "note", "other signal", "recorded signal", "signal", "child", "answer", "expiry")
DEADLINES = ("none", "later", "over")
AGES = (1, CODE_SECONDS + 1)
"""Seconds since the last event."""
OTHERS = ("none", "ended", "joining", "waiting")


def wait_of(kind, seconds, *, is_first):
    """Return the event that starts a wait. With `is_first`, the wait has the deadline that the case asks for."""
    deadline = seconds if is_first else None
    if kind == "question":
        expires_at = None if deadline is None else 4 * MICROSECONDS + deadline * MICROSECONDS
        return catalog.InterruptRaised("ask_1", "clarification", "Which?", expires_at=expires_at)
    operation = {"timer": "timer", "signal": "signal_wait", "child": "child_workflow"}[kind]
    parameters = {"seconds": 1000 * DAY if kind == "timer" and deadline is None else deadline}
    if kind != "timer":
        parameters["signal"] = "go" if kind == "signal" else "exec_child"
    return catalog.OperationStarted(f"op_{kind}", operation, parameters)


def waiting(waits, call, deadline, message, other):
    """Return the state of an execution whose path "main" waits in these ways, with a call beside the waits."""
    start = (catalog.StepStarted("function"), "main", "a")
    seconds = {"none": None, "later": DAY, "over": 1}[deadline]
    events = [wait_of(kind, seconds, is_first=number == 0) for number, kind in enumerate(waits)]
    started = catalog.OperationStarted("op_call", "agent_turn" if call == "turn" else "step_execution")
    ended = catalog.OperationCompleted("op_call", "step_execution", 0, 1)
    if call in ("running", "turn"):
        events.append(started)
    elif call == "before":
        events = [started, ended, *events]
    elif call == "after":
        events = [started, *events, ended]
    elif call == "asked about":
        first = [*begun(), *others_before(other), start]
        number = len(first) + len(events) + 1
        question = ExecutionState("exec_1", seed="exec_1").question_id("op_call", number)
        events += [started, catalog.InterruptRaised(question, "outcome_unknown", "Did it go through?")]
    if message == "recorded signal":
        events.append(catalog.SignalReceived("go"))
    return state_after(*begun(), *others_before(other), start, *((event, "main", "a") for event in events))


def others_before(other):
    """Return the facts of other paths, which work on nothing."""
    if other == "none":
        return ()
    paths = ({"id": "left", "current_step": "b"}, {"id": "right", "current_step": "b"})
    branched = (
        (catalog.StepStarted("script"), "main", "s"),
        (catalog.StepCompleted(""), "main", "s"),
        (catalog.PathBranched(paths[:1]), "main", "s"),
        (catalog.PathStarted("b"), "left"),
    )
    step = ((catalog.StepStarted("script"), "left", "b"), (catalog.StepCompleted(""), "left", "b"))
    if other == "ended":
        return *branched, *step, (catalog.PathCompleted("b"), "left")
    if other == "joining":
        return *branched, *step, (catalog.PathWaiting("end"), "left")
    timer = catalog.OperationStarted("op_left", "timer", {"seconds": 1000 * DAY})
    return *branched, (catalog.StepStarted("wait"), "left", "b"), (timer, "left", "b")


def messages_of(kind):
    """Return the inbox that a case asks for."""
    contents = {
        "note": (ANNOTATION, {"note": "look"}),
        "other signal": (SIGNAL, {"name": "stay", "payload": None}),
        "signal": (SIGNAL, {"name": "go", "payload": None}),
        "child": (SIGNAL, {"name": "exec_child", "payload": "completed"}),
        "answer": (ANSWER, {"response": {"text": "this"}, "by": "ann"}),
        "expiry": (ANSWER, {"expired": True}),
    }
    if kind not in contents:
        return ()
    message_kind, payload = contents[kind]
    return (Message("exec_1", message_kind, "ask_1", payload, "ann", 1, number=1),)


def all_waits():
    chosen = product((False, True), repeat=len(WAITS))
    return [tuple(wait for wait, is_in in zip(WAITS, which, strict=True) if is_in) for which in chosen if any(which)]


@pytest.mark.parametrize("waits", all_waits(), ids="-".join)
def test_a_death_counts_if_the_process_may_have_worked_and_never_if_the_execution_only_waited(waits):
    cases = list(product(CALLS, MESSAGES, DEADLINES, OTHERS))
    for call, message, deadline, other in cases:
        if deadline != "none" and waits[0] == "child":  # a child has no deadline
            continue
        state = waiting(waits, call, deadline, message, other)
        assert state.status == "waiting"
        # Written a second time, from the case and not from the state.
        wakes = {"signal": "signal", "recorded signal": "signal", "child": "child", "answer": "question"}
        wakes["expiry"] = "question"
        has_message = wakes.get(message) in waits
        is_call = call == "running"
        is_ambiguous = call == "after"  # an ended call may be followed by code that runs
        # Without a wait that is an operation, the order of the question and the call is not in the state.
        is_ambiguous |= call == "before" and waits == ("question",)
        for age, is_idle_child, was_left in product(AGES, (False, True), (False, True)):
            children = ["exec_child"] if is_idle_child and "child" in waits else []
            now = state.last_us + age * MICROSECONDS
            is_over = deadline == "over" or (deadline == "later" and age > DAY)
            has_work = is_call or has_message or is_over or bool(children) or (is_ambiguous and age == AGES[0])
            if deadline == "over" and now < 6 * MICROSECONDS:
                continue
            worked = may_have_worked(state, messages_of(message), children, now, was_left=was_left)
            case = (call, message, deadline, other, age, children, was_left)
            assert worked == (was_left and has_work), case


@pytest.mark.parametrize("was_left", [False, True])
def test_of_other_statuses_a_running_one_counts_always_and_an_ended_one_never(was_left):
    timer = (catalog.OperationStarted("op_timer", "timer", {"seconds": 1000 * DAY}), "main", "a")
    in_step = (*begun(), (catalog.StepStarted("function"), "main", "a"))
    cases = [
        (state_after(*begun()), True),
        (state_after(*in_step), True),
        (state_after(*in_step, timer, (catalog.OperationCompleted("op_timer", "timer"), "main", "a")), True),
        # An enqueued or paused execution is not driven, so the process that left its lease had begun to run it.
        (state_after(*begun(), catalog.ExecutionEnqueued("q")), was_left),
        (state_after(*in_step, timer, catalog.ExecutionPaused("lunch")), was_left),
        (state_after(*in_step, timer, catalog.ExecutionCancelled("enough")), False),
    ]
    for state, worked in cases:
        assert may_have_worked(state, (), (), state.last_us, was_left=was_left) == worked, state.status


def test_a_waiting_path_beside_one_that_works_counts():
    paths = ({"id": "left", "current_step": "b"},)
    facts = (
        *begun(),
        (catalog.StepStarted("script"), "main", "s"),
        (catalog.StepCompleted(""), "main", "s"),
        (catalog.PathBranched(paths), "main", "s"),
        (catalog.PathStarted("b"), "left"),
        (catalog.StepStarted("function"), "main", "a"),
        (catalog.OperationStarted("op_timer", "timer", {"seconds": DAY}), "main", "a"),
    )
    assert may_have_worked(state_after(*facts), (), (), 0, was_left=False)


# --- what resets the count -------------------------------------------------------------------------------------------


START = catalog.ExecutionStarted("sum", {"n": 1}, SUM.to_dict(), SUM.fingerprint)
NOW = 1_800_000_000 * MICROSECONDS


def log_with(*payloads, seconds=10):
    """Return a store with a log of these events, one every 10 seconds from `NOW` on."""
    store, ids = MemoryStore(), Ids(SystemClock(), SystemChance())
    events = [
        Event(ids.event(NOW), "exec_1", number + 1, NOW + number * seconds * MICROSECONDS, data)
        for number, data in enumerate((START, *payloads))
    ]
    store.append("exec_1", events, 0)
    return store


def resumed(number):
    return catalog.ExecutionResumed("waiting", recovery=number)


@pytest.mark.parametrize(
    ("numbers", "attempts"),
    [((), 0), ((None,), 0), ((1,), 1), ((1, 1, 1, 1, 1), 1), ((1, 2, 2, 2), 2), ((1, 2, None), 0), ((1, None, 1), 1)],
)
def test_a_resumption_that_does_not_count_repeats_the_number_before_it(numbers, attempts):
    store = log_with(*map(resumed, numbers))
    assert attempts_made(store, "exec_1") == attempts


def test_the_pause_begins_with_the_attempt_and_not_with_a_resumption_that_does_not_count():
    store = log_with(resumed(1), resumed(1), resumed(1))
    counted_at = NOW + 10 * MICROSECONDS
    due = counted_at + int(RESUMPTIONS.delay(1)) * MICROSECONDS
    with pytest.raises(ExecutionError, match=r"The next attempt is in 1 s"):
        next_attempt(store, "exec_1", due - MICROSECONDS)
    assert next_attempt(store, "exec_1", due) == 2


def test_progress_between_equal_numbers_begins_a_new_count():
    store = log_with(resumed(1), catalog.InterruptRaised("ask_1", "clarification", "Which?"), resumed(1))
    with pytest.raises(ExecutionError, match=r"The next attempt is in 1 min"):
        next_attempt(store, "exec_1", NOW + 30 * MICROSECONDS)


# --- in a store, with a worker or a person's recovery ----------------------------------------------------------------


class Watch(SystemClock):
    """A clock that is set."""

    time = NOW

    def now(self):
        return self.time


SLEEP = Workflow("sleeping", [Step("wait", type="wait", seconds=60 * DAY), Step("after", script="7", store="n")])


def asleep(*recoveries, left=True):
    """Return a store with an execution that sleeps for two months after these resumptions, and its id."""
    store, ids = MemoryStore(), Ids(SystemClock(), SystemChance())
    facts = [
        (catalog.ExecutionStarted("sleeping", {}, SLEEP.to_dict(), SLEEP.fingerprint),),
        (catalog.ExecutionEnqueued("default"),),
        (catalog.ExecutionResumed("enqueued"),),
        (catalog.PathStarted("wait"), "main"),
        (catalog.StepStarted("wait"), "main", "wait"),
        (catalog.OperationStarted("op_1", "timer", {"seconds": 60 * DAY}), "main", "wait"),
        *((resumed(number),) for number in recoveries),
    ]
    events = [Event(ids.event(NOW), "exec_1", number, NOW, *fact) for number, fact in enumerate(facts, 1)]
    state = fold("exec_1", events)
    batch = Batch("exec_1", 0, records_of(events), None, GONE if left else None, state.status, wake_at=state.wake_at)
    assert store.append_all([batch]) == [None]
    return store


def numbers_in(store):
    payloads = [event.data for event in store.read("exec_1")]
    return [data.recovery for data in payloads if isinstance(data, catalog.ExecutionResumed)]


@pytest.mark.parametrize("recoveries", [(), (1,), (1, 2), (1, 2, 3)])
def test_a_sleeping_execution_is_taken_up_however_many_attempts_were_counted_before(recoveries):
    store = asleep(*recoveries)
    expected = recoveries[-1] if recoveries else None
    with environment(SLEEP, store=store, clock=Watch()) as made, Worker(made) as worker:
        assert becomes(lambda: worker.driving == ["exec_1"])
        assert becomes(lambda: numbers_in(store) == [None, *recoveries, expected])
        assert made.queues.queued(withheld=True) == []


@pytest.mark.parametrize("left", [False, True])
def test_a_recovery_of_a_sleeping_execution_does_not_count(left):
    store = asleep(1, 2, 3, left=left)
    with environment(SLEEP, store=store, clock=Watch()) as made:
        assert made.queues.recover("exec_1").status == "waiting"
        assert becomes(lambda: numbers_in(store) == [None, 1, 2, 3, 3])


def test_a_recovery_after_the_timer_is_over_counts():
    clock = Watch()
    clock.time = NOW + 61 * DAY * MICROSECONDS
    with environment(SLEEP, store=asleep(1, 2, 3), clock=clock) as made:
        with pytest.raises(NeedsPersonError, match="exec_1 needs a person"):
            made.queues.recover("exec_1")
        # The refusal keeps the trace of the death, so the execution can still be found.
        assert [record.execution_id for record in made.queues.recoverable()] == ["exec_1"]
        assert made.run_of("exec_1").resume().status == "waiting"
        assert becomes(lambda: numbers_in(made.store)[-1] is None)


def test_an_answer_that_nobody_has_read_counts_once_and_is_progress():
    with environment(ASK) as made:
        execution = made.enqueue(ASK)
        with Worker(made):
            assert becomes(made.inbox)
            assert becomes(lambda: made.store.leases() == [])
        ((_, question),) = made.inbox()
        made.store.acquire(execution.id, GONE)
        made.answer(question.id, "this", execution.id)
        with Worker(made):
            assert execution.wait(PATIENCE).status == "completed"
        assert [e.data.recovery for e in execution.history() if isinstance(e.data, catalog.ExecutionResumed)][-1] == 1


def test_a_child_that_must_be_started_or_has_ended_is_work_of_its_parent():
    outer = Workflow("outer", [Step("child", workflow="ask", store="r")])
    with environment(outer, ASK) as made:
        state = made.start(outer).wait(PATIENCE).state
        ((child, _),) = made.inbox()
        assert children_to_continue(made.store, state) == []
        assert children_to_continue(MemoryStore(), state) == [child]
        made.run_of(child).cancel()
        assert becomes(lambda: children_to_continue(made.store, state) == [child])
