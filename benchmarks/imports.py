"""What it costs to begin: ``import divebook`` over bare Python, ``%load_ext divebook`` over bare IPython."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from benchmarks.figure import Figure

ROUNDS = 9
PYTHON = (sys.executable, "-c")
IPYTHON = (sys.executable, "-m", "IPython", "--no-banner", "--quick", "--HistoryManager.enabled=False", "-c")


def startup() -> Iterator[Figure]:
    """Seconds more than the bare interpreter, best of several alternating rounds."""
    yield more("import divebook over bare Python", [*PYTHON, "pass"], [*PYTHON, "import divebook"], 0.15)
    yield more("%load_ext divebook over bare IPython", [*IPYTHON, "pass"], [*IPYTHON, "%load_ext divebook"], None)


def more(name: str, bare: Sequence[str], loaded: Sequence[str], limit: float | None) -> Figure:
    """Measure both commands in turn and return the difference."""
    times = [(seconds(bare), seconds(loaded)) for _ in range(ROUNDS)]
    bare_s, loaded_s = (min(column) for column in zip(*times, strict=True))
    details = {"bare, s": round(bare_s, 3), "with it": round(loaded_s, 3)}
    return Figure(name, "", loaded_s - bare_s, "s more", limit, details=details)


def seconds(command: Sequence[str]) -> float:
    """Return how long a command takes."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return time.perf_counter() - started
