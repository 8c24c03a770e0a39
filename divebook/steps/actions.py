"""Actions: named Python functions that steps call, and those every environment has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, overload

from divebook.documents import DocumentRepository
from divebook.errors import DivebookError, SetupError, StepError
from divebook.execution.context import StepContext
from divebook.execution.threads import in_thread

IDEMPOTENCY_KEY = "idempotency_key"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Action:
    """A function under the name by which steps call it.

    A coroutine function runs on the engine's loop; any other runs in a thread, so that it may block. One that takes a
    parameter ``idempotency_key`` receives a text that is the same whenever the call is repeated.
    """

    name: str
    function: Callable[..., Any]
    description: str = ""
    idempotent: bool = False
    """Calling it twice does no more than calling it once (reading included)."""
    approval: bool = False
    """A person must approve every call first, and may change its parameters."""

    @property
    def repeatable(self) -> bool:
        """Whether it may simply be called again where nobody knows if a call took effect."""
        return self.idempotent or IDEMPOTENCY_KEY in _signature(self.function).parameters

    def arguments(self, parameters: dict[str, Any], context: StepContext) -> dict[str, Any]:
        """Return the parameters with those that come from the engine and not from the definition."""
        if IDEMPOTENCY_KEY not in _signature(self.function).parameters:
            return parameters
        return {**parameters, IDEMPOTENCY_KEY: context.idempotency_key}

    def check(self, parameters: Mapping[str, Any]) -> None:
        """Raise StepError unless the function takes these parameters."""
        problem = _misfit(self.function, tuple(parameters))
        if problem:
            raise StepError(f'action "{self.name}" {problem}')

    async def call(self, parameters: Mapping[str, Any]) -> Any:
        """Call the function."""
        if _is_coroutine_function(self.function):
            return await self.function(**parameters)
        return await in_thread(functools.partial(self.function, **parameters))


@functools.lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@functools.lru_cache(maxsize=1024)
def _misfit(function: Callable[..., Any], names: tuple[str, ...]) -> str | None:
    """Return why a function does not take keywords of these names, or None if it does."""
    signature = _signature(function)
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        return f"{error} (it takes: {', '.join(signature.parameters) or 'nothing'})"
    return None


_is_coroutine_function = functools.lru_cache(maxsize=1024)(inspect.iscoroutinefunction)


@overload
def action(name: F) -> F: ...
@overload
def action(name: str | None = None, *, idempotent: bool = False, approval: bool = False) -> Callable[[F], F]: ...
def action(name: F | str | None = None, *, idempotent: bool = False, approval: bool = False) -> F | Callable[[F], F]:
    """Make a function an action of every environment of this process; a later one of the same name replaces it.

    Parameters
    ----------
    name
        By default the function's.
    idempotent
        Calling it twice does no more than calling it once, as with reading: it is then simply called again where a
        process died during the call. For any other a person is asked.
    approval
        A person must approve every call first, and may change its parameters.

    Examples
    --------
    >>> @action("Text.Shout")
    ... def shout(text: str) -> str:
    ...     return text.upper()
    >>> shout("hi")
    'HI'
    """
    if callable(name):
        return _register(name, Action(name.__name__, name, inspect.getdoc(name) or ""))

    def decorate(function: F) -> F:
        description = inspect.getdoc(function) or ""
        return _register(function, Action(name or function.__name__, function, description, idempotent, approval))

    return decorate


def _register(function: F, made: Action) -> F:
    if not made.name:
        raise SetupError("action name is required")
    REGISTERED[made.name] = made
    return function


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
            return documents.get(path).content
        except (DivebookError, OSError, UnicodeError) as error:
            raise StepError(f"failed to read document: {error}") from error

    async def write(Path: Any = None, Content: Any = None, **_: Any) -> None:  # noqa: N803
        """Write a document whole."""
        path, content = _text(Path, "path"), _text(Content, "content")
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
