"""The guard's program, in each shell that an image may have as its `sh`."""

import os
import shutil
import subprocess

import pytest

from divebook.workspaces.docker.engine import COMMAND, marked

FIRST = 10 * os.getpid()
"""Of the marks: another test on this machine has others."""
SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}


@pytest.fixture(params=SHELLS)
def shell(request, require):
    require(request.param, shutil.which(request.param) is not None)
    return SHELLS[request.param]


def started(shell, mark, *argv):
    """Start a command with its mark, as the shell in front of it sets that."""
    return subprocess.Popen([*shell, *marked(mark, argv)[1:]], stdout=subprocess.PIPE)


def guard(shell):
    return subprocess.Popen([*shell, *COMMAND[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_what_has_a_mark_is_ended_and_nothing_else(shell):
    with (
        guard(shell) as made,
        started(shell, FIRST + 1, "env", "-i", "sleep", "60") as one,
        started(shell, FIRST + 2, "sleep", "60") as two,
    ):
        made.stdin.write(f"begin {FIRST + 1}\nbegin {FIRST + 2}\nend {FIRST + 1}\n".encode())
        made.stdin.flush()
        one.wait(10)
        assert made.stdout.readline() == b"ended\n"
        assert two.poll() is None
        made.stdin.close()  # as the end of the process outside
        two.wait(10)
        assert made.wait(10) == 0


def test_what_is_done_lives_on(shell):
    with (
        guard(shell) as made,
        started(shell, FIRST + 3, "sleep", "60") as one,
        started(shell, FIRST + 4, "sleep", "60") as two,
    ):
        made.stdin.write(f"begin {FIRST + 3}\nbegin {FIRST + 4}\ndone {FIRST + 3}\n".encode())
        made.stdin.close()
        two.wait(10)
        assert made.wait(10) == 0
        assert one.poll() is None
        one.kill()


def test_a_program_that_is_not_there_is_told_by_the_shell(shell):
    found = subprocess.run([*shell, *marked(FIRST + 5, ["nonexistent_xyz"])[1:]], capture_output=True, check=False)
    assert found.returncode == 127
    assert b"not found" in found.stderr
