"""Actions: named Python functions that steps call, and those every environment has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar, overload

from divebook.documents import DocumentRepository
from divebook.errors import DivebookError, SetupError, StepError
from divebook.text.arguments import describe
from divebook.workflow.code import source_of
from divebook.workflow.functions import UserFunction, decorated
from divebook.workflow.step import Retry

F = TypeVar("F", bound=Callable[..., Any])


class Action(UserFunction):
    """A function under the name by which steps call it.

    A coroutine function runs on the engine's loop; any other runs in a thread, so that it may block, or in the executor
    that is named. One that takes a
    parameter ``idempotency_key`` receives a text that is the same whenever the call is repeated.
    """

    __slots__ = ()
    kind = "action"


class StepAction(Action):
    """An action that is no call itself: it makes recorded calls of its own, and may ask a person before it does."""

    __slots__ = ()
    makes_calls = True


@overload
def action(name: F) -> F: ...
@overload
def action(
    name: str | None = None,
    *,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    approval: bool = False,
    executor: Any = None,
    workspace: str | None = None,
) -> Callable[[F], F]: ...
def action(
    name: F | str | None = None,
    *,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    approval: bool = False,
    executor: Any = None,
    workspace: str | None = None,
) -> F | Callable[[F], F]:
    """Make a function an action of every environment of this process; a later one of the same name replaces it.

    Parameters
    ----------
    name
        By default the function's.
    retry
        Try a call that failed again; a `Retry` of the step itself holds instead.
    timeout
        Seconds that a call may take; then it fails with a TimeoutError.
    idempotent
        Calling it twice does no more than calling it once, as with reading: it is then simply called again where a
        process died during the call. For any other a person is asked.
    approval
        A person must approve every call first, and may change its parameters.
    executor
        Where an ordinary function runs, as for ``@step``; the `Executor` of a step holds instead.
    workspace
        The workspace in which calls work, as for ``@step``; ``""`` is the one of the step, else of the workflow.

    Examples
    --------
    >>> @action("Text.Shout")
    ... def shout(text: str) -> str:
    ...     return text.upper()
    >>> shout("hi")
    'HI'
    """
    said = {
        "retry": retry,
        "timeout": timeout,
        "idempotent": idempotent,
        "approval": approval,
        "executor": executor,
        "workspace": workspace,
    }
    found: F | Callable[[F], F] = decorated(name, _register, Action, said)
    return found


def _register(made: Action) -> Callable[..., Any]:
    if not made.name:
        raise SetupError("action name is required")
    REGISTERED[made.name] = made
    source_of(made.function)
    return made.function


def action_of(given: Any) -> Action:
    """Return an action that is given as such, or as a function that was made one with `@action`.

    Raises
    ------
    SetupError
        It is something else.
    """
    if isinstance(given, Action):
        return given
    known = (made for made in REGISTERED.values() if made.function is given)
    found = next(known, None)
    if found is None:
        expected = "functions that @action stands above, or divebook.Action(name, function)"
        raise SetupError(f"actions must be {expected}, not {describe(given)}")
    return found


REGISTERED: dict[str, Action] = {}
"""Actions made with `@action`, by name."""


def built_in_actions(
    documents: DocumentRepository, printer: Callable[[str], None], now: Callable[[], datetime]
) -> dict[str, Action]:
    """Return the actions that every environment has.

    Parameters
    ----------
    documents
        What ``Document.Read`` and ``Document.Write`` use.
    printer
        Takes the lines of ``Print``.
    now
        The time for ``Time.Now``, aware.
    """

    # The parameters are capitalised because definitions spell them so.
    async def read(Path: Any = None, **_: Any) -> str:  # noqa: N803
        """Return the text of a document."""
        path = _text(Path, "path")
        try:
            return (await documents.read(path)).content
        except (DivebookError, OSError, UnicodeError) as error:
            raise StepError(f"failed to read document: {error}") from error

    async def write(Path: Any = None, Content: Any = None, **_: Any) -> None:  # noqa: N803
        """Write a document whole."""
        path = _text(Path, "path")
        content = _text(Content, "content")
        try:
            documents.put(path, content)
        except (DivebookError, OSError, UnicodeError) as error:
            raise StepError(f"failed to write document: {error}") from error

    async def time_now(**_: Any) -> str:
        """Return the time as text, RFC 3339, to the second."""
        return now().replace(microsecond=0).isoformat()

    async def print_line(Message: Any = None, **_: Any) -> None:  # noqa: N803
        """Print a line."""
        printer(_text(Message, "message"))

    functions: dict[str, Callable[..., Awaitable[Any]]] = {
        "Document.Read": read,
        "Document.Write": write,
        "Time.Now": time_now,
        "Print": print_line,
    }
    return {
        name: Action(name, function, function.__doc__ or "", idempotent=True) for name, function in functions.items()
    }


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise StepError(f"{name} parameter must be a string, got {type(value).__name__}")
    return value
