"""What a call raised, as the log keeps it, and the same error again.

Code that calls a function through the log must meet one error, live and on replay, and ``except ValueError`` must catch
it as it would without divebook. So both times the error is made of its record: an `OperationError` that also is of the
recorded class, or of the nearest of its bases that this process has already. A log never causes an import, and no
constructor of a person's class runs. (`tests/execution/test_raising.py`)
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from divebook.engine.records import OperationRecord
from divebook.engine.retries import Fault, names_of, telling
from divebook.errors import DivebookError, ItemFailedError, OperationError, UnopenableValueError, UnstorableValueError
from divebook.events.codec import encode, storable
from divebook.events.recorded import opened
from divebook.execution.error_texts import clean_failure, clean_text
from divebook.execution.lost_results import LOST
from divebook.execution.tracing import ELSEWHERE, place_of, trace_of
from divebook.text.redaction import shared

T = TypeVar("T")

MOST_BYTES = 20_000
"""Of the arguments and fields of an error; without them it is known by its text alone."""
_NOT_ITS_OWN = (ELSEWHERE, LOST, "raised_at")
"""Attributes of errors that divebook has set: where they were raised, and what a call had returned."""


def facts_of(error: BaseException) -> dict[str, Any] | None:
    """Return what makes an error again: its classes as ``module:name``, its arguments and its fields, and its place."""
    if isinstance(error, OperationError):
        return None  # it came from a log or is the engine's own
    found: dict[str, Any] = {"types": [f"{cls.__module__}:{cls.__qualname__}" for cls in _classes(type(error))]}
    args = OSError.__reduce__(error)[1] if isinstance(error, OSError) else error.args  # its `args` lack the file
    for name, value in (("args", list(args)), ("fields", _fields(error))):
        kept = _storable(value)
        if kept is not None and (kept or name == "args"):
            found[name] = kept
    place = place_of(error)
    return found if place is None else {**found, "place": place}


def _fields(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if name not in _NOT_ITS_OWN}


def _classes(cls: type) -> list[type]:
    """Return a class and its bases that say more than `Exception`."""
    return [base for base in cls.__mro__ if issubclass(base, Exception) and base is not Exception]


def _storable(value: Any) -> Any:
    """Return a value as the log can hold it, without secrets; None where it cannot, or where that would be large."""
    try:
        kept = shared().value(storable(value, "error"))
        written = encode(kept)
        is_clean = shared().text(text := written.decode()) == text  # else it is in a value that is not looked into
        return kept if is_clean and len(written) <= MOST_BYTES else None
    except UnstorableValueError:
        return None


def as_recorded(error: Exception) -> OperationError:
    """Return an error that was just raised in the form in which the log gives it back."""
    if isinstance(error, OperationError):
        return error
    return _error_like(clean_text(error), names_of(error), facts_of(error) or {})


def error_from(record: OperationRecord) -> OperationError:
    """Return the error of an operation that failed."""
    names = record.error_names
    error = _error_like(record.error or "failed", names, record.raised or {})
    error.operation_id, error.operation_type = record.operation_id, record.operation_type
    return error


def _error_like(message: str, names: tuple[str, ...], facts: Mapping[str, Any]) -> OperationError:
    """Return an error of the class that the facts name, or the names, which do for the built-in ones."""
    types = facts.get("types")
    found = types if types and isinstance(types, list) else [f"builtins:{name}" for name in names]
    cls = next(filter(None, map(_present, filter(_is_text, found))), None)
    error = None if cls is None else _made(_caught_as(cls), cls, message, facts)
    if error is None:
        error = OperationError(message)
    error.operation_id, error.operation_type, error.error_names = "", "", names
    place = facts.get("place")
    error.raised_at = place if isinstance(place, Mapping) else None
    return error


def _made(kind: type[OperationError], cls: type, message: str, facts: Mapping[str, Any]) -> OperationError | None:
    """Make the error without running a constructor other than that of the built-in class it derives from.

    None is returned where that cannot do with the arguments, as with a group whose members were not kept.
    """
    try:
        args, fields = tuple(_of(list, facts.get("args", [message]))), _of(dict, facts.get("fields", {}))
    except (UnopenableValueError, TypeError):
        args, fields = (message,), {}
    built_in: Any = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    try:
        error = kind.__new__(kind, *args)
        built_in.__init__(error, *args)  # sets errno, object and the like
    except TypeError:
        return None
    vars(error).update(fields)
    return error


def _is_text(name: object) -> bool:
    return isinstance(name, str)


def _of(kind: type[T], recorded: Any) -> T:
    """Return a value that was recorded, as it is opened; TypeError if a log that nobody wrote so has another."""
    if not isinstance(recorded, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(recorded).__name__}")
    return cast("T", opened(recorded))


def _present(name: str) -> type[Exception] | None:
    """Return the exception class of that name, if this process has it already."""
    module, _, path = name.partition(":")
    found: Any = builtins if module == "builtins" else sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    if not (isinstance(found, type) and issubclass(found, Exception) and found is not Exception):
        return None
    return found if _caught_as(found) is not OperationError else None


def _derived(cls: Any) -> type[OperationError]:
    """Return the class of operation errors that are caught as `cls`; `OperationError` itself where there can be none.

    Left alone are classes that run code when they are derived from, and those with a layout of their own in memory.
    """
    plain = type(cls) is type and all("__init_subclass__" not in vars(base) for base in cls.__mro__[:-1])
    if not plain:
        return OperationError
    try:
        return type(cls.__name__, (OperationError, cls), {"__module__": cls.__module__, "__doc__": cls.__doc__})
    except TypeError:
        return OperationError


_caught_as: Callable[[Any], type[OperationError]] = functools.lru_cache(maxsize=256)(_derived)


class OwnFacts(NamedTuple):
    """What the log says of an error that no recorded call raised."""

    trace: str | None = None
    error_names: tuple[str, ...] | None = None
    place: Mapping[str, Any] | None = None


def own_facts(error: BaseException, place: Mapping[str, Any] | None = None) -> OwnFacts:
    """Return class and place of what a step's own code raised; of a recorded call, the log has them already.

    `place` is where the definition is at fault, if it is.
    """
    source = telling(error)
    if isinstance(source, OperationError):
        return OwnFacts()
    is_ours = isinstance(source, DivebookError)
    return OwnFacts(None if is_ours else trace_of(source), names_of(source), place or place_of(source))


def fault_of(error: BaseException, place: Mapping[str, Any] | None = None, message: str | None = None) -> Fault:
    """Return an error as policies and messages have it, without secrets; `message` is what is said of it besides."""
    known = place or (None if isinstance(telling(error), OperationError) else place_of(telling(error)))
    return Fault.of(error, clean_failure(error) if message is None else message, shared().text, known)


def links_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it was raised from, or while it was handled, and the members of groups.

    Of items that failed side by side, each yields its own.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        link = left.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            yield link
            left += [link.__cause__, link.__context__, *getattr(link, "exceptions", ())]
            left += link.beside if isinstance(link, ItemFailedError) else ()
