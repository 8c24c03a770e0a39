"""A store that is closed while other threads use it."""

import subprocess
import sys
from pathlib import Path


def test_a_store_may_be_closed_while_other_threads_use_it():
    """In a process of its own: what goes wrong here ends the whole process."""
    command = [sys.executable, "-m", "tests.store.closing", "25"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "25 stores closed: 0 faults []\n"), done.stderr
