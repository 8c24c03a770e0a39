"""What happens to an operation of which the log has nothing: it is carried out, unless a policy says otherwise.

A policy answers without the world: with what another log has, with nothing at all, or not yet. It is asked by
`divebook.execution.once` alone, and only where the log ends; an execution without one pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeAlias

from divebook.engine.operations import Setting
from divebook.errors import ExecutionError
from divebook.events import catalog
from divebook.execution.wanted import Wanted
from divebook.questions import Question

if TYPE_CHECKING:
    from divebook.engine.state import ExecutionState
    from divebook.execution.store_calls import StoreCalls


FileEvents: TypeAlias = Sequence[catalog.FilesChanged]
"""What a log says of files that a call has changed."""
BringFiles: TypeAlias = "Callable[[FileEvents], AbstractAsyncContextManager[Callable[[], None]]]"
"""Surrounds the answer, and gives what records that here, right behind the end of the call."""


class Inside(NamedTuple):
    """The workspace that a call works in: what it comes to depends on the files there."""

    name: str
    tree: Callable[[], str | None]
    """Returns the digest of its files; None where nothing is known of them."""
    bring: BringFiles


class Beside(NamedTuple):
    """What is said of an operation besides what it asks for."""

    setting: Setting | None = None
    """What it is made with that is only kept."""
    within: str | None = None
    """Id of the operation that holds it."""
    noted: Callable[[Any], catalog.Payload] | None = None
    """What the log is to say besides, once it has a result."""
    done: Callable[[Any], Any] | None = None
    """Makes of what is said in place of a result what the call would have returned."""
    repeatable: bool = False
    """Whether making it twice does no harm."""
    inside: Inside | None = None
    """The workspace that it works in, if it does in one."""


PLAIN = Beside()


class Unserved(Enum):
    """What is done with an operation that is not answered."""

    LIVE = "live"
    """It is carried out."""
    REST = "rest"
    """Its code rests here: what comes after it is not known."""


class Served(NamedTuple):
    """The end of an operation that is recorded in place of carrying it out."""

    end: catalog.OperationCompleted | catalog.OperationFailed
    """Its result or error."""
    told: Mapping[str, Any] | None = None
    """Where that is from, as the field `served` of the event says it."""
    files: FileEvents = ()
    """What it has changed in workspaces."""


Settled: TypeAlias = catalog.InterruptResolved | catalog.InterruptExpired


class Likeness(NamedTuple):
    """An execution from whose log another one is answered."""

    source: str
    tools: str
    """Which actions and tools may be executed, as `divebook.events.catalog.ExecutionForked` says it."""


class Beyond(Protocol):
    """Answers what the log of one execution does not have; called on the engine's loop, and not to wait there."""

    @property
    def writes(self) -> bool:
        """Whether what is said in books outside its log, of talks and of rules, is written."""

    @property
    def asks_models(self) -> bool:
        """Whether a request that has no answer may go to its model, which needs its key and library then."""

    def answer(self, wanted: Wanted, beside: Beside) -> Served | Unserved:
        """Return what becomes of an operation."""

    def opened(self, workspace: str) -> catalog.WorkspaceOpened | None:
        """Return with which files another log has begun a workspace, if it has; else it begins as it is now."""

    def settled(self, asked: Question) -> Settled | None:
        """Return the answer to a question, under its id; None if a person is to be asked."""

    def child_like(self, wanted: Wanted) -> Likeness | None:
        """Return the execution from which that of another workflow is answered; None if it is to run by itself."""

    def setting_of(self, operation_id: str) -> Mapping[str, Any]:
        """Return what an operation that is to begin was made with elsewhere; nothing if that is not known."""


FindBeyond: TypeAlias = Callable[["ExecutionState", "StoreCalls"], "Awaitable[Beyond | None]"]
"""Returns what answers an execution that is a what-if."""


async def nothing_beyond(state: ExecutionState, calls: StoreCalls) -> NoReturn:
    """Refuse to go on: who drives an execution here knows no other log to answer it from.

    Raises
    ------
    ExecutionError
        Always: without that its calls would be made.
    """
    del calls
    raise ExecutionError(f"execution {state.execution_id} is a what-if, which only an environment can go on with")
