"""Commands that go on after whoever began them: each run by a process of its own (runner.py), its output in files."""

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

from divebook.errors import DevEnvError

STDOUT, STDERR = "stdout", "stderr"
ENDED = "ended.json"
"""What the process writes last: exit_code, error and ended_at."""
BEGUN = "job.json"
"""What is known from the start: id, command, started_at, pid, and when that process began."""
_ENDING = 20.0


@dataclass(frozen=True)
class Jobs:
    """The jobs of one environment.

    Parameters
    ----------
    folder
        Where they lie, each in a folder of its own; made with the first.
    """

    folder: Path

    def begin(self, asked: Mapping[str, Any], now: str) -> str:
        """Have a process of its own run a command; return the job's id.

        Parameters
        ----------
        asked
            What runner.py is to do. It comes on that process's input: variables may be secret, and are written nowhere.
        """
        job = f"job-{secrets.token_hex(4)}"
        folder = self.folder / job
        folder.mkdir(mode=0o700, parents=True)
        told = {"id": job, "command": asked["command"], "started_at": now}
        given = json.dumps({**asked, "folder": str(folder), "job": told}).encode()
        with (folder / STDOUT).open("wb") as out, (folder / STDERR).open("wb") as err:
            words = [sys.executable, "-m", "divebook.devenv.runner"]
            ended = subprocess.run(words, input=given, stdout=out, stderr=err, start_new_session=True, check=False)
        if ended.returncode:
            raise DevEnvError(f"the job cannot be begun: {(folder / STDERR).read_text(errors='replace').strip()}")
        return job

    def listed(self) -> list[dict[str, Any]]:
        """Return what is known of each: id, command, started_at, status, and where it has ended exit_code or error."""
        found = [self.told(path.parent.name) for path in self.folder.glob(f"*/{BEGUN}")]
        return sorted(found, key=lambda told: (told["started_at"], told["id"]))

    def told(self, job: str) -> dict[str, Any]:
        """Return what is known of a job; raises `DevEnvError` if there is none of that id."""
        begun = self._begun(job)
        process = (begun.pop("pid"), begun.pop("began"))
        ended: dict[str, Any] = {"exit_code": None}
        with suppress(FileNotFoundError):
            ended = json.loads((self.folder / job / ENDED).read_text("utf-8"))
        status = "ended" if "ended_at" in ended else "running" if _lives(*process) else "killed"
        return {**begun, "status": status, **ended}

    def _begun(self, job: str) -> dict[str, Any]:
        path = self.folder / Path(job).name / BEGUN
        try:
            found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        except OSError:
            known = ", ".join(sorted(path.parent.name for path in self.folder.glob(f"*/{BEGUN}"))) or "none"
            raise DevEnvError(f"there is no job {job!r}; there are: {known}") from None
        return found

    def output(self, job: str) -> tuple[Path, Path]:
        """Return the files of what a job has printed so far; raises as `told`."""
        self._begun(job)
        return self.folder / job / STDOUT, self.folder / job / STDERR

    def kill(self, job: str) -> bool:
        """End a job with all that it has started; return whether it was running."""
        import psutil

        begun = self._begun(job)
        if not _lives(begun["pid"], begun["began"]):
            return False
        with suppress(psutil.Error):
            process = psutil.Process(begun["pid"])
            process.terminate()  # it ends its command, and writes that it has ended
            try:
                process.wait(_ENDING)
            except psutil.TimeoutExpired:
                process.kill()
        return True


def began_at(pid: int) -> float:
    """Return when a process began, by which it is told from later ones of its number; 0 for one that is gone."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def _lives(pid: int, began: float) -> bool:
    import psutil

    try:
        return began_at(pid) == began != 0.0 and bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
