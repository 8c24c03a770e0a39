"""Errors as a reader of a notebook wants them: what is wrong, where in the cell, what to do; no traceback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from IPython.core.error import UsageError

from divebook.errors import DefinitionError, DivebookError, Place, Problem, SetupError
from divebook.text.cuts import one_line
from divebook.text.redaction import shared
from divebook.text.shown import visible
from divebook.workflow.located import nearest_position

Positions: TypeAlias = Mapping[Place, tuple[int, int]]

MAX_PROBLEMS = 12
WIDTH = 110


@contextmanager
def located(line: tuple[int, str] | None) -> Iterator[None]:
    """Say in errors which line of the cell they are about, by its number and text, where it has several."""
    try:
        yield
    except UsageError as error:
        where = "" if line is None else f"cell line {line[0]}: "
        raise UsageError(shared().text(f"{where}{error}")) from None
    except DivebookError as error:
        if line is not None and not hasattr(error, "_render_traceback_"):
            name = type(error).__name__
            told = card(error)[0].removeprefix(f"{name}: ")
            show_as(error, [f"{name}: cell line {line[0]}: {told}", f"    {one_line(line[1], WIDTH)}"])
        raise


@contextmanager
def short_errors(cell: Sequence[str] = (), positions: Positions | None = None) -> Iterator[None]:
    """Let our own errors appear as a card instead of a traceback; they are raised on, so that the cell fails.

    Parameters
    ----------
    cell
        The lines of the cell, if problems are to be pointed at in it.
    positions
        Where in it the parts of a definition stand, for errors that know only which part they are about.
    """
    try:
        yield
    except DivebookError as error:
        if not hasattr(error, "_render_traceback_"):
            show_as(error, card(error, cell, positions))
        raise


def show_as(error: BaseException, lines: Sequence[str]) -> None:
    """Have IPython show an error as these lines, without secrets."""
    error.__dict__["_render_traceback_"] = lambda: [shared().text(line) for line in lines]


def card(error: DivebookError, cell: Sequence[str] = (), positions: Positions | None = None) -> list[str]:
    """Return an error as lines of text."""
    kind = type(error).__name__
    if isinstance(error, SetupError) and error.place and positions:
        problem = Problem(str(error)).at(*nearest_position(error.place, positions))
        return [f"{kind}: {problem_text(problem)}", *_pointer(problem, cell)]
    if not (isinstance(error, DefinitionError) and cell):
        return [f"{kind}: {visible(str(error))}"]
    problems = error.problems[:MAX_PROBLEMS]
    if len(error.problems) == 1:
        return [f"{kind}: {problem_text(problems[0])}", *_pointer(problems[0], cell)]
    lines = [f"{kind}: {len(error.problems)} problems in this cell; nothing was defined"]
    for problem in problems:
        lines += [f"  {problem_text(problem)}", *_pointer(problem, cell)]
    more = len(error.problems) - len(problems)
    return [*lines, f"  ... and {more} more"] if more else lines


def problem_text(problem: Problem) -> str:
    """Return a problem of a cell as one line: ``cell line 3, column 5: unknown key 'Promt' (...)``."""
    where = f"cell line {problem.line}, column {problem.column}: " if problem.line else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    return visible(f"{where}{problem.message}{hint}")


def _pointer(problem: Problem, cell: Sequence[str]) -> list[str]:
    """Return the line of the cell with a mark below the column; nothing if the line is unknown or too long."""
    if not 1 <= problem.line <= len(cell):
        return []
    line = cell[problem.line - 1]
    if not line.strip() or len(line) > WIDTH or one_line(line, WIDTH) != " ".join(line.split()):
        return []
    return [f"    {line}", f"    {' ' * (problem.column - 1)}^"]
