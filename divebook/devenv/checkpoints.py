"""EnvironmentCheckpoints of an environment: its files as a tree with contents, and what its kind keeps besides."""

from __future__ import annotations

import asyncio
import errno
import json
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from divebook.devenv.docker import DockerIsolation, KeptContents, digest_of
from divebook.devenv.isolation import Isolation, NativeIsolation, State, VirtualenvIsolation, end_processes, size_of
from divebook.devenv.templates import Configuration, Layout, Retrying, RootSettings, checked_name, write_json
from divebook.errors import (
    CheckpointNotFoundError,
    ContainerError,
    DevEnvError,
    DivebookError,
    EnvironmentDeniedError,
    EnvironmentNotFoundError,
    LimitExceededError,
    NotReplacedError,
)
from divebook.workspace.paths import Root
from divebook.workspace.snapshots.take import Snapshots
from divebook.workspace.snapshots.tree import FILE, Tree, TreeEntry, shown_path

BACKUP = "pre-restore"
"""The checkpoint that is taken before another one is restored, and goes when that is done."""
SCHEMA = 1
IGNORED = ".devenvignore"
"""The file with patterns of what checkpoints leave out, one a line."""
LARGEST = 2 << 30
"""Bytes of a folder that a checkpoint takes without being forced."""
_FILES = "files"
_FILES_FILE = "files.json"
_MANIFEST = "checkpoint.json"
_PASSING = ".saving-"
_GONE = ".gone-"


class SavedFolder(NamedTuple):
    """A folder as it is to be kept, or put back."""

    path: Path
    exclude: tuple[str, ...]


