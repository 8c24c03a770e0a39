"""What a view shows of a text while a model writes it: from the engine to the frames."""

import threading

import anyio.to_thread
import pytest

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.projections.spans import Span
from divebook.runtime.streaming import TextDelta
from divebook.text.redaction import Redactor
from divebook.widgets.feed import MAX_LATER_TEXT, MAX_WAITING, Streams
from divebook.widgets.publisher import publisher_of
from tests.runtime.worlds import environment

PATIENCE = 20
ASK = Workflow("w", [Step("ask", prompt="Write a poem", store="poem")])


class Held:
    """Holds a model up behind each of its words until it is let go on."""

    def __init__(self):
        self.words = threading.Semaphore(0)

    async def __call__(self):
        await anyio.to_thread.run_sync(lambda: self.words.acquire(timeout=PATIENCE), abandon_on_cancel=True)


class View:
    """Puts together what the frames of an execution tell, as a browser does."""

    def __init__(self, execution):
        self.publisher = publisher_of(execution)
        self.text, self.status, self.last, self._news = "", "", 0, threading.Condition()
        self.close = self.publisher.add(self._take)

    def _take(self, delta):
        with self._news:
            self.status, self.last = delta["header"]["status"], delta["last"]
            for piece in delta["streamed"]:
                self.text = self.text[: piece["at"]] + piece["text"]
            self._news.notify_all()
        return 1

    def wait_for(self, text="", status="", last=0):
        """Wait for what is told; a status may be told before the last events."""

        def is_sent():
            return self.text == (text or self.text) and status in ("", self.status) and last <= self.last

        with self._news:
            assert self._news.wait_for(is_sent, PATIENCE), (self.text, self.status, self.last)


@pytest.fixture
def held():
    gate = Held()
    yield gate
    gate.words.release(1000)


@pytest.fixture
def world(held):
    return environment(agents=[Agent("poet", model=ScriptedModel(["Roses are red"], pace=held))])


def test_a_view_shows_a_text_word_by_word_and_forgets_it_when_it_is_recorded(world, held):
    execution = world.create(ASK)
    view = View(execution)
    execution.start()
    for written in ("Roses ", "Roses are "):
        view.wait_for(written)
        assert execution.is_live
        held.words.release()
    assert execution.wait(PATIENCE).variables == {"poem": "Roses are red"}
    view.wait_for(status="completed", last=execution.state.last_sequence)
    assert view.publisher.feed.welcome("v", 0)["streamed"] == []
    view.close()


def test_a_view_that_comes_up_while_a_model_writes_shows_it_from_the_start(world, held):
    world.internals.control.texts.always = True
    execution = world.start(ASK)
    held.words.release()
    view = View(execution)
    view.wait_for("Roses are ")
    held.words.release()
    execution.wait(PATIENCE)
    view.close()


def test_a_page_that_comes_up_while_a_model_writes_is_told_what_there_is(world, held):
    execution = world.create(ASK)
    view = View(execution)
    execution.start()
    view.wait_for("Roses ")
    assert [piece["text"] for piece in view.publisher.feed.welcome("v", 0)["streamed"]] == ["Roses "]
    held.words.release(2)
    execution.wait(PATIENCE)
    view.close()


def test_a_run_that_is_taken_up_again_writes_its_text_anew(world, held):
    execution = world.create(ASK)
    view = View(execution)
    execution.start()
    held.words.release()
    view.wait_for("Roses are ")
    execution.pause().wait(PATIENCE)
    resumed = world.run_of(execution.id).resume()
    view.wait_for("Roses ")
    held.words.release(3)  # one is for the call that was broken off
    assert resumed.wait(PATIENCE).variables == {"poem": "Roses are red"}
    view.wait_for(status="completed")
    view.close()


class Calls:
    """Spans of a log in which one call runs."""

    def running_operation(self, operation_id):
        return Span("operation", "main", "s", 1, "agent_response", 0) if operation_id == "op_1" else None

    def knows_operation(self, operation_id):
        return True


