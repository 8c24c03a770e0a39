"""Actions: named Python functions that steps call. Contains the decorator `@action` and the built-in actions.

Built-in actions are ``Document.Read``, ``Document.Write``, ``Time.Now`` and ``Print``.
`divebook.steps.workspace_actions` adds the actions of workspaces.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar, overload

from divebook.definitions.code import source_of
from divebook.definitions.functions import UserFunction, as_function, decorated
from divebook.definitions.step import Retry
from divebook.documents import DocumentRepository
from divebook.errors import DivebookError, SetupError, StepError
from divebook.text.arguments import DurationLike, describe, suggest_arguments
from divebook.text.protocols import without_partials

F = TypeVar("F", bound=Callable[..., Any])


class Action(UserFunction):
    """Python function with a name, by which steps in definitions call the function.

    A coroutine function runs on the engine's event loop. Any other function runs in a thread, so that it may block, or
    in the named executor. If it has a parameter ``idempotency_key``, it receives a string that is the same for every
    repetition of one call.
    """

    __slots__ = ()
    kind = "action"


class StepAction(Action):
    """Action that makes several recorded operations, such as a question and a command. Any other action is itself
    recorded as a single operation.

    A `StepAction` gets the context of the step, so that it can also ask a person a question.
    """

    __slots__ = ()
    makes_calls = True


@overload
def action(name: F) -> F: ...
@overload
def action(
    name: str | None = None,
    *,
    retry: Retry | int | None = None,
    timeout: DurationLike | None = None,
    idempotent: bool = False,
    approval: bool = False,
    executor: Any = None,
    workspace: str | None = None,
) -> Callable[[F], F]: ...
@suggest_arguments
def action(
    name: F | str | None = None,
    *,
    retry: Retry | int | None = None,
    timeout: DurationLike | None = None,
    idempotent: bool = False,
    approval: bool = False,
    executor: Any = None,
    workspace: str | None = None,
) -> F | Callable[[F], F]:
    """Register a function as an action of all environments of this process. A later action with the same name replaces
    the earlier action.

    Parameters
    ----------
    name
        Name of the action. Defaults to the name of the function.
    retry
        Retry policy for failed calls. A `Retry` of the step takes precedence.
    timeout
        Time limit of a call in seconds. A call that exceeds the limit fails with a TimeoutError.
    idempotent
        True if two calls have the same effect as one, for example because the function only reads. If a process dies
        during a call, an idempotent action is called again. For any other action, a person is asked. As with ``@step``,
        an idempotent call may begin before its start is in the log, at most 16 calls and at most 10 ms ahead of the
        log.
    approval
        True if a person must approve every call before it is made. The person may change the parameters.
    executor
        Executor of an ordinary (not async) function, as for ``@step``. The `Executor` of a step takes precedence.
    workspace
        Name of the workspace in which calls work, as for ``@step``. ``""`` stands for the workspace of the step, or
        else of the workflow.

    Examples
    --------
    >>> @action("Text.Shout")
    ... def shout(text: str) -> str:
    ...     return text.upper()
    >>> shout("hi")
    'HI'
    """
    options = {
        "retry": retry,
        "timeout": timeout,
        "idempotent": idempotent,
        "approval": approval,
        "executor": executor,
        "workspace": workspace,
    }
    decorator: F | Callable[[F], F] = decorated(name, _register, Action, options)
    return decorator


def _register(registered: Action) -> Callable[..., Any]:
    if not registered.name:
        raise SetupError("action name is required")
    # Last wins: running a cell again replaces its action.
    REGISTERED[registered.name] = registered
    # The source is cached now, because the file of the function may change later.
    source_of(registered.function)
    return registered.function


def action_of(value: Any) -> Action:
    """Return the `Action` for a value: the value itself if it is an `Action`, or an action that calls the value. For a
    function with `@action`, also inside a method or a `functools.partial`, the options of the decorator apply.

    Raises
    ------
    SetupError
        The value cannot be called, or is a class.
    DefinitionError
        The value has no name, such as a lambda, or no signature.
    """
    if isinstance(value, Action):
        return value
    if isinstance(value, type) or not callable(value):
        expected = "functions, such as those with @action, or divebook.steps.Action(name, function)"
        methods = [name for name in ("execute", "run") if callable(getattr(value, name, None))]
        hint = f"; pass the method: actions=[Action('name', object.{methods[0]})]" if methods else ""
        raise SetupError(f"actions must be {expected}, not {describe(value)}{hint}")
    # A method that is accessed through an instance is another object than the decorated function.
    inner = without_partials(value)
    inner = getattr(inner, "__func__", inner)
    # A function may be registered under several names; the first one counts.
    match = next((candidate for candidate in REGISTERED.values() if candidate.function in (value, inner)), None)
    if match is not None:
        return match if match.function is value else replace(match, function=as_function(value, "action"))
    function = as_function(value, "action")
    return Action(function.__name__, function, inspect.getdoc(function) or "")


REGISTERED: dict[str, Action] = {}
"""Actions registered with `@action`, by name."""


def built_in_actions(
    documents: DocumentRepository, printer: Callable[[str], None], now: Callable[[], datetime]
) -> dict[str, Action]:
    """Return the built-in actions by name: ``Document.Read``, ``Document.Write``, ``Time.Now`` and ``Print``.

    Parameters
    ----------
    documents
        Repository for ``Document.Read`` and ``Document.Write``.
    printer
        Called with each text that ``Print`` prints.
    now
        Returns the current time for ``Time.Now``, with a time zone.
    """

    # The parameters are capitalised because definitions spell them so.
    # Further parameters of a step are ignored. If a parameter is missing, the error names them, because one of them may
    # be the missing one in another spelling.
    async def read(Path: Any = None, **extra: Any) -> str:  # noqa: N803
        """Return the text of a document."""
        path = _text("Path", Path, extra)
        try:
            return (await documents.read(path)).content
        except (DivebookError, OSError, UnicodeError) as error:
            raise StepError(f"failed to read document: {error}") from error

    async def write(Path: Any = None, Content: Any = None, **extra: Any) -> None:  # noqa: N803
        """Write a document as a whole."""
        path = _text("Path", Path, extra)
        content = _text("Content", Content, extra)
        try:
            documents.put(path, content)
        except (DivebookError, OSError, UnicodeError) as error:
            raise StepError(f"failed to write document: {error}") from error

    async def time_now(**_: Any) -> str:
        """Return the current time as RFC 3339 text with second precision."""
        return now().replace(microsecond=0).isoformat()

    async def print_line(Message: Any = None, **extra: Any) -> None:  # noqa: N803
        """Print a line."""
        printer(_text("Message", Message, extra))

    functions: dict[str, Callable[..., Awaitable[Any]]] = {
        "Document.Read": read,
        "Document.Write": write,
        "Time.Now": time_now,
        "Print": print_line,
    }
    # Each of them may be repeated: it reads, writes a document as a whole, or prints a line once more.
    return {
        name: Action(name, function, function.__doc__ or "", idempotent=True) for name, function in functions.items()
    }


def _text(name: str, value: Any, extra: Mapping[str, Any]) -> str:
    """Return the value of a parameter that must be a string. `extra` are the parameters that the action lacks."""
    if isinstance(value, str):
        return value
    message = f"{name.lower()} parameter must be a string, got {type(value).__name__}"
    if value is None:
        unknown = f"; unknown parameters: {', '.join(extra)}" if extra else ""
        message += f"{unknown}; write Parameters: {{{name}: ...}}"
    raise StepError(message)
