"""``python -m tests.rows.kills [KILLS]``: a process that maps is killed again and again, at any moment.

Of rows that may be called twice at most a second's worth are, each time; of others none is without a question. In the
end all rows are there, each with what its call gave.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

PROGRAM = Path(__file__).parent / "mapping_in_a_process.py"
ROWS, SECONDS, PARALLEL = 8_000, 0.02, 100
A_SECOND = 1.2 * PARALLEL / SECONDS + PARALLEL
"""Rows that may end in what a second becomes on a busy machine, and those under way."""


def killed(folder, kills, random, idempotent, rows=ROWS):
    """Kill a map so many times; return how often each row was called, and what the last process printed."""
    folder.mkdir(parents=True)
    trace = folder / "trace"
    trace.touch()
    command = [sys.executable, str(PROGRAM), str(folder / "store.db"), str(trace), str(rows), str(SECONDS), idempotent]
    calls = []
    for _ in range(kills):
        before, wanted = len(calls), random.randint(1, rows // (kills + 1))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            while len(calls) < before + wanted and process.poll() is None:
                time.sleep(0.005)
                calls = trace.read_text().split()
            process.kill()
        calls = trace.read_text().split()
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return Counter(trace.read_text().split()), json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.rows.kills", description=__doc__)
    parser.add_argument("kills", nargs="?", type=int, default=20)
    count = parser.parse_args().kills
    with tempfile.TemporaryDirectory(prefix="divebook-rows-") as place:
        called, told = killed(Path(place) / "twice", count, Random(1), "yes")
        twice = sum(times - 1 for times in called.values())
        sys.stdout.write(f"{count} kills, {ROWS} rows: {told}, {twice} calls made again\n")
        assert told == {"rows": ROWS, "errors": 0, "asked": []}
        assert twice <= count * A_SECOND
        called, told = killed(Path(place) / "once", 1, Random(2), "no")
        sys.stdout.write(f"not to be called twice: {told}, {max(called.values())} calls of a row at most\n")
        assert max(called.values()) == 1
        assert len(told["asked"]) == 1


if __name__ == "__main__":
    main()
