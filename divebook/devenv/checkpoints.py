"""Checkpoints of development environments: saving, restoring and deleting them. A checkpoint has the files, and the
container image or the list of packages.
"""

from __future__ import annotations

import asyncio
import errno
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from divebook.devenv.environments import Environments, delete_discarded, discard
from divebook.devenv.isolation import Isolation, State, digest_of, end_processes, size_of
from divebook.devenv.templates import checked_name, write_json
from divebook.documents.private_files import replace_whole
from divebook.errors import CheckpointNotFoundError, ContainerError, DevEnvError, LimitExceededError, NotReplacedError
from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots.take import Snapshots
from divebook.workspaces.snapshots.tree import FILE, Tree, TreeEntry, shown_path

BACKUP = "pre-restore"
"""Name of the checkpoint that is saved before a restore. It is deleted when the restore has succeeded, and not replaced
before.
"""
SCHEMA = 1
IGNORED = ".devenvignore"
"""Name of the file in a saved folder with patterns of files to leave out, one pattern per line."""
LARGEST = 2 << 30
"""Maximum size in bytes of a folder that a checkpoint saves without `force`."""
_FILES = "files"
_FILES_FILE = "files.json"
_MANIFEST = "checkpoint.json"
_SAVING_PREFIX = ".saving-"


class SavedFolder(NamedTuple):
    """A folder of an environment that a checkpoint saves or restores, with the patterns of files that the checkpoint
    leaves out.
    """

    path: Path
    exclude: tuple[str, ...]