SECRETS = {
    "of a form": "sk" + "-proj-" + "Ab3" * 16,
    "under a name": 'it says "password": "tulips in the window box", and so on',
    "of many lines": "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEow+/aZ\n" * 9 + "-----END RSA PRIVATE KEY-----",
    "in a header": "Authorization: Bearer tulipsinthewindow4box\nHost: x",
    "that is known": "say correct horse battery to them",
}


@pytest.mark.parametrize("width", [1, 2, 7, 30])
@pytest.mark.parametrize("kind", SECRETS)
def test_no_secret_is_shown_that_comes_in_pieces(kind, width, monkeypatch):
    redactor = Redactor(["correct horse battery"])
    monkeypatch.setattr("divebook.widgets.feed.shared", lambda: redactor)
    text = f"Once upon a time\nthere was {SECRETS[kind]}\nand the end. "
    streams, page, shown = Streams(Calls()), "", []
    for at in range(0, len(text), width):
        streams.put(TextDelta("op_1", at, text[at : at + width]))
        for piece in streams.pieces():
            page = piece["text"] if piece["at"] == 0 else page + piece["text"]
        shown.append(page)
    assert page == redactor.text(text)
    assert "[redacted]" in page
    secrets = ("Ab3Ab3Ab3", "tulips", "MIIEow", "correct horse")
    assert [seen for seen in shown if any(secret in seen for secret in secrets)] == []
    assert len(set(shown)) >= 3, "it is shown while it comes"


def test_a_long_stream_is_shown_to_its_end_and_only_its_end_is_kept():
    streams, told = Streams(Calls()), ""
    lines = [f"line {number} of a long story\n" for number in range(5_000)]
    at = 0
    for line in lines:
        streams.put(TextDelta("op_1", at, line))
        at += len(line)
        if at % 7 == 0:
            told += "".join(piece["text"] for piece in streams.pieces())
    told += "".join(piece["text"] for piece in streams.pieces())
    assert told == "".join(lines)
    assert len(streams._texts["op_1", "text"].raw) <= 2 * MAX_LATER_TEXT + 1000
    (last,) = streams.so_far()
    assert last["at"] + len(last["text"]) == at


def test_of_a_flood_the_end_is_shown_and_little_is_held(monkeypatch):
    redactor = Redactor(["correct horse battery"])
    monkeypatch.setattr("divebook.widgets.feed.shared", lambda: redactor)
    streams, at, filler = Streams(Calls()), 0, "y " * (MAX_WAITING // 32)
    for number in range(400):  # each but the first begins with the rest of a secret
        text = f"horse battery\nline {number} {filler}and correct "
        streams.put(TextDelta("op_1", at, text, "output"))
        at += len(text)
    assert sum(len(delta.text) for delta in streams._inbox) <= MAX_WAITING
    page = "".join(piece["text"] for _ in range(20) for piece in streams.pieces())
    assert page.startswith("line 399 ")
    assert page.endswith("y and ")
    assert "horse" not in page


@pytest.mark.parametrize("end", ["", "\n"])
def test_only_the_end_of_what_has_no_lines_is_kept(end):
    streams, at = Streams(Calls()), 0
    for _ in range(100):
        text = "dots and " * 500 + end
        streams.put(TextDelta("op_1", at, text, "output"))
        at += len(text)
        streams.pieces()
    assert len(streams._texts["op_1", "output"].raw) <= 3 * MAX_LATER_TEXT


def test_models_are_not_asked_to_stream_once_the_last_view_has_gone(world):
    execution = world.create(ASK)
    view = View(execution)
    thread = view.publisher._thread
    assert world._control.texts.is_heard(execution.id)
    view.close()
    thread.join(PATIENCE)
    assert not world._control.texts.is_heard(execution.id)
