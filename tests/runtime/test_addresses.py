"""Questions that are sent to addresses: to a server on this machine, and what happens where none answers."""

import http.server
import json
import threading

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.step import Ask
from divebook.environments import settings
from divebook.environments.settings import Addresses
from divebook.errors import SetupError

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # which Apprise imports
ASKING = Workflow("audit", [Step("ask", ask="Which one?"), Step("sure", ask="Sure?")])


@pytest.fixture
def server():
    """Yield a server that keeps what is sent to it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.server.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.taken = []
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def free_port():
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as closed:
        return closed.server_port


def test_a_question_is_sent_to_the_addresses_of_the_environment(server, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_NOTIFY", f"json://ann:hush@127.0.0.1:{server.server_port}/ask")
    ask = Step("ask", type="interrupt", ask=Ask("Use ${inputs.password}?", message="It is asked once."))
    with Environment(store="memory:") as environment:
        execution = environment.start(
            Workflow("audit", [ask], inputs=["password"]), {"password": "tulips in the window box"}
        ).wait(20)
        (question,) = execution.open_questions
    (told,) = server.taken  # the environment waits for what it sends
    answer = f"To answer: divebook answer {question.id}@{execution.id} ANSWER"
    assert (told["title"], told["message"]) == ("audit asks", f"Use [redacted]?\n\nIt is asked once.\n\n{answer}")


def test_an_address_that_takes_nothing_harms_no_run_and_is_told_of_once(server, monkeypatch, logs):
    dead, known = f"json://ann:hush@127.0.0.1:{free_port()}/", f"json://127.0.0.1:{server.server_port}/"
    monkeypatch.setenv("DIVEBOOK_NOTIFY", f"{dead} {known} nosuch://ann:hush@example.org")
    with Environment(store="memory:") as environment:
        execution = environment.start(ASKING).wait(20)
        execution.answer(execution.open_questions[0].id, "this").wait(20)
        execution.answer(execution.open_questions[0].id, "yes").wait(20)
    assert execution.status == "completed"
    assert len(server.taken) == 2
    told = [message.split(" did not accept")[0] for message in logs() if "notify" in message]
    assert told == ["address 1 of notify (json)", "address 3 of notify (nosuch)"]
    assert not any("hush" in message for message in logs())


def test_addresses_without_the_library_are_refused_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setattr(settings.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match=r"pip install 'divebook\[notify\]'"):
        Addresses(["json://127.0.0.1"])