class EnvironmentCheckpoints:
    """The checkpoints of one environment.

    Parameters
    ----------
    folder
        Where they lie; made with the first.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents = KeptContents(folder / ".contents")

    # --- what there is ---------------------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        """Return the folder of a checkpoint, which need not be there."""
        return self._folder / checked_name(name, "checkpoint")

    def read(self, name: str) -> dict[str, Any]:
        """Return what is said of a checkpoint; raises `CheckpointNotFoundError`."""
        path = self.path(name)
        try:
            return _manifest(path)
        except FileNotFoundError:
            known = ", ".join(found["name"] for found in self.listed()) or "none"
            raise CheckpointNotFoundError(f"there is no checkpoint {name!r}; there are: {known}") from None
        except ValueError as error:
            raise DevEnvError(f"the checkpoint {name!r} is damaged: {error}") from error

    def listed(self) -> list[dict[str, Any]]:
        """Return what is said of each, the oldest first; one that cannot be read is left out."""
        found = []
        for path in self._folder.glob("[!.]*"):
            with suppress(OSError, ValueError):
                found.append(_manifest(path))
        return sorted(found, key=lambda told: (told["created_at"], told["name"]))

    def mend(self) -> None:
        """Take away what somebody left who was killed; a checkpoint that was being replaced is back under its name."""
        for left in self._folder.glob(f"{_PASSING}*"):
            try:
                path = self.path(_manifest(left)["name"])
            except (OSError, ValueError):
                path = left
            if path.exists():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.rename(path)
        for gone in self._folder.glob(f"{_GONE}*"):
            shutil.rmtree(gone, ignore_errors=True)

    # --- taking ----------------------------------------------------------------------------------------------------

    def begin(self, name: str, *, overwrite: bool) -> Path:
        """Return a folder in which a checkpoint is made."""
        if self.path(name).exists() and not overwrite:
            raise DevEnvError(f"there is a checkpoint {name!r}: choose another name, or replace it with --overwrite")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        passing = self._folder / f"{_PASSING}{secrets.token_hex(6)}"
        passing.mkdir(mode=0o700)
        return passing

    def keep_files(self, passing: Path, folders: Mapping[str, SavedFolder]) -> tuple[dict[str, Any], list[str]]:
        """Keep the files of folders; return the artefact, and what was left out, with why."""
        trees = {}
        left_out = []
        try:
            for name, folder in folders.items():
                root = Root(folder.path)
                try:
                    with Snapshots(root, exclude=folder.exclude, watch=False) as snapshots:
                        taken = snapshots.take()
                finally:
                    root.close()
                self._contents.keep(taken.contents)
                trees[name] = [[path, *entry] for path, entry in sorted(taken.tree.entries.items())]
                left_out += [f"{name}/{shown_path(left.path)}: {left.reason}" for left in taken.tree.problems]
            text = json.dumps(trees)
            (passing / _FILES_FILE).write_text(text, encoding="utf-8")
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise LimitExceededError(f"there is no room for the checkpoint: {error}") from error
            raise DevEnvError(f"the files cannot be kept: {error}") from error
        digest = sha256(text.encode()).hexdigest()
        return {"kind": _FILES, "path": _FILES_FILE, "sha256": digest}, left_out

    def finish(self, passing: Path, name: str, told: Mapping[str, Any]) -> Path:
        """Have a checkpoint there under its name; return the path of its manifest."""
        write_json(passing / _MANIFEST, {"schema_version": SCHEMA, "name": name, **told})
        path = self.path(name)
        if path.exists():
            gone = self._folder / f"{_PASSING}{secrets.token_hex(6)}"
            path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
        passing.rename(path)
        return path / _MANIFEST

    def drop(self, passing: Path) -> None:
        """Remove what was begun."""
        shutil.rmtree(passing, ignore_errors=True)

    # --- putting back ----------------------------------------------------------------------------------------------

    def artefacts(self, name: str) -> dict[str, dict[str, Any]]:
        """Return what a checkpoint has, by its kind."""
        return {artefact["kind"]: artefact for artefact in self.read(name)["artefacts"]}

    def trees(self, name: str) -> dict[str, Tree]:
        """Return the files of a checkpoint by folder, once all that it has is there and undamaged.

        Raises
        ------
        CheckpointNotFoundError
            There is no such checkpoint.
        DevEnvError
            Something of it is missing, or not what it was.
        """
        for artefact in self.artefacts(name).values():
            if "path" in artefact and digest_of(self.path(name) / artefact["path"]) != artefact["sha256"]:
                raise DevEnvError(f"{artefact['path']} of the checkpoint {name!r} is damaged: nothing was changed")
        found = {key: _tree(rows) for key, rows in self._rows(name).items()}
        for digest in {digest for tree in found.values() for digest in _digests(tree)}:
            self._contents.get(digest)
        return found

    def _rows(self, name: str) -> dict[str, Sequence[Sequence[Any]]]:
        told: dict[str, Any] = json.loads((self.path(name) / _FILES_FILE).read_text("utf-8"))
        return told

    def put_back(self, tree: Tree, folder: SavedFolder) -> None:
        """Have a folder hold what a tree has, and nothing else but what checkpoints leave out."""
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            root = Root(folder.path)
        except OSError as error:
            raise DevEnvError(f"the folder {folder.path} cannot be opened: {error}") from error
        try:
            with Snapshots(root, exclude=folder.exclude, watch=False) as snapshots:
                snapshots.restore(tree, self._contents.get)
        except OSError as error:
            raise DevEnvError(f"the files cannot be put back: {error}") from error
        finally:
            root.close()

    # --- letting go ------------------------------------------------------------------------------------------------

    def delete(self, name: str) -> None:
        """Delete a checkpoint, also a damaged one; raises `CheckpointNotFoundError`."""
        if not self.path(name).is_dir():
            self.read(name)
        self._discard(self.path(name))
        self.tidy()

    def _discard(self, path: Path) -> None:
        """Take the name away at once: half a checkpoint is none."""
        gone = self._folder / f"{_GONE}{secrets.token_hex(6)}"
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def keep_newest(self, count: int) -> None:
        """Delete the oldest but for some; a backup does not count."""
        counted = [told for told in self.listed() if told["name"] != BACKUP]
        for told in counted[: max(0, len(counted) - count)]:
            self._discard(self.path(told["name"]))
        self.tidy()

    def tidy(self) -> None:
        """Remove contents that no checkpoint has any more; none while a damaged one is there, whose are not known."""
        names = [path.name for path in self._folder.glob("[!.]*")]
        try:
            rows = [rows for name in names for rows in self._rows(name).values()]
        except (OSError, ValueError, AttributeError):
            return
        self._contents.forget_but({digest for each in rows for digest in _digests(_tree(each))})


def _manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / _MANIFEST).read_text("utf-8"))
    return found


def _tree(rows: Sequence[Sequence[Any]]) -> Tree:
    return Tree("", {path: TreeEntry(*entry) for path, *entry in rows})


def _digests(tree: Tree) -> list[str]:
    return [entry.content for entry in tree.entries.values() if entry.kind == FILE]


# Locks of environments between processes: held by the kernel, so that a process that was killed holds none.


WAIT = 30.0
"""Seconds that a lock is waited for."""


@asynccontextmanager
async def locked(path: Path, what: str, *, wait: float = WAIT) -> AsyncIterator[None]:
    """Hold a lock; raises `DevEnvError` if another process does for that long."""
    lock = FileLock(path, timeout=wait, thread_local=False)
    try:
        await asyncio.to_thread(lock.acquire)
    except Timeout:
        raise DevEnvError(f"{what} is busy: another process works on it; wait longer with --wait SECONDS") from None
    try:
        yield
    finally:
        lock.release()


# The environments below one root: found by name, held by one process at a time, and who may use them.


CREATING, REMOVING = HALF = ("creating", "removing")
"""The phases of an environment that is being made or removed, or whose maker or remover was killed."""
_DELETED = ".gone-"
RUNNING, STOPPED, ERROR = STATUSES = ("running", "stopped", "error")
_KINDS: dict[str, type[Isolation]] = {
    "docker": DockerIsolation,
    "virtualenv": VirtualenvIsolation,
    "native": NativeIsolation,
}


@dataclass
class Environments:
    """The environments below one root, as one owner of one tenant sees them."""

    layout: Layout
    tenant: str
    owner: str
    wait: float
    now: Callable[[], str]
    retrying: Retrying

    @property
    def settings(self) -> RootSettings:
        """Return what holds for the root."""
        return RootSettings.read(self.layout.settings)

    def folders(self) -> list[Path]:
        """Return the folders of all environments, by name."""
        self.layout.require_own()
        return sorted(self.layout.environments.glob("[!.]*")) if self.layout.environments.is_dir() else []

    def found(self, name: str, *, phases: Collection[str] = ()) -> Path:
        """Return an environment's folder; raises `EnvironmentNotFoundError`, or `EnvironmentDeniedError`.

        One that is half made or half removed is not found, but in some phases.
        """
        folder = self.layout.environment(name)
        self.layout.require_own()
        state = self.state(folder) if folder.is_dir() else {}
        if not (folder / "state.json").exists() or state.get("phase") in {*HALF} - {*phases}:
            raise EnvironmentNotFoundError(f"there is no environment {name!r}: create it first")
        settings = self.settings
        if state.get("tenant", self.tenant) != self.tenant:
            if settings.hide_foreign:
                raise EnvironmentNotFoundError(f"there is no environment {name!r}: create it first")
            raise EnvironmentDeniedError(f"the environment {name!r} belongs to another tenant")
        if settings.owner_only and state.get("owner", self.owner) != self.owner:
            raise EnvironmentDeniedError(f"the environment {name!r} belongs to {state['owner']!r}")
        if state.get("error", {}).get("code") == EnvironmentDeniedError.exit_code:
            raise EnvironmentDeniedError(f"the state of {name!r} cannot be read: {state['error']['message']}")
        return folder

    @asynccontextmanager
    async def held(self, name: str, *, phases: Collection[str] = ()) -> AsyncIterator[Path]:
        """Hold an environment, and give its folder; raises as `found`, and `DevEnvError` if another process does."""
        self.found(name, phases=phases)
        async with self.lock(name):
            folder = self.found(name, phases=phases)
            self.adopt(folder)
            yield folder

    @asynccontextmanager
    async def lock(self, name: str, *, wait: float | None = None) -> AsyncIterator[None]:
        """Hold a name, whether or not there is an environment; others are waited for as usual, or some seconds."""
        self.layout.locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        seconds = self.wait if wait is None else wait
        async with locked(self.layout.locks / name.lower(), f"the environment {name!r}", wait=seconds):
            yield

    def state(self, folder: Path) -> State:
        """Return what is recorded of an environment; where that is damaged, a state that says so."""
        try:
            found: State = json.loads((folder / "state.json").read_text("utf-8"))
            _ = found["id"], found["status"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            code = EnvironmentDeniedError.exit_code if isinstance(error, PermissionError) else DevEnvError.exit_code
            told = {"code": code, "message": str(error), "at": self.now()}
            return {"name": folder.name, "status": "error", "tenant": self.tenant, "error": told}
        return found

    def tidy(self) -> None:
        """Remove the files of environments that are gone, where whoever removed them was killed."""
        for left in self.layout.environments.glob(f"{_DELETED}*"):
            shutil.rmtree(left, ignore_errors=True)

    def begin(self, folder: Path, configuration: Configuration, state: State) -> None:
        """Have a folder for an environment that is being made."""
        folder.mkdir(mode=0o700)
        write_json(folder / "config.json", configuration)
        self.write(folder, state)

    def write(self, folder: Path, state: State) -> None:
        """Record the state of an environment."""
        write_json(folder / "state.json", state)

    def configuration(self, folder: Path) -> Configuration:
        """Return with what an environment was made."""
        try:
            found: Configuration = json.loads((folder / "config.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise DevEnvError(f"the configuration of {folder.name!r} cannot be read: {error}; destroy it") from error
        return found

    def isolation(self, folder: Path, state: State, configuration: Configuration | None = None) -> Isolation:
        """Return what keeps an environment apart; raises `DevEnvError` where its configuration is damaged."""
        said = self.configuration(folder) if configuration is None else configuration
        return _KINDS[said["isolation_type"]](folder, said, state, self.layout.secrets, self.retrying)

    async def remove(self, folder: Path, state: State, *, keeps_checkpoints: bool = False) -> None:
        """Remove an environment; its name is free at once, so that what a kill leaves blocks nobody."""
        if (folder / "config.json").exists() and "id" in state:
            isolation = self.isolation(folder, state)
            self.write(folder, {**state, "status": ERROR, "phase": REMOVING})
            try:
                await isolation.remove(keeps_checkpoints=keeps_checkpoints)
            except DivebookError:  # it is as it was: no engine has answered
                self.write(folder, state)
                raise
        self.forget(folder, state, keeps_checkpoints=keeps_checkpoints)

    def forget(self, folder: Path, state: State, *, keeps_checkpoints: bool = False) -> None:
        """Remove the folder of an environment, and nothing that it has elsewhere but a working folder of its own."""
        checkpoints = folder / "checkpoints"
        kept = self.layout.kept / state["tenant"] / folder.name
        if keeps_checkpoints and checkpoints.exists() and not kept.exists():
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            checkpoints.rename(kept)
        gone = folder.with_name(f"{_DELETED}{secrets.token_hex(6)}")
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        if state.get("owns_working_dir"):
            shutil.rmtree(state["working_dir"], ignore_errors=True)

    def adopt(self, folder: Path) -> None:
        """Have an environment's checkpoints those that were kept when another one of its name was destroyed."""
        kept = self.layout.kept / self.tenant / folder.name
        if kept.is_dir() and not (folder / "checkpoints").exists():
            kept.rename(folder / "checkpoints")

    def error_state(self, state: State, error: DivebookError) -> State:
        """Return a state that says what went wrong."""
        told: dict[str, Any] = {
            "code": getattr(error, "exit_code", DevEnvError.exit_code),
            "message": str(error),
            "at": self.now(),
        }
        return {**state, "status": "error", "error": told}


