"""An answer that is kept is an answer: not asked again, shown to whoever comes second, and carried on when possible."""

from dataclasses import replace

import pytest

from divebook import Environment, Step, Workflow
from divebook.engine.inbox import ANSWER, Message, answer_payload
from divebook.errors import AnswerKeptError, ExecutionError, InterruptError, NotFoundError
from divebook.runtime.run import asked_questions
from divebook.stores import MemoryStore, Owner
from tests.runtime.worlds import Busy, Calls, Gate, becomes
from tests.store.logs import batch, cancelled

PATIENCE = 20
TWO_CALLS = Workflow("w", [Step("a", action="note"), Step("b", ask="Go on?", store="c"), Step("d", action="other")])
ASKING = Workflow("w", [Step("a", ask="Go?", store="x"), Step("b", script="1")])


LISTENING = Workflow(
    "w",
    [
        Step("s", script="1", next=["held", "listens"]),
        Step("held", action="gate", end=True),
        Step("listens", "wait", signal="go"),
    ],
)
WAITING = Workflow("w", [Step("a", "wait", signal="go")])
ELSEWHERE = Owner("elsewhere", 1, 1, "worker")


def over(store, *actions, workflow=ASKING):
    return Environment(store=store, workflows=[workflow], actions=list(actions))


def kept(store, execution, response="yes"):
    """Keep an answer as a process does that dies before its execution goes on."""
    (question,) = execution.open_questions
    payload = answer_payload({"text": response}, "ann")
    store.post(Message(execution.id, ANSWER, question.id, payload, "ann 1", 1))
    return question


@pytest.fixture
def waiting():
    """Return a store and an execution of ASKING that waits in it."""
    store = MemoryStore()
    return store, over(store).start("w").wait(PATIENCE)


def test_an_answer_needs_no_action_of_a_finished_step():
    store = MemoryStore()
    execution = over(store, Calls().action(), Calls().action("other"), workflow=TWO_CALLS).start("w").wait(PATIENCE)
    elsewhere = Environment(store=store, actions=[Calls().action("other")])
    assert elsewhere.answer(execution.open_questions[0].id, "yes").wait(PATIENCE).status == "completed"


def test_an_answer_that_cannot_take_effect_here_is_kept_and_says_so():
    store = MemoryStore()
    execution = over(store, Calls().action(), Calls().action("other"), workflow=TWO_CALLS).start("w").wait(PATIENCE)
    elsewhere, question = Environment(store=store), execution.open_questions[0]
    with pytest.raises(
        AnswerKeptError, match=f'{question.id}@{execution.id} is stored.*action "other" of step "d" not found'
    ):
        elsewhere.answer(question.id, "yes")
    assert elsewhere.inbox() == []
    (kept,) = asked_questions(elsewhere.run_of(execution.id))
    assert (kept.id, kept.response) == (question.id, {"text": "yes"})
    at_home = over(store, Calls().action(), Calls().action("other"), workflow=TWO_CALLS)
    assert at_home.run_of(execution.id).resume().wait(PATIENCE).variables == {"c": "yes"}


def test_a_signal_that_cannot_take_effect_here_is_kept_as_well():
    workflow = Workflow("w", [Step("s", type="wait", signal="go"), Step("d", action="other")])
    store = MemoryStore()
    execution = over(store, Calls().action("other"), workflow=workflow).start("w").wait(PATIENCE)
    with pytest.raises(AnswerKeptError, match="the signal 'go' is stored"):
        Environment(store=store).run_of(execution.id).signal("go", 1)
    assert (
        over(store, Calls().action("other"), workflow=workflow).run_of(execution.id).resume().wait(20).status
        == "completed"
    )


def test_a_kept_answer_is_not_asked_for_again_and_the_same_one_carries_on(waiting):
    store, execution = waiting
    question = kept(store, execution)
    assert over(store).inbox() == []
    assert over(store).answer(question.id, "yes").wait(PATIENCE).variables == {"x": "yes"}


def test_another_answer_than_the_kept_one_is_refused_and_shows_it(waiting):
    store, execution = waiting
    question = kept(store, execution)
    with pytest.raises(InterruptError, match=r"already answered by ann, with .*yes"):
        over(store).answer(question.id, "no")
    assert over(store).run_of(execution.id).resume().wait(PATIENCE).variables == {"x": "yes"}


def test_a_question_is_closed_as_soon_as_it_is_answered(waiting):
    store, execution = waiting
    question = kept(store, execution)
    assert execution.open_questions == []
    assert {each.id: each.answered_by for each in asked_questions(execution)}[question.id] == "ann"


def test_a_second_answer_shows_the_first_also_after_the_end(waiting):
    store, execution = waiting
    (question,) = execution.open_questions
    over(store).answer(question.id, "first", by="ann").wait(PATIENCE)
    for name in (question.id, f"{question.id}@{execution.id}"):
        with pytest.raises(InterruptError, match=r"already answered by ann, with .*first"):
            over(store).answer(name, "second")


def test_a_question_that_nobody_asked_is_not_found(waiting):
    store, execution = waiting
    for name in ("ask_none", f"ask_none@{execution.id}"):
        with pytest.raises(NotFoundError, match="question not found: ask_none"):
            over(store).answer(name, "yes")


