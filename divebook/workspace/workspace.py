"""A workspace: a place with files, a shell and resources, which it owns as long as it is entered."""

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
from divebook.workspace.files import GITIGNORE, Disk, FileOperator, IgnoreRules, LocalFileOperator
from divebook.workspace.paths import Root
from divebook.workspace.resources import ResourceFactory, ResourceRegistry, SavedResources
from divebook.workspace.shell import Shell, shielded

# What an agent is told of a workspace: its folders with what is in them, its shell, its resources.


SKIPPED = frozenset({"node_modules", ".git", ".venv", "__pycache__"})
MAX_DEPTH = 3
MOST_ENTRIES = 500
"""Lines of one tree: an agent lists what it wants to know."""
_SHOWN_HIDDEN = (".env",)


def file_instructions(disk: Disk, folders: Sequence[str], tmp_dir: str | None) -> str:
    """Return the part about files."""
    lines = ["<file-system>", f"<default-directory>{escape(disk.policy.default.name)}</default-directory>"]
    if tmp_dir is not None:
        lines.append(f"<tmp-directory>{escape(tmp_dir)}</tmp-directory>")
    for folder in folders:
        lines += [f"<directory path={quoteattr(folder)}>", escape(tree_text(disk, folder)), "</directory>"]
    return "\n".join([*lines, "</file-system>"])


def shell_instructions(folder: str, seconds: float, note: str) -> str:
    """Return the part about the shell."""
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
    """Return the part about where a folder of this machine is inside a container."""
    told = [f"<host>{escape(folder)}</host>", f"<container>{escape(inside)}</container>"]
    return "\n".join(["<mount-mapping>", *told, "</mount-mapping>"])


def resource_instructions(told: Mapping[str, str]) -> str:
    """Return the part about resources."""
    lines = [f"<resource name={quoteattr(key)}>{escape(text)}</resource>" for key, text in told.items()]
    return "\n".join(["<resources>", *lines, "</resources>"])


def whole_instructions(parts: Sequence[str]) -> str:
    """Return all parts as one text; nothing for none."""
    inside = "\n\n".join(part for part in parts if part)
    return f"<environment-context>\n{inside}\n</environment-context>" if inside else ""


def tree_text(disk: Disk, folder: str, max_depth: int = MAX_DEPTH) -> str:
    """Return what is in a folder, a line each: folders first, hidden ones left out, those of a .gitignore marked."""
    if not disk.is_folder(folder):
        return f"Directory not found: {folder}"
    base = disk.policy.absolute(folder).rstrip("/")
    ignored = _ignored(disk, base)
    lines: list[str] = []
    for line in _lines(disk, base, "", max_depth, ignored):
        if len(lines) == MOST_ENTRIES:
            lines.append("... and more")
            break
        lines.append(line)
    return "\n".join(lines)


def _lines(disk: Disk, base: str, below: str, depth: int, ignored: IgnoreRules) -> Iterator[str]:
    entries = disk.entries(f"{base}/{below}" if below else base)
    for name, is_folder in sorted(entries, key=lambda entry: (not entry[1], entry[0])):
        path = f"{below}/{name}" if below else name
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
    """Return the rules of a folder's own .gitignore."""
    rules = IgnoreRules()
    with suppress(OSError):  # there is none, or it cannot be read
        rules.add("", disk.read(f"{base}/{GITIGNORE}").decode(errors="replace"))
    return rules


