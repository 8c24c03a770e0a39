"""One process of the chaos: does whatever a person, a program or a scheduler could do, in random order."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from random import Random

from divebook import Run
from divebook.errors import CorruptStoreError, DivebookError, InvalidEventError, StartKeyTakenError, StoreBusyError
from divebook.questions.question import OUTCOME_UNKNOWN
from divebook.stores import SqliteStore, transfer
from divebook.stores.maintenance import check
from divebook.stores.sqlite import back_up
from tests.chaos.subjects import SIGNAL, Folder, JumpingClock, environment

STARTED = ("order", "quick", "scripted", "parent", "agent")
"""Workflows that are started."""
NEVER_FINE = (CorruptStoreError, InvalidEventError, StartKeyTakenError)
"""Errors of ours that nothing that happens here excuses; any other refusal may be right."""
MOST_OPEN = 60
"""Executions on their way at once; above it none is started."""
KEY_SECONDS = 1.0
"""How long all processes mean the same execution by their keys."""


class TightStore(SqliteStore):
    """A store whose disk is full while a quota is set, for this process alone."""

    def set_quota(self, *, full: bool) -> None:
        """Let the file grow no more, or again."""
        with self._lock:
            assert self._writer is not None
            (pages,) = self._writer.execute("PRAGMA page_count").fetchone()
            self._writer.execute(f"PRAGMA max_page_count = {pages if full else 2**30}")


class Worker:
    """What one process does."""

    def __init__(self, folder: Folder, name: str, seed: str) -> None:
        self._folder, self._name, self._random = folder, name, Random(seed)
        self._clock = JumpingClock()
        self._store = TightStore(folder.store)
        self._world = environment(folder, self._store, self._clock)
        self._begun = 0
        self._operations: dict[Callable[[], None], int] = {
            self._start: 24,
            self._start_with_key: 10,
            self._answer: 30,
            self._signal: 30,
            self._resume: 8,
            self._recover: 12,
            self._cancel: 5,
            self._pause: 3,
            self._export: 3,
            self._import: 2,
            self._fork: 6,
            self._back_up: 1,
            self._look: 6,
            self._jump: 3,
            self._fill: 1,
        }

    def work(self, until: float) -> None:
        """Do one thing after another; what must not happen is noted as a finding."""
        chosen, weights = list(self._operations), list(self._operations.values())
        while time.monotonic() < until:
            (operation,) = self._random.choices(chosen, weights)
            try:
                operation()
            except NEVER_FINE as error:
                self._note(operation, error)
            except DivebookError as error:
                self._folder.say("refusals", operation.__name__, type(error).__name__)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
                self._note(operation, error)
            time.sleep(self._random.choice((0, 0, 0.01, 0.05)))
        self._store.set_quota(full=False)
        self._world.close()
        self._store.close()

    def _note(self, operation: Callable[[], None], error: Exception) -> None:
        shown = " / ".join(line.strip() for line in traceback.format_exception(error)[-3:])
        self._folder.say("findings", operation.__name__, f"{type(error).__name__}: {error}", shown.replace("\n", " "))

    # --- starting --------------------------------------------------------------------------------------------------

    def _may_start(self) -> bool:
        return len(self._store.unended()) < MOST_OPEN

    def _begin(self, workflow: str, key: str | None) -> None:
        if not self._may_start():
            return
        self._begun += 1
        token = f"{self._name}.{self._begun}"
        started = self._world.start(workflow, {"token": token}, key=key)
        self._folder.say("started", started.id, key or "")

    def _start(self) -> None:
        self._begin(self._random.choice(STARTED), None)

    def _start_with_key(self) -> None:
        span, number = int(time.monotonic() / KEY_SECONDS), self._random.randrange(3)
        self._begin(STARTED[(span + number) % len(STARTED)], f"{span}-{number}")  # a key is of one workflow

    # --- what is on its way, or was --------------------------------------------------------------------------------

    def _any(self) -> Run | None:
        """Return an execution: most often one that has not ended."""
        records = self._store.unended()
        if not records or self._random.random() < 0.2:
            records = self._world.store.records(limit=50)
        return self._world.run_of(self._random.choice(records).execution_id) if records else None

    def _answer(self) -> None:
        execution = self._any()
        for question in [] if execution is None else execution.open_questions[:2]:
            text = f"{self._name} {self._random.random()}"
            is_unknown = question.kind == OUTCOME_UNKNOWN
            response = self._random.choice(("retry", {"choice": "done", "result": text})) if is_unknown else text
            self._world.answer(question.id, response, execution.id, by=text)
            self._folder.say("answered", execution.id, question.id, text)

    def _signal(self) -> None:
        if (execution := self._any()) is not None:
            self._world.run_of(execution.id).signal(SIGNAL, self._name)

    def _resume(self) -> None:
        if (execution := self._any()) is not None:
            self._world.run_of(execution.id).resume()

    def _recover(self) -> None:
        for record in self._world.queues.recoverable()[:3]:
            self._world.queues.recover(record.execution_id)

    def _cancel(self) -> None:
        if (execution := self._any()) is not None:
            self._world.run_of(execution.id).cancel()

    def _pause(self) -> None:
        for record in self._store.unended():
            execution = self._world.run_of(record.execution_id)
            if execution.is_live:
                execution.pause()
                return

    # --- logs and stores -------------------------------------------------------------------------------------------

    def _export(self) -> None:
        if (execution := self._any()) is not None:
            file = self._folder.exports / f"{self._name}-{self._random.randrange(5)}.jsonl"
            self._world.run_of(execution.id).export(file, overwrite=True, move=self._random.random() < 1 / 8)

    def _import(self) -> None:
        files = sorted(self._folder.exports.glob("*.jsonl"))
        if files and self._may_start():
            is_fork = self._random.random() < 1 / 2  # else a snapshot, or what had ended
            transfer.import_(self._random.choice(files), self._store, rename=True, as_fork=is_fork)

    def _fork(self) -> None:
        if self._may_start() and (execution := self._any()) is not None:
            self._world.run_of(execution.id).fork(self._random.randint(1, len(execution.history())))

    def _back_up(self) -> None:
        copy = self._folder.backups / f"{self._name}-{self._random.randrange(10**9)}.db"
        back_up(self._folder.store, copy)
        with SqliteStore(copy) as store:
            damages = check(store).all_damages()
        if damages:
            self._folder.say("findings", "backup", *map(str, damages[:5]))
        copy.unlink()

    def _look(self) -> None:
        if (execution := self._any()) is not None:
            execution.history()
            self._world.inbox()

    # --- what happens to machines ----------------------------------------------------------------------------------

    def _jump(self) -> None:
        self._clock.jump(self._random)

    def _fill(self) -> None:
        self._store.set_quota(full=True)
        time.sleep(self._random.uniform(0.1, 1.5))
        self._store.set_quota(full=False)


def live(folder: Folder, name: str, seed: str, until: float) -> None:
    """Be a process of the chaos until its time is up; call it in a child process."""
    log = (folder.path / "stderr").open("a", buffering=1)
    os.dup2(log.fileno(), sys.stderr.fileno())
    faulthandler.register(signal.SIGUSR1, file=log)
    logging.basicConfig(level=logging.ERROR, stream=log, force=True)
    with suppress(StoreBusyError):  # so that not even its beginning can be written
        Worker(folder, name, seed).work(until)