# Environments are saved and restored: each step can be interrupted by a kill, and is then done again.


RESTORING = "restoring"
"""The phase of an environment that is being restored; whoever uses it next brings that to its end."""


def checkpoints_of(folder: Path) -> EnvironmentCheckpoints:
    """Return the checkpoints of an environment."""
    return EnvironmentCheckpoints(folder / "checkpoints")


async def save(
    environments: Environments,
    isolation: Isolation,
    name: str,
    *,
    overwrite: bool = False,
    with_mounts: bool = False,
    force: bool = False,
    export: bool = False,
) -> tuple[Path, list[str]]:
    """Take a checkpoint; return the path of its manifest, and what it leaves out.

    Raises
    ------
    DevEnvError
        There is one of that name, or the files cannot be read.
    LimitExceededError
        A folder is too large, or the disk is full.
    """
    checkpoints = checkpoints_of(isolation.folder)
    state = isolation.state
    checkpoints.mend()
    saved = _folders(environments, isolation, with_mounts=with_mounts)
    if not force:
        _require_small(saved)
    mounts = {} if with_mounts else isolation.mounts()
    notes = [f"{target} is your own folder {source}: --include-mounts saves it" for target, source in mounts.items()]
    passing = checkpoints.begin(name, overwrite=overwrite)
    try:
        files, left_out = checkpoints.keep_files(passing, saved)
        artefacts = [files, *await isolation.keep(passing, name)]
        if export:
            artefacts += await isolation.export(passing, {told["kind"]: told for told in artefacts})
        told = {
            "environment": state["name"],
            "environment_id": state["id"],
            "isolation_type": state["isolation_type"],
            "created_at": environments.now(),
            "tenant": state["tenant"],
            "owner": state["owner"],
            "config_digest": sha256(json.dumps(isolation.configuration, sort_keys=True).encode()).hexdigest(),
            "size_bytes": sum(size_of(folder.path) for folder in saved.values()),
            "exclude": {key: folder.exclude for key, folder in saved.items()},
            "artefacts": artefacts,
            "notes": [*notes, *left_out],
        }
        path = checkpoints.finish(passing, name, told)
    finally:
        checkpoints.drop(passing)
    checkpoints.keep_newest(environments.settings.checkpoints)
    await _forget(isolation, checkpoints)
    return path, told["notes"]


