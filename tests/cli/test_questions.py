"""Questions on the command line: listed, answered, and the execution goes on."""

import json
import re
import sqlite3
from contextlib import closing

import pytest

ACTIONS = """
import pathlib
from divebook import action

@action("Pay")
def pay():
    calls = pathlib.Path("calls")
    calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
    if len(calls.read_text()) == 1:
        raise TimeoutError("no answer")
    return "receipt"
"""

SHOP = """
Workflows:
  - Name: shop
    Outputs: [{Name: receipt}]
    Steps:
      - {Name: pay, Action: Pay, Retry: {Attempts: 2, Seconds: 0}, Store: receipt}
"""


@pytest.fixture
def asked(folder, divebook):
    """Return the id of a question whose execution waits."""
    (folder / "shop.yaml").write_text(SHOP)
    (folder / "pay.py").write_text(ACTIONS)
    ran = divebook("run", "shop.yaml", "-a", "pay.py", "-q")
    assert ran.exit_code == 3, ran.stderr
    (question,) = json.loads(divebook("inbox", "--json").stdout)["questions"]
    return question["question_id"]


def test_the_inbox_shows_questions_and_how_to_answer(asked, divebook):
    listed = divebook("inbox")
    assert asked in listed.stdout
    assert "divebook answer" in listed.stderr


def test_retry_makes_the_call_again(asked, divebook, folder):
    answered = divebook("answer", asked, "retry", "-d", "shop.yaml", "-a", "pay.py", "--json")
    assert (answered.exit_code, json.loads(answered.stdout)["outputs"]) == (0, {"receipt": "receipt"})
    assert (folder / "calls").read_text() == "xx"
    assert "no open questions" in divebook("inbox").stderr


def test_done_takes_the_result_that_is_given(asked, divebook, folder):
    answered = divebook("answer", asked, "done", "--result", '"seen"', "-a", "pay.py", "--json")
    assert json.loads(answered.stdout)["outputs"] == {"receipt": "seen"}
    assert (folder / "calls").read_text() == "x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("perhaps",), "answer with retry, done or fail"),
        (("done", "--result", "{"), "--result: { is not JSON"),
        (("done",), "done needs the result of the call"),
        (("retry", "--result", "1"), "only the choice done takes a result"),
    ],
)
def test_a_wrong_answer_is_refused_and_the_question_stays(asked, divebook, arguments, message):
    answered = divebook("answer", asked, *arguments, "-a", "pay.py")
    assert (answered.exit_code, message in answered.stderr) == (2, True)
    assert asked in divebook("inbox").stdout


def test_an_unknown_question_is_told(asked, divebook):
    answered = divebook("answer", "ask_nothing", "retry")
    assert (answered.exit_code, "question not found: ask_nothing" in answered.stderr) == (2, True)


@pytest.mark.parametrize("sequence", [1, 4])
def test_a_question_of_a_damaged_log_is_told_with_the_damage(asked, divebook, folder, sequence):
    with closing(sqlite3.connect(folder / ".divebook" / "executions.db")) as connection, connection:
        holds = "SELECT max(place) FROM events WHERE place & 4294967295 <= ?"  # a row may hold several events
        (place,) = connection.execute(holds, (sequence,)).fetchone()
        connection.execute("UPDATE events SET data = '{oops' WHERE place = ?", (place,))
    damaged = re.compile(rf"events? {place & 0xFFFF_FFFF}( to \d+)? of execution")
    listed = divebook("inbox", "--json")
    assert (listed.exit_code, json.loads(listed.stdout)) == (0, {"divebook": 1, "questions": []})
    assert damaged.search(listed.stderr)
    refused = divebook("answer", asked, "retry", "-d", "shop.yaml", "-a", "pay.py")
    assert (refused.exit_code, bool(damaged.search(refused.stderr))) == (2, True)
    assert (folder / "calls").read_text() == "x"
