"""Base class of workspaces (files, a shell and resources, which are open while the workspace is entered), and sessions
of agents that work in a workspace.
"""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Self, TypeVar
from xml.sax.saxutils import escape, quoteattr

from divebook.errors import WorkspaceEnteredError, WorkspaceGoneError, WorkspaceNotEnteredError
from divebook.workspaces.files import GITIGNORE, Disk, FileOperator, IgnoreRules, LocalFileOperator
from divebook.workspaces.paths import Root
from divebook.workspaces.resources import ResourceFactory, ResourceRegistry, SavedResources
from divebook.workspaces.shell import Shell, shielded

SKIPPED = frozenset({"node_modules", ".git", ".venv", "__pycache__"})
MAX_DEPTH = 3
MOST_ENTRIES = 500
"""Maximum number of lines of a folder tree in the description for agents."""
_SHOWN_HIDDEN = (".env",)


def file_instructions(disk: Disk, folders: Sequence[str], tmp_dir: str | None) -> str:
    """Return the description of the files of a workspace for agents: each folder with a tree of its content."""
    lines = ["<file-system>", f"<default-directory>{escape(disk.policy.default.name)}</default-directory>"]
    if tmp_dir is not None:
        lines.append(f"<tmp-directory>{escape(tmp_dir)}</tmp-directory>")
    for folder in folders:
        lines += [f"<directory path={quoteattr(folder)}>", escape(tree_text(disk, folder)), "</directory>"]
    return "\n".join([*lines, "</file-system>"])


def shell_instructions(folder: str, seconds: float, note: str) -> str:
    """Return the description of a workspace's shell for agents: its working folder, its time limit and a note about its
    limits.
    """
    return "\n".join(
        [
            "<shell-execution>",
            f"<default-directory>{escape(folder)}</default-directory>",
            f"<default-timeout>{seconds:.1f}s</default-timeout>",
            f"<note>{escape(note)}</note>",
            "</shell-execution>",
        ]
    )


def mount_instructions(folder: str, inside: str) -> str:
    """Return a text for agents that names a folder of this machine and the path under which a container mounts it."""
    paths = [f"<host>{escape(folder)}</host>", f"<container>{escape(inside)}</container>"]
    return "\n".join(["<mount-mapping>", *paths, "</mount-mapping>"])


def resource_instructions(texts: Mapping[str, str]) -> str:
    """Return the description of a workspace's resources for agents. `texts` has the description of each resource by its
    key.
    """
    lines = [f"<resource name={quoteattr(key)}>{escape(text)}</resource>" for key, text in texts.items()]
    return "\n".join(["<resources>", *lines, "</resources>"])


def whole_instructions(parts: Sequence[str]) -> str:
    """Join the parts of a workspace's description for agents into one text. Return '' if all parts are empty."""
    text = "\n\n".join(part for part in parts if part)
    return f"<environment-context>\n{text}\n</environment-context>" if text else ""


def tree_text(disk: Disk, folder: str, max_depth: int = MAX_DEPTH) -> str:
    """Return the content of a folder and its subfolders as text for agents, one path per line. Most hidden files are
    left out, and paths that git ignores are marked.
    """
    if not disk.is_folder(folder):
        return f"Directory not found: {folder}"
    base = disk.policy.absolute(folder).rstrip("/")
    ignored = _ignored(disk, base)
    lines: list[str] = []
    # `_lines` is a generator: the folders behind the limit are not listed at all.
    for line in _lines(disk, base, "", max_depth, ignored):
        if len(lines) == MOST_ENTRIES:
            lines.append("... and more")
            break
        lines.append(line)
    return "\n".join(lines)


def _lines(disk: Disk, base: str, parent: str, depth: int, ignored: IgnoreRules) -> Iterator[str]:
    """Yield a line of text for each entry of a folder and of its subfolders, down to `depth` levels, folders first."""
    entries = disk.entries(f"{base}/{parent}" if parent else base)
    # Folders come first. Skipped and ignored ones are listed without their content, so that a model knows of them.
    for name, is_folder in sorted(entries, key=lambda entry: (not entry[1], entry[0])):
        path = f"{parent}/{name}" if parent else name
        if is_folder and name in SKIPPED:
            yield f"{path}/ (skipped)"
        elif name.startswith(".") and name not in _SHOWN_HIDDEN:
            continue
        elif ignored.is_ignored(path, is_folder=is_folder):
            yield f"{path}{'/' if is_folder else ''} (gitignored)"
        elif not is_folder:
            yield path
        elif depth > 1:
            yield from _lines(disk, base, path, depth - 1, ignored)


