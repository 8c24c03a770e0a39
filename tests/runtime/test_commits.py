"""What is written together: each transaction that need not be made is a wait for the disk less."""

from dataclasses import replace

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.errors import StartKeyTakenError
from divebook.stores import MemoryStore
from tests.runtime.worlds import Calls, Gate, environment, question_of

CALL = ["operation_completed", "state_mutated", "step_completed"]
NEXT = ["step_started", "operation_started"]


class Counting(MemoryStore):
    """Notes what comes in one transaction."""

    def __init__(self):
        super().__init__()
        self.commits, self.leases_taken, self.calls = [], 0, []

    def append_all(self, batches):
        self.commits.append([event.event_type for batch in batches for event in batch.events()])
        return super().append_all(batches)

    def acquire(self, *args, **options):
        self.leases_taken += 1
        return super().acquire(*args, **options)

    def _post(self, *args):
        self.calls.append("post")
        return super()._post(*args)

    def inbox(self, *args):
        self.calls.append("inbox")
        return super().inbox(*args)


@pytest.fixture
def store():
    return Counting()


def noting(name, **more):
    return Step(name, action="note", parameters={"value": name}, **more)


def test_what_an_execution_begins_with_is_written_with_its_first_call_and_its_end_with_its_last(store):
    calls = Calls()
    steps = [noting("a", store="x"), noting("b", store="y"), noting("c", store="z")]
    # A call that is declared idempotent would share its commit with those after it.
    action = replace(calls.action(), idempotent=False)
    environment(Workflow("w", steps), actions=[action], store=store).start("w").wait(20, check=True)
    assert store.commits == [
        ["execution_started", "path_started", *NEXT],
        [*CALL, *NEXT],
        [*CALL, *NEXT],
        [*CALL, "path_completed", "execution_completed"],
    ]
    assert (calls, store.leases_taken, store.leases()) == (["a", "b", "c"], 0, [])


def test_an_answer_is_taken_in_with_the_resumption_and_the_call_that_follows_it(store):
    @step
    async def greet(name: str) -> str:
        return f"Hello {name}"

    @workflow
    async def asks(ctx):
        return await greet(await ctx.ask("Who?"))

    world = Environment(store=store)
    execution = world.start(asks).wait(20)
    store.commits.clear()
    assert execution.answer(question_of(execution).id, "Ann").wait(20).outputs == {"result": "Hello Ann"}
    assert store.commits == [
        ["execution_resumed", "interrupt_resolved", "operation_started"],
        [*CALL, "path_completed", "execution_completed"],
    ]


@pytest.mark.parametrize("send", [lambda run, asked: run.answer(asked, "Ann"), lambda run, _: run.signal("go")])
def test_a_message_is_stored_with_its_lease_and_the_inbox_is_read_once(store, send):
    waits = [Step("ask", ask="Who?", next="end"), Step("listen", "wait", signal="go", next="end")]
    steps = [Step("s", script="1", next=["ask", "listen"]), *waits, Step("end", script="1")]
    execution = environment(Workflow("w", steps), store=store).start("w").wait(20)
    question = question_of(execution)
    began = store.record(execution.id).last_sequence
    store.calls.clear()
    send(execution, question.id)
    assert store.calls[:2] == ["post", "inbox"]
    execution.wait(20)
    recorded = [event.event_type for event in store.read(execution.id, began)]
    # The last reading is that of the drive, before it ends.
    assert (recorded[0], store.calls.count("post"), store.leases_taken) == ("execution_resumed", 1, 0)
    assert store.calls.count("inbox") <= 2


def test_nothing_runs_of_an_execution_whose_key_another_one_has(store):
    runs = []

    @workflow
    async def noted(_ctx):
        runs.append(1)

    world = Environment(store=store)
    first = world.start(noted, key="order 7").wait(20)
    with pytest.raises(StartKeyTakenError):
        world.create("noted", key="order 7").start()
    assert (runs, first.status, len(store.records())) == ([1], "completed", 1)


def test_a_signal_from_elsewhere_before_the_first_look_is_found(store):
    held, reached = Gate(), Gate()
    reached.opened.set()
    steps = [
        Step("s", script="1", next=["held", "listens"]),
        Step("held", action="held", end=True),
        Step("listens", "wait", signal="go", next="after"),
        Step("after", action="after"),
    ]
    world = environment(Workflow("w", steps), actions=[held.action("held"), reached.action("after")], store=store)
    execution = world.start("w")
    store.post(Message(execution.id, SIGNAL, "sig_1", signal_payload("go", None), "ada", 0))  # not by the engine
    assert reached.reached.wait(20)
    assert execution.is_live
    held.opened.set()
    assert execution.wait(20).status == "completed"
