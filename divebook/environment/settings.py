"""Settings of an environment, and the workspaces of its executions."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from divebook.documents import DocumentRepository, Policy
from divebook.documents.policy import HIDDEN, resolved
from divebook.environment.registry import Registry
from divebook.errors import SetupError
from divebook.projections.spans import Formatter, Formatting
from divebook.runtime.notify import VARIABLE, Hook, Notices
from divebook.runtime.recorder import CallTracing
from divebook.runtime.workspaces import OnEgress
from divebook.scripting import Interpreter
from divebook.store import EventStore
from divebook.store.append import Durability
from divebook.store.codec import Codec
from divebook.store.maintenance import file_content
from divebook.workflow.resources import DOCKER, FENCED, VIRTUALENV, WorkspaceDefinition
from divebook.workspace.docker.workspace import DockerWorkspace
from divebook.workspace.local import FencedWorkspace, FilesWorkspace, LocalWorkspace, VirtualenvWorkspace
from divebook.workspace.workspace import Workspace

if TYPE_CHECKING:
    from divebook.telemetry import Telemetry


TelemetrySetting: TypeAlias = "Telemetry | bool | str"
TELEMETRY = "DIVEBOOK_TELEMETRY"
"""Name of the environment variable with the telemetry setting."""
_OFF = frozenset({"", "0", "false", "no", "off", "none"})
_ON = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Optional settings of an `Environment`, such as policy, durability and telemetry. A setting that is None is not
    set.
    """

    documents: DocumentRepository | None = None
    interpreter: Interpreter | None = None
    policy: Policy | None = None
    durability: Durability | None = None
    notify: Hook | Sequence[str] | str | None = None
    formatter: Formatter | None = None
    codec: Codec | None = None
    telemetry: TelemetrySetting | None = None

    def plus(self, other: Self) -> Self:
        """Return these settings merged with `other`. A setting of `other` replaces the one here; a merged policy allows
        only what both policies allow.
        """
        values: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(other, field.name)
            if value is not None:
                values[field.name] = value
        # Two policies are intersected: merging must never allow more than one of them does.
        if self.policy is not None and other.policy not in (None, self.policy):
            values["policy"] = self.policy.both(values["policy"])
        return replace(self, **values)

    def listen_to(self, store: EventStore, calls: CallTracing) -> list[Callable[[], object]]:
        """Subscribe the listeners in these settings (formatter, notification hook and telemetry) to the events of a
        store.

        Return the functions that end the subscriptions, to be called in this order: the last subscription first.
        """
        closers: list[Callable[[], object]] = []
        if self.formatter is not None:
            closers.append(store.subscribe(Formatting(self.formatter)))
        hook = self.notify if self.notify is not None else os.environ.get(VARIABLE)
        if hook:
            # The name of the workflow is looked up when a question is asked, not for every event.
            notices = Notices(hook, workflow_of=lambda execution_id: store.record(execution_id).workflow_name)
            # In reverse order, the subscription ends first. `close` then waits for the notifications that are under
            # way.
            closers += [notices.close, store.subscribe(notices)]
        setting = os.environ.get(TELEMETRY, "") if self.telemetry is None else self.telemetry
        closers += _subscribe_telemetry(_checked_telemetry(setting), store, calls)
        return closers[::-1]


def _subscribe_telemetry(
    setting: Telemetry | str | bool,  # noqa: FBT001 - the setting of a user
    store: EventStore,
    calls: CallTracing,
) -> list[Callable[[], object]]:
    """Start to export the events of a store and the recorded calls to OpenTelemetry. Return the functions that end
    this, to be called in reverse order; an empty list if telemetry is off.
    """
    if not setting:
        return []
    from divebook.telemetry import Telemetry  # its libraries may be missing

    if isinstance(setting, Telemetry):
        telemetry = setting
        close = telemetry.flush  # the caller made it, and closes it
    else:
        telemetry = Telemetry(address=None if setting is True else setting)
        close = telemetry.close

    def stop_surrounding() -> None:
        calls.surround = None

    # First in the list, so last in the reversed order: the exporter closes when nothing sends to it any more.
    closers = [close, *telemetry.listen_to(store)]
    calls.surround = telemetry.surround
    return [*closers, stop_surrounding]


def _checked_telemetry(setting: object) -> Telemetry | str | bool:
    """Parse and check the setting of telemetry. Return a `Telemetry` object, the address of a collector, or True or
    False for on or off.

    Raises
    ------
    SetupError
        It is none of these.
    """
    text = setting.strip() if isinstance(setting, str) else ""
    if isinstance(setting, bool):
        return setting
    if isinstance(setting, str) and text.lower() in _OFF | _ON:
        return text.lower() in _ON
    if text.startswith(("http://", "https://")):
        return text
    # Only somebody who has imported the module, whose libraries may be missing, can have an instance of its class.
    module = sys.modules.get("divebook.telemetry")
    if module is not None and isinstance(setting, module.Telemetry):
        telemetry: Telemetry = setting
        return telemetry
    raise SetupError(
        f"telemetry is True, False, the address of a collector (http://HOST:4318) or a divebook.telemetry.Telemetry, "
        f"in {TELEMETRY} 1, 0 or an address, not {setting!r}"
    )