async def _forget(isolation: Isolation, checkpoints: EnvironmentCheckpoints) -> None:
    names = [told["name"] for told in checkpoints.listed()]
    await isolation.forget_but([checkpoints.artefacts(name) for name in names])


async def delete(isolation: Isolation, name: str) -> None:
    """Delete a checkpoint; raises `CheckpointNotFoundError`."""
    checkpoints = checkpoints_of(isolation.folder)
    checkpoints.mend()
    checkpoints.delete(name)
    await _forget(isolation, checkpoints)


async def restore(environments: Environments, isolation: Isolation, name: str, *, backup: bool = True) -> None:
    """Have an environment as it was at a checkpoint; its commands are ended first.

    Raises
    ------
    CheckpointNotFoundError
        There is no such checkpoint.
    DevEnvError
        Something of it is missing or damaged, and nothing was changed; or it could not be put back.
    """
    checkpoints = checkpoints_of(isolation.folder)
    state = isolation.state
    checkpoints.mend()
    checkpoints.trees(name)
    await isolation.require(checkpoints.path(name), checkpoints.artefacts(name))
    await asyncio.to_thread(end_processes, state["id"])
    backup = backup and name != BACKUP
    if backup:
        await save(environments, isolation, BACKUP, overwrite=True, force=True)
    environments.write(isolation.folder, {**state, "phase": RESTORING, "restoring": name})
    try:
        await put_back(environments, isolation, name)
    except NotReplacedError as error:
        environments.write(isolation.folder, state)
        if backup:
            await delete(isolation, BACKUP)
        raise NotReplacedError(f"the environment could not be restored, and is as it was: {error}") from error
    except (DevEnvError, ContainerError) as error:
        way = f"restore {BACKUP!r}, or destroy it" if backup else "restore another checkpoint, or destroy it"
        environments.write(isolation.folder, environments.error_state(state, error))
        raise DevEnvError(f"the environment could not be restored: {error}; {way}") from error
    if backup:
        await delete(isolation, BACKUP)