def test_copies_that_ask_under_one_id_are_told_apart(waiting):
    store, execution = waiting
    copy = execution.id[:-4] + "copy"
    log = [replace(event, id=f"{event.id}c", execution_id=copy) for event in execution.history()]
    store.append(copy, log, 0)
    (asked,) = execution.open_questions
    assert {question.id for _, question in over(store).inbox()} == {asked.id}
    with pytest.raises(
        InterruptError,
        match=rf"2 executions ask this question; choose one of them: {asked.id}@exec_\w+ or {asked.id}@exec_",
    ):
        over(store).answer(asked.id, "which?")
    with pytest.raises(InterruptError, match="belongs to execution"):
        execution.answer(f"{asked.id}@{copy}", "the copy's")
    assert over(store).answer(f"{asked.id}@{copy}", "the copy's").wait(PATIENCE).variables == {"x": "the copy's"}
    assert execution.answer(f"{asked.id}@{execution.id}", "mine").wait(PATIENCE).variables == {"x": "mine"}


def test_an_address_names_the_execution_as_well():
    store = MemoryStore()
    first, second = (over(store).start("w").wait(PATIENCE) for _ in range(2))
    asked = second.open_questions[0]
    assert over(store).answer(f"{asked.id}@{second.id}", "two").wait(PATIENCE).variables == {"x": "two"}
    assert over(store).run_of(first.id).status == "waiting"
    with pytest.raises(NotFoundError, match="question not found"):
        over(store).answer(f"ask_none@{first.id}", "two")


# --- messages that are stored although the sender's process cannot continue the execution


@pytest.mark.parametrize(
    "send",
    [lambda world, name: world.run_of(name).signal("go"), lambda world, name: world.run_of(name).annotate(note="seen")],
)
def test_a_message_to_a_driver_that_has_lost_its_lease_is_accepted_and_read(send):
    gate = Gate()
    world = over(MemoryStore(), gate.action(), workflow=LISTENING)
    execution = world.start("w")
    assert gate.reached.wait(PATIENCE)
    (lease,) = world.store.leases()
    taken = world.store.acquire(execution.id, ELSEWHERE, instead_of=lease)
    send(world, execution.id)
    assert len(world.store.inbox(execution.id, 0)) == 1
    # The other process releases the lease without having read the message.
    world.store.release(taken)
    gate.opened.set()
    assert becomes(lambda: not world.store.has_untaken(execution.id))


def test_a_message_to_a_driver_that_has_lost_its_lease_is_read_by_the_holder():
    gate = Gate()
    world = over(MemoryStore(), gate.action(), workflow=LISTENING)
    execution = world.start("w")
    assert gate.reached.wait(PATIENCE)
    (lease,) = world.store.leases()
    world.store.acquire(execution.id, ELSEWHERE, instead_of=lease, ttl_seconds=3600)
    length = world.store.record(execution.id).last_sequence
    world.run_of(execution.id).signal("go")
    gate.opened.set()
    assert becomes(lambda: not execution.is_live)
    assert len(world.store.inbox(execution.id, 0)) == 1
    assert world.store.record(execution.id).last_sequence == length


@pytest.mark.parametrize("refusals", [2, 3])
def test_a_signal_that_a_busy_store_keeps_from_its_execution_is_kept(refusals):
    world = over(Busy(), workflow=WAITING)
    execution = world.start("w").wait(PATIENCE)
    world.store.refusals = refusals
    with pytest.raises(AnswerKeptError, match=r"'go' is stored, so do not send it again.*Resume it when the store is"):
        world.run_of(execution.id).signal("go")
    world.store.refusals = 0
    assert len(world.store.inbox(execution.id, 0)) == 1
    assert world.run_of(execution.id).resume().wait(PATIENCE).status == "completed"


def end_elsewhere(store, execution, lease):
    """End an execution as the process does that holds its lease."""
    last = store.record(execution.id).last_sequence
    end = cancelled(last + 1, execution.id, at=store.read(execution.id)[-1].recorded_at)
    assert store.append_all([batch(execution.id, last, [end], lease.token)]) == [None]


def test_a_sender_learns_that_the_execution_ended_elsewhere_without_its_signal():
    store = MemoryStore()
    world = over(store, workflow=WAITING)
    execution = world.start("w").wait(PATIENCE)
    lease = store.acquire(execution.id, ELSEWHERE)
    post = store._post

    def post_and_end(message, payload):
        stored = post(message, payload)
        end_elsewhere(store, execution, lease)
        return stored

    store._post = post_and_end
    with pytest.raises(ExecutionError, match="was cancelled before the signal 'go' arrived"):
        world.run_of(execution.id).signal("go")


def test_an_execution_that_ends_elsewhere_after_the_signal_is_stored_has_not_read_it():
    store = MemoryStore()
    execution = over(store, workflow=WAITING).start("w").wait(PATIENCE)
    lease = store.acquire(execution.id, ELSEWHERE)
    sent = over(store, workflow=WAITING).run_of(execution.id).signal("go")
    assert sent.status == "waiting"
    end_elsewhere(store, execution, lease)
    assert sent.wait(PATIENCE).status == "cancelled"
    assert not sent.state.signals
