"""Commands that go on after whoever began them: each run by a process of its own (runner.py), its output in files."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from divebook.devenv.checkpoints import HALF, RUNNING, STOPPED, EnvironmentCheckpoints, Environments
from divebook.devenv.docker import IMAGE, LABEL, engine_version
from divebook.devenv.isolation import State, found_pythons
from divebook.devenv.templates import Layout
from divebook.errors import (
    CommandFailedError,
    ContainerError,
    DevEnvError,
    EngineUnavailableError,
    EnvironmentDeniedError,
    ShellExecutionError,
    ShellTimeoutError,
)
from divebook.text.format import size, visible
from divebook.text.redaction import shared
from divebook.workspace.docker.engine import KeepingEngine, engine_url

STDOUT = "stdout"
STDERR = "stderr"
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


# The log of what was done with environments: a line for each command, of limited size, without secrets.


LARGEST = 1_000_000
"""Bytes of the log; then it is put aside under its name and ``.1``."""
TEXT = "text"
JSON = "json"


@dataclass
class CommandLog:
    """The log below a root; one that cannot be written is a warning."""

    path: Path
    events: Path
    """The file with the same as JSON, for programs."""
    form: str = TEXT
    is_telling: bool = True
    """Whether warnings are told on stderr as well."""
    is_verbose: bool = False
    """Whether all lines are."""

    def write(self, level: str, at: str, message: str, **facts: Any) -> None:
        """Write a line.

        Parameters
        ----------
        at
            The time, ISO 8601.
        facts
            What lines of JSON have besides: command, environment, tenant, owner, duration (seconds), exit_code.
        """
        text = shared().text(message).replace("\n", " | ")
        if level == "WARNING" and self.is_telling:
            sys.stderr.write(f"dev_env: {visible(text)}\n")
        told = json.dumps({"time": at, "level": level, "message": text, **facts}, ensure_ascii=False)
        line = _line(level, at, text, facts)
        if self.is_verbose and level != "WARNING":
            sys.stderr.write(f"{visible(line)}\n")
        for path, written in ((self.path, told if self.form == JSON else line), (self.events, told)):
            try:
                _append(path, written)
            except OSError as error:
                sys.stderr.write(visible(f"dev_env: the log {path} cannot be written: {error}\n"))

    def lines(self, environment: str) -> Iterator[str]:
        """Yield the lines about an environment, the oldest first."""
        return (line for line in _lines(self.path) if _is_about(line, environment))

    def told(self, tenant: str, environment: str | None = None) -> Iterator[str]:
        """Yield what was done for a tenant, in one environment or all, as lines of JSON, the oldest first."""
        for line in _lines(self.events):
            try:
                facts = json.loads(line)
            except ValueError:  # cut where the disk was full
                continue
            if facts.get("tenant") == tenant and environment in (None, facts.get("environment")):
                yield line


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LARGEST:
        path.replace(f"{path}.1")
    opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(f"{line}\n".encode())


def _lines(path: Path) -> Iterator[str]:
    for part in (Path(f"{path}.1"), path):
        if part.exists():
            yield from part.read_text("utf-8", "replace").splitlines()


def _line(level: str, at: str, text: str, facts: dict[str, Any]) -> str:
    return f"[{level}] {at[:10]} {at[11:19]} - {facts.get('environment') or '-'}: {text}"


def _is_about(line: str, environment: str) -> bool:
    if not line.startswith("{"):
        return line.partition(" - ")[2].startswith(f"{environment}: ")
    try:
        return bool(json.loads(line).get("environment") == environment)
    except ValueError:  # cut where the disk was full
        return False


# What nobody needs any more is removed: environments half made, expired or idle, and what others have left behind.


class Collected(NamedTuple):
    """Something that was removed, or stopped."""

    kind: str
    """environment, container, image or network."""
    name: str
    reason: str
    """half made (or half removed), expired, idle or left behind."""
    done: str
    """removed or stopped."""


@dataclass(frozen=True)
class Collection:
    """One look at the environments of a tenant."""

    environments: Environments
    idle: float | None
    """Seconds without a command after which one is stopped; None for never."""
    is_dry: bool
    """Whether it is only told what would be done."""

    async def carried_out(self) -> AsyncIterator[Collected]:
        """Remove what nobody needs, and tell of each; what is busy stays."""
        async for collected in self._environments():
            yield collected
        if not self.is_dry:
            self.environments.tidy()
        engine = KeepingEngine()
        try:
            async for collected in self._of_engine(engine):
                yield collected
        except EngineUnavailableError:  # then nothing is left there that could be removed
            return
        finally:
            await engine.close()

    async def _environments(self) -> AsyncIterator[Collected]:
        for folder in self.environments.folders():
            if self.environments.state(folder)["tenant"] != self.environments.tenant:
                continue
            with suppress(DevEnvError):  # another process works on it
                async with self.environments.lock(folder.name, wait=0):
                    state = self.environments.state(folder)
                    reason = await self._reason(state, folder.name) if folder.exists() else None
                    if reason is None:
                        continue
                    done = "stopped" if reason == "idle" else "removed"
                    if not self.is_dry and reason == "idle":
                        await self.environments.isolation(folder, state).stop()
                        self.environments.write(folder, {**state, "status": STOPPED})
                    elif not self.is_dry:
                        await self.environments.remove(folder, state)
                    yield Collected("environment", folder.name, reason, done)

    async def _reason(self, state: State, name: str) -> str | None:
        now = datetime.fromisoformat(self.environments.now())
        if state.get("phase") in HALF or not (self.environments.layout.environment(name) / "state.json").exists():
            return "half made"
        if "expires_at" in state and datetime.fromisoformat(state["expires_at"]) <= now:
            return "expired"
        if self.idle is None or state["status"] != RUNNING:
            return None
        unused = (now - datetime.fromisoformat(state["last_used"])).total_seconds()
        isolation = self.environments.isolation(self.environments.layout.environment(name), state)
        is_idle = unused >= self.idle and await isolation.status() == RUNNING and not await isolation.is_busy()
        return "idle" if is_idle else None

    # --- what is left in the engine --------------------------------------------------------------------------------

    async def _of_engine(self, engine: KeepingEngine) -> AsyncIterator[Collected]:
        """Remove the containers, images and networks of this root and tenant whose environments are gone."""
        told = {f"{LABEL}.root": str(self.environments.layout.root), f"{LABEL}.tenant": self.environments.tenant}
        # Before it is looked which environments there are: what is made meanwhile has its record first.
        containers = await engine.labelled(told)
        images = await engine.labelled_images(told)
        states = [self.environments.state(folder) for folder in self.environments.folders()]
        known = {state.get("id") for state in states}
        for container, labels in containers.items():
            if labels.get(f"{LABEL}.id") not in known:
                if not self.is_dry:
                    await engine.remove(container)
                yield Collected("container", container[:12], "left behind", "removed")
        kept = self._kept_images()
        for image, labels in images.items():
            if labels.get(f"{LABEL}.id") not in known and image.removeprefix("sha256:") not in kept:
                if not self.is_dry:
                    with suppress(ContainerError):
                        await engine.remove_image(image)
                yield Collected("image", image[:19], "left behind", "removed")
        if any(state.get("isolation_type", "docker") == "docker" for state in states):
            return
        for network in await engine.labelled_networks(told):
            if not self.is_dry:
                await engine.remove_network(network)
            yield Collected("network", network, "left behind", "removed")

    def _kept_images(self) -> set[str]:
        """Return the digests that checkpoints of environments have, also of those that are gone."""
        own = [folder / "checkpoints" for folder in self.environments.folders()]
        folders = [*own, *self.environments.layout.kept.glob("*/*")]
        checkpoints = [told for folder in folders for told in EnvironmentCheckpoints(folder).listed()]
        found = (artefact for checkpoint in checkpoints for artefact in checkpoint["artefacts"])
        return {artefact["sha256"] for artefact in found if artefact["kind"] == IMAGE}


# Whether this machine has what environments need: a root of one's own, room, Pythons, a container engine.


_ROOM = 1 << 30
"""Bytes below which a disk is as good as full."""


async def checked(layout: Layout) -> list[dict[str, Any]]:
    """Return what was looked at: name, ok, detail, and whether nothing works without it (required)."""
    return [_root(layout), _permissions(layout), _disk(layout), await _engine(), _pythons(), _uv()]


def _told(name: str, detail: str, *, ok: bool, required: bool = False) -> dict[str, Any]:
    return {"name": name, "ok": ok, "required": required, "detail": detail}


def _root(layout: Layout) -> dict[str, Any]:
    is_there = layout.root.is_dir()
    is_open = os.access(layout.root, os.W_OK | os.X_OK)
    detail = f"{layout.root}" if is_there and is_open else f"{layout.root} is no folder that you may write"
    return _told("root", detail, ok=is_there and is_open, required=True)


def _permissions(layout: Layout) -> dict[str, Any]:
    try:
        layout.require_own()
    except EnvironmentDeniedError as error:
        return _told("permissions", str(error), ok=False, required=True)
    return _told("permissions", "nobody else can change what is recorded", ok=True, required=True)


def _disk(layout: Layout) -> dict[str, Any]:
    if not layout.root.is_dir():
        return _told("disk", "there is no root", ok=False, required=True)
    found = shutil.disk_usage(layout.root)
    return _told("disk", f"{size(found.free)} free of {size(found.total)}", ok=found.free >= _ROOM, required=True)


async def _engine() -> dict[str, Any]:
    try:
        return _told("engine", f"{await engine_version()} at {engine_url()}", ok=True)
    except EngineUnavailableError as error:
        return _told("engine", str(error), ok=False)


def _pythons() -> dict[str, Any]:
    found = found_pythons()
    return _told("python", ", ".join(found) or "none on the path", ok=bool(found))


def _uv() -> dict[str, Any]:
    found = shutil.which("uv")
    return _told("uv", found or "not on the path: venv and pip are used", ok=found is not None)


# With what ``dev_env`` ends after an error: what its shell gets and its log says.


GENERAL = DevEnvError.exit_code
NO_ENGINE = 5
FAILED = CommandFailedError.exit_code
"""A command ran and failed, or could not be started."""


def exit_code_of(error: BaseException) -> int:
    """Return the code of an error."""
    if isinstance(error, DevEnvError):
        return error.exit_code
    if isinstance(error, EngineUnavailableError):
        return NO_ENGINE
    return FAILED if isinstance(error, ShellTimeoutError | ShellExecutionError) else GENERAL
