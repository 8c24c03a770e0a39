"""``python -m tests.kill.runner``: a process with the imports behind it, which forks one life of the victim at a time.

It reads lines of JSON, ``[folder, point, subject]``, and answers each with the exit code of the life: negative for a
signal. It has one thread only, so that a fork is sound, and waits for the very child that it made.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

import jsonschema  # noqa: F401 - as the next two

from tests.kill.victim import take_up

MOST_SECONDS = 60
"""After which a life that hangs is ended by SIGALRM."""


def main() -> None:
    """Answer until there are no more lines."""
    for line in sys.stdin:
        folder, point, subject = json.loads(line)
        exitcode = life(Path(folder), None if point is None else tuple(point), subject)
        sys.stdout.write(f"{exitcode}\n")
        sys.stdout.flush()


def life(folder: Path, point: tuple[str, int] | None, subject: str) -> int:
    """Run one life; return its exit code."""
    assert threading.active_count() == 1, "a fork copies only the thread that makes it"
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    code = 1
    try:
        signal.alarm(MOST_SECONDS)
        take_up(folder, point, subject)
        code = 0
    except BaseException:  # noqa: BLE001 - the child must not go on as a second runner, whatever happens
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
