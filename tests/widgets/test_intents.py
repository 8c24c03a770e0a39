"""What a person wants is done once and acknowledged."""

from concurrent.futures import Executor, Future

import pytest

from divebook.errors import ExecutionError
from divebook.widgets.views import REMEMBERED, Handlers, Intents


class Later(Executor):
    """Runs what it was given when told to."""

    def __init__(self):
        self.jobs = []

    def submit(self, job, /, *arguments, **named):
        self.jobs.append(lambda: job(*arguments, **named))
        return Future()

    def work(self):
        while self.jobs:
            self.jobs.pop(0)()


class Desk:
    def __init__(self, fault=None):
        self.done, self.acks, self.later, self.fault = [], [], Later(), fault
        handlers = Handlers(*(self.handler(name) for name in ("answer", "pause", "resume", "cancel")))
        self.intents = Intents(handlers, self.acks.append, self.later)

    def handler(self, name):
        def handle(*arguments):
            if self.fault:
                raise self.fault
            self.done.append((name, *arguments))

        return handle

    def answer(self, identity="a1", response="yes"):
        self.intents.take({"type": "answer", "id": identity, "interrupt_id": "ask_1", "response": response})


def test_an_answer_is_handed_over_and_acknowledged_when_it_is_done():
    desk = Desk()
    desk.answer()
    assert (desk.done, desk.acks) == ([], [])
    desk.later.work()
    assert desk.done == [("answer", "ask_1", "yes")]
    assert desk.acks == [{"type": "ack", "id": "a1", "accepted": True, "text": ""}]


def test_an_answer_that_is_sent_again_is_done_once_and_acknowledged_again():
    desk = Desk()
    desk.answer()
    desk.answer()
    desk.later.work()
    desk.answer()
    desk.later.work()
    assert len(desk.done) == 1
    assert len(desk.acks) == 2


@pytest.mark.parametrize(
    ("fault", "told"),
    [(ExecutionError("it was already answered"), "it was already answered"), (ValueError("bad"), "ValueError: bad")],
)
def test_a_refusal_says_why(fault, told):
    desk = Desk(fault)
    desk.answer()
    desk.later.work()
    assert desk.acks == [{"type": "ack", "id": "a1", "accepted": False, "text": told}]


@pytest.mark.parametrize("command", ["pause", "resume", "cancel"])
def test_commands_reach_their_handlers(command):
    desk = Desk()
    desk.intents.take({"type": "control", "id": "c1", "command": command})
    desk.later.work()
    assert desk.done == [(command,)]


def test_old_outcomes_are_forgotten():
    desk = Desk()
    for number in range(REMEMBERED + 10):
        desk.answer(f"a{number}")
        desk.later.work()
    assert len(desk.intents._outcomes) == REMEMBERED
