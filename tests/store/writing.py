"""A process that writes without a pause, with what it acknowledges on a board that others read."""

from __future__ import annotations

import mmap
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from divebook.stores import SqliteStore
from divebook.stores.maintenance import check

ROOT = Path(__file__).parent.parent.parent

WRITER = """
import mmap, struct, sys
from divebook.stores import Owner, SqliteStore
from divebook.events.catalog import StepCompleted
from tests.store.large_promises import text
from tests.store.logs import batch, event, execution_id, log

path, acknowledged = sys.argv[1:]
names = [execution_id(number) for number in range(2)]
large = [text(80_000, seed) for seed in range(4)]
with open(acknowledged, "r+b") as file, SqliteStore(path) as store:
    board = mmap.mmap(file.fileno(), 0)
    store._writer.execute("PRAGMA wal_autocheckpoint = 20")  # many checkpoints in a short time
    store.append_all([batch(name, 0, log(1, name), acquire=Owner.current()) for name in names])
    for last in range(1, 10**6):
        output = large[last // 50 % 4] if last % 50 == 0 else "x" * (last * 7 % 1000)
        new = [event(last + 1, StepCompleted(output=output), name) for name in names]
        assert store.append_all([batch(name, last, [new], 1) for name, new in zip(names, new)]) == [None, None]
        if last % 7 == 0:
            store.put_checkpoint(names[0], last, b"fold")
        board[:8] = struct.pack("q", last + 1)
"""


class Writing:
    """A writer at work on `path`, two executions at a time."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path, board: mmap.mmap) -> None:
        self.process, self.path, self._board = process, path, board

    @property
    def acknowledged(self) -> int:
        """How many events of each execution the store has acknowledged."""
        found: int = struct.unpack("q", self._board[:8])[0]
        return found


@contextmanager
def writing(folder: Path) -> Iterator[Writing]:
    """Start the writer in a folder, wait for its first events, and kill it in the end."""
    path, board = folder / "executions.db", folder / "acknowledged"
    board.write_bytes(bytes(8))
    with (
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(board)], cwd=ROOT) as process,
        board.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as shown,
    ):
        found = Writing(process, path, shown)
        try:
            while not found.acknowledged:
                assert process.poll() is None
                time.sleep(0.001)
            yield found
        finally:
            process.kill()


def examine(copy: Path, acknowledged: int) -> None:
    """Check that a copy is sound and has what was acknowledged."""
    with SqliteStore(copy, durability="relaxed") as store:
        report = check(store)
        assert report.all_damages() == []
        assert len(report.executions) == 2
        lengths = {entry.events for entry in report.executions}
        assert len(lengths) == 1  # batches that were written together
        assert lengths.pop() >= acknowledged
