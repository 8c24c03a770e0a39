"""``python -m benchmarks --only rows``: a trivial function over the rows of a frame, and what the log has of each."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from benchmarks.figure import Figure
from divebook import Environment
from divebook.mapping import mapped
from divebook.stores import SqliteStore

ROWS, ROUNDS = 100_000, 3
WANTED_A_SECOND, MOST_BYTES = 50_000, 60


def label(text: str, n: int) -> dict[str, object]:
    """Label a row; one of a thousand fails."""
    if n % 1000 == 999:
        raise ValueError(f"row {n}")
    return {"label": ("red", "green", "blue")[n % 3], "score": n * 7919 % 10_000 / 10_000, "length": len(text)}


def rows() -> Iterator[Figure]:
    """Map the frame, and weigh its log."""
    frame = pd.DataFrame({"text": [f"text number {n}" for n in range(ROWS)], "n": range(ROWS)})
    best, weight = 0.0, 0.0
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "log.db")
            with SqliteStore(path, durability="relaxed") as store, Environment(store=store) as environment:
                began = time.perf_counter()
                found = mapped(environment, frame, label, parallel=2).wait()
                best = max(best, ROWS / (time.perf_counter() - began))
                assert len(found.failed) == ROWS // 1000
            weight = sum(file.stat().st_size for file in Path(folder).iterdir()) / ROWS
    yield Figure(f"{ROWS:,} rows", "relaxed", round(best), "rows/s", WANTED_A_SECOND, at_least=True)
    yield Figure("a row in the log, with the frame itself", "relaxed", round(weight), "bytes", MOST_BYTES)
