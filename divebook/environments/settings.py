"""Settings of an environment, the workspaces of its executions, and the notification of people about new questions."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from divebook import plugins
from divebook.definitions.resources import DOCKER, FENCED, VIRTUALENV, WORKSPACE_KINDS, WorkspaceDefinition
from divebook.documents import DocumentRepository, Policy
from divebook.documents.policy import HIDDEN, resolved
from divebook.environments.registry import Registry
from divebook.errors import NotFoundError, SetupError
from divebook.events import Event
from divebook.events.catalog import InterruptRaised, InterruptResolved
from divebook.events.codec import encode
from divebook.libraries import install_command
from divebook.projections.spans import Formatter, Formatting
from divebook.runtime.recorder import CallTracing
from divebook.runtime.workspaces import OnEgress
from divebook.scripting import Interpreter
from divebook.stores import EventStore
from divebook.stores.append import Durability
from divebook.stores.codec import Codec
from divebook.stores.maintenance import file_content
from divebook.text.format import in_shell
from divebook.text.protocols import require_protocol
from divebook.text.redaction import cut, logger, one_line, shared, silence
from divebook.workspaces.docker.workspace import DockerWorkspace
from divebook.workspaces.local import FencedWorkspace, FilesWorkspace, LocalWorkspace, VirtualenvWorkspace
from divebook.workspaces.workspace import Workspace

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
        hook = self.notify if self.notify is not None else os.environ.get(NOTIFY_VARIABLE)
        if hook:
            # The name of the workflow is looked up when a question is asked, not for every event.
            notices = Notices(hook, workflow_of=lambda execution_id: store.record(execution_id).workflow_name)
            # In reverse order, the subscription ends first. `close` then waits for the notifications that are under
            # way.
            closers += [notices.close, store.subscribe(notices)]
        setting = os.environ.get(TELEMETRY, "") if self.telemetry is None else self.telemetry
        closers += _subscribe_telemetry(checked_telemetry(setting), store, calls)
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


def checked_telemetry(setting: object) -> Telemetry | str | bool:
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
        "telemetry must be True, False, the address of a collector (http://HOST:4318) or a "
        f"divebook.telemetry.Telemetry; {TELEMETRY} must be 1, 0 or an address, not {setting!r}"
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
            raise SetupError(
                f"workspace {definition.name}: its folder {folder} does not exist; create it, or choose another folder"
            )
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
        if definition.kind not in WORKSPACE_KINDS:
            return _workspace_of_plugin(definition, folder, options)
        return LocalWorkspace(folder, **options)

    def content(self, digest: str) -> bytes:
        """Return the content of a file in a workspace from the store, by the hash of the content."""
        return file_content(self._store, digest)

    def close(self) -> None:
        """Remove the temporary folder for workspaces, if one was created because the store is in memory."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


def _workspace_of_plugin(definition: WorkspaceDefinition, folder: Path, options: Mapping[str, Any]) -> Workspace:
    make = plugins.find(plugins.WORKSPACES, definition.kind)
    if make is None:  # uninstalled since the definition was read
        raise NotFoundError("kind of workspace", definition.kind, plugins.names(plugins.WORKSPACES))
    workspace: Workspace = make(folder, definition, dict(options))
    require_protocol(workspace, Workspace, f"the return value of the plugin {definition.kind!r}", page="workspaces")
    return workspace


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


# --- notification of people ------------------------------------------------------------------------------------------

# Notification hook for new questions to people: calls a function, runs a command, or sends messages to mail and chat
# addresses.
#
# The process that records a question calls the hook once the question is durable. Other processes do not call it, so it
# is called once. The data it receives contains no secrets. It runs in another thread and cannot delay or break the
# execution; its errors are logged. A process that exits waits for running hooks.
#
# Questions are sent to mail, chat, phones and web hooks with Apprise. Only this part uses Apprise.
#
# Addresses contain passwords, so neither they nor Apprise's own log messages are shown. An address that fails is named
# once, by its position and scheme (`tests/runtime/test_addresses.py`).


NOTIFY_LIBRARY = "apprise"
MOST_TEXT = 2_000
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

_log = logger(__name__)


def are_addresses(words: Sequence[str]) -> bool:
    """Return whether all words are addresses such as ``mailto://...``. Otherwise the words are a command.

    >>> are_addresses(["mailto://me:word@example.org"]), are_addresses(["curl", "https://example.org"])
    (True, False)
    """
    return bool(words) and all(_ADDRESS.match(word) for word in words)


