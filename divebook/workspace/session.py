"""A session of an agent in a workspace: short, one of several that share it; and messages between sessions."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from divebook.errors import WorkspaceEnteredError
from divebook.workspace.files import FileOperator
from divebook.workspace.resources import ResourceRegistry
from divebook.workspace.shell import Shell
from divebook.workspace.workspace import Workspace

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
        self._files, self._shell, self._resources = file_operator, shell, resources
        self.run_id, self.parent_run_id = uuid.uuid4().hex, None if parent is None else parent.run_id
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
