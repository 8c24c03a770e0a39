"""Messages that no page of ours sends: each is answered, none raises, and the answers of people still arrive."""

import random
import threading

import pytest

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.errors import InterruptError
from divebook.replay.replayer import Positions
from divebook.widgets import publisher, views
from divebook.widgets.publisher import publisher_of
from divebook.widgets.runs_and_questions import inbox_publisher_of
from divebook.widgets.stepping import SteppedLog
from divebook.widgets.views import Handlers, InboxView
from tests.runtime.worlds import environment

SEED, FORGED, PATIENCE = 20_260_101, 1_000, 20
TYPES = [
    "hello",
    "alive",
    "bye",
    "range",
    "detail",
    "answer",
    "control",
    "state",
    "event",
    "events",
    "variables",
    "ack",
    "",
    "x" * 99,
]
KEYS = [
    "type",
    "view",
    "since",
    "id",
    "interrupt_id",
    "response",
    "command",
    "first",
    "stop",
    "sequence",
    "after",
    "version",
    "x",
]
DEEP = [[]]
for _ in range(2_000):
    DEEP = [DEEP]
ODD = [
    *(
        None,
        True,
        0,
        -1,
        2**63,
        10**30,
        1.5,
        float("nan"),
        float("inf"),
        "",
        "v",
        "\x00",
        "\ud800",
        "a" * 200_000,
        b"x",
    ),
    *([], {}, [1], {"a": {"b": []}}, DEEP, "pause", "resume", {"choice": "done"}, {"decision": "raise", "data": "x"}),
]


def forged(chance):
    """Return a message with parts missing, added, or of any value."""
    message = {key: chance.choice(ODD) for key in chance.sample(KEYS, chance.randrange(len(KEYS)))}
    if chance.random() < 0.9:
        message["type"] = chance.choice(TYPES)
    if chance.random() < 0.5:
        message |= {key: "v" for key in ("view", "id", "interrupt_id") if chance.random() < 0.7}
    if chance.random() < 0.3:
        message |= {key: chance.randrange(-3, 9) for key in ("since", "first", "stop", "sequence", "after")}
    return message if chance.random() < 0.98 else chance.choice([None, [], "hello", 7])


@pytest.fixture
def asking(monkeypatch):
    """Return an environment, and its execution that asks."""
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    world = environment()
    return world, world.start(Workflow("w", [Step("a", ask="Which?", store="x")])).wait(PATIENCE)


def view_of(kind, world, execution):
    handlers = Handlers(world.answer, *[execution.refresh] * 3)
    if kind == "live":
        return views.LiveView(publisher_of(execution), handlers)
    if kind == "inbox":
        return InboxView(inbox_publisher_of(world), handlers)
    return views.ReplayView(SteppedLog(Positions.of(execution.history())), "w", dict)


@pytest.mark.parametrize("kind", ["live", "inbox", "replay"])
def test_forged_messages_are_answered_and_nothing_is_lost(kind, asking, monkeypatch):
    world, execution = asking
    view, told, news = view_of(kind, world, execution), [], threading.Condition()

    def hear(message):
        with news:
            told.append(message)
            news.notify_all()

    monkeypatch.setattr(view, "send", hear)
    monkeypatch.setattr(publisher, "INTERVAL", 0.0)  # else a second for every twenty messages
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    chance = random.Random(SEED)
    for _ in range(FORGED):
        view._receive(view, forged(chance), [])
    if kind != "replay":
        view._receive(
            view, {"type": "answer", "id": "last", "interrupt_id": execution.open_questions[0].id, "response": "a"}, []
        )
        with news:
            assert news.wait_for(lambda: any(m["type"] == "ack" and m["id"] == "last" for m in told), PATIENCE)
        (ack,) = [message for message in told if message["type"] == "ack" and message["id"] == "last"]
        assert (ack["accepted"], execution.refresh().wait(PATIENCE).variables) == (True, {"x": "a"})
        with news:
            assert news.wait_for(lambda: refusals(told) > FORGED / 2, PATIENCE)
    assert (raised, refusals(told) > FORGED / 2) == ([], True)


def refusals(told):
    return sum(message["type"] == "ack" and not message["accepted"] for message in told)


@pytest.mark.parametrize("response", ["a\x00b", "a\ud800", {"text": "\x1b[31m"}, "a" * 200_000, {"data": {"\x07": 1}}])
def test_an_answer_that_nobody_types_is_refused_and_the_question_stays(asking, response):
    world, execution = asking
    with pytest.raises(InterruptError, match=r"character|surrogate"):
        world.answer(execution.open_questions[0].id, response)
    assert len(world.inbox()) == 1