class Addresses:
    """Notification hook that sends every new question to several mail or chat addresses.

    An address that fails is logged once and does not delay others.

    Raises
    ------
    SetupError
        The library is not installed.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        if importlib.util.find_spec(NOTIFY_LIBRARY) is None:
            raise SetupError(
                "notify contains addresses, which need the package apprise, but it is not installed: "
                + install_command(NOTIFY_LIBRARY)
            )
        self._addresses = tuple(addresses)
        self._failed = set[int]()
        self._lock = threading.Lock()

    def __call__(self, question: Mapping[str, Any]) -> None:
        """Send a question to all addresses. An address that fails is logged once."""
        title = title_of(question)
        body = text_of(question)
        for number, address in enumerate(self._addresses, start=1):
            if not _sent(address, title, body):
                self._tell(number, address)

    def _tell(self, number: int, address: str) -> None:
        with self._lock:
            if number in self._failed:
                return
            self._failed.add(number)
        _log.warning(
            "address %s of notify (%s) did not accept the notification of a question. This warning appears once. "
            "Check that the address is "
            "right and reachable, for example with apprise -b test ADDRESS; runs and questions are not affected",
            number,
            address.partition("://")[0],
        )


def title_of(question: Mapping[str, Any]) -> str:
    """Return the title of a notification about a question. It contains the name of the workflow that asks."""
    return f"{one_line(str(question.get('workflow') or 'A run'), 80)} asks"


def text_of(question: Mapping[str, Any]) -> str:
    """Return the text of a notification about a question: the question, and the shell command with which to
    answer it.
    """
    answer = in_shell("answer", [f"{question['interrupt_id']}@{question['execution_id']}", "ANSWER"])
    parts = [question.get("question"), question.get("message"), f"To answer: {answer}"]
    return cut("\n\n".join(str(part) for part in parts if part), MOST_TEXT)


def _sent(address: str, title: str, body: str) -> bool:
    import apprise

    silence(NOTIFY_LIBRARY)  # its log messages contain addresses
    service = apprise.Apprise()
    return bool(service.add(address)) and bool(service.notify(title=title, body=body))


NOTIFY_VARIABLE = "DIVEBOOK_NOTIFY"
NOTIFY_SECONDS = 60
"""Time limit of a command in seconds."""

Hook: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Receives a question: ``execution_id``, ``interrupt_id``, ``kind``, ``question``, ``message``,
``data``, ``step`` ..."""


class Notices:
    """Listener on a store that calls the notification hook for every question that this process records.

    Parameters
    ----------
    hook
        A function, or a command: a list of its words, or a string that is split like in a shell. A command gets the
        question as JSON on its standard input. If all words are addresses (``mailto://...``), questions are sent to
        them.
    workflow_of
        Return the name of an execution's workflow.
    """

    def __init__(
        self,
        hook: Hook | Sequence[str] | str,
        executor: Executor | None = None,
        workflow_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._hook = hook if callable(hook) else _hook_of(hook)
        # One thread: notifications arrive in the order of the questions.
        self._executor = executor or ThreadPoolExecutor(1, "divebook-notices")
        self._workflow_of = workflow_of

    def __call__(self, execution_id: str, events: Sequence[Event]) -> None:
        """Call the notification hook for each new question among some events. A question that is already answered in
        the same events is left out.
        """
        # A what-if, for example, records the answer of its source directly after the question.
        settled = {event.data.interrupt_id for event in events if isinstance(event.data, InterruptResolved)}
        for event in events:
            if isinstance(event.data, InterruptRaised) and event.data.interrupt_id not in settled:
                question = {
                    "execution_id": execution_id,
                    "path": event.path,
                    "step": event.step,
                    **event.data.to_data(),
                }
                self._executor.submit(self._tell, question)

    def close(self) -> None:
        """Wait until the hook has been called for all questions recorded so far."""
        self._executor.shutdown()

    def _tell(self, question: Mapping[str, Any]) -> None:
        try:
            self._hook(shared().value({"workflow": self._workflow_of(question["execution_id"]), **question}))
        except Exception:  # noqa: BLE001 - the question is valid whether the hook works or not
            _log.exception(
                "the notify hook failed for question %s of %s", question["interrupt_id"], question["execution_id"]
            )


def _hook_of(words: Sequence[str] | str) -> Hook:
    command = shlex.split(words) if isinstance(words, str) else list(words)
    if not command:
        raise SetupError(
            "notify is an empty command; give a function, a command such as ['notify-send', 'divebook'], or addresses "
            "such as mailto://USER:PASSWORD@example.org"
        )
    if are_addresses(command):
        return _hook_of_addresses(command)

    def call(question: Mapping[str, Any]) -> None:
        subprocess.run(command, input=encode(question), check=True, timeout=NOTIFY_SECONDS)

    return call


def _hook_of_addresses(addresses: Sequence[str]) -> Hook:
    """Return a hook that sends each question to all addresses: to those of a plugin's scheme by the plugin, to all
    others by Apprise.
    """
    schemes = {*plugins.names(plugins.NOTIFIERS)}
    hooks: list[Hook] = []
    for_apprise: list[str] = []
    for address in addresses:
        scheme = address.partition("://")[0]
        notifier = plugins.find(plugins.NOTIFIERS, scheme) if scheme in schemes else None
        if notifier is None:
            for_apprise.append(address)
            continue
        hook = notifier(address)
        # The address may contain a password, and is not shown.
        require_protocol(hook, Hook, f"the return value of the plugin {scheme!r} for an address")
        hooks.append(hook)
    if for_apprise:
        hooks.append(Addresses(for_apprise))
    return hooks[0] if len(hooks) == 1 else functools.partial(_call_all, hooks)


def _call_all(hooks: Sequence[Hook], question: Mapping[str, Any]) -> None:
    for number, hook in enumerate(hooks, start=1):
        try:
            hook(question)
        except Exception:  # noqa: BLE001 - the other addresses get the question all the same
            _log.exception("notifier %s of notify failed for question %s", number, question["interrupt_id"])