async def finish_restoring(environments: Environments, isolation: Isolation) -> None:
    """Restore again where somebody was interrupted.

    Raises
    ------
    DevEnvError
        It cannot be restored. It is not tried again, so that the environment can be used, or restored otherwise.
    """
    state = isolation.state
    name = state["restoring"]
    try:
        await put_back(environments, isolation, name)
    except (DevEnvError, ContainerError) as error:
        without_phase = {key: value for key, value in state.items() if key not in ("phase", "restoring")}
        environments.write(isolation.folder, environments.error_state(without_phase, error))
        raise DevEnvError(
            f"restoring {name!r} was interrupted, and could not be done again: {error}; restore a checkpoint, or "
            "destroy the environment"
        ) from error


async def put_back(environments: Environments, isolation: Isolation, name: str) -> State:
    """Put back what a checkpoint has, from its beginning wherever somebody was interrupted; return the new state."""
    checkpoints = checkpoints_of(isolation.folder)
    folder = isolation.folder
    trees = checkpoints.trees(name)
    artefacts = checkpoints.artefacts(name)
    left_out = checkpoints.read(name).get("exclude", {})
    changed = await isolation.put_back(checkpoints.path(name), artefacts)
    saved = _folders(environments, isolation, with_mounts=True)
    for key, tree in trees.items():
        if key not in saved:
            raise DevEnvError(f"the folder {key} of the checkpoint is not in the environment any more")
        # What was left out then is left alone, also where the person has others left out by now.
        exclude = (*saved[key].exclude, *left_out.get(key, ()))
        checkpoints.put_back(tree, saved[key]._replace(exclude=exclude))
    kept = {key: value for key, value in isolation.state.items() if key not in ("phase", "restoring", "error")}
    state = {**kept, **changed, "status": "running", "last_used": environments.now()}
    environments.write(folder, state)
    isolation.state = state
    return state