# --- workspaces of executions ---


FOLDER = "workspaces"
"""Name of the folder, next to the file of a store, with the workspace folders of all executions."""


class EnvironmentWorkspaces:
    """Creates the workspaces of the executions of one environment.

    Parameters
    ----------
    registry
        Contains the definitions of workspaces and their permissions.
    """

    def __init__(self, registry: Registry, store: EventStore) -> None:
        self._registry = registry
        self._store = store
        self._temporary: Path | None = None
        """Base folder if the store is in memory; None until it is needed. `close` removes it."""

    def definition(self, name: str) -> WorkspaceDefinition:
        """Return the definition of the workspace with this name; raises `NotFoundError`."""
        return self._registry.workspace(name)

    def may_go_unasked(self, name: str, fingerprint: str) -> bool:
        """Return whether a workflow may copy changed files from a workspace back into the original folder, without a
        question to a person.
        """
        return self._registry.may_apply_unasked(self.definition(name), fingerprint)

    def folder_for(self, execution_id: str, name: str) -> Path:
        """Return the folder in which an execution keeps the files of a workspace. A missing folder is created."""
        folder = self._base() / execution_id / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def is_of_another(self, folder: Path, execution_id: str) -> bool:
        """Return whether a folder belongs to a different execution than the given one. The path of the folder was read
        from a log, so that it could be any path.
        """
        # Links are followed: a path through a link belongs to the folder to which the link leads.
        real = folder.resolve()
        base = self._base().resolve()
        return real.is_relative_to(base) and not real.is_relative_to(base / execution_id)

    def _base(self) -> Path:
        # Stores in memory or on a server have no path.
        path: Path | None = getattr(self._store, "path", None)
        if path is not None:
            return path.parent / FOLDER
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="divebook-workspaces-"))
        return self._temporary

    def source_of(self, definition: WorkspaceDefinition) -> Path | None:
        """Return the folder whose files are copied into a new workspace; None if its definition names none. Raise
        `SetupError` if the folder does not exist.
        """
        if definition.folder is None:
            return None
        folder = self._registry.folder_of(definition)
        if not folder.is_dir():
            raise SetupError(f"workspace {definition.name}: its folder {folder} is not there; make it, or name another")
        return folder

    def made(self, definition: WorkspaceDefinition, folder: Path, on_egress: OnEgress) -> Workspace:
        """Create the workspace object for a folder, without opening it. The workspace calls `on_egress` for each
        network request to a host.
        """
        self._registry.require_permitted(definition)
        policy = self._registry.policy_of(definition)
        if not folder.resolve().is_relative_to(self._base().resolve()):  # the log of a run may name any folder
            self._registry.require_reachable(definition, folder)
        options: dict[str, Any] = {
            "shell_timeout": definition.timeout,
            "environ": definition.environ,
            "guard": None if HIDDEN in policy.allowed else policy.why_protected,
            "secrets": functools.partial(_resolved_secrets, definition.secrets, policy) if definition.secrets else None,
        }
        if not definition.shell:
            return FilesWorkspace(folder, **options)
        if definition.kind == FENCED:
            return FencedWorkspace(folder, **options)
        if definition.kind == VIRTUALENV:
            python = definition.python
            packages = definition.packages
            return VirtualenvWorkspace(folder, python=python, packages=packages, **options)
        if definition.kind == DOCKER:
            limits = {"memory": definition.memory, "cpus": definition.processors}
            options |= {name: value for name, value in limits.items() if value is not None}
            return DockerWorkspace(folder, image=definition.image, allow=definition.hosts, told=on_egress, **options)
        return LocalWorkspace(folder, **options)

    def content(self, digest: str) -> bytes:
        """Return the content of a file in a workspace from the store, by the hash of the content."""
        return file_content(self._store, digest)

    def close(self) -> None:
        """Remove the temporary folder for workspaces, if one was created because the store is in memory."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


def drop_folders(store: EventStore, *, dry_run: bool = False) -> int:
    """Remove the workspace folders of executions that the store no longer contains; return their number."""
    path: Path | None = getattr(store, "path", None)
    base = None if path is None else path.parent / FOLDER
    if base is None or not base.is_dir():
        return 0
    # Only names of executions are removed. Other files in the folder belong to the user. The folders are listed before
    # the executions: a run that starts in between has a log, and so keeps its folder
    # (test_the_folder_of_a_run_that_starts_during_the_deletion_is_kept).
    folders = [folder for folder in base.iterdir() if folder.name.startswith("exec_")]
    ids = set(store.ids())
    orphans = [folder for folder in folders if folder.name not in ids]
    if not dry_run:
        for folder in orphans:
            shutil.rmtree(folder, ignore_errors=True)
    return len(orphans)


def _resolved_secrets(secrets: Mapping[str, str], policy: Policy) -> Mapping[str, str]:
    values: Mapping[str, str] = resolved(dict(secrets), policy)
    return values
