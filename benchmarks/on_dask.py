"""``python -m benchmarks --only dask``: what a Dask cluster on this machine costs a row, and what two workers gain."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pandas as pd

from benchmarks.figure import Figure
from divebook import Environment
from divebook.mapping import mapped
from divebook.runtime.compute.dask import DaskCluster

ROWS, HEAVY = 20_000, 60
MOST_MS = 1.0


def nothing(n: int) -> int:
    """Return what there is."""
    return n


def busy(n: int) -> int:
    """Keep a processor busy for about 50 ms."""
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        n += 1
    return n


def dask() -> Iterator[Figure]:
    """Map rows on a cluster of two processes."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Environment(store="memory:", executor=DaskCluster(cluster.scheduler_address)) as environment:
            mapped(environment, pd.DataFrame({"n": range(200)}), nothing, parallel=4, store="first").wait()
            began = time.perf_counter()
            mapped(environment, pd.DataFrame({"n": range(ROWS)}), nothing, parallel=4, store="all").wait()
            each = (time.perf_counter() - began) / ROWS * 1000
        took = {}
        for executor in (DaskCluster(cluster.scheduler_address), "thread"):
            with Environment(store="memory:", executor=executor) as environment:
                frame = pd.DataFrame({"n": range(HEAVY)})
                began = time.perf_counter()
                mapped(environment, frame, busy, parallel=2, timeout=60).wait()  # row by row
                took[executor == "thread"] = time.perf_counter() - began
    yield Figure(f"{ROWS:,} rows on a Dask cluster, chunks of the map", "memory", round(each, 3), "ms a row", MOST_MS)
    gained = round(took[True] / took[False], 2)
    yield Figure(
        f"{HEAVY} rows that keep a processor busy, on two of its workers, speed-up",
        "memory",
        gained,
        "times",
        1.3,
        at_least=True,
    )
