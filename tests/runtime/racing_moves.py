"""Executions that move to a file while another process answers their questions: no accepted answer is lost.

``python -m tests.runtime.racing_moves STORE [ROUNDS]`` races a move against an answer in each round. STORE is a file or
the URL of a database. In each round, either the answer is refused and the execution moves, or the answer is accepted
and the move is refused.
"""

import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from itertools import islice
from pathlib import Path

from divebook import Environment, Step, Workflow
from divebook.engine.inbox import ANSWER, Message, answer_payload
from divebook.errors import ExecutionEndedError, ExecutionError
from divebook.stores import open_store

ROOT = Path(__file__).parents[2]
ASKS = Workflow("asks", [Step("ask", ask="Who?", store="who")], outputs=["who"])
ACCEPTED, REFUSED = "accepted", "refused"
MOMENTS = ("read", "inbox", "append_all")
"""Methods of the store before whose call a move makes the other process answer."""


class Competitor:
    """A process that answers the questions that it is sent, as fast as it can."""

    def __init__(self, location):
        command = [sys.executable, "-m", "tests.runtime.racing_moves", "--answer", str(location)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=ROOT, text=True, bufsize=1, **pipes)

    def send(self, execution_id, question_id):
        self.process.stdin.write(f"{execution_id} {question_id}\n")

    def outcome(self):
        return self.process.stdout.readline().strip()

    def __enter__(self):
        assert self.outcome() == "ready"
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(60) == 0


def race(location, rounds):
    """Race `rounds` moves against answers, and check each outcome. Return how often the answers had each outcome."""
    outcomes = Counter()
    with (
        Environment(store=open_store(location), workflows=[ASKS]) as world,
        tempfile.TemporaryDirectory() as folder,
        Competitor(location) as competitor,
    ):
        for number in range(rounds):
            execution = world.start("asks").wait(20)
            file = Path(folder) / f"{number}.jsonl"
            (question,) = execution.open_questions
            at_moment(
                world.store,
                MOMENTS[number % len(MOMENTS)],
                lambda sent=(execution.id, question.id): competitor.send(*sent),
            )
            with suppress(ExecutionError):
                world.run_of(execution.id).export(file, move=True)
            outcome = competitor.outcome()
            outcomes[outcome] += 1
            check(world, execution, file, outcome)
    return outcomes


def at_moment(store, name, act):
    """Make the next call of a method of the store call `act` first."""
    method = getattr(store, name)

    def acting(*arguments):
        delattr(store, name)
        act()
        return method(*arguments)

    setattr(store, name, acting)


def check(world, execution, file, outcome):
    """Check that the execution has moved if the answer was refused, and otherwise continues with the answer."""
    status = world.store.record(execution.id).status
    if outcome == REFUSED:
        assert (status, file.exists(), world.store.inbox(execution.id)) == ("moved", True, [])
    else:
        assert (outcome, status, file.exists()) == (ACCEPTED, "waiting", False)
        assert world.run_of(execution.id).resume().wait(20).outputs == {"who": "ann"}


def answer(location):
    """Answer the questions whose execution and id the standard input names."""
    with open_store(location) as store:
        say("ready")
        for line in sys.stdin:
            execution_id, question_id = line.split()
            payload = answer_payload({"text": "ann"}, "ann")
            try:
                store.post(Message(execution_id, ANSWER, question_id, payload, "ann", 1))
            except ExecutionEndedError:
                say(REFUSED)
            else:
                say(ACCEPTED)


def say(word):
    """Write a line to the standard output at once."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "--answer":
        answer(sys.argv[2])
    else:
        place, number_of_rounds = islice([*sys.argv[1:], "200"], 2)
        say(dict(race(place, int(number_of_rounds))))
