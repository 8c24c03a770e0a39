"""Short display of errors in cells: instead of a traceback, the error, its line in the cell, and the next step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from IPython.core.error import UsageError

from divebook.errors import DefinitionError, DivebookError, Place, Problem, SetupError
from divebook.text.format import visible
from divebook.text.redaction import one_line, shared
from divebook.workflow.table import nearest_position

Positions: TypeAlias = Mapping[Place, tuple[int, int]]

MAX_PROBLEMS = 12
CARD_WIDTH = 110


@contextmanager
def located(line: tuple[int, str] | None) -> Iterator[None]:
    """Add the number and text of the cell line that is running to each error of divebook that is raised in the ``with``
    block.

    `line` is None for a cell of one line; errors then stay unchanged.
    """
    try:
        yield
    except UsageError as error:
        where = "" if line is None else f"cell line {line[0]}: "
        raise UsageError(shared().text(f"{where}{error}")) from None
    except DivebookError as error:
        # An error with a short form already states its place.
        if line is not None and not hasattr(error, "_render_traceback_"):
            name = type(error).__name__
            message = error_lines(error)[0].removeprefix(f"{name}: ")
            show_as(error, [f"{name}: cell line {line[0]}: {message}", f"    {one_line(line[1], CARD_WIDTH)}"])
        raise


@contextmanager
def short_errors(cell: Sequence[str] = (), positions: Positions | None = None) -> Iterator[None]:
    """Display errors of divebook that are raised in the ``with`` block as a few lines instead of a traceback.

    The errors are raised again, so that the cell fails.

    Parameters
    ----------
    cell
        The lines of the cell, if the lines are to show the place of the problem.
    positions
        Line and column of each part of a definition, for errors that name only the part.
    """
    try:
        yield
    except DivebookError as error:
        if not hasattr(error, "_render_traceback_"):
            show_as(error, error_lines(error, cell, positions))
        raise


def show_as(error: BaseException, lines: Sequence[str]) -> None:
    """Make IPython show some lines of text for an error instead of its traceback. Secrets in the lines are replaced."""
    # IPython calls this method of an error, if it exists, instead of formatting the traceback.
    error.__dict__["_render_traceback_"] = lambda: [shared().text(line) for line in lines]


def error_lines(error: DivebookError, cell: Sequence[str] = (), positions: Positions | None = None) -> list[str]:
    """Return the lines of text that a cell shows for an error instead of a traceback.

    A `DefinitionError` is shown with each of its problems, and with the lines of the cell that contain them.
    """
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
    """Return one problem of a definition as a line: ``cell line 3, column 5: unknown key 'Promt' (...)``."""
    where = f"cell line {problem.line}, column {problem.column}: " if problem.line else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    return visible(f"{where}{problem.message}{hint}")


def _pointer(problem: Problem, cell: Sequence[str]) -> list[str]:
    """Return two lines that show the position of a definition's problem: the line of the cell that contains it, and a
    line with a mark below the column.

    The list is empty if the line number is unknown, or the line is too long.
    """
    if not 1 <= problem.line <= len(cell):
        return []
    line = cell[problem.line - 1]
    # The mark would be at the wrong column if cleaning changed the line.
    if not line.strip() or len(line) > CARD_WIDTH or one_line(line, CARD_WIDTH) != " ".join(line.split()):
        return []
    return [f"    {line}", f"    {' ' * (problem.column - 1)}^"]
