"""Environments are saved and restored: each step can be interrupted by a kill, and is then done again."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from divebook.devenv.checkpoints import BACKUP, IGNORED, LARGEST, EnvironmentCheckpoints, SavedFolder
from divebook.devenv.environments import Environments
from divebook.devenv.isolation import Isolation, State
from divebook.devenv.usage import end_processes, size_of
from divebook.errors import ContainerError, DevEnvError, LimitExceededError, NotReplacedError

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
    checkpoints, state = checkpoints_of(isolation.folder), isolation.state
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
    checkpoints, state = checkpoints_of(isolation.folder), isolation.state
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
    checkpoints, folder = checkpoints_of(isolation.folder), isolation.folder
    trees, artefacts = checkpoints.trees(name), checkpoints.artefacts(name)
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