class Workspace(ABC):
    """A place with files, a shell and resources.

    A subclass assigns `_file_operator` and `_shell` in `_setup`, and releases what is its own in `_teardown`; entering
    and leaving are here. Whatever was set up is undone if setting up fails, and everything is closed in reverse order,
    whatever fails meanwhile.

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
        What was saved of resources, to be restored when it is entered.
    resource_factories
        How resources are made that are asked for, by key.
    """

    kind: ClassVar[str] = ""
    """What kind of workspace it is, as definitions name it."""

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
        """Make the file operator and the shell; resources and toolsets may be added."""

    async def _teardown(self) -> None:  # noqa: B027 - many have nothing else to let go
        """Let go of what is this kind's own; files and shell are closed after it."""

    # --- entering and leaving --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise WorkspaceEnteredError(f"{type(self).__name__} has already been entered; leave it first")
        self._is_entered = True
        try:
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
        """Close everything, also while being cancelled; the first fault is raised when all is done."""
        await shielded(self._closed())

    async def _closed(self) -> None:
        # A `_teardown` may set both to None, as that of the pai-agent-sdk does: they are closed all the same.
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

    # --- what it has -----------------------------------------------------------------------------------------------

    def _require(self, part: Any) -> Any:
        if not self._is_entered or part is None:
            raise WorkspaceNotEnteredError(
                f"Environment not entered: write `async with {type(self).__name__}(...) as workspace:`"
            )
        return part

    @property
    def is_entered(self) -> bool:
        """Whether it can be used."""
        return self._is_entered

    @property
    def file_operator(self) -> FileOperator:
        """Its files; raises `WorkspaceNotEnteredError`."""
        found: FileOperator = self._require(self._file_operator)
        return found

    @property
    def shell(self) -> Shell:
        """Its shell; raises `WorkspaceNotEnteredError`."""
        found: Shell = self._require(self._shell)
        return found

    @property
    def resources(self) -> ResourceRegistry:
        """Its resources; factories may be registered before it is entered."""
        return self._resources

    @property
    def tmp_dir(self) -> str | None:
        """Its folder for what is passing, if it has one and is entered."""
        return None if self._file_operator is None else self._file_operator.tmp_dir

    @property
    def root(self) -> Root:
        """The folder with its files, on this machine.

        Raises
        ------
        WorkspaceNotEnteredError
            The workspace is not entered.
        WorkspaceGoneError
            Its files are not in one folder of this machine. Runs need that folder: they keep a copy of its files.
        """
        files = self.file_operator
        if not isinstance(files, LocalFileOperator):
            raise WorkspaceGoneError(
                f"{type(self).__name__} has no folder on this machine: use a LocalFileOperator, or override `root`"
            )
        return files.policy.default

    async def require_there(self) -> None:
        """Raise `WorkspaceGoneError` unless what it was entered with is still there."""
        if not self.root.is_there():
            raise WorkspaceGoneError(
                f"the folder {self.root.path} of a workspace is not there any more: leave the workspace, and restore it"
            )

    @property
    def reference(self) -> dict[str, Any]:
        """Plain data by which the workspace is found again after a restart; by default its folder, while entered."""
        has_folder = self._is_entered and isinstance(self._file_operator, LocalFileOperator)
        return {"folder": self.root.path} if has_folder else {}

    def add_toolset(self, toolset: Any) -> None:
        """Offer a toolset to agents, until it is left."""
        self._toolsets.append(toolset)

    def get_toolsets(self) -> list[Any]:
        """Return its toolsets, and those of its resources."""
        return [*self._toolsets, *self._resources.get_toolsets()]

    def with_resource_factory(self, key: str, factory: ResourceFactory) -> Self:
        """Say how a resource is made; returns itself."""
        self._resources.register_factory(key, factory)
        return self

    def with_resource_state(self, saved: SavedResources | None) -> Self:
        """Have resources restored; None leaves things as they are. Returns itself."""
        self._resources.pend(saved)
        return self

    async def export_resource_state(self) -> dict[str, Any]:
        """Return the states of its resources, plain data."""
        return await self._resources.export_state()

    async def get_context_instructions(self) -> str:
        """Return what an agent is told of it."""
        parts = [await self.file_operator.get_context_instructions(), await self.shell.get_context_instructions()]
        told = await self._resources.instructions()
        return whole_instructions([*(part or "" for part in parts), resource_instructions(told) if told else ""])


Environment = Workspace
"""The name of `Workspace` in the pai-agent-sdk."""


# A session of an agent in a workspace: short, one of several that share it; and messages between sessions.


MOST_MESSAGES = 500