def _folders(environments: Environments, isolation: Isolation, *, with_mounts: bool) -> dict[str, SavedFolder]:
    """Return the folders of an environment that are saved."""
    folders = isolation.folders()
    if with_mounts:
        folders |= {f"mounts{target}": source for target, source in isolation.mounts().items()}
    return {name: SavedFolder(path, _left_out(environments, path)) for name, path in folders.items()}


def _left_out(environments: Environments, folder: Path) -> tuple[str, ...]:
    """Return the patterns of what is left out: what the person says, and environments and log, where they lie below."""
    patterns: list[str] = []
    with suppress(FileNotFoundError):
        lines = (folder / IGNORED).read_text("utf-8", "replace").splitlines()
        patterns += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    own = (environments.layout.environments, environments.layout.log)
    return (*patterns, *(f"/{path.relative_to(folder)}" for path in own if path.is_relative_to(folder)))


def _require_small(saved: dict[str, SavedFolder]) -> None:
    for folder in saved.values():
        if folder.path in (Path("/"), Path.home()):
            raise LimitExceededError(f"{folder.path} is not saved as a whole: name what to leave out, or use --force")
        size = size_of(folder.path)
        if size > LARGEST:
            raise LimitExceededError(
                f"{folder.path} has {size:,} bytes, more than a checkpoint takes ({LARGEST:,}): leave something out by "
                f"{IGNORED}, or use --force"
            )
