"""What gives executions their workspaces: folders beside the store, and the kinds of workspaces over them."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divebook.documents import Policy
from divebook.documents.policy import HIDDEN
from divebook.documents.references import resolved
from divebook.errors import SetupError
from divebook.execution.open_workspaces import TellEgress
from divebook.outfit import Outfit
from divebook.store import EventStore
from divebook.store.contents import file_content
from divebook.workflow.workspaces import DOCKER, FENCED, VIRTUALENV, WorkspaceDefinition
from divebook.workspace.docker.workspace import DockerWorkspace
from divebook.workspace.fenced import FencedWorkspace
from divebook.workspace.files_only import FilesWorkspace
from divebook.workspace.local import LocalWorkspace
from divebook.workspace.virtualenv import VirtualenvWorkspace
from divebook.workspace.workspace import Workspace

FOLDER = "workspaces"
"""Beside a store: the folders of executions."""


class Lending:
    """Gives executions of one environment their workspaces.

    Parameters
    ----------
    outfit
        Knows the definitions, and what they may reach.
    """

    def __init__(self, outfit: Outfit, store: EventStore) -> None:
        self._outfit, self._store = outfit, store
        self._passing: Path | None = None
        """The folder for executions whose store is in memory, and passes with it."""

    def definition(self, name: str) -> WorkspaceDefinition:
        """Return what is said of a workspace; raises `NotFoundError`."""
        return self._outfit.workspace(name)

    def may_go_unasked(self, name: str, fingerprint: str) -> bool:
        """Return whether a workflow may have changes of a workspace applied without a question."""
        return self._outfit.may_apply_unasked(self.definition(name), fingerprint)

    def folder_for(self, execution_id: str, name: str) -> Path:
        """Return the folder that an execution has for the files of a workspace."""
        folder = self._base() / execution_id / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def is_of_another(self, folder: Path, execution_id: str) -> bool:
        """Return whether a folder is one that another execution has for its files: a log may name any folder."""
        real, base = folder.resolve(), self._base().resolve()
        return real.is_relative_to(base) and not real.is_relative_to(base / execution_id)

    def _base(self) -> Path:
        path: Path | None = getattr(self._store, "path", None)
        if path is not None:
            return path.parent / FOLDER
        if self._passing is None:
            self._passing = Path(tempfile.mkdtemp(prefix="divebook-workspaces-"))
        return self._passing

    def source_of(self, definition: WorkspaceDefinition) -> Path | None:
        """Return the folder whose files a workspace begins with; raises `SetupError`."""
        if definition.folder is None:
            return None
        found = self._outfit.folder_of(definition)
        if not found.is_dir():
            raise SetupError(f"workspace {definition.name}: its folder {found} is not there; make it, or name another")
        return found

    def made(self, definition: WorkspaceDefinition, folder: Path, told: TellEgress) -> Workspace:
        """Return a workspace over a folder, which tells of each host that is asked for from there."""
        self._outfit.require_permitted(definition)
        policy = self._outfit.policy_of(definition)
        if not folder.resolve().is_relative_to(self._base().resolve()):  # the log of a run may name any folder
            self._outfit.require_reachable(definition, folder)
        options: dict[str, Any] = {
            "shell_timeout": definition.timeout,
            "environ": definition.environ,
            "guard": None if HIDDEN in policy.allowed else policy.why_protected,
            "secrets": functools.partial(_looked_up, definition.secrets, policy) if definition.secrets else None,
        }
        if not definition.shell:
            return FilesWorkspace(folder, **options)
        if definition.kind == FENCED:
            return FencedWorkspace(folder, **options)
        if definition.kind == VIRTUALENV:
            python, packages = definition.python, definition.packages
            return VirtualenvWorkspace(folder, python=python, packages=packages, **options)
        if definition.kind == DOCKER:
            limits = {"memory": definition.memory, "cpus": definition.processors}
            options |= {name: value for name, value in limits.items() if value is not None}
            return DockerWorkspace(folder, image=definition.image, allow=definition.hosts, told=told, **options)
        return LocalWorkspace(folder, **options)

    def content(self, digest: str) -> bytes:
        """Return the content of a file that the store keeps."""
        return file_content(self._store, digest)

    def close(self) -> None:
        """Let go of what passes with the environment."""
        if self._passing is not None:
            shutil.rmtree(self._passing, ignore_errors=True)
            self._passing = None


def drop_folders(store: EventStore, *, dry_run: bool = False) -> int:
    """Remove the folders of executions that the store has no more; return how many there were."""
    path: Path | None = getattr(store, "path", None)
    base = None if path is None else path.parent / FOLDER
    if base is None or not base.is_dir():
        return 0
    known = set(store.ids())
    left = [folder for folder in base.iterdir() if folder.name.startswith("exec_") and folder.name not in known]
    for folder in left if not dry_run else ():
        shutil.rmtree(folder, ignore_errors=True)
    return len(left)


def _looked_up(secrets: Mapping[str, str], policy: Policy) -> Mapping[str, str]:
    found: Mapping[str, str] = resolved(dict(secrets), policy)
    return found
