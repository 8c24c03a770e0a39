"""Where an error was raised, as the log keeps it: the line with those around it, and the calls that led there.

That is settled when the error is recorded: a cell's file name means nothing to another process, and a file changes.
The frames of divebook are left out, and those of libraries that called a person's code.
(`tests/execution/test_tracing.py`)
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from divebook import extensions
from divebook.errors import DivebookError
from divebook.execution.error_texts import clean_failure
from divebook.text.redaction import shared

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
