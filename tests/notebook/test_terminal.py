"""IPython in a terminal: no kernel and no widgets, but a person who can be asked."""

import os
import sys

import pexpect
import pytest

WORKFLOW = """\
%%dive workflow asking
Steps:
  - {Name: approve, Ask: {Kind: confirmation, Question: 'Publish it?'}, Store: approved}


"""
PROMPT = r"In \[\d+\]: "


@pytest.fixture
def terminal(tmp_path):
    """Return a terminal with the extension loaded and a workflow that asks, behind its prompt."""
    command = [sys.executable, "-m", "IPython", "--no-banner", "--simple-prompt", "--colors=NoColor"]
    environ = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython"), "TERM": "dumb"}
    shell = pexpect.spawn(command[0], command[1:], cwd=tmp_path, env=environ, encoding="utf-8", timeout=60)
    shell.expect(PROMPT)
    shell.sendline("%load_ext divebook")
    shell.expect(PROMPT)
    shell.send(WORKFLOW)
    shell.expect("defined workflow 'asking'")
    shell.expect(PROMPT)
    yield shell
    shell.close(force=True)


def test_a_question_is_asked_and_answered_in_a_terminal(terminal):
    terminal.sendline("r = %dive run asking")
    terminal.expect("Publish it\\?")
    terminal.expect(r"Your answer, yes or no \(press Enter to answer later\): ")
    terminal.sendline("yes")
    terminal.expect(PROMPT)
    terminal.sendline("print(r.status, r.variables)")
    terminal.expect_exact("completed {'approved': True}")


def test_a_question_that_is_left_for_later_is_told_with_the_run(terminal):
    terminal.sendline("%dive run asking")
    terminal.expect(r"Your answer, yes or no \(press Enter to answer later\): ")
    terminal.sendline("")
    terminal.expect_exact("to answer: %dive answer ask_")