@dataclass(frozen=True, slots=True)
class BusMessage:
    """A message from one session to another, or to all."""

    content: Any
    source: str
    target: str | None = None
    """Who gets it; None is everybody."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


class MessageBus:
    """Messages between sessions of one event loop: each subscriber gets those that come after it subscribed.

    Parameters
    ----------
    maxlen
        How many are kept; older ones go.
    """

    def __init__(self, maxlen: int = MOST_MESSAGES) -> None:
        self._messages: deque[tuple[int, BusMessage]] = deque(maxlen=maxlen)
        self._places: dict[str, int] = {}
        self._count = 0

    def subscribe(self, subscriber: str) -> None:
        """Give a subscriber what comes from now on; twice is once."""
        self._places.setdefault(subscriber, self._count)

    def unsubscribe(self, subscriber: str) -> None:
        """Give a subscriber nothing more."""
        self._places.pop(subscriber, None)

    def send(self, message: BusMessage) -> bool:
        """Send a message; return False for one whose id is among those that are kept."""
        if any(known.id == message.id for _, known in self._messages):
            return False
        self._count += 1
        self._messages.append((self._count, message))
        return True

    def peek(self, subscriber: str) -> list[BusMessage]:
        """Return what a subscriber has not consumed yet."""
        after = self._places.get(subscriber)
        if after is None:
            return []
        return [each for number, each in self._messages if number > after and each.target in (None, subscriber)]

    def has_pending(self, subscriber: str) -> bool:
        """Return whether a subscriber has not consumed everything yet."""
        return bool(self.peek(subscriber))

    def consume(self, subscriber: str) -> list[BusMessage]:
        """Return what a subscriber has not consumed yet, once; a new one subscribes, and gets nothing."""
        found = self.peek(subscriber)
        self._places[subscriber] = self._count
        return found

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()


class AgentSession:
    """What an agent works with: files, shell and resources, by default those of a workspace.

    Parameters
    ----------
    workspace
        The workspace that it is in.
    file_operator, shell, resources
        In place of those of the workspace.
    parent
        The session of the agent that gave it work: they share a message bus.

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
        """What is to last beyond the session, plain data."""
        self._is_entered = False

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise WorkspaceEnteredError("AgentSession has already been entered; leave it first")
        self._is_entered, self.started_at, self.ended_at = True, datetime.now(UTC), None
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_entered, self.ended_at = False, datetime.now(UTC)
        if self._parent is None:
            self.bus.clear()

    @property
    def file_operator(self) -> FileOperator | None:
        """Its files."""
        return self._files if self._files is not None or self.workspace is None else self.workspace.file_operator

    @property
    def shell(self) -> Shell | None:
        """Its shell."""
        return self._shell if self._shell is not None or self.workspace is None else self.workspace.shell

    @property
    def resources(self) -> ResourceRegistry | None:
        """Its resources."""
        return self._resources if self._resources is not None or self.workspace is None else self.workspace.resources

    def below(self) -> AgentSession:
        """Return a session for an agent that this one's gives work to: the same parts, an id of its own."""
        parts = {"file_operator": self._files, "shell": self._shell, "resources": self._resources}
        return AgentSession(self.workspace, parent=self, **parts)  # type: ignore[arg-type]

    def export_state(self) -> dict[str, Any]:
        """Return what is to last, plain data."""
        return {"run_id": self.run_id, "state": dict(self.state)}

    def with_state(self, saved: Mapping[str, Any] | None) -> Self:
        """Take over what a former session exported; None changes nothing. Returns itself."""
        if saved is not None:
            self.state = dict(saved.get("state", {}))
        return self


AgentContext = AgentSession
"""The name of `AgentSession` in the pai-agent-sdk."""


# The workspace that the present call of an execution works in: set by what carries the call out.


PRESENT: ContextVar[Workspace | None] = ContextVar("divebook_workspace", default=None)


def present_workspace() -> Workspace:
    """Return it; raises `WorkspaceNotEnteredError` outside of such a call."""
    found = PRESENT.get()
    if found is None:
        raise WorkspaceNotEnteredError("there is no workspace here: let the agent, step or workflow name one")
    return found


# What is given to workspaces as several things: one text is not several, though Python takes its letters for that.


T = TypeVar("T")


def several(given: Iterable[T], what: str) -> tuple[T, ...]:
    """Return what was given as a tuple.

    Raises
    ------
    TypeError
        It is one text or path: ``packages="pytest"`` would have installed ``p``, ``y``, ``t``, ...
    """
    if isinstance(given, str | bytes | os.PathLike):
        raise TypeError(f"{what} must be a list, not one text: write [{str(given)!r}]")
    return tuple(given)
