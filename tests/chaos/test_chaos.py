"""A short chaos: four processes, a fixed seed, and nothing found; ``python -m benchmarks.chaos`` is the long one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked, stopped and killed")

ROOT = Path(__file__).parent.parent.parent


def test_processes_that_do_everything_at_once_leave_every_log_whole_and_every_call_made_once():
    chaos = [sys.executable, "-m", "benchmarks.chaos", "--minutes", "0.2", "--least", "10"]
    command = [*chaos, "--processes", "4", "--seed", "7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    found = [line["text"] for line in said if line["chaos"] == "finding"]
    assert (done.returncode, found) == (0, []), done.stderr
    assert said[-1]["chaos"] == "done"
    assert said[-1]["executions"] >= 10
    assert said[-1]["calls"] >= 10
    assert said[-1]["faults"]["killed"] >= 5