class EnvironmentCheckpoints:
    """Storage of all checkpoints of one environment.

    A checkpoint is a folder ``NAME/`` with a manifest ``checkpoint.json`` and ``files.json``, the trees of its files.
    The contents of files lie in ``.contents/``, shared by all checkpoints.

    A new checkpoint is written to ``.saving-XXXX/`` and renamed when it is complete. If it replaces a checkpoint, the
    old folder is renamed to another ``.saving-YYYY/`` first, and deleted last. A kill between the two renames leaves no
    folder of that name, but two complete ones; `repair` then gives the name to the newer folder. Each folder that is
    deleted is renamed to ``.gone-XXXX`` first, so that no partly deleted checkpoint is ever listed, or restored by
    `repair`.

    Parameters
    ----------
    folder
        Folder of the checkpoints. It is created with the first checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents = ContentStore(folder / ".contents")

    # --- what there is ---------------------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        """Return the folder in which the checkpoint with this name is stored. The checkpoint need not exist."""
        return self._folder / checked_name(name, "checkpoint")

    def read(self, name: str) -> dict[str, Any]:
        """Return the manifest (description) of a checkpoint as a dict. Raise `CheckpointNotFoundError` if the
        checkpoint does not exist.
        """
        path = self.path(name)
        try:
            return _manifest(path)
        except FileNotFoundError:
            names = ", ".join(manifest["name"] for manifest in self.manifests()) or "none"
            raise CheckpointNotFoundError(f"there is no checkpoint {name!r}; existing checkpoints: {names}") from None
        except ValueError as error:
            raise DevEnvError(f"the checkpoint {name!r} is damaged: {error}") from error

    def manifests(self) -> list[dict[str, Any]]:
        """Return the manifests (descriptions) of all checkpoints, oldest first. Manifests that cannot be read are left
        out.
        """
        manifests = []
        # Temporary folders and the contents have names that begin with a dot.
        for path in self._folder.glob("[!.]*"):
            with suppress(OSError, ValueError):  # half written, or damaged
                manifests.append(_manifest(path))
        return sorted(manifests, key=lambda manifest: (manifest["created_at"], manifest["name"]))

    def repair(self) -> None:
        """Restore a valid state after processes were killed: delete unfinished checkpoints, and complete the
        replacement of a checkpoint.
        """
        # A temporary folder with a manifest is complete, since the manifest is written last and `discard` renames the
        # folder first. It is a new checkpoint or a replaced one.
        complete = []
        for remainder in self._folder.glob(f"{_SAVING_PREFIX}*"):
            try:
                manifest = _manifest(remainder)
                complete.append((manifest["created_at"], remainder, self.path(manifest["name"])))
            except (OSError, ValueError, KeyError):
                discard(remainder)
        # Newest first: if the name is free, a kill interrupted the replacement, and the newer folder gets the name.
        for _, remainder, path in sorted(complete, reverse=True):
            if path.exists():
                discard(remainder)
            else:
                remainder.rename(path)
        delete_discarded(self._folder)

    # --- taking ----------------------------------------------------------------------------------------------------

    def begin(self, name: str, *, overwrite: bool) -> Path:
        """Create the temporary folder in which a new checkpoint is written, and return it."""
        if self.path(name).exists() and not overwrite:
            raise DevEnvError(
                f"the checkpoint {name!r} already exists; choose another name, or replace it with --overwrite"
            )
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._folder / f"{_SAVING_PREFIX}{secrets.token_hex(6)}"
        temporary.mkdir(mode=0o700)
        return temporary

    def keep_files(self, temporary: Path, folders: Mapping[str, SavedFolder]) -> tuple[dict[str, Any], list[str]]:
        """Save the files in several folders of an environment to the temporary folder of a new checkpoint.

        Returns the saved part of the manifest, and a text for each file that was left out, with the reason.
        """
        trees = {}
        left_out = []
        try:
            for name, folder in folders.items():
                root = Root(folder.path)
                try:
                    with Snapshots(root, exclude=folder.exclude, watch=False) as snapshots:
                        snapshot = snapshots.take()
                finally:
                    root.close()
                self._contents.keep(snapshot.contents)
                # {"work": [["a.txt", "f", 420, "<SHA-256>", 12, 1700000000000000000], ...]}: path and fields of
                # `TreeEntry`.
                trees[name] = [[path, *entry] for path, entry in sorted(snapshot.tree.entries.items())]
                left_out += [
                    f"{name}/{shown_path(problem.path)}: {problem.reason}" for problem in snapshot.tree.problems
                ]
            # The contents are stored before the trees that name them.
            text = json.dumps(trees)
            (temporary / _FILES_FILE).write_text(text, encoding="utf-8")
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise LimitExceededError(f"the disk has not enough space for the checkpoint: {error}") from error
            raise DevEnvError(f"the files cannot be saved: {error}") from error
        digest = sha256(text.encode()).hexdigest()
        return {"kind": _FILES, "path": _FILES_FILE, "sha256": digest}, left_out

    def finish(self, temporary: Path, name: str, fields: Mapping[str, Any]) -> Path:
        """Write the manifest of a new checkpoint, and give its temporary folder the final name. Return the path of the
        manifest.
        """
        write_json(temporary / _MANIFEST, {"schema_version": SCHEMA, "name": name, **fields})
        path = self.path(name)
        # A folder cannot be replaced atomically. After a kill between the two renames `repair` makes the second one.
        replaced = None
        if path.exists():
            replaced = self._folder / f"{_SAVING_PREFIX}{secrets.token_hex(6)}"
            path.rename(replaced)
        temporary.rename(path)
        # Deleted last: until the new folder has the name, the old one must stay complete.
        if replaced is not None:
            discard(replaced)
        return path / _MANIFEST

    def drop(self, temporary: Path) -> None:
        """Delete the temporary folder of a checkpoint whose saving has failed. Do nothing if `finish` has renamed
        it.
        """
        with suppress(FileNotFoundError):
            discard(temporary)

    # --- putting back ----------------------------------------------------------------------------------------------

    def artefacts(self, name: str) -> dict[str, dict[str, Any]]:
        """Return what a checkpoint has saved besides files, such as an image or a list of packages: a description of
        each part, by the kind of part.
        """
        return {artefact["kind"]: artefact for artefact in self.read(name)["artefacts"]}

    def trees(self, name: str) -> dict[str, Tree]:
        """Verify that all parts of a checkpoint are complete. Return the tree of files of each saved folder, by the
        folder's name in the checkpoint.

        Raises
        ------
        CheckpointNotFoundError
            The checkpoint does not exist.
        DevEnvError
            A part is missing, or is damaged.
        """
        for artefact in self.artefacts(name).values():
            if "path" in artefact and digest_of(self.path(name) / artefact["path"]) != artefact["sha256"]:
                raise DevEnvError(f"{artefact['path']} of the checkpoint {name!r} is damaged; nothing was changed")
        trees = {key: _tree(rows) for key, rows in self._rows(name).items()}
        # Reading a content verifies it.
        for digest in {digest for tree in trees.values() for digest in _digests(tree)}:
            self._contents.get(digest)
        return trees

    def _rows(self, name: str) -> dict[str, Sequence[Sequence[Any]]]:
        rows: dict[str, Any] = json.loads((self.path(name) / _FILES_FILE).read_text("utf-8"))
        return rows

    def put_back(self, tree: Tree, folder: SavedFolder) -> None:
        """Change a folder of the environment so that it has the files of a tree.

        Files that are not in the tree are deleted, except those that checkpoints leave out.
        """
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            root = Root(folder.path)
        except OSError as error:
            raise DevEnvError(f"the folder {folder.path} cannot be opened: {error}") from error
        try:
            with Snapshots(root, exclude=folder.exclude, watch=False) as snapshots:
                snapshots.restore(tree, self._contents.get)
        except OSError as error:
            raise DevEnvError(f"the files cannot be restored: {error}") from error
        finally:
            root.close()

    # --- letting go ------------------------------------------------------------------------------------------------

    def delete(self, name: str) -> None:
        """Delete a checkpoint, even a damaged one. Raise `CheckpointNotFoundError` if it does not exist."""
        # `read` raises the error that lists the existing checkpoints.
        if not self.path(name).is_dir():
            self.read(name)
        discard(self.path(name))
        self.tidy()

    def keep_newest(self, count: int, newest: str) -> None:
        """Delete the oldest checkpoints so that at most `count` are left. The backup that is made before a restore is
        kept and not counted.

        The checkpoint with the name `newest` counts as the newest, even if the clock was set back before it was saved.
        """
        manifests = [manifest for manifest in self.manifests() if manifest["name"] != BACKUP]
        manifests.sort(key=lambda manifest: bool(manifest["name"] == newest))  # the rest stays sorted by time
        for manifest in manifests[: max(0, len(manifests) - count)]:
            discard(self.path(manifest["name"]))
        self.tidy()

    def tidy(self) -> None:
        """Delete the stored contents of files that no checkpoint uses any more.

        While a checkpoint is damaged nothing is deleted: its contents are unknown.
        """
        # All checkpoints must be readable: a content that only a damaged one uses must not be deleted.
        names = [path.name for path in self._folder.glob("[!.]*")]
        try:
            rows = [rows for name in names for rows in self._rows(name).values()]
        except (OSError, ValueError, AttributeError):
            return
        self._contents.forget_but({digest for each in rows for digest in _digests(_tree(each))})


def _manifest(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_text("utf-8"))
    return manifest


def _tree(rows: Sequence[Sequence[Any]]) -> Tree:
    return Tree("", {path: TreeEntry(*entry) for path, *entry in rows})


def _digests(tree: Tree) -> list[str]:
    return [entry.content for entry in tree.entries.values() if entry.kind == FILE]


class ContentStore:
    """Storage of the contents of files, shared by all checkpoints of one environment.

    Each content is stored once, in a file named by its SHA-256 (hexadecimal).

    Parameters
    ----------
    folder
        Folder of the contents. It is created with the first content.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, contents: Mapping[str, bytes]) -> None:
        """Store the contents of files. `contents` has each content by its SHA-256. A content that is stored already is
        skipped.

        A stored content is always complete, since its file is created in one step.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for digest, content in contents.items():
            path = self._folder / digest
            # Unchanged files have the same content in all checkpoints.
            if path.exists():
                continue
            replace_whole(path, content, is_durable=True)

    def get(self, digest: str) -> bytes:
        """Return the content that has this SHA-256. Raise `DevEnvError` if it is missing or damaged."""
        try:
            content = (self._folder / digest).read_bytes()
        except OSError as error:
            raise DevEnvError(f"the file content {digest[:12]}... of a checkpoint cannot be read: {error}") from error
        if sha256(content).hexdigest() != digest:
            raise DevEnvError(f"the file content {digest[:12]}... of a checkpoint is damaged; use another checkpoint")
        return content

    def forget_but(self, digests: set[str]) -> None:
        """Delete all stored contents except those with a SHA-256 in `digests`. Temporary files of killed processes are
        deleted too.
        """
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.name not in digests:
                    path.unlink(missing_ok=True)


# --- saving and restoring environments ---
#
#     steps of a restore                                 after a kill during the step
#     1. check all parts of the checkpoint               nothing has changed
#     2. save the backup                                 the next save, restore or deletion removes an incomplete backup
#     3. record the phase "restoring"                    nothing has changed, or as in step 4
#     4. replace the container, put the files back       the next command repeats step 4 from its start
#     5. record the state without the phase              the next command repeats step 4, or the restore is complete
#     6. delete the backup                               the backup may stay as a checkpoint
#
# A restore that follows an unfinished one skips step 2: the environment has a part of each state, and the backup of the
# unfinished restore is the only complete copy of the earlier state.


RESTORING = "restoring"
"""Phase of an environment during a restore. If a process is killed meanwhile, the next command repeats the restore."""


def checkpoints_of(folder: Path) -> EnvironmentCheckpoints:
    """Return the storage of the checkpoints of the environment whose folder is `folder`."""
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
    """Save a checkpoint of an environment. Return the path of its manifest, and a note for each file that it leaves
    out.

    Raises
    ------
    DevEnvError
        A checkpoint of that name exists, or the files cannot be read.
    LimitExceededError
        A folder is too large, or the disk is full.
    """
    checkpoints = checkpoints_of(isolation.folder)
    state = isolation.state
    checkpoints.repair()
    # Check everything before the first write. Mounted folders belong to the user, and are only saved on request.
    saved = _folders(environments, isolation, with_mounts=with_mounts)
    if not force:
        _require_small(saved)
    mounts = {} if with_mounts else isolation.mounts()
    notes = [
        f"{target} (your own folder {source}); to save it too, use --include-mounts"
        for target, source in mounts.items()
    ]
    # Write all parts into a temporary folder, which `finish` renames.
    temporary = checkpoints.begin(name, overwrite=overwrite)
    try:
        files, left_out = checkpoints.keep_files(temporary, saved)
        artefacts = [files, *await isolation.keep(temporary, name)]
        if export:
            artefacts += await isolation.export(temporary, {manifest["kind"]: manifest for manifest in artefacts})
        manifest = {
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
        path = checkpoints.finish(temporary, name, manifest)
    finally:
        # After `finish` the temporary folder has its final name, so that nothing is deleted.
        checkpoints.drop(temporary)
    # Only now that the new checkpoint is complete may older ones be deleted. A backup deletes none: the oldest may be
    # the one that is restored (test_a_restore_deletes_no_checkpoint_also_once_fewer_are_allowed).
    if name == BACKUP:
        checkpoints.tidy()
    else:
        checkpoints.keep_newest(environments.settings.checkpoints, name)
    await _forget(isolation, checkpoints)
    return path, manifest["notes"]


async def _forget(isolation: Isolation, checkpoints: EnvironmentCheckpoints) -> None:
    names = [manifest["name"] for manifest in checkpoints.manifests()]
    await isolation.forget_but([checkpoints.artefacts(name) for name in names])


async def delete(isolation: Isolation, name: str) -> None:
    """Delete a checkpoint of an environment, and its container image if it has one. Raise `CheckpointNotFoundError` if
    it does not exist.
    """
    checkpoints = checkpoints_of(isolation.folder)
    checkpoints.repair()
    checkpoints.delete(name)
    await _forget(isolation, checkpoints)


async def restore(environments: Environments, isolation: Isolation, name: str, *, backup: bool = True) -> None:
    """Restore an environment from a checkpoint: its files, and its container or installed packages. Commands that run
    in the environment are ended first.

    A backup is taken, then the phase ``restoring`` is recorded, then the parts are restored. All steps of the restore
    can be repeated, so that a process that finds the phase repeats the restore from its start (`finish_restoring`).

    A backup of an earlier restore that was interrupted or has failed is not replaced. It is deleted when this restore
    has succeeded.

    Raises
    ------
    CheckpointNotFoundError
        The checkpoint does not exist.
    DevEnvError
        A part of the checkpoint is missing or damaged, or the backup of a destroyed environment would be replaced, and
        nothing was changed; or the restore failed.
    """
    checkpoints = checkpoints_of(isolation.folder)
    state = isolation.state
    checkpoints.repair()
    # A restore of the backup must not overwrite it.
    backup = backup and name != BACKUP
    is_saving_backup = backup and not (_is_restore_unfinished(state) and checkpoints.path(BACKUP).exists())
    if is_saving_backup:
        _require_own_backup(checkpoints, state)
    # Called for its checks only.
    checkpoints.trees(name)
    await isolation.require(checkpoints.path(name), checkpoints.artefacts(name))
    # Everything was checked before this point. From here on the environment changes.
    # Running commands would change files between the backup and the restore.
    await asyncio.to_thread(end_processes, state["id"])
    if is_saving_backup:
        await save(environments, isolation, BACKUP, overwrite=True, force=True)
    # Recorded first: after a kill, the next command finds the phase and repeats the restore.
    environments.write(isolation.folder, {**state, "phase": RESTORING, "restoring": name})
    try:
        await put_back(environments, isolation, name)
    # The old container is in place again, so the recorded state is valid and a backup of it is not needed.
    except NotReplacedError as error:
        environments.write(isolation.folder, state)
        if is_saving_backup:
            await delete(isolation, BACKUP)
        raise NotReplacedError(f"the environment was not changed, because the restore failed: {error}") from error
    except (DevEnvError, ContainerError) as error:
        has_backup = name != BACKUP and checkpoints.path(BACKUP).exists()
        checkpoint = f"the checkpoint {BACKUP!r}" if has_backup else "another checkpoint"
        advice = f"restore {checkpoint}, or destroy the environment"
        environments.write(isolation.folder, environments.error_state(state, error))
        raise DevEnvError(f"the environment could not be restored: {error}; {advice}") from error
    if backup:
        await delete(isolation, BACKUP)


def _is_restore_unfinished(state: State) -> bool:
    """Return True if the last restore of an environment was interrupted or has failed, so that its files may be a
    mixture of two states. Only a restore that succeeds removes both fields.
    """
    return state.get("phase") == RESTORING or "error" in state


def _require_own_backup(checkpoints: EnvironmentCheckpoints, state: State) -> None:
    """Raise `DevEnvError` if there is a backup of a destroyed environment, whose checkpoints were kept for this one.
    Whether the restore that saved it has ended is not known.
    """
    if any(each["name"] == BACKUP and each.get("environment_id") != state["id"] for each in checkpoints.manifests()):
        raise DevEnvError(
            f"the checkpoint {BACKUP!r} is the backup of a destroyed environment, and is not replaced; restore or "
            "delete this checkpoint first, or use --no-backup"
        )


async def finish_restoring(environments: Environments, isolation: Isolation) -> None:
    """Repeat the restore of an environment if an earlier restore was interrupted, for example because its process was
    killed.

    Raises
    ------
    DevEnvError
        The restore failed again. It is not repeated any more, so that the environment can be used, or restored from
        another checkpoint.
    """
    state = isolation.state
    name = state["restoring"]
    try:
        await put_back(environments, isolation, name)
    except (DevEnvError, ContainerError) as error:
        without_phase = {key: value for key, value in state.items() if key not in ("phase", "restoring")}
        environments.write(isolation.folder, environments.error_state(without_phase, error))
        raise DevEnvError(
            f"the restore of {name!r} was interrupted, and a second attempt failed: {error}; restore a checkpoint, or "
            "destroy the environment"
        ) from error


async def put_back(environments: Environments, isolation: Isolation, name: str) -> State:
    """Restore all parts of a checkpoint, and return the new recorded state of the environment. An interrupted restore
    can be repeated.
    """
    checkpoints = checkpoints_of(isolation.folder)
    folder = isolation.folder
    trees = checkpoints.trees(name)
    artefacts = checkpoints.artefacts(name)
    left_out = checkpoints.read(name).get("exclude", {})
    # The container first: if it cannot be replaced, nothing has changed yet. The files could not be undone.
    updated_fields = await isolation.put_back(checkpoints.path(name), artefacts)
    saved = _folders(environments, isolation, with_mounts=True)
    for key, tree in trees.items():
        if key not in saved:
            raise DevEnvError(f"the folder {key} of the checkpoint no longer exists in the environment")
        # Files left out then are not touched, although the user may have other patterns by now.
        exclude = (*saved[key].exclude, *left_out.get(key, ()))
        checkpoints.put_back(tree, saved[key]._replace(exclude=exclude))
    # The phase is removed last: a kill before this line lets the next command repeat the restore.
    remaining = {key: value for key, value in isolation.state.items() if key not in ("phase", "restoring", "error")}
    state = {**remaining, **updated_fields, "status": "running", "last_used": environments.now()}
    environments.write(folder, state)
    isolation.state = state
    return state


def _folders(environments: Environments, isolation: Isolation, *, with_mounts: bool) -> dict[str, SavedFolder]:
    """Return the folders that a checkpoint of an environment saves, by their names in the checkpoint. With
    `with_mounts`, the user's own mounted folders are included.
    """
    folders = isolation.folders()
    if with_mounts:
        folders |= {f"mounts{target}": source for target, source in isolation.mounts().items()}
    return {name: SavedFolder(path, _left_out(environments, path)) for name, path in folders.items()}


def _left_out(environments: Environments, folder: Path) -> tuple[str, ...]:
    """Return the patterns of the files in a folder that checkpoints leave out.

    These are the patterns of the user's ignore file, and the folders and logs of divebook itself.
    """
    patterns: list[str] = []
    with suppress(FileNotFoundError):
        lines = (folder / IGNORED).read_text("utf-8", "replace").splitlines()
        patterns += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    internal = (environments.layout.environments, environments.layout.log)
    return (*patterns, *(f"/{path.relative_to(folder)}" for path in internal if path.is_relative_to(folder)))


def _require_small(saved: dict[str, SavedFolder]) -> None:
    for folder in saved.values():
        if folder.path in (Path("/"), Path.home()):
            raise LimitExceededError(
                f"the folder {folder.path} is saved only with --force; list files to leave out in {IGNORED} first"
            )
        size = size_of(folder.path)
        if size > LARGEST:
            raise LimitExceededError(
                f"{folder.path} has {size:,} bytes, but a checkpoint may have at most {LARGEST:,}; list files to leave "
                f"out in {IGNORED}, or use --force"
            )
