"""What a call raised, as the log keeps it, and the same error again.

Code that calls a function through the log must meet one error, live and on replay, and ``except ValueError`` must catch
it as it would without divebook. So both times the error is made of its record: an `OperationError` that also is of the
recorded class, or of the nearest of its bases that this process has already. A log never causes an import, and no
constructor of a person's class runs. (`tests/execution/test_raising.py`)
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
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from divebook import extensions
from divebook.engine.retries import Fault, failure_text, names_of, telling, text_of
from divebook.engine.state import OperationRecord
from divebook.errors import DivebookError, ItemFailedError, OperationError, UnopenableValueError, UnstorableValueError
from divebook.events.codec import encode, storable
from divebook.events.recorded import opened
from divebook.runtime.clock import LOST
from divebook.text.redaction import shared

# The message of an error as the log keeps it: without secrets, which those who raise it put into it without a thought.
#
# So a log holds none that only an error has told, and code that catches an error meets the same text live and on
# replay.


def clean_text(error: BaseException) -> str:
    """Return an error's message without secrets, as a log can hold it."""
    return text_of(error, shared().text)


def clean_failure(error: BaseException) -> str:
    """Return the same, with the class of an error that is not ours."""
    return failure_text(error, shared().text)


# Where an error was raised, as the log keeps it: the line with those around it, and the calls that led there.
#
# That is settled when the error is recorded: a cell's file name means nothing to another process, and a file changes.
# The frames of divebook are left out, and those of libraries that called a person's code.
# (`tests/execution/test_tracing.py`)


ELSEWHERE = "__divebook_frames__"
"""Attribute of an error that was raised in another process: its frames there."""
MOST_FRAMES, MOST_TRACE, MOST_CAUSES = 10, 4_000, 3
AROUND, MOST_LINE = 2, 200
"""Lines before and after the one that raised; characters of a line that are kept."""
_OURS = str(Path(__file__).parents[1])
_BETWEEN = ("asyncio", "anyio", "concurrent", "threading.py", "runpy.py")
"""Parts of paths: frames between the engine and a person's code."""
_CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
_MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n\n"


class Frame(NamedTuple):
    """One call on the way to where an error was raised."""

    file: str
    line: int
    function: str
    code: str
    """Its line, as far as it is known where the error was raised."""


def frames_of(error: BaseException) -> list[Frame]:
    """Return the calls of a person's code, and below it, that led to an error; the innermost comes last."""
    elsewhere = vars(error).get(ELSEWHERE)
    if elsewhere is not None:
        return [Frame(*found) for found in elsewhere]
    if isinstance(error, DivebookError) and error.__cause__ is not None:
        return frames_of(error.__cause__)
    walked = [
        Frame(code.co_filename, line, code.co_name, linecache.getline(code.co_filename, line).strip())
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_theirs((code := frame.f_code).co_filename)
    ]
    own = [number for number, frame in enumerate(walked) if is_own(frame.file)]
    return walked[own[0] :] if own else walked


def trace_of(error: BaseException) -> str | None:
    """Return the calls that led to an error as text, and what it was raised from; secrets are left out."""
    frames = frames_of(error)
    if not frames:
        return None
    return shared().text("".join([*_causes(_innermost(error)), *_lines(frames)]))[-MOST_TRACE:]


