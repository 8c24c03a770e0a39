"""No server is left behind, whatever ends what has started it; servers here ignore their end of input and SIGTERM."""

import subprocess
import sys

import pytest

from divebook import Agent, ScriptedModel, Step, Workflow
from tests.runtime.worlds import environment
from tests.tools.conftest import defined
from tests.tools.processes import alive, family, none_left

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
ASK = Workflow("ask", [Step("ask", prompt="Go", agent="a", store="said")])
KERNEL = """
import os, signal, sys
from tests.tools.test_mcp_processes import ASK, world
here = world()
print(here.start("ask").wait(60).status, flush=True)
sys.stdin.readline()
"""


def world():
    server = defined("rough.py", "ignores", trusted=True)
    return environment(ASK, agents=[Agent("a", model=ScriptedModel([{"call": {"go": {}}}, "done"]), servers=[server])])


def pid_of_server(execution):
    parts = (part for message in execution.requests[-1].messages for part in message["parts"])
    (said,) = (part["content"] for part in parts if part["part_kind"] == "tool-return")
    return int(said.removeprefix("ignores "))


def test_no_server_outlives_a_closed_environment():
    with world() as here:
        execution = here.start("ask").wait(60)
        pid = pid_of_server(execution)
        assert alive([pid])  # it serves the next run as well
        assert pid_of_server(here.start("ask").wait(60)) == pid
    assert not alive([pid])


def test_no_server_outlives_its_kernel():
    command = [sys.executable, "-c", KERNEL]
    kernels = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    with kernels[0] as ends, kernels[1] as killed:
        for kernel in kernels:
            assert kernel.stdout.readline() == "completed\n"
        started = [family(kernel.pid) for kernel in kernels]
        assert min(map(len, started)) >= 3  # it, the guard, the server
        ends.stdin.close()  # it ends in its own way, without closing anything
        killed.kill()
        assert none_left([pid for pids in started for pid in pids])
