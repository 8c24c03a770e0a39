"""The work of `benchmarks.servers` as DBOS does it: steps one after the other, and runs of three steps, 32 at once.

python -m benchmarks.beside_dbos postgresql://...

Needs the package dbos, which divebook does not: `benchmarks.servers` starts this where it is installed. Prints the
seconds of each round, a JSON list a line.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS  # type: ignore[import-not-found, unused-ignore]

from benchmarks.servers import AT_ONCE, EXECUTIONS, ROUNDS, STEPS


@DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
def one() -> int:
    """Do as little as the other's step."""
    return 1 + 1


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
def steps(count: int) -> None:
    """Take steps one after the other."""
    for _ in range(count):
        one()


def main() -> None:
    """Measure it on the database that is named."""
    DBOS(config={"name": "bench", "system_database_url": sys.argv[1], "log_level": "ERROR"})
    DBOS.launch()
    steps(3)
    for _ in range(ROUNDS):
        began = time.perf_counter()
        steps(STEPS)
        between = time.perf_counter()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda _: steps(3), range(EXECUTIONS)))
        sys.stdout.write(f"{json.dumps([between - began, time.perf_counter() - between])}\n")
    DBOS.destroy()


if __name__ == "__main__":
    main()