def _ignored(disk: Disk, base: str) -> IgnoreRules:
    """Return the rules of the file ``.gitignore`` in a folder. Without such a file, or if it cannot be read, return no
    rules.
    """
    rules = IgnoreRules()
    with suppress(OSError):  # there is none, or it cannot be read
        rules.add("", disk.read(f"{base}/{GITIGNORE}").decode(errors="replace"))
    return rules


class Workspace(ABC):
    """Base class of workspaces. A workspace has files, a shell and resources, which can be used while the workspace is
    entered (``async with``).

    A subclass assigns `_file_operator` and `_shell` in `_setup`, and releases its own resources in `_teardown`. If
    `_setup` fails, everything is closed again. Everything is closed in reverse order, even if a part fails to close.

    Examples
    --------
    ::

        class Project(Workspace):
            async def _setup(self):
                self._file_operator = LocalFileOperator("project")
                self._shell = LocalShell("project")
                self._resources.set("database", await connect())

        async with Project() as workspace:
            await workspace.shell.execute("ls")

    Parameters
    ----------
    resource_state
        Saved states of resources, restored on entry.
    resource_factories
        Functions that create resources on request, by key.
    """

    kind: ClassVar[str] = ""
    """Name of this kind of workspace in definitions."""

    def __init__(
        self,
        resource_state: SavedResources | None = None,
        resource_factories: Mapping[str, ResourceFactory] | None = None,
    ) -> None:
        self._file_operator: FileOperator | None = None
        self._shell: Shell | None = None
        self._resources = ResourceRegistry()
        self._toolsets: list[Any] = []
        self._is_entered = False
        self._resources.pend(resource_state)
        for key, factory in (resource_factories or {}).items():
            self._resources.register_factory(key, factory)

    @abstractmethod
    async def _setup(self) -> None:
        """Open the workspace: create its file operator and its shell, and optionally resources and toolsets. Called
        when the workspace is entered.
        """

    async def _teardown(self) -> None:  # noqa: B027 - many kinds have nothing else to release
        """Release what a subclass has created besides files, shell and resources. Called when the workspace is left,
        before its files and shell are closed.
        """

    # --- entering and leaving --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise WorkspaceEnteredError(f"{type(self).__name__} has already been entered; leave it first")
        # Set before the setup: `_setup` of a subclass may use the properties below, which require it.
        self._is_entered = True
        try:
            # Resources come last, since their factories use files and shell. `_leave` closes them first.
            await self._setup()
            self._resources.bind(self)
            await self._resources.restore_all()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        """Close the files, shell and resources of the workspace, even while the task is being cancelled. The first
        error is raised after all are closed.
        """
        await shielded(self._close_all())

    async def _close_all(self) -> None:
        # A `_teardown` may set both to None, as that of the pai-agent-sdk does. They must still be closed.
        shell = self._shell
        files = self._file_operator
        try:
            await self._resources.close_all()
        finally:
            try:
                await self._teardown()
            finally:
                await self._close_parts(shell, files)

    async def _close_parts(self, shell: Shell | None, files: FileOperator | None) -> None:
        # The workspace counts as left before its parts are closed. A concurrent call raises `WorkspaceNotEnteredError`
        # and does not meet a part that is half closed.
        self._shell = None
        self._file_operator = None
        self._is_entered = False
        self._toolsets.clear()
        self._resources.bind(None)
        try:
            if shell is not None:
                await shell.close()
        finally:
            if files is not None:
                await files.close()

    # --- parts -----------------------------------------------------------------------------------------------------

    def _require(self, part: Any) -> Any:
        if not self._is_entered or part is None:
            raise WorkspaceNotEnteredError(
                f"Environment not entered: write `async with {type(self).__name__}(...) as workspace:`"
            )
        return part

    @property
    def is_entered(self) -> bool:
        """True while the workspace is entered and can be used."""
        return self._is_entered

    @property
    def file_operator(self) -> FileOperator:
        """Files of the workspace; raises `WorkspaceNotEnteredError`."""
        files: FileOperator = self._require(self._file_operator)
        return files

    @property
    def shell(self) -> Shell:
        """Shell of the workspace; raises `WorkspaceNotEnteredError`."""
        shell: Shell = self._require(self._shell)
        return shell

    @property
    def resources(self) -> ResourceRegistry:
        """Resources of the workspace. Factories may be registered before the workspace is entered."""
        return self._resources

    @property
    def tmp_dir(self) -> str | None:
        """Folder of temporary files; None if the workspace has no such folder or is not entered."""
        return None if self._file_operator is None else self._file_operator.tmp_dir

    @property
    def root(self) -> Root:
        """Folder of this machine with the files of the workspace.

        Raises
        ------
        WorkspaceNotEnteredError
            The workspace is not entered.
        WorkspaceGoneError
            The files are not in one folder of this machine. Runs need that folder, since they keep a copy of its files.
        """
        files = self.file_operator
        if not isinstance(files, LocalFileOperator):
            raise WorkspaceGoneError(
                f"{type(self).__name__} has no folder on this machine; use a LocalFileOperator, or override `root`"
            )
        return files.policy.default

    async def require_there(self) -> None:
        """Raise `WorkspaceGoneError` if the folder of the workspace was deleted or replaced after the workspace was
        entered.
        """
        if not self.root.is_there():
            raise WorkspaceGoneError(
                f"the folder {self.root.path} of a workspace no longer exists; leave the workspace, and restore the "
                "folder"
            )

    @property
    def reference(self) -> dict[str, Any]:
        """Plain data by which the workspace can be identified after a restart of Python. By default its folder; empty
        while the workspace is not entered.
        """
        has_folder = self._is_entered and isinstance(self._file_operator, LocalFileOperator)
        return {"folder": self.root.path} if has_folder else {}

    def add_toolset(self, toolset: Any) -> None:
        """Add a toolset that agents in the workspace can use. It is removed when the workspace is left."""
        self._toolsets.append(toolset)

    def get_toolsets(self) -> list[Any]:
        """Return the toolsets of the workspace and of its resources."""
        return [*self._toolsets, *self._resources.get_toolsets()]

    def with_resource_factory(self, key: str, factory: ResourceFactory) -> Self:
        """Register a function that creates the resource with a key when it is first requested. Return the workspace."""
        self._resources.register_factory(key, factory)
        return self

    def with_resource_state(self, saved: SavedResources | None) -> Self:
        """Add states of resources that `export_resource_state` returned earlier; they are restored when the workspace
        is entered. Return the workspace. If `saved` is None, nothing is added.
        """
        self._resources.pend(saved)
        return self

    async def export_resource_state(self) -> dict[str, Any]:
        """Return the states of the workspace's resources as plain data, for `with_resource_state` of a later
        workspace.
        """
        return await self._resources.export_state()

    async def get_context_instructions(self) -> str:
        """Return a description of files, shell and resources, for the instructions of agents."""
        parts = [await self.file_operator.get_context_instructions(), await self.shell.get_context_instructions()]
        texts = await self._resources.instructions()
        return whole_instructions([*(part or "" for part in parts), resource_instructions(texts) if texts else ""])


