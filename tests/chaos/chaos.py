"""A chaos from beginning to end: processes are killed, stopped and kept from writing; then all is held to account.

The process that runs it has one thread, so that forks are sound, and opens no store before the others have ended.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from subprocess import run

from divebook.stores import SqliteStore
from tests.chaos import audit
from tests.chaos.subjects import Folder, JumpingClock, environment
from tests.chaos.worker import live

DISK_MEGABYTES = 512
LATER = 4 * 86_400_000_000
"""Microseconds, further than any clock has jumped: whatever waits for a time is due then."""
PATIENCE = 120.0
"""Seconds after its time in which a process must have come to its end."""
MORE_SECONDS = 5.0
"""By how much a chaos goes on that has too few executions."""


@dataclass
class Findings:
    """What a chaos came to."""

    executions: int = 0
    events: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)


class Chaos:
    """Processes over one store, and what happens to them."""

    def __init__(self, folder: Folder, seed: int, processes: int, seconds: float, least: int = 0) -> None:
        self._folder, self._seed, self._random = folder, seed, Random(seed)
        self._until, self._least = time.monotonic() + seconds, least
        self._lives = 0
        self._workers = dict.fromkeys(range(processes), 0)
        """Number to the process that is it now."""
        self._stopped: dict[int, float] = {}
        """Process to when it goes on."""
        self._lockers: dict[int, float] = {}
        self.findings = Findings()

    def run(self, say: Callable[[Findings], None]) -> Findings:
        """Let it happen; `say` is called now and then."""
        assert threading.active_count() == 1, "a fork copies only the thread that makes it"
        faults = {self._kill: 10, self._stop: 4, self._lock: 3, self._fill: 2}
        for number in self._workers:
            self._spawn(number)
        said = time.monotonic()
        while self._goes_on():
            time.sleep(self._random.uniform(0.05, 0.4))
            self._reap()
            (fault,) = self._random.choices(list(faults), list(faults.values()))
            fault()
            if time.monotonic() - said > 10:
                said = time.monotonic()
                say(self.findings)
        self._end()
        self._account()
        return self.findings

    def _goes_on(self) -> bool:
        """Say whether there is time left; a slow machine gets more of it, until there are executions enough."""
        if time.monotonic() < self._until:
            return True
        if executions_in(self._folder.store) >= self._least:
            return False
        self._until += MORE_SECONDS
        return True

    def _fork(self, child: Callable[[], None]) -> int:
        process = os.fork()
        if process:
            return process
        code = 1
        try:
            child()
            code = 0
        except BaseException:  # noqa: BLE001 - a child must not go on as a second parent
            import traceback

            self._folder.say("findings", "process", traceback.format_exc().replace("\n", " / "))
        finally:
            os._exit(code)

    def _spawn(self, number: int) -> None:
        self._lives += 1
        name = f"p{number}.{self._lives}"
        self._workers[number] = self._fork(lambda: live(self._folder, name, f"{self._seed} {name}", self._until))

    def _reap(self) -> None:
        """Begin a new life for every process that has ended, and let those go on that have been stopped long enough."""
        now = time.monotonic()
        for process in [process for process, until in self._stopped.items() if until < now]:
            del self._stopped[process]
            os.kill(process, signal.SIGCONT)
        for process in list(self._lockers):
            if os.waitpid(process, os.WNOHANG)[0]:
                del self._lockers[process]
        for number, process in self._workers.items():
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self._note_end(os.waitstatus_to_exitcode(status))
                self._stopped.pop(process, None)
                self._spawn(number)

    def _note_end(self, code: int) -> None:
        if code not in (0, -signal.SIGKILL):
            self.findings.found.append(f"a process ended with {code}")

    # --- what happens to them --------------------------------------------------------------------------------------

    def _kill(self) -> None:
        self.findings.faults["killed"] += 1
        os.kill(self._random.choice(list(self._workers.values())), signal.SIGKILL)

    def _stop(self) -> None:
        process = self._random.choice(list(self._workers.values()))
        if process not in self._stopped:
            self.findings.faults["stopped"] += 1
            os.kill(process, signal.SIGSTOP)
            # Beyond 30 seconds its leases are lost to others, and it comes back not knowing.
            self._stopped[process] = time.monotonic() + self._random.choice((0.2, 1, 3, 3, 33))

    def _lock(self) -> None:
        if self._lockers:
            return
        self.findings.faults["locked"] += 1
        seconds = self._random.choice((0.2, 1, 2, 7))
        process = self._fork(lambda: hold(self._folder.store, seconds))
        self._lockers[process] = time.monotonic() + seconds

    def _fill(self) -> None:
        if not self._folder.disk.is_mount():
            return  # no disk of its own, and that of the machine is not to be filled: its processes have quotas
        self.findings.faults["full"] += 1
        filler = self._folder.disk / "filler"
        free = shutil.disk_usage(self._folder.disk).free
        try:
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, free - 4096 * self._random.choice((0, 2, 20))))
        except OSError:  # somebody else was faster
            pass
        time.sleep(self._random.uniform(0.1, 2))
        filler.unlink()

    # --- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        for process in self._stopped:
            os.kill(process, signal.SIGCONT)
        waiting = {*self._workers.values(), *self._lockers}
        latest = time.monotonic() + PATIENCE
        while waiting and time.monotonic() < latest:
            for process in sorted(waiting):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    waiting.discard(process)
                    self._note_end(os.waitstatus_to_exitcode(status))
            time.sleep(0.05)
        for process in waiting:
            self.findings.found.append(f"process {process} hangs; its stacks are in {self._folder.path / 'stderr'}")
            os.kill(process, signal.SIGUSR1)
            time.sleep(0.5)
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)

    def _account(self) -> None:
        clock = JumpingClock()
        clock.offset = LATER
        with SqliteStore(self._folder.store) as store, environment(self._folder, store, clock) as world:
            found = self.findings
            found.found += audit.finish(world)
            found.found += audit.audit(self._folder, store)
            records = store.records()
            found.executions, found.events = len(records), sum(record.last_sequence for record in records)
            found.statuses = dict(Counter(record.status for record in records))
        found.calls = len(self._folder.said("calls"))
        found.refusals = Counter(" ".join(words) for words in self._folder.said("refusals"))
        found.found += [" | ".join(words) for words in self._folder.said("findings")]
        log = self._folder.path / "stderr"
        if log.exists() and "Traceback" in log.read_text():
            found.found.append(f"there are tracebacks in {log}")


def executions_in(database: Path) -> int:
    """Count them without a store of ours, whose threads a fork would not copy."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
            return int(connection.execute("SELECT count(*) FROM executions").fetchone()[0])
    except sqlite3.OperationalError:  # not made yet, or held by somebody
        return 0


def hold(database: Path, seconds: float) -> None:
    """Hold the write lock of a store, as a program that does something else with it would."""
    connection = sqlite3.connect(database, timeout=10, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:  # no room, or somebody else holds it
        return
    time.sleep(seconds)
    connection.execute("ROLLBACK")


@contextmanager
def small_disk(folder: Path, megabytes: int = DISK_MEGABYTES) -> Iterator[Folder]:
    """Give a folder whose store has a small disk of its own, where this process may make one."""
    disk = folder / "disk"
    for place in (disk, folder / "exports", folder / "backups"):
        place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or run(command, capture_output=True, check=False).returncode:
        yield Folder(folder, folder)
        return
    try:
        yield Folder(folder, disk)
    finally:
        run(["umount", "--lazy", str(disk)], check=True)