def _innermost(error: BaseException) -> BaseException:
    """Return what a person's code raised, and divebook has wrapped."""
    while isinstance(error, DivebookError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _causes(error: BaseException, left: int = MOST_CAUSES) -> Iterator[str]:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is None or isinstance(cause, DivebookError) or not left:
        return
    yield from _causes(cause, left - 1)
    yield from _lines(frames_of(cause))
    yield f"{clean_failure(cause)}\n{_MEANWHILE if error.__cause__ is None else _CAUSED}"


def _lines(frames: list[Frame]) -> Iterator[str]:
    for frame in _kept(frames):
        cell = _cell_of(frame.file)
        where = f'File "{frame.file}", line {frame.line}' if cell is None else f"{cell.label}, line {cell.line(frame)}"
        yield f"  {where}, in {frame.function}\n"
        code = frame.code or linecache.getline(frame.file, frame.line).strip()  # a worker has no cells
        if code:
            yield f"    {code[:MOST_LINE]}\n"


def _kept(frames: list[Frame]) -> list[Frame]:
    """Return the last frames, with the innermost of a person's own code if that comes before them."""
    own = [frame for frame in frames[:-MOST_FRAMES] if is_own(frame.file)]
    is_among = any(is_own(frame.file) for frame in frames[-MOST_FRAMES:])
    return [*([] if is_among else own[-1:]), *frames[-MOST_FRAMES:]]


def place_of(error: BaseException) -> Mapping[str, Any] | None:
    """Return the line of a person's code that raised an error: where it stands, and the lines around it.

    None is returned for an error that only libraries know of.
    ``label`` says it in words, such as ``Cell [5], line 4``; ``line`` is its number, ``first`` that of the first of
    ``lines``.
    """
    link: BaseException | None = error
    while isinstance(link, DivebookError):  # one that comes from the log knows it, and its frames are ours
        if link.raised_at is not None:
            return link.raised_at
        link = link.__cause__
    frames = frames_of(error)
    frame = next((frame for frame in reversed(frames) if is_own(frame.file)), None)
    return None if frame is None else _place(frame)


def present_place() -> Mapping[str, Any] | None:
    """Return the line of a person's code that has called the present code, as `place_of` does; None if none has."""
    called = ((frame.f_code, line) for frame, line in traceback.walk_stack(None))
    own = ((code, line) for code, line in called if _is_theirs(code.co_filename) and is_own(code.co_filename))
    return next((_place(Frame(code.co_filename, line, code.co_name, "")) for code, line in own), None)


def line_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the line with which a function begins, as `place_of` does."""
    code = function.__code__
    return _place(Frame(code.co_filename, code.co_firstlineno, code.co_name, ""))


def _place(frame: Frame) -> Mapping[str, Any]:
    cell = _cell_of(frame.file)
    lines = linecache.getlines(frame.file) or [""] * (frame.line - 1) + [frame.code]
    if cell is None:
        return source_place(f"{_short(frame.file)}:{frame.line}", lines, frame.line)
    found = source_place(f"{cell.label}, line {cell.line(frame)}", lines, frame.line, above=cell.above)
    return {**found, "cell": cell.id} if cell.id else found


def source_place(label: str, lines: list[str], line: int, *, above: int = 0) -> dict[str, Any]:
    """Return a place in a text; `above` lines come before the first of `lines`."""
    first = max(1, line - AROUND)
    around = [shared().text(found.rstrip("\n")[:MOST_LINE]) for found in lines[first - 1 : line + AROUND]]
    return {"label": label, "line": line + above, "first": first + above, "lines": around}


# --- files and cells -------------------------------------------------------------------------------------------------


class CodeCell(NamedTuple):
    """The cell of a notebook that some code stands in."""

    label: str
    """``Cell [5]``."""
    above: int = 0
    """Empty lines at its top, which Python does not count."""
    id: str = ""
    """That of the front end, if it is known."""

    def line(self, frame: Frame) -> int:
        """Return the line of a frame as the cell shows it."""
        return frame.line + self.above


def _cell_of(file: str) -> CodeCell | None:
    """Return the cell that a file name of compiled code stands for, if this process is a kernel that has it."""
    if "IPython" not in sys.modules:
        return None
    found: CodeCell | None = extensions.extension(extensions.CELL_OF_CODE)(file)
    return found


def _is_theirs(file: str) -> bool:
    return not file.startswith(_OURS) and not any(part in Path(file).parts for part in _BETWEEN)


@lru_cache(maxsize=1)
def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    return tuple(sorted(found, key=len, reverse=True))  # site-packages stand in that of the standard library


def is_own(file: str) -> bool:
    """Return whether a file is a person's own, and not of a library."""
    return not file.startswith((*_libraries(), "<frozen"))


def _short(file: str) -> str:
    """Return the path of a file from where it is known: the current folder, or that of the libraries."""
    for folder in (_folder(), *_libraries()):
        if folder and file.startswith(folder + os.sep):
            return file[len(folder) + 1 :]
    return file


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it is gone
        return ""


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
