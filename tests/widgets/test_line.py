"""What a page hears of a kernel outside of any cell: a comm that the questions of its store travel on."""

import types

import comm
import pytest

from divebook.definitions.definition import Workflow
from divebook.definitions.step import Step
from divebook.notebook.run_view import connect_page
from divebook.widgets.runs_and_questions import inbox_publisher_of
from divebook.widgets.views import Handlers, InboxComm
from tests.runtime.worlds import environment


class Comm:
    """A comm whose page is this test."""

    def __init__(self, target_name):
        self.target, self.sent, self.is_open = target_name, [], True

    def on_msg(self, callback):
        self.say = lambda data: callback({"content": {"data": data}, "buffers": []})

    def send(self, data, buffers):
        self.sent.append(data)

    def close(self):
        self.is_open = False


@pytest.fixture
def comms(monkeypatch):
    opened = []

    def create(target_name):
        opened.append(Comm(target_name))
        return opened[-1]

    monkeypatch.setattr(comm, "create_comm", create)
    return opened


def turned(publisher):
    """Let a publisher send all that there is to send."""
    while publisher._urgent or publisher._patient:
        publisher.turn()


def test_a_page_that_says_hello_is_told_the_open_questions_without_secrets(comms, monkeypatch):
    world = environment()
    world.start(Workflow("audit", [Step("ask", ask="Is sk-abcdefghijklmnopqrst yours?")])).wait(30)
    publisher = inbox_publisher_of(world)
    monkeypatch.setattr(publisher, "_start", publisher.feed.request_refresh)
    InboxComm(publisher, Handlers(world.answer))
    (page,) = comms
    publisher.turn()
    page.say({"type": "hello", "view": "v", "feed": "", "since": 0})
    publisher._free_at = 0
    turned(publisher)
    (told,) = page.sent
    assert (page.target, told["type"], told["view"]) == ("divebook.inbox", "inbox", "v")
    assert [asked["question"]["question"] for asked in told["asked"]] == ["Is [redacted] yours?"]


def test_only_a_kernel_with_a_front_end_opens_a_line(comms, monkeypatch):
    shell = types.SimpleNamespace()
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    connect_page(environment())()
    assert comms == []
