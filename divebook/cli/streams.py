"""Standard streams of a command: a closed one leads nowhere, and what cannot be written ends it without a traceback."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TextIO

_WRITTEN = 1
"""Exit code of a command whose output nobody reads any more."""
_REFUSED = 2


def run_with_streams(command: Callable[[], object]) -> NoReturn:
    """Run a command, which ends with SystemExit, and write out what it has printed before the process ends.

    The interpreter would write it out later, and print a traceback where that fails.
    """
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows only ASCII is no reason to fail
    code: str | int | None = None
    try:
        command()
    except SystemExit as end:
        code = end.code
    except BrokenPipeError:
        code = _WRITTEN
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            _lead_nowhere(stream)
            if not isinstance(error, BrokenPipeError) and stream is sys.stdout:
                sys.stderr.write(f"error: the output cannot be written: {error}\n")
                code = code or _REFUSED
            code = code or _WRITTEN
    sys.exit(code)


def _open_closed() -> None:
    """Open the null device in place of standard streams that the process was started without.

    Without them the next file that is opened, such as a store, would have their number, and get what is printed.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process


def _lead_nowhere(stream: TextIO) -> None:
    """Have what is still to be written to a stream go to the null device, or the interpreter tries once more."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
