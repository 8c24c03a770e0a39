"""Code cells of a notebook that are run without a kernel: for what they define, in a shell of this process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from traceback import extract_tb
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from divebook.errors import SetupError
from divebook.text.cuts import one_line

CELL = "<ipython-input"
"""How the names begin that IPython gives to what it compiles."""


def run_cells(cells: Iterable[tuple[int, str]], path: Path) -> list[Any]:
    """Run cells, given with their numbers, as a kernel would; return what they have defined by then, by their names.

    What they print goes to stderr, so that it does not mix with results.

    Raises
    ------
    SetupError
        A cell fails; the ones after it are not run.
    """
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    before = set(shell.user_ns)
    sys.path.insert(0, str(path.parent.absolute()))  # as a kernel does, which begins in the notebook's folder
    with contextlib.redirect_stdout(sys.stderr):
        for number, source in cells:
            _run(shell, source, f"code cell {number} of {path}")
    return [value for name, value in shell.user_ns.items() if name not in before]


def _run(shell: InteractiveShell, source: str, where: str) -> None:
    with _without_tracebacks(shell):
        result = shell.run_cell(source, silent=True)  # type: ignore[no-untyped-call]  # IPython has no types
    error = result.error_before_exec or result.error_in_exec
    if isinstance(error, KeyboardInterrupt):
        raise error
    if error is not None:
        line = _line(error, source)
        place = f"{where}, line {line}" if line else where
        raise SetupError(f"{place}: {type(error).__name__}: {one_line(str(error), 400)}") from error


@contextlib.contextmanager
def _without_tracebacks(shell: InteractiveShell) -> Iterator[None]:
    """Keep a shell from printing what is raised as an error anyway."""
    names = ("showtraceback", "showsyntaxerror")
    for name in names:
        setattr(shell, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name in names:
            delattr(shell, name)  # so that the method of its class counts again


def _line(error: BaseException, source: str) -> int | None:
    """Return the line of the cell in which an error arose; IPython counts without the empty lines at its top."""
    above = source[: len(source) - len(source.lstrip())].count("\n")
    if isinstance(error, SyntaxError):
        return above + (error.lineno or 1)
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename.startswith(CELL)]
    return above + (lines[-1] or 1) if lines else None
