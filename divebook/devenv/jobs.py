"""Commands that continue after their caller ends: a process for each (runner.py), with its output in files."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divebook.errors import (
    DevEnvError,
)

STDOUT = "stdout"
STDERR = "stderr"
ENDED = "ended.json"
"""File that the process writes last: exit_code, error and ended_at."""
STARTED = "job.json"
"""File that is written at the start: id, command, started_at, pid, and the start time of that process."""
_ENDING = 20.0


@dataclass(frozen=True)
class Jobs:
    """The jobs of one environment.

    Parameters
    ----------
    folder
        Folder with a folder for each job; created with the first.
    """

    folder: Path

    def start(self, request: Mapping[str, Any], now: str) -> str:
        """Run a command in a process of its own; return the id of the job.

        Parameters
        ----------
        request
            Arguments of runner.py. They are passed on the standard input of that process: variables may be secret and
            must not be written to a file.
        """
        job = f"job-{secrets.token_hex(4)}"
        folder = self.folder / job
        folder.mkdir(mode=0o700, parents=True)
        record = {"id": job, "command": request["command"], "started_at": now}
        message = json.dumps({**request, "folder": str(folder), "job": record}).encode()
        with (folder / STDOUT).open("wb") as out, (folder / STDERR).open("wb") as err:
            words = [sys.executable, "-m", "divebook.devenv.runner"]
            process = subprocess.run(words, input=message, stdout=out, stderr=err, start_new_session=True, check=False)
        if process.returncode:
            raise DevEnvError(f"the job cannot be begun: {(folder / STDERR).read_text(errors='replace').strip()}")
        return job

    def records(self) -> list[dict[str, Any]]:
        """Return the records of all jobs: id, command, started_at, status, and exit_code or error after the end."""
        records = [self.record(path.parent.name) for path in self.folder.glob(f"*/{STARTED}")]
        return sorted(records, key=lambda record: (record["started_at"], record["id"]))

    def record(self, job: str) -> dict[str, Any]:
        """Return the record of a job; raises `DevEnvError` for an unknown id."""
        record = self._start_record(job)
        process = (record.pop("pid"), record.pop("began"))
        result: dict[str, Any] = {"exit_code": None}
        with suppress(FileNotFoundError):
            result = json.loads((self.folder / job / ENDED).read_text("utf-8"))
        if "ended_at" in result:
            status = "ended"
        elif _lives(*process):
            status = "running"
        else:
            status = "killed"
        return {**record, "status": status, **result}

    def _start_record(self, job: str) -> dict[str, Any]:
        path = self.folder / Path(job).name / STARTED
        try:
            record: dict[str, Any] = json.loads(path.read_text("utf-8"))
        except OSError:
            jobs = ", ".join(sorted(path.parent.name for path in self.folder.glob(f"*/{STARTED}"))) or "none"
            raise DevEnvError(f"there is no job {job!r}; there are: {jobs}") from None
        return record

    def output(self, job: str) -> tuple[Path, Path]:
        """Return the files with stdout and stderr of a job; raises as `record`."""
        self._start_record(job)
        return self.folder / job / STDOUT, self.folder / job / STDERR

    def kill(self, job: str) -> bool:
        """End a job with all its processes; return whether it was running."""
        import psutil

        record = self._start_record(job)
        if not _lives(record["pid"], record["began"]):
            return False
        with suppress(psutil.Error):
            process = psutil.Process(record["pid"])
            process.terminate()  # it ends its command, and writes the result
            try:
                process.wait(_ENDING)
            except psutil.TimeoutExpired:
                process.kill()
        return True


def start_time(pid: int) -> float:
    """Return the start time of a process, which distinguishes it from later ones with the same id.

    0 if it has ended.
    """
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def _lives(pid: int, began: float) -> bool:
    import psutil

    try:
        return start_time(pid) == began != 0.0 and bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
