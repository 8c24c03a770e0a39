"""Errors of calls: their conversion to plain data for the log, their creation as exceptions from the log, and the lines
of code where they were raised.

Code that makes a call through the log must get the same error live and on replay, and ``except ValueError`` must catch
it as usual. Both times the error is therefore created from its record: an `OperationError` that also derives from the
recorded class, or from the nearest base of it that this process has loaded. A log never causes an import, and no
constructor of a user's class runs. (`tests/runtime/test_raising.py`)
"""

from __future__ import annotations

import builtins
import functools
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from divebook.engine.operations import BLOCKED_IN_TRIAL, BLOCKED_IN_WHAT_IF
from divebook.engine.retries import Fault, failure_text, names_of, telling, text_of
from divebook.errors import (
    DivebookError,
    ItemFailedError,
    OperationError,
    ShellTimeoutError,
    StageTimeoutError,
    TimedOutError,
    UnopenableValueError,
    UnstorableValueError,
)
from divebook.events.codec import encode, storable
from divebook.events.recorded import opened
from divebook.runtime.clock import LOST
from divebook.text.redaction import shared

if TYPE_CHECKING:  # `%load_ext` loads this module, and must be quick
    from divebook.engine.state import OperationRecord

# --- messages without secrets ----------------------------------------------------------------------------------------
#
# Code often puts secrets into error messages. They are removed before an error is recorded. Code that catches the error
# therefore gets the same text live and on replay.


def clean_text(error: BaseException) -> str:
    """Return the message of an error without secrets, as a string that a log can store."""
    return text_of(error, shared().text)


def clean_failure(error: BaseException) -> str:
    """Return the message of an error like `clean_text`, preceded by the class name if the error is not from
    divebook.
    """
    return failure_text(error, shared().text)


# --- places of errors ------------------------------------------------------------------------------------------------
#
# The line that raised an error, with the lines around it and the calls that led there.
#
# The place is determined when the error is recorded: the file name of a cell means nothing to another process, and
# files change. Frames of divebook are left out, and frames of libraries that called user code.


ELSEWHERE = "__divebook_frames__"
"""Attribute of an error that was raised in another process: its stack frames in that process."""
MOST_FRAMES = 10
MOST_TRACE = 4_000
MOST_CAUSES = 3
LINES_AROUND = 2
"""Number of recorded source lines before and after the line that raised."""
MOST_LINE = 200
"""Maximum number of characters of a line."""
_OURS = str(Path(__file__).parents[1])
_BETWEEN = ("asyncio", "anyio", "concurrent", "threading.py", "runpy.py")
"""Parts of paths of the frames between the engine and user code."""
_CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
_MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n\n"


class Frame(NamedTuple):
    """One stack frame of an error: file, line, function and source line."""

    file: str
    line: int
    function: str
    code: str
    """The source line, if it was known where the error was raised."""


def frames_of(error: BaseException) -> list[Frame]:
    """Return the stack frames of an error, from the first frame of user code on, innermost frame last.

    Frames recorded in another process take precedence. The frames of an error that divebook raised from another one are
    those of its cause.
    """
    innermost = error
    for innermost in _raised_from(error):
        elsewhere = vars(innermost).get(ELSEWHERE)
        if elsewhere is not None:
            return [Frame(*fields) for fields in elsewhere]
    frames = [
        _frame(frame.f_code, line)
        for frame, line in traceback.walk_tb(innermost.__traceback__)
        if _is_shown(frame.f_code.co_filename)
    ]
    # Frames above the first user frame belong to libraries that called user code, such as a test runner.
    user_frames = [number for number, frame in enumerate(frames) if is_user_code(frame.file)]
    return frames[user_frames[0] :] if user_frames else frames


def _frame(code: CodeType, line: int) -> Frame:
    source = linecache.getline(code.co_filename, line).strip()
    return Frame(code.co_filename, line, code.co_name, source)


