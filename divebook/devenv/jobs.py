"""Background jobs of development environments, the log files of all commands, and the exit codes of the program
``dev_env``.

A job is a command that continues after its caller ends. Each job is a process of its own (runner.py), whose output goes
to files.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divebook.errors import (
    CommandFailedError,
    DevEnvError,
    EngineUnavailableError,
    ShellExecutionError,
    ShellTimeoutError,
)
from divebook.processes import is_running, start_of, this_boot
from divebook.text.format import visible
from divebook.text.redaction import shared
from divebook.workspaces.background import ProcessStatus

STDOUT = "stdout"
STDERR = "stderr"
ENDED = "ended.json"
"""Name of the file that the process of a job writes at its end: exit_code, error and ended_at."""
STARTED = "job.json"
"""Name of the file written when a job starts: id, command, started_at, and the fields of `process_fields`."""
_ENDING = 20.0


@dataclass(frozen=True)
class Jobs:
    """The background jobs of one environment: commands that continue after the process that started them.

    Parameters
    ----------
    folder
        Folder that has a subfolder for each job. It is created with the first job.
    """

    folder: Path

    def start_job(self, request: Mapping[str, Any], now: str) -> str:
        """Start a command in the environment as a background job. Return the id of the job.

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
        # The runner forks and returns at once. A session of its own keeps signals to the caller from reaching the job.
        with (folder / STDOUT).open("wb") as out, (folder / STDERR).open("wb") as err:
            words = [sys.executable, "-m", "divebook.devenv.runner"]
            process = subprocess.run(words, input=message, stdout=out, stderr=err, start_new_session=True, check=False)
        if process.returncode:
            raise DevEnvError(f"the job cannot be started: {(folder / STDERR).read_text(errors='replace').strip()}")
        return job

    def records(self) -> list[dict[str, Any]]:
        """Return a record of each background job: id, command, started_at, status, and after its end exit_code or
        error.
        """
        records = [self.record(path.parent.name) for path in self.folder.glob(f"*/{STARTED}")]
        return sorted(records, key=lambda record: (record["started_at"], record["id"]))

    def record(self, job: str) -> dict[str, Any]:
        """Return the record of the background job with this id. Raise `DevEnvError` for an unknown id."""
        record = self._start_record(job)
        process = {key: record.pop(key) for key in _PROCESS_FIELDS if key in record}
        # The process is checked before its result is read: a job that ends in between has written the result by then
        # (test_a_job_that_ends_while_it_is_looked_at_has_ended).
        is_alive = _is_alive(process)
        # The process writes its result last, so that a result alone shows that the job has ended.
        result: dict[str, Any] = {"exit_code": None}
        with suppress(FileNotFoundError):
            result = json.loads((self.folder / job / ENDED).read_text("utf-8"))
        status: ProcessStatus  # of background processes of workspaces: the same words
        if "ended_at" in result:
            status = "ended"
        elif is_alive:
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
            raise DevEnvError(f"there is no job {job!r}; existing jobs: {jobs}") from None
        return record

    def output(self, job: str) -> tuple[Path, Path]:
        """Return the paths of the two files that contain stdout and stderr of a background job. Raise `DevEnvError` for
        an unknown id.
        """
        self._start_record(job)
        return self.folder / job / STDOUT, self.folder / job / STDERR

    def kill(self, job: str) -> bool:
        """End a background job and its command. Return False if the job had already ended."""
        import psutil

        record = self._start_record(job)
        if not _is_alive(record):
            return False
        with suppress(psutil.Error):
            try:
                process = psutil.Process(record["pid"])
                process.terminate()  # it ends its command, and writes the result
            except psutil.NoSuchProcess:  # it has ended since it was checked
                return False
            try:
                process.wait(_ENDING)
            except psutil.TimeoutExpired:
                # This ends the command, too: it does not outlive the process that has started it.
                process.kill()
        return True


_PROCESS_FIELDS = ("pid", "began", "ticks", "boot")


def process_fields(pid: int) -> dict[str, Any]:
    """Return the fields of a job's record that identify its process: pid, start time in ticks (0 if it has ended, or if
    the system does not count them), boot, and began, the start time in seconds.
    """
    # `began` is for versions that do not know the others. It changes when the clock of the machine is set.
    return {"pid": pid, "began": _began(pid), "ticks": start_of(pid), "boot": this_boot()}


def _began(pid: int) -> float:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def _is_alive(process: Mapping[str, Any]) -> bool:
    """Return True if the process with these `process_fields` still runs."""
    import psutil

    if process.get("ticks"):
        return bool(process["boot"] == this_boot() and is_running(process["pid"], process["ticks"]))
    # An older version has written the record, or the system counts no ticks.
    try:
        # 0.0 means that the job had ended before it was recorded. A zombie has ended, too.
        began = process["began"]
        is_zombie = psutil.Process(process["pid"]).status() == psutil.STATUS_ZOMBIE
        return _began(process["pid"]) == began != 0.0 and not is_zombie
    except psutil.Error:
        return False


# --- command log -----------------------------------------------------------------------------------------------------
#
# Log of the operations on environments: one line each, of limited size, without secrets.


LARGEST = 1_000_000
"""Maximum size of a log file in bytes. A larger file is first renamed, with ``.1`` appended to its name."""
TEXT = "text"
JSON = "json"