Environment = Workspace
"""Alias of `Workspace`, for code written for the pai-agent-sdk."""


# --- sessions of agents in a workspace, and messages between them ---


MOST_MESSAGES = 500


@dataclass(frozen=True, slots=True)
class BusMessage:
    """A message from one agent session to another one, or to all sessions of the same message bus."""

    content: Any
    source: str
    target: str | None = None
    """Id of the session that receives the message; None for all sessions."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


class MessageBus:
    """Message bus between the agent sessions of one event loop. A subscriber is identified by a session id, and gets
    the messages that are sent after it has subscribed.

    Parameters
    ----------
    maxlen
        Maximum number of messages on the bus. Older messages are dropped.
    """

    def __init__(self, maxlen: int = MOST_MESSAGES) -> None:
        # Messages with their numbers 1, 2, ..., and for each subscriber the number of the last message that it has
        # read.
        self._messages: deque[tuple[int, BusMessage]] = deque(maxlen=maxlen)
        self._positions: dict[str, int] = {}
        self._count = 0

    def subscribe(self, subscriber: str) -> None:
        """Register a session id as a subscriber, which gets all messages that are sent from now on. A second call with
        the same id has no effect.
        """
        self._positions.setdefault(subscriber, self._count)

    def unsubscribe(self, subscriber: str) -> None:
        """Remove a subscriber, given by its session id. The subscriber can no longer read its unread messages."""
        self._positions.pop(subscriber, None)

    def send(self, message: BusMessage) -> bool:
        """Send a message to the subscribers and return True. Return False, without sending, if the bus still has a
        message with the same id.
        """
        # The id makes sending idempotent.
        if any(earlier.id == message.id for _, earlier in self._messages):
            return False
        self._count += 1
        self._messages.append((self._count, message))
        return True

    def peek(self, subscriber: str) -> list[BusMessage]:
        """Return the messages that are waiting for a subscriber (a session id) without removing them. Return an empty
        list if it has not subscribed.
        """
        after = self._positions.get(subscriber)
        if after is None:
            return []
        return [each for number, each in self._messages if number > after and each.target in (None, subscriber)]

    def has_pending(self, subscriber: str) -> bool:
        """Return True if messages are waiting for a subscriber (a session id)."""
        return bool(self.peek(subscriber))

    def consume(self, subscriber: str) -> list[BusMessage]:
        """Return the messages that are waiting for a subscriber (a session id), and mark them as read, so that it does
        not get them again.

        A new subscriber gets an empty list.
        """
        messages = self.peek(subscriber)
        self._positions[subscriber] = self._count
        return messages

    def clear(self) -> None:
        """Delete all messages, also those that subscribers have not read yet."""
        self._messages.clear()


class AgentSession:
    """Session of one agent, with the files, the shell and the resources that the agent uses. By default, these are the
    files, shell and resources of a workspace.

    Parameters
    ----------
    workspace
        Workspace of the session.
    file_operator, shell, resources
        Parts that replace the parts of the workspace.
    parent
        Session of the agent that delegated the work. Both share a message bus.

    Examples
    --------
    ::

        async with LocalWorkspace("project") as workspace, AgentSession(workspace) as session:
            await session.file_operator.read_file("README.md")
    """

    def __init__(
        self,
        workspace: Workspace | None = None,
        *,
        file_operator: FileOperator | None = None,
        shell: Shell | None = None,
        resources: ResourceRegistry | None = None,
        parent: AgentSession | None = None,
    ) -> None:
        self.workspace = workspace
        self._files = file_operator
        self._shell = shell
        self._resources = resources
        self.run_id = uuid.uuid4().hex
        self.parent_run_id = None if parent is None else parent.run_id
        self.bus: MessageBus = MessageBus() if parent is None else parent.bus
        self._parent = parent
        self.started_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.state: dict[str, Any] = {}
        """Data of the user that `export_state` returns and `with_state` restores."""
        self._is_entered = False

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise WorkspaceEnteredError("AgentSession has already been entered; leave it first")
        self._is_entered = True
        self.started_at = datetime.now(UTC)
        self.ended_at = None
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_entered = False
        self.ended_at = datetime.now(UTC)
        # Sessions of delegated work share the bus with this one and may end earlier.
        if self._parent is None:
            self.bus.clear()

    @property
    def file_operator(self) -> FileOperator | None:
        """Files that the agent uses. None if the session has neither own files nor a workspace."""
        return self._files if self._files is not None or self.workspace is None else self.workspace.file_operator

    @property
    def shell(self) -> Shell | None:
        """Shell that the agent uses. None if the session has neither an own shell nor a workspace."""
        return self._shell if self._shell is not None or self.workspace is None else self.workspace.shell

    @property
    def resources(self) -> ResourceRegistry | None:
        """Resources that the agent uses. None if the session has neither own resources nor a workspace."""
        return self._resources if self._resources is not None or self.workspace is None else self.workspace.resources

    def below(self) -> AgentSession:
        """Create a session for an agent to which this session's agent delegates work. The new session uses the same
        files, shell and resources, and has a different id.
        """
        # Only own parts are passed. Those of the workspace are looked up at each use, since each entry creates new
        # ones.
        parts = {"file_operator": self._files, "shell": self._shell, "resources": self._resources}
        return AgentSession(self.workspace, parent=self, **parts)  # type: ignore[arg-type]

    def export_state(self) -> dict[str, Any]:
        """Return the id of the session and the data of its attribute `state`, as plain data."""
        return {"run_id": self.run_id, "state": dict(self.state)}

    def with_state(self, saved: Mapping[str, Any] | None) -> Self:
        """Set the attribute `state` to the data that `export_state` returned earlier, and return the session. None
        changes nothing.
        """
        if saved is not None:
            self.state = dict(saved.get("state", {}))
        return self


AgentContext = AgentSession
"""Alias of `AgentSession`, for code written for the pai-agent-sdk."""


# --- the workspace of the current call of an execution ---


CURRENT_WORKSPACE: ContextVar[Workspace | None] = ContextVar("divebook_workspace", default=None)


def present_workspace() -> Workspace:
    """Return the workspace of the action or tool call that is running. Raise `WorkspaceNotEnteredError` if there is
    none.
    """
    workspace = CURRENT_WORKSPACE.get()
    if workspace is None:
        raise WorkspaceNotEnteredError(
            "this code runs without a workspace; set a workspace for the agent, the step or the workflow"
        )
    return workspace


T = TypeVar("T")


def several(values: Iterable[T], argument: str) -> tuple[T, ...]:
    """Return the value of an argument that takes several values as a tuple.

    Raises
    ------
    TypeError
        The argument is one string or path. Python would iterate over its letters: ``packages="pytest"`` would install
        ``p``, ``y``, ...
    """
    if isinstance(values, str | bytes | os.PathLike):
        raise TypeError(f"{argument} must be a list, not a string; write [{str(values)!r}]")
    return tuple(values)
