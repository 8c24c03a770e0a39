"""Messages that come at the worst moment: none of them is overtaken by a later one, which would hide it for good."""

import asyncio

import pytest

from divebook import Environment, Step, Workflow
from divebook.engine.inbox import ANSWER, EXPIRED, SIGNAL, Message, answer_payload
from divebook.errors import InvalidEventError, StoreError
from divebook.events import catalog
from divebook.runtime.commit import StoreCalls
from divebook.runtime.loop import InboxDelivery
from divebook.stores import MemoryStore, Owner
from divebook.stores.leases import Moment
from tests.runtime.test_expiring import HOUR, Watch
from tests.runtime.worlds import Gate, becomes

ELSEWHERE = Owner("elsewhere", 1, 1, "worker")


class Busy(MemoryStore):
    """A store into which others post while an execution is taken up, or while a question expires."""

    def __init__(self):
        super().__init__()
        self.when_resumed, self.when_expired = [], []

    def append_all(self, batches):
        told = super().append_all(batches)
        if any(isinstance(event.data, catalog.ExecutionResumed) for batch in batches for event in batch.events()):
            self._post_all(self.when_resumed)
        return told

    def post(self, message):
        if message.payload.get(EXPIRED):
            self._post_all(self.when_expired)
        return super().post(message)

    def _post_all(self, messages):
        while messages:
            super().post(messages.pop())


def waiting(gate, store, clock=None):
    """Return an environment and an execution that asks ``a``, ``b`` and ``c``; the gate is after ``c``."""
    steps = [
        Step("s", script="1", next=["a", "b", "c"]),
        Step("a", type="interrupt", ask="A?", store="a", next=["end"]),
        Step(
            "b",
            type="interrupt",
            ask={"question": "B?", "expires_in": "1h", "default": "late"},
            store="b",
            next=["end"],
        ),
        Step("c", type="interrupt", ask="C?", next=["slow"]),
        Step("slow", action="gate", next=["end"]),
        Step("end", script="1", join=True),
    ]
    settings = {} if clock is None else {"clock": clock}
    world = Environment(store=store, workflows=[Workflow("w", steps)], actions=[gate.action()], **settings)
    return world, world.start("w").wait(20)


@pytest.fixture
def gate():
    found = Gate()
    yield found
    found.opened.set()


def asked(execution):
    return {question.step: question.id for question in execution.open_questions}


def answer(execution, name):
    return Message(execution.id, ANSWER, asked(execution)[name], answer_payload({"text": name}, "x"), "x", 0)


def until_only(execution, *names):
    assert becomes(lambda: set(asked(execution)) == set(names)), asked(execution)


def test_an_answer_posted_while_an_execution_is_taken_up_is_not_hidden_by_the_next(gate):
    store = Busy()
    world, execution = waiting(gate, store)
    store.when_resumed.append(answer(execution, "a"))
    questions = asked(execution)
    execution = world.answer(questions["c"], "now")
    assert gate.reached.wait(20)
    until_only(execution, "b")
    Environment(store=store, actions=[gate.action()]).answer(questions["b"], "b", execution.id)
    until_only(execution)
    gate.opened.set()
    done = execution.wait(20)
    assert (done.status, done.variables["a"], done.variables["b"]) == ("completed", "a", "b")


def test_an_answer_posted_while_another_question_expires_is_not_hidden_by_that(gate):
    store, clock = Busy(), Watch()
    world, execution = waiting(gate, store, clock)
    questions = asked(execution)
    execution = world.answer(questions["c"], "now")
    assert gate.reached.wait(20)
    store.when_expired.append(answer(execution, "a"))
    clock.at += HOUR + 1
    until_only(execution)
    gate.opened.set()
    done = execution.wait(20)
    assert (done.status, done.variables["a"], done.variables["b"]) == ("completed", "a", "late")


class Recipient:
    """A runner that notes that it reads its inbox, or raises an error instead."""

    def __init__(self, error=None):
        self.error, self.reads = error, 0

    async def take(self):
        self.reads += 1
        if self.error is not None:
            raise self.error
        return True


@pytest.mark.parametrize("error", [StoreError("the log is damaged"), InvalidEventError("not an answer")])
def test_an_execution_that_cannot_read_its_messages_keeps_no_other_from_them(error):
    async def deliver():
        delivery = InboxDelivery(StoreCalls(MemoryStore()))
        recipients = {"exec_1": Recipient(error), "exec_2": Recipient(error), "exec_3": Recipient()}
        for execution_id, recipient in recipients.items():
            delivery.add(execution_id, recipient)
        delivery._start_reading()
        await delivery._task
        for execution_id in recipients:
            delivery.remove(execution_id)
        return [recipient.reads for recipient in recipients.values()]

    assert asyncio.run(deliver()) == [1, 1, 1]


class Annotated(MemoryStore):
    """A store in which somebody answers, and takes the lease, as soon as an execution is parked."""

    taken = None

    def _release(self, lease):
        super()._release(lease)
        if self.taken is None:
            self.taken = self._acquire(lease.execution_id, ELSEWHERE, Moment.at(None), Moment.at(None).plus(60), None)
            ((_, question),) = self.asking()
            payload = answer_payload({"value": "now"}, "ann")
            self.post(Message(lease.execution_id, ANSWER, question, payload, "ann", 1))


def test_an_answer_that_comes_as_an_execution_is_parked_counts_though_another_process_has_its_lease():
    store = Annotated()
    world = Environment(store=store)
    execution = world.start(Workflow("w", [Step("ask", ask="Who?", store="who")]))
    assert becomes(lambda: (execution.status, store.has_untaken(execution.id)) == ("waiting", True))
    store.release(store.taken)
    assert becomes(lambda: world.run_of(execution.id).status == "completed")


def test_messages_that_came_with_the_lease_are_read_from_the_store_if_later_ones_may_have_been_passed_by():
    """A read of the news that has begun, or that has got further, may have passed by a message to a runner that was not
    registered yet."""

    async def reads(last_number, *, is_reading=False, number=7):
        store = MemoryStore()
        delivery = InboxDelivery(StoreCalls(store))
        delivery.add("exec_1", Recipient())
        delivery._last_number = last_number
        delivery._task = asyncio.get_running_loop().create_future() if is_reading else None
        store.inbox = lambda execution_id, after: ["from the store"]
        delivery.add("exec_2", Recipient(), [Message("exec_2", SIGNAL, "go", {}, "ann", 1, number)])
        first, second = [await delivery.read("exec_2", 0) for _ in range(2)]
        for execution_id in ("exec_1", "exec_2"):
            delivery.remove(execution_id)
        assert second == ["from the store"]
        return first == second

    assert not asyncio.run(reads(None))
    assert not asyncio.run(reads(6))
    assert asyncio.run(reads(7))
    assert asyncio.run(reads(None, is_reading=True))