def trace_of(error: BaseException) -> str | None:
    """Return the traceback of an error and of its causes as text without secrets, or None if there are no frames."""
    frames = frames_of(error)
    if not frames:
        return None
    # Secrets are removed before the text is cut. The end is kept, because the innermost frame comes last.
    return shared().text("".join([*_causes(_innermost(error)), *_lines(frames)]))[-MOST_TRACE:]


def _innermost(error: BaseException) -> BaseException:
    """Return the error that user code has raised, if divebook has raised its own errors around it. Otherwise return the
    error itself.
    """
    return list(_raised_from(error))[-1]


def _raised_from(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and, while divebook raised them, its causes, outermost first. Each error is yielded once, because
    causes can form a cycle.
    """
    visited: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and not any(link is earlier for earlier in visited):
        visited.append(link)
        yield link
        link = link.__cause__ if isinstance(link, DivebookError) else None


def _causes(error: BaseException, remaining: int = MOST_CAUSES) -> Iterator[str]:
    # The same rule as in Python's own tracebacks: `raise ... from None` hides the context.
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is None or isinstance(cause, DivebookError) or not remaining:
        return
    yield from _causes(cause, remaining - 1)
    yield from _lines(frames_of(cause))
    yield f"{clean_failure(cause)}\n{_MEANWHILE if error.__cause__ is None else _CAUSED}"


def _lines(frames: list[Frame]) -> Iterator[str]:
    for frame in _shown_frames(frames):
        cell = _cell_of(frame.file)
        where = f'File "{frame.file}", line {frame.line}' if cell is None else f"{cell.label}, line {cell.line(frame)}"
        yield f"  {where}, in {frame.function}\n"
        code = frame.code or linecache.getline(frame.file, frame.line).strip()  # a worker process has no cells
        if code:
            yield f"    {code[:MOST_LINE]}\n"


def _shown_frames(frames: list[Frame]) -> list[Frame]:
    """Return the last `MOST_FRAMES` frames of a traceback. If all of these are library code, the innermost frame of
    user code is put before them.
    """
    user_frames = [frame for frame in frames[:-MOST_FRAMES] if is_user_code(frame.file)]
    is_among = any(is_user_code(frame.file) for frame in frames[-MOST_FRAMES:])
    return [*([] if is_among else user_frames[-1:]), *frames[-MOST_FRAMES:]]


def place_of(error: BaseException) -> Mapping[str, Any] | None:
    """Return the place of an error: the line of user code that raised it, with the lines around it.

    Return None if all frames are from libraries. ``label`` describes the place, such as ``Cell [5], line 4``; ``line``
    is the line number, ``first`` the number of the first of ``lines``.
    """
    for link in _raised_from(error):  # an error from the log has its place; its frames are ours
        if isinstance(link, DivebookError) and link.raised_at is not None:
            return link.raised_at
    frames = frames_of(error)
    frame = next((frame for frame in reversed(frames) if is_user_code(frame.file)), None)
    return None if frame is None else _place(frame)


def present_place() -> Mapping[str, Any] | None:
    """Return the place (line of user code with surrounding lines) at which the running code is now: the innermost user
    line on the stack of the caller. Return None if there is only other code.
    """
    stack = ((frame.f_code, line) for frame, line in traceback.walk_stack(None))
    user_code = ((code, line) for code, line in stack if _is_shown(code.co_filename) and is_user_code(code.co_filename))
    return next((_place(Frame(code.co_filename, line, code.co_name, "")) for code, line in user_code), None)


def line_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the first line of a function, with the lines around it, in the form of `place_of`."""
    code = function.__code__
    return _place(Frame(code.co_filename, code.co_firstlineno, code.co_name, ""))


def _place(frame: Frame) -> Mapping[str, Any]:
    cell = _cell_of(frame.file)
    # If the file is unknown here, the recorded line takes its place at its number.
    lines = linecache.getlines(frame.file) or [""] * (frame.line - 1) + [frame.code]
    if cell is None:
        return source_place(f"{_short(frame.file)}:{frame.line}", lines, frame.line)
    place = source_place(f"{cell.label}, line {cell.line(frame)}", lines, frame.line, above=cell.above)
    return {**place, "cell": cell.id} if cell.id else place


def source_place(label: str, lines: list[str], line: int, *, above: int = 0) -> dict[str, Any]:
    """Return a place, in the form of `place_of`, from a source text: the given line, its label and the lines around it.
    `above` is the number of lines in the file before the text.
    """
    first = max(1, line - LINES_AROUND)
    shown_lines = [shared().text(text.rstrip("\n")[:MOST_LINE]) for text in lines[first - 1 : line + LINES_AROUND]]
    return {"label": label, "line": line + above, "first": first + above, "lines": shown_lines}


# --- files and cells -------------------------------------------------------------------------------------------------


class CodeCell(NamedTuple):
    """Notebook cell that contains the code of a stack frame."""

    label: str
    """Label: ``Cell [5]``."""
    above: int = 0
    """Number of empty lines at the top of the cell, which Python does not count."""
    id: str = ""
    """Cell id of the front end, if known."""

    def line(self, frame: Frame) -> int:
        """Return the line number of a stack frame as the notebook shows it in this cell."""
        return frame.line + self.above


def _cell_of(file: str) -> CodeCell | None:
    """Return the notebook cell from which code with this file name was compiled, or None if this process is not a
    kernel with that cell.
    """
    # The import below loads IPython, which a process without cells does not need.
    if "IPython" not in sys.modules:
        return None
    from divebook.notebook.shell_state import cell_of

    return cell_of(file)


def _is_shown(file: str) -> bool:
    return not file.startswith(_OURS) and not any(part in Path(file).parts for part in _BETWEEN)


@lru_cache(maxsize=1)
def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    return tuple(sorted(folders, key=len, reverse=True))  # site-packages is inside the folder of the standard library


def is_user_code(file: str) -> bool:
    """Return whether a file is user code: not in the standard library and not in an installed package."""
    return not file.startswith((*_libraries(), "<frozen"))


def _short(file: str) -> str:
    """Return a short path of a file for people. A path in the current folder, or in a folder of Python's libraries,
    becomes relative to that folder. Other paths stay unchanged.
    """
    for folder in (_folder(), *_libraries()):
        if folder and file.startswith(folder + os.sep):
            return file[len(folder) + 1 :]
    return file


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # the folder was deleted
        return ""


T = TypeVar("T")

MOST_BYTES = 20_000
"""Maximum size of the recorded arguments and fields of an error. Above it, only the text is recorded."""
_OUR_ATTRIBUTES = (ELSEWHERE, LOST, "raised_at")
"""Attributes that divebook sets on errors: the place, and the lost result of a call."""


def facts_of(error: BaseException) -> dict[str, Any] | None:
    """Return the data from which an error can be created again: classes as ``module:name``, arguments, fields and
    place. Return None for an error that comes from a log or from the engine.
    """
    if isinstance(error, OperationError):
        return None  # it comes from a log, or is the engine's own
    facts: dict[str, Any] = {"types": [f"{cls.__module__}:{cls.__qualname__}" for cls in _classes(type(error))]}
    args = OSError.__reduce__(error)[1] if isinstance(error, OSError) else error.args  # its `args` lack the file
    for name, value in (("args", list(args)), ("fields", _fields(error))):
        recorded = _storable(value)
        # Empty arguments are recorded: without the entry, the message would become the argument.
        if recorded is not None and (recorded or name == "args"):
            facts[name] = recorded
    place = place_of(error)
    return facts if place is None else {**facts, "place": place}


_RECORDED_NAMES = {"execution_id": "run_id", "interrupt_id": "question_id"}
"""Attributes of divebook's errors by the names that logs have for them. Recorded names never change."""
_RECORDED_LIMITS: Mapping[type[DivebookError], str] = {
    ShellTimeoutError: "timeout",
    StageTimeoutError: "seconds",
    TimedOutError: "seconds",
}
"""Name that logs have for the attribute `timeout` of an error. They record it in seconds."""


def _fields(error: BaseException) -> dict[str, Any]:
    """Return the attributes of an error as they are recorded."""
    fields = {name: value for name, value in vars(error).items() if name not in _OUR_ATTRIBUTES}
    if not isinstance(error, DivebookError):
        return fields
    names = {name: recorded_name for recorded_name, name in _RECORDED_NAMES.items()}
    limit = _recorded_limit(type(error))
    if limit is not None and isinstance(fields.get("timeout"), timedelta):
        names["timeout"] = limit
        fields["timeout"] = fields["timeout"].total_seconds()
    return {names.get(name, name): value for name, value in fields.items()}


def _attributes(cls: type, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of an error of a class from the recorded ones: the inverse of `_fields`."""
    if not issubclass(cls, DivebookError):
        return dict(recorded)
    attributes = {_RECORDED_NAMES.get(recorded_name, recorded_name): value for recorded_name, value in recorded.items()}
    limit = _recorded_limit(cls)
    if limit is not None and isinstance(attributes.get(limit), int | float):
        attributes["timeout"] = timedelta(seconds=attributes.pop(limit))
    return attributes


def _recorded_limit(cls: type) -> str | None:
    return next((name for kind, name in _RECORDED_LIMITS.items() if issubclass(cls, kind)), None)


def _classes(cls: type) -> list[type]:
    """Return the class of an error and those of its base classes that derive from `Exception`. `Exception` itself is
    left out.
    """
    return [base for base in cls.__mro__ if issubclass(base, Exception) and base is not Exception]


def _storable(value: Any) -> Any:
    """Return a value in the form in which the log stores it, without secrets. Return None if it cannot be stored, is
    too large, or contains a secret in an opaque value.
    """
    try:
        recorded = shared().value(storable(value, "error"))
        written = encode(recorded)
        text = written.decode()
        is_clean = shared().text(text) == text  # otherwise a secret is inside an opaque value
        return recorded if is_clean and len(written) <= MOST_BYTES else None
    except UnstorableValueError:
        return None


def as_recorded(error: Exception) -> OperationError:
    """Convert an error that was just raised to the error that a replay would raise."""
    if isinstance(error, OperationError):
        return error
    return _error_like(clean_text(error), names_of(error), facts_of(error) or {})


def error_from(record: OperationRecord) -> OperationError:
    """Create the exception of a failed operation from its record."""
    names = record.error_names
    error = _error_like(record.error or "failed", names, record.raised or {})
    # The log has only the text of this error.
    error.is_blocked = record.error in (BLOCKED_IN_WHAT_IF, BLOCKED_IN_TRIAL)
    error.operation_id = record.operation_id
    error.operation_type = record.operation_type
    return error


def _error_like(message: str, names: tuple[str, ...], facts: Mapping[str, Any]) -> OperationError:
    """Create an exception of the recorded class, from its message and the data of `facts_of`. Built-in classes are
    found by their names alone.

    Uses the first recorded class that this process has loaded. If there is none, or if it cannot be created, the result
    is a plain OperationError.
    """
    types = facts.get("types")
    class_names = types if types and isinstance(types, list) else [f"builtins:{name}" for name in names]
    # The list begins with the class itself, and its bases follow. The first one that is loaded is the nearest.
    cls = next(filter(None, map(_loaded_class, filter(_is_text, class_names))), None)
    error = None if cls is None else _new_error(_caught_as(cls), cls, message, facts)
    if error is None:
        error = OperationError(message)
    error.operation_id = ""
    error.operation_type = ""
    error.error_names = names
    place = facts.get("place")
    error.raised_at = place if isinstance(place, Mapping) else None
    return error


def _new_error(kind: type[OperationError], cls: type, message: str, facts: Mapping[str, Any]) -> OperationError | None:
    """Create an exception of the class `kind` without running constructors of user classes. Only the constructor of its
    built-in base class runs.

    Return None if the base class does not accept the arguments, for example a group without its members.
    """
    try:
        args = tuple(_of(list, facts.get("args", [message])))
        fields = _attributes(cls, _of(dict, facts.get("fields", {})))
    except (UnopenableValueError, TypeError, OverflowError):
        args = (message,)
        fields = {}
    # Every exception class has a built-in base, such as `OSError` or `Exception`.
    built_in: Any = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    try:
        error = kind.__new__(kind, *args)
        built_in.__init__(error, *args)  # sets `errno`, `object` and similar attributes
    except TypeError:
        return None
    vars(error).update(fields)
    return error


def _is_text(name: object) -> bool:
    return isinstance(name, str)


def _of(kind: type[T], recorded: Any) -> T:
    """Restore the original type of a recorded value, and return it. Raise TypeError if the recorded value is not a
    `kind`, which means that the log was manipulated.
    """
    if not isinstance(recorded, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(recorded).__name__}")
    return cast("T", opened(recorded))


def _loaded_class(name: str) -> type[Exception] | None:
    """Return the exception class with a name ``module:name``, if this process has loaded it, else None."""
    module, _, path = name.partition(":")
    target: Any = builtins if module == "builtins" else sys.modules.get(module)
    for part in path.split("."):
        # Looked up in `__dict__`, because `getattr` could run code of a module or class.
        target = getattr(target, "__dict__", {}).get(part)
    if not (isinstance(target, type) and issubclass(target, Exception) and target is not Exception):
        return None
    return target if _caught_as(target) is not OperationError else None


def _derived(cls: Any) -> type[OperationError]:
    """Return a class for errors that is an `OperationError` and is also caught by ``except cls``. Return
    `OperationError` itself if such a class is impossible.

    It is impossible for classes that run code when subclassed, and for classes with an incompatible memory layout.
    """
    plain = type(cls) is type and all("__init_subclass__" not in vars(base) for base in cls.__mro__[:-1])
    if not plain:
        return OperationError
    try:
        return type(cls.__name__, (OperationError, cls), {"__module__": cls.__module__, "__doc__": cls.__doc__})
    except TypeError:
        return OperationError


_caught_as: Callable[[Any], type[OperationError]] = functools.lru_cache(maxsize=256)(_derived)


class ErrorDetails(NamedTuple):
    """Traceback, class names and place of an error that a step's own code raised, as the log stores them."""

    trace: str | None = None
    error_names: tuple[str, ...] | None = None
    place: Mapping[str, Any] | None = None


def error_details(error: BaseException, place: Mapping[str, Any] | None = None) -> ErrorDetails:
    """Return the traceback, class names and place of an error that a step's own code raised. All are None for an error
    of a recorded call, because the log has them already. `place` is the line of the definition that caused it, if
    any.
    """
    source = telling(error)
    if isinstance(source, OperationError):
        return ErrorDetails()
    is_ours = isinstance(source, DivebookError)
    return ErrorDetails(None if is_ours else trace_of(source), names_of(source), place or place_of(source))


def fault_of(error: BaseException, place: Mapping[str, Any] | None = None, message: str | None = None) -> Fault:
    """Return a description of an error without secrets (`Fault`), for retry and catch policies. `message` replaces the
    message of the error.
    """
    error_place = place or (None if isinstance(telling(error), OperationError) else place_of(telling(error)))
    return Fault.of(error, clean_failure(error) if message is None else message, shared().text, error_place)


def links_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and contexts, the members of exception groups, and the errors of items that failed
    with it, each once.

    If items failed concurrently, the errors of all of them are included.
    """
    visited: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        link = pending.pop()
        # Compared by identity, since a class of a user may define `__eq__` in any way.
        if link is not None and id(link) not in visited:
            visited.add(id(link))
            yield link
            pending += [link.__cause__, link.__context__, *getattr(link, "exceptions", ())]
            pending += link.beside if isinstance(link, ItemFailedError) else ()
