"""EnvironmentCheckpoints of an environment: its files as a tree with contents, and what its kind keeps besides."""

from __future__ import annotations

import errno
import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from divebook.devenv.configuration import checked_name
from divebook.devenv.contents import KeptContents, digest_of
from divebook.devenv.layout import write_json
from divebook.errors import CheckpointNotFoundError, DevEnvError, LimitExceededError
from divebook.workspace.paths import Root
from divebook.workspace.snapshots.snapshots import Snapshots
from divebook.workspace.snapshots.trees import FILE, Tree, TreeEntry, shown_path

BACKUP = "pre-restore"
"""The checkpoint that is taken before another one is restored, and goes when that is done."""
SCHEMA = 1
IGNORED = ".devenvignore"
"""The file with patterns of what checkpoints leave out, one a line."""
LARGEST = 2 << 30
"""Bytes of a folder that a checkpoint takes without being forced."""
_FILES, _FILES_FILE, _MANIFEST, _PASSING, _GONE = "files", "files.json", "checkpoint.json", ".saving-", ".gone-"


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
        trees, left_out = {}, []
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
