"""How many files an everyday action passes through: a reader who follows it opens all of them."""

import subprocess
import sys

import pytest

MOST = {"start": 50, "answer": 60, "what-if": 75, "turn": 75}
"""Largest number of files of divebook whose functions an action calls, at its second time."""
PROGRAM = """
import os, sys, threading
import divebook
from divebook import Agent, Environment, ScriptedModel, Step, Workflow, tool

FOLDER = os.path.dirname(divebook.__file__) + os.sep
files, threads = set(), set()


def count(frame, event, argument):
    if threading.get_ident() in threads and event == "call" and frame.f_code.co_filename.startswith(FOLDER):
        files.add(frame.f_code.co_filename.removeprefix(FOLDER))


# Before the thread of the engine begins.
threading.setprofile(count)
sys.setprofile(count)


@tool
def look(city: str) -> str:
    return "sunny"


model = ScriptedModel([{"call": {"look": {"city": "Bonn"}}}, "done"] * 2)
environment = Environment(store="memory:", agents=[Agent("a", model=model, tools=[look])])
ADD = Workflow("add", [Step("add", script="1+1", store="n")])
ASK = Workflow("ask", [Step("ask", ask="Fine?", store="x"), Step("then", script="1", store="y")])
TURN = Workflow("turn", [Step("p", prompt="hi", agent="a", store="z")])
asking = [environment.start(ASK).wait() for _ in range(2)]


def answer():
    run = asking.pop()
    run.answer(run.open_questions[0].id, "yes")
    return run.wait()


ACTIONS = {
    "start": lambda: environment.start(ADD).wait(),
    "answer": answer,
    "what-if": environment.start(ADD).wait().what_if,
    "turn": lambda: environment.start(TURN).wait(),
}
action = ACTIONS[sys.argv[1]]
action()
# Other threads, such as that of news, run whenever they come to it.
threads.update(each.ident for each in threading.enumerate() if each.name in ("MainThread", "divebook-engine"))
done = action()
threads.clear()
assert getattr(done, "status", "completed") == "completed", done
print(*sorted(files))
"""


@pytest.mark.parametrize("action", MOST)
def test_an_action_passes_through_few_files(action):
    """A file more is a place more to read: extend a file on the way, or leave a step of the way out."""
    command = [sys.executable, "-c", PROGRAM, action]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    files = done.stdout.split()
    assert 20 < len(files) <= MOST[action], files