@dataclass
class CommandLog:
    """The two log files of all commands on the environments of a root folder: one for people, and one with JSON lines
    for programs.

    If a file cannot be written, a warning is printed.
    """

    path: Path
    events: Path
    """Path of the log that always has the JSON form, for programs."""
    form: str = TEXT
    prints_warnings: bool = True
    """True if warnings are also printed on stderr."""
    is_verbose: bool = False
    """True if all lines are also printed on stderr."""

    def write(self, level: str, at: str, message: str, **facts: Any) -> None:
        """Write an entry to both log files. Secrets in the message are redacted.

        Parameters
        ----------
        at
            The time as ISO 8601.
        facts
            Further fields of the JSON line: command, environment, tenant, owner, duration (seconds), exit_code.
        """
        text = shared().text(message).replace("\n", " | ")
        if level == "WARNING" and self.prints_warnings:
            sys.stderr.write(f"dev_env: {visible(text)}\n")
        json_line = json.dumps({"time": at, "level": level, "message": text, **facts}, ensure_ascii=False)
        text_line = _line(level, at, text, facts)
        if self.is_verbose and level != "WARNING":
            sys.stderr.write(f"{visible(text_line)}\n")
        # A log that cannot be written must not make the operation fail.
        for path, entry in ((self.path, json_line if self.form == JSON else text_line), (self.events, json_line)):
            try:
                _append(path, entry)
            except OSError as error:
                sys.stderr.write(visible(f"dev_env: the log {path} cannot be written: {error}\n"))

    def lines(self, environment: str) -> Iterator[str]:
        """Return the lines about one environment in the log for people, oldest first."""
        return (line for line in _lines(self.path) if _is_about(line, environment))

    def json_lines(self, tenant: str, environment: str | None = None) -> Iterator[str]:
        """Yield the lines of the JSON log that are about the environments of a tenant, or about one of these
        environments, oldest first.
        """
        for line in _lines(self.events):
            try:
                facts = json.loads(line)
            except ValueError:  # cut where the disk was full
                continue
            if facts.get("tenant") == tenant and environment in (None, facts.get("environment")):
                yield line


@dataclass(frozen=True)
class ActivityLog:
    """Logger for the operations of one `DevEnvManager`. It adds the tenant, the owner and the time to each entry."""

    log: CommandLog
    tenant: str
    owner: str
    now: Callable[[], str]

    def warn(self, message: str, environment: str = "") -> None:
        """Log a warning about an environment. It is also printed if `CommandLog.prints_warnings` is true."""
        self.log.write("WARNING", self.now(), message, environment=environment, tenant=self.tenant)

    @contextmanager
    def operation(self, command: str, name: str, detail: str = "") -> Iterator[dict[str, Any]]:
        """Write one log entry for the operation that runs inside the ``with`` block, when the block ends. The entry has
        its result, duration and exit code.

        Yields a dict, in which the block may set ``exit_code``. If the block raises, `exit_code_of` determines it.
        """
        started = time.monotonic()
        result = {"exit_code": 0}
        level = "INFO"
        outcome = "done"
        try:
            yield result
        except BaseException as error:
            level = "ERROR"
            outcome = str(error) or type(error).__name__
            result["exit_code"] = exit_code_of(error)
            raise
        finally:
            seconds = round(time.monotonic() - started, 3)
            exit_code = result["exit_code"]
            labels = {"command": command, "environment": name, "tenant": self.tenant, "owner": self.owner}
            text = f"{command} {detail}".rstrip()
            message = f"{text}: {outcome} (exit code {exit_code}, {seconds} s)"
            self.log.write(level, self.now(), message, **labels, duration=seconds, exit_code=exit_code)


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LARGEST:
        path.replace(f"{path}.1")
    # Appended by one write, so that lines of several processes do not mix.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(f"{line}\n".encode())


def _lines(path: Path) -> Iterator[str]:
    for part in (Path(f"{path}.1"), path):
        if part.exists():
            yield from part.read_text("utf-8", "replace").splitlines()


def _line(level: str, at: str, text: str, facts: dict[str, Any]) -> str:
    # "2026-01-25T10:00:00.000Z" -> "2026-01-25 10:00:00"
    return f"[{level}] {at[:10]} {at[11:19]} - {facts.get('environment') or '-'}: {text}"


def _is_about(line: str, environment: str) -> bool:
    if not line.startswith("{"):
        # "[INFO] 2026-01-25 10:00:00 - app: execute ls: done ..." is about "app".
        return line.partition(" - ")[2].startswith(f"{environment}: ")
    try:
        return bool(json.loads(line).get("environment") == environment)
    except ValueError:  # cut where the disk was full
        return False


# --- exit codes of the program ``dev_env``, which the log records too ---


GENERAL = DevEnvError.exit_code
NO_ENGINE = 5
FAILED = CommandFailedError.exit_code
"""Exit code of ``dev_env`` if a command failed or could not be started."""


def exit_code_of(error: BaseException) -> int:
    """Return the exit code with which the program ``dev_env`` reports an exception."""
    if isinstance(error, DevEnvError):
        return error.exit_code
    if isinstance(error, EngineUnavailableError):
        return NO_ENGINE
    return FAILED if isinstance(error, ShellTimeoutError | ShellExecutionError) else GENERAL
