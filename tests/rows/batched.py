"""``python -m tests.rows.batched [ROWS] [KILLS]``: a process that maps by batches is killed again and again.

The server speaks OpenAI's batch API and counts what it was sent: each row is in one batch in the end, whatever the
process was at when it died, and nobody is asked, since a batch that may have been made is found again there.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.rows.batch_server import batch_server

PROGRAM = Path(__file__).parent / "batches_in_a_process.py"
PARTS = 40


def killed(folder, rows, kills, random, parts=PARTS):
    """Kill a map so many times; return what the last process printed, how often it was killed, and the server."""
    with batch_server(looks=2, seconds=0.05) as server:
        command = [sys.executable, str(PROGRAM), str(folder / "store.db"), server.url, str(rows), str(rows // parts)]
        done = 0
        for _ in range(kills):
            before, wanted = len(server.requests), random.randint(1, max(1, 4 * parts // kills))
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                while len(server.requests) < before + wanted and process.poll() is None:
                    time.sleep(0.002)
                time.sleep(random.random() / 8)
                done += process.poll() is None
                process.kill()
        last = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(last.stdout.splitlines()[-1]), done, server


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.rows.batched", description=__doc__)
    parser.add_argument("rows", nargs="?", type=int, default=10_000)
    parser.add_argument("kills", nargs="?", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="divebook-batches-") as folder:
        told, kills, server = killed(Path(folder), given.rows, given.kills, Random(1))
        most = max(server.submitted.values())
        sys.stdout.write(
            f"{given.rows} rows, {kills} kills: {told}, {len(server.batches)} batches, "
            f"each row submitted {most} time(s) at most\n"
        )
        assert told == {"rows": given.rows, "errors": 0, "asked": []}
        assert len(server.submitted) == given.rows
        assert most == 1
        assert kills == given.kills


if __name__ == "__main__":
    main()
